"""MLflow: asked over REST, and started where the configuration says so. Never imported."""

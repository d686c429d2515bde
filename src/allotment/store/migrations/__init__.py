"""Schema migrations, forward only, run by the service when it opens an older database."""

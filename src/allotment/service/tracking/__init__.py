"""Experiments of jobs in MLflow: what a job is told, which runs it made, which models."""

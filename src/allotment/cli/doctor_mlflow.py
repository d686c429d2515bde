"""What `allot doctor` says of the cluster's MLflow."""

from pathlib import Path

from allotment.cli.doctor_finding import Finding, Level
from allotment.cli.words import count
from allotment.client import ApiError, Client, Refused, Unreachable
from allotment.model.errors import Code

PATIENCE_S = 60.0
"""The service gives MLflow less."""


def mlflow(folder: Path) -> list[Finding]:
    """Return whether the MLflow that the configuration names answers; nothing without one."""
    try:
        with Client(state=str(folder), timeout=PATIENCE_S) as client:
            found = client.models()
    except Unreachable:
        return []  # That is told of the service.
    except ApiError as error:
        if isinstance(error, Refused) and error.code != Code.UNAVAILABLE:
            return []
        advice = (
            "Jobs continue. If the service started it, the service's log says why it ended."
        )
        return [Finding("mlflow", Level.WARN, error.message, advice)]
    models = count(len(found.items), "model")
    text = f"it answers at {found.server}, and `allot models` shows {models}"
    return [Finding("mlflow", Level.OK, text)]

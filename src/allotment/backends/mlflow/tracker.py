"""An MLflow server as the service knows it: one to be asked, and one to be started."""

from pathlib import Path

from allotment.backends.mlflow.rest import MlflowRest
from allotment.backends.mlflow.server import MlflowServer
from allotment.model.tracking import MlflowSetup


class MlflowTracker(MlflowRest):
    """See Tracker."""

    def __init__(self, folder: Path) -> None:
        """Make it; `folder` is the state folder."""
        self._server = MlflowServer(folder)

    def keep(self, setup: MlflowSetup | None) -> None:
        """See Tracker."""
        self._server.keep(setup)

    def end(self) -> None:
        """See Tracker."""
        self._server.end()

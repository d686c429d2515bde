"""Where experiments are tracked: an MLflow server that is there, or one that we start."""

import msgspec


class MlflowSetup(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Which MLflow server the cluster has."""

    url: str = ""
    """Where it is; '' where the service starts one."""
    port: int = 0
    """Of loopback, where the service starts one."""
    program: str = ""
    """What it starts, by its absolute path; '' for the one that is installed."""

    @property
    def address(self) -> str:
        """Return the address at which jobs reach it."""
        return self.url or f"http://127.0.0.1:{self.port}"

"""What is said of a service when it is started."""

from pathlib import Path

import msgspec


class Options(msgspec.Struct, frozen=True):
    """How to run a service."""

    folder: Path
    """The state folder; made when it is not there."""
    config: Path | None = None
    """None reads the one in the state folder, which the first start writes."""
    port: int | None = None
    """Loopback TCP; 0 takes any free port, None listens on the Unix socket only."""
    gpus: int | None = None
    """Virtual GPUs, where the machine has none and no configuration lists any."""
    slurm: str = ""
    """The partition of a Slurm cluster."""
    pilot: bool = False
    """Whether its nodes are held as a whole, and tasks run by our own runner there."""
    kubernetes: str = ""
    """The kubeconfig of a cluster, for a first configuration."""
    accept_loss: bool = False
    """Go on with what is left of a damaged event log."""
    ready_fd: int = -1
    """One line of JSON is written there when jobs are taken; closed without it on failure."""

    def argv(self) -> list[str]:
        """Return the arguments of `allot up`."""
        words = ["--state", str(self.folder)]
        words += ["--config", str(self.config)] if self.config else []
        words += ["--port", str(self.port)] if self.port is not None else []
        words += ["--gpus", str(self.gpus)] if self.gpus is not None else []
        words += ["--slurm", self.slurm] if self.slurm else []
        words += ["--pilot"] if self.pilot else []
        words += ["--kubernetes", self.kubernetes] if self.kubernetes else []
        words += ["--accept-loss"] if self.accept_loss else []
        return words

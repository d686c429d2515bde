"""What is asked of a Slurm cluster: by its commands (`client`), or over REST (`rest`)."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from allotment.backends.slurm import client
from allotment.backends.slurm.accounts_read import Accounted
from allotment.backends.slurm.reservations import SlurmReservation
from allotment.backends.slurm.rest import Rest
from allotment.backends.slurm.settings import Partition
from allotment.backends.slurm.status import Rows
from allotment.backends.slurm.told import SlurmNode
from allotment.backends.slurm.usage import NodeLine
from allotment.model.engines import EngineSetup


class Calls(Protocol):
    """Each raises EngineAway where Slurm does not answer, and BackendError where it refuses."""

    async def jobs(self, name: str = "") -> Rows:
        """Return the jobs that Slurm remembers, ended ones too; those of a name, if given."""
        ...

    async def submit(
        self, options: Sequence[str], script: str, env: Mapping[str, str] = {}
    ) -> str:
        """Submit the batch script in a file; return the number of its job.

        `env` is for `sbatch` itself.
        """
        ...

    async def cancel(self, job: str) -> None:
        """Cancel a job. One that is over is no error."""
        ...

    async def nodes(self) -> Sequence[SlurmNode]:
        """Return all nodes of the cluster."""
        ...

    async def lines(self, partition: str) -> Sequence[NodeLine]:
        """Return a line for each node of a partition."""
        ...

    async def state_of(self, node: str) -> tuple[str, str]:
        """Return state and reason of one node in Slurm's words."""
        ...

    async def partition(self, name: str) -> Partition | None:
        """Return the settings of a partition; None where Slurm has none."""
        ...

    async def reservations(self) -> Sequence[SlurmReservation]:
        """Return all reservations."""
        ...

    async def counts_gpus(self) -> bool:
        """Return whether Slurm's accounts say how devices are used."""
        ...

    async def accounted(self, jobs: Sequence[str]) -> Mapping[str, Accounted]:
        """Return what the accounts have of ended jobs, by number."""
        ...

    async def switches(self) -> str:
        """Return the text of Slurm's switches, '' where it knows none."""
        ...

    async def drain(self, node: str, reason: str) -> None:
        """Make Slurm start nothing new on a node."""
        ...

    async def resume(self, node: str) -> None:
        """Make Slurm use a drained node again."""
        ...

    def close(self) -> None:
        """Close what is kept open."""


def calls_of(setup: EngineSetup) -> Calls:
    """Return how the Slurm of an engine is asked."""
    return Rest(setup.rest) if setup.rest is not None else client

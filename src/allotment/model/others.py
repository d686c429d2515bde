"""What others run on a node without Allotment, beside it on the same engine."""

import msgspec

from allotment.model.quantity import DEVICE, Resources, show_resources


class Others(msgspec.Struct, frozen=True, omit_defaults=True):
    """What of a node is in use by others. Nothing, where it has its defaults."""

    devices: tuple[tuple[str, int], ...] = ()
    """How many of each type; '' where the engine does not tell the type. Without `indexes`."""
    cpu_milli: int = 0
    memory: int = 0
    where: str = ""
    """The system they run on: `Slurm`."""
    indexes: tuple[int, ...] = ()
    """Devices that are in use of which the engine tells just which they are, in order."""

    @property
    def total(self) -> Resources:
        """Sum up what is in use."""
        gpus = sum(count for _, count in self.devices) + len(self.indexes)
        return Resources(gpu_milli=gpus * DEVICE, cpu_milli=self.cpu_milli, memory=self.memory)

    def words(self) -> str:
        """Return how much is in use: `1 GPU, 2 CPU used by others on Slurm`."""
        where = f" on {self.where}" if self.where else ""
        why = "used by others or not offered" if self.indexes else "used by others"
        return f"{show_resources(self.total)} {why}{where}"


NOBODY = Others()

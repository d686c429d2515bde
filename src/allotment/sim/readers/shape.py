"""How the devices of a job are split over its tasks, where the source does not say."""

from allotment.model.quantity import DEVICE, Resources
from allotment.sim.readers.fields import MOST_DEVICES, Unreadable, number

NODE_DEVICES = 8
"""Devices of a whole-node task, at most."""

NO_DEVICES = "asks for no GPU, and its CPU is not known"

NEVER_RAN = "never ran, so its run time is not known"


class Shapes(dict[str, tuple[int, Resources]]):
    """The text of a device count → tasks, and what each needs; each text is read once.

    Without `whole_nodes`, a job of n devices is n tasks of one device. With it, the fewest
    equal tasks of at most 8 devices: 16 → 2 × 8, 12 → 2 × 6, 4 → 1 × 4, 13 → 13 × 1.
    """

    def __init__(self, column: str, *, whole_nodes: bool) -> None:
        super().__init__()
        self._column = column
        self._whole_nodes = whole_nodes
        self._needs: dict[int, Resources] = {}

    def __missing__(self, text: str) -> tuple[int, Resources]:
        gpu_milli = devices_milli(text, self._column)
        if gpu_milli == 0:
            raise Unreadable(NO_DEVICES)
        tasks, each = split(gpu_milli, whole_nodes=self._whole_nodes)
        need = self._needs.setdefault(each, Resources(gpu_milli=each))
        self[text] = shape = tasks, need
        return shape


def devices_milli(text: str, column: str) -> int:
    """Read a count of devices into thousandths. A share above one device is rounded up."""
    count = number(text, column)
    if count < 0:
        raise Unreadable(f"{column} is negative")
    if count > MOST_DEVICES:
        raise Unreadable(f"{column} is over {MOST_DEVICES}")
    return whole_above_one(round(count * DEVICE))


def whole_above_one(gpu_milli: int) -> int:
    """Round what is more than one device up to whole devices: they are not shared."""
    return gpu_milli if gpu_milli <= DEVICE else -(-gpu_milli // DEVICE) * DEVICE


def split(gpu_milli: int, *, whole_nodes: bool) -> tuple[int, int]:
    """Split a job's devices into equal tasks: how many, and thousandths for each."""
    devices = gpu_milli // DEVICE
    if devices <= 1:
        return 1, gpu_milli
    if not whole_nodes:
        return devices, DEVICE
    tasks = -(-devices // NODE_DEVICES)
    while devices % tasks:
        tasks += 1
    return tasks, devices // tasks * DEVICE


class Demands:
    """What whole jobs ask for → tasks, and what each needs; like demands share one object."""

    __slots__ = ("_known", "_whole_nodes")

    def __init__(self, *, whole_nodes: bool) -> None:
        self._whole_nodes = whole_nodes
        self._known: dict[tuple[Resources, int], tuple[int, Resources]] = {}

    def split(self, whole: Resources, nodes: int = 1) -> tuple[int, Resources]:
        """Split a job evenly; one without devices becomes a CPU task on each of its nodes."""
        key = whole, nodes
        if key in self._known:
            return self._known[key]
        tasks, each = split(whole.gpu_milli, whole_nodes=self._whole_nodes)
        if not whole.gpu_milli:
            if not whole.cpu_milli:
                raise Unreadable(NO_DEVICES)
            tasks = max(nodes, 1)
        need = Resources(each, whole.cpu_milli // tasks, whole.memory // tasks)
        self._known[key] = tasks, need
        return tasks, need

"""A job while the options of its script are read: what was asked for, in its own terms."""

import msgspec

from allotment.model.quantity import Millis
from allotment.model.spec import NEVER, Arch, Dependency, GiveWay, Priority


class Draft(msgspec.Struct):
    """What was asked for so far. None: nothing was said of it."""

    lines: dict[str, int] = {}
    """On which line each option stands, 0 where it is of no file."""
    name: str = ""
    nodes: tuple[int, int] | None = None
    """At least and at most."""
    tasks: int | None = None
    tasks_per_node: int | None = None
    tasks_per_gpu: int | None = None
    cpus_per_task: int | None = None
    cpus_per_gpu: int | None = None
    least_cpus: int | None = None
    overcommits: bool = False
    memory: int | None = None
    """Bytes on each node."""
    memory_per_cpu: int | None = None
    memory_per_gpu: int | None = None
    disk: int = 0
    gpus: int | None = None
    """Of all its tasks."""
    gpus_per_node: int | None = None
    gpus_per_task: int | None = None
    gpu_types: tuple[str, ...] = ()
    gpu_memory: int = 0
    arch: Arch = Arch.ANY
    limit_ms: Millis = NEVER
    indices: tuple[int, ...] = ()
    max_running: int = 0
    depends_on: tuple[Dependency, ...] = ()
    tenant: str = ""
    queue: str = ""
    priority: int = Priority.NORMAL
    folder: str = ""
    output: str | None = None
    error: str | None = None
    input: str = ""
    append: bool = False
    export: str = "ALL"
    environment: dict[str, str] = {}
    """Variables that it sets itself."""
    signal: str = ""
    signal_ms: Millis = Millis(0)
    signals_script: bool = False
    requeue_on: tuple[int, ...] = ()
    on_eviction: GiveWay = GiveWay.AS_TENANT
    retry: int = 0
    is_held: bool = False
    waits: bool = False
    labels: dict[str, str] = {}
    variables: dict[str, str] = {}
    """What its batch system would set because of an option."""

"""The options of `srun`: what a step asks for, and what becomes of each option."""

import os
import re
from collections.abc import Callable
from operator import mul
from typing import Any

from allotment.service.batch.tools.options import Misused, Option

Read = Callable[["StepOptions", str], None]


class StepOptions:
    """What a step asks for; None: what the job has."""

    def __init__(self) -> None:
        self.tasks: int | None = None
        self.tasks_per_node: int | None = None
        self.cpus_per_task: int | None = None
        self.gpus: int | None = None
        self.gpus_per_task: int | None = None
        self.binds_gpus = True
        self.overlap = False
        self.overcommit = False
        self.label = False
        self.output = ""
        self.error = ""
        self.input = ""
        self.append = False
        self.folder = ""
        self.export = "ALL"
        self.name = ""
        self.kill_on_bad_exit = False
        self.wait_s = 0.0
        self.limit_s = 0.0


# ── readers ─────────────────────────────────────────────────────────────────────────────


def _refuse(why: str) -> Read:
    def read(wish: StepOptions, value: str) -> None:
        raise Misused(why)

    return read


def _nothing(wish: StepOptions, value: str) -> None:
    """Read an option that has nothing to do within a job on one node."""


def _sets(field: str, convert: Callable[[str], Any] = str) -> Read:
    def read(wish: StepOptions, value: str) -> None:
        setattr(wish, field, convert(value))

    return read


def _count(value: str) -> int:
    number = int(value)
    if number < 1:
        raise ValueError
    return number


def _yes(value: str) -> bool:
    return value not in ("0", "no")


def _nodes(wish: StepOptions, value: str) -> None:
    if int(value.partition("-")[0]) != 1:
        raise Misused(f"{value} nodes, and the job has one")


def _nodelist(wish: StepOptions, value: str) -> None:
    here = {os.environ.get("SLURM_JOB_NODELIST", ""), "localhost", "127.0.0.1"}
    if not set(value.split(",")) <= here:
        raise Misused(f"{value} is not a node of this job")


def _exclude(wish: StepOptions, value: str) -> None:
    if os.environ.get("SLURM_JOB_NODELIST", "") in value.split(","):
        raise Misused("leaves no node")


def _relative(wish: StepOptions, value: str) -> None:
    if int(value):
        raise Misused("the job has one node, number 0")


def _jobid(wish: StepOptions, value: str) -> None:
    if value != os.environ.get("SLURM_JOB_ID"):
        raise Misused(f"{value} is another job; a step can be started in its own alone")


def _mpi(wish: StepOptions, value: str) -> None:
    if value not in ("none", "openmpi"):
        raise Misused(f"there is no {value} here; start MPI programs with mpirun")


_COUNTED = re.compile(r"(?:[A-Za-z][\w.-]*:)?([0-9]+)")
_GRES = re.compile(r"(?:gres[:/])?gpu(?::[A-Za-z][\w.-]*)?(?:[:=]([0-9]+))?")


def _gpus(value: str) -> int:
    found = _COUNTED.fullmatch(value)
    if found is None:
        raise ValueError
    return int(found[1])


def _gres(value: str) -> int:
    found = _GRES.fullmatch(value)
    if value.lower() == "none":
        return 0
    if found is None:
        raise ValueError
    return int(found[1] or 1)


def _binds(value: str) -> bool:
    return value.rpartition(",")[2] != "none"


def _appends(value: str) -> bool:
    if value[:1] not in ("a", "t"):
        raise ValueError
    return value.startswith("a")


def _seconds(value: str) -> float:
    return float(int(value))


def _limit(value: str) -> float:
    """Read minutes, mm:ss, hh:mm:ss, d-hh, d-hh:mm, d-hh:mm:ss into seconds; 0 for none."""
    if value.lower() in ("0", "infinite", "unlimited"):
        return 0.0
    days, dash, rest = value.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash:
        units = (3600, 60, 1)
        total = int(days) * 86400
    else:
        units = (3600, 60, 1) if len(parts) == 3 else (60, 1)
        total = 0
    if len(parts) > len(units):
        raise ValueError
    return float(total + sum(map(mul, parts, units)))


def _row(name: str, read: Read, short: str = "") -> Option:
    return Option(name, short, "value", read)


def _bare(name: str, read: Read, short: str = "") -> Option:
    return Option(name, short, "nothing", read)


def _perhaps(name: str, read: Read, short: str = "") -> Option:
    return Option(name, short, "perhaps", read)


_NO_CONTAINER = _refuse("tasks run on the machine itself, in no container")

OPTIONS = (
    _row("ntasks", _sets("tasks", _count), "n"),
    _row("nodes", _nodes, "N"),
    _row("ntasks-per-node", _sets("tasks_per_node", _count)),
    _row("cpus-per-task", _sets("cpus_per_task", _count), "c"),
    _row("gpus", _sets("gpus", _gpus), "G"),
    _row("gpus-per-node", _sets("gpus", _gpus)),
    _row("gpus-per-task", _sets("gpus_per_task", _gpus)),
    _row("gres", _sets("gpus", _gres)),
    _row("gpu-bind", _sets("binds_gpus", _binds)),
    _row("output", _sets("output"), "o"),
    _row("error", _sets("error"), "e"),
    _row("input", _sets("input"), "i"),
    _row("open-mode", _sets("append", _appends)),
    _row("chdir", _sets("folder"), "D"),
    _row("export", _sets("export")),
    _row("job-name", _sets("name"), "J"),
    _bare("label", _sets("label", _yes), "l"),
    _perhaps("kill-on-bad-exit", _sets("kill_on_bad_exit", _yes), "K"),
    _row("wait", _sets("wait_s", _seconds), "W"),
    _row("time", _sets("limit_s", _limit), "t"),
    _bare("overlap", _sets("overlap", _yes)),
    _bare("overcommit", _sets("overcommit", _yes), "O"),
    _bare("oversubscribe", _sets("overlap", _yes), "s"),
    _row("nodelist", _nodelist, "w"),
    _row("exclude", _exclude, "x"),
    _row("relative", _relative, "r"),
    _row("jobid", _jobid),
    _row("mpi", _mpi),
    # steps take turns and keep apart by themselves, on one node, unbound
    *(_perhaps(name, _nothing) for name in (
        "exclusive", "propagate", "resv-ports", "compress",
    )),
    *(_bare(name, _nothing) for name in (
        "exact", "whole", "contiguous", "use-min-nodes", "spread-job", "quit-on-interrupt",
    )),
    *(_bare(name, _nothing, short) for name, short in (
        ("unbuffered", "u"), ("quiet", "Q"), ("verbose", "v"), ("disable-status", "X"),
        ("no-kill", "k"),
    )),
    *(_row(name, _nothing) for name in (
        "cpu-bind", "mem-bind", "hint", "threads-per-core", "cores-per-socket",
        "sockets-per-node", "ntasks-per-core", "ntasks-per-socket", "mincpus", "cpu-freq",
        "gpu-freq", "gres-flags", "acctg-freq", "profile", "comment", "wckey", "tmp",
        "network", "power", "delay-boot", "switches", "msg-timeout", "tres-bind",
        "mem", "mem-per-cpu", "mem-per-gpu", "cpus-per-gpu", "slurmd-debug", "thread-spec",
    )),
    *(_row(name, _nothing, short) for name, short in (
        ("distribution", "m"), ("extra-node-info", "B"), ("core-spec", "S"), ("threads", "T"),
    )),
    # what belongs to the job as a whole: within one, srun does not look at it either
    *(_row(name, _nothing, short) for name, short in (
        ("account", "A"), ("partition", "p"), ("qos", "q"), ("constraint", "C"),
        ("licenses", "L"), ("dependency", "d"),
    )),
    _bare("hold", _nothing, "H"),
    _perhaps("nice", _nothing),
    *(_row(name, _nothing) for name in (
        "reservation", "priority", "begin", "deadline", "mail-type", "mail-user", "signal",
        "prefer", "time-min",
    )),
    # what cannot be done
    _bare("multi-prog", _refuse("several programs in one step are not started here")),
    _perhaps("pty", _refuse("there is no terminal in a batch job; use allot exec")),
    _perhaps("het-group", _refuse("the job has one part")),
    _bare("no-allocate", _refuse("a step is started in its job alone"), "Z"),
    _perhaps("bcast", _refuse("the program is on this node already")),
    _row("preserve-env", _refuse("is not supported here"), "E"),
    _perhaps("immediate", _refuse("waits are not limited here"), "I"),
    *(_row(name, _NO_CONTAINER) for name in ("container", "container-id", "container-image")),
    *(_row(name, _refuse("no programs are run around tasks here")) for name in (
        "prolog", "epilog", "task-prolog", "task-epilog",
    )),
    *(_row(name, _refuse("is not supported here")) for name in (
        "clusters", "cluster-constraint", "bb", "bbf", "uid", "gid", "tres-per-task",
        "ntasks-per-gpu", "gpus-per-socket", "export-file", "nodefile", "stdin",
    )),
)  # fmt: skip

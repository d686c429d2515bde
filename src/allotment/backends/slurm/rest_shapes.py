"""Slurm's REST API: questions as its documents, and its answers as values. Pure.

Version 0.0.38 (Slurm 22.05) has shapes of its own. From 0.0.40 (23.11) on a number says beside
itself whether it is set, and states are lists of words.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from allotment.backends.slurm.accounts_read import BUSY, OPEN, Accounted, Step, most_of
from allotment.backends.slurm.accounts_read import MEMORY as MEMORY_USED
from allotment.backends.slurm.reservations import SlurmReservation, words_of
from allotment.backends.slurm.settings import Partition
from allotment.backends.slurm.status import Row, Rows
from allotment.backends.slurm.switches import names_of
from allotment.backends.slurm.told import SlurmNode
from allotment.backends.slurm.usage import CPU, MEMORY, NodeLine, devices_of
from allotment.model.errors import BackendError

OLDEST, NEW = 38, 39
VERSION = re.compile(rb"/v0\.0\.(\d{1,4})\\?/")
PATH = "/usr/local/bin:/usr/bin:/bin"
"""The environment may not be empty: 22.05 refuses a job without."""
FLAGS = (
    "COMPLETING", "STAGE_OUT", "CONFIGURING", "RESIZING", "REQUEUED", "REQUEUE_HOLD",
    "SPECIAL_EXIT", "STOPPED", "REVOKED", "RESV_DEL_HOLD", "SIGNALING", "LAUNCH_FAILED",
    "RECONFIG_FAIL",
)  # fmt: skip
"""Words beside the state of a job that `squeue` shows in its place, the first one first."""
WITH_WORK = frozenset({"COMPLETING", "PLANNED", "RESERVED"})
"""Words beside the state of a node that say nothing but what jobs it has."""

T = TypeVar("T")


class Amount(msgspec.Struct, frozen=True):
    """A number that may not be set."""

    set: bool = False
    infinite: bool = False
    number: float = 0


Number = int | float | Amount | None


def number_of(value: Number) -> int | None:
    """Return a number; None where there is none or it has no bound."""
    if isinstance(value, Amount):
        return int(value.number) if value.set and not value.infinite else None
    return None if value is None or value < 0 else int(value)


class Flaw(msgspec.Struct, frozen=True):
    """What went wrong."""

    error: str = ""
    description: str = ""
    error_number: int = 0
    error_code: int = 0

    @property
    def code(self) -> int:
        """Slurm's number for it; -1 where slurmrestd does not know, and may say no number."""
        said = self.error_number or self.error_code
        return said or (-1 if "unspecified" in self.error.lower() else 0)


class _Job(msgspec.Struct, frozen=True):
    job_id: int
    user_id: int
    job_state: str | tuple[str, ...]
    name: str = ""
    state_reason: str = ""
    nodes: str = ""
    cpus: Number = 0
    memory_per_node: Number = None
    tres_per_node: str = ""


class _Times(msgspec.Struct, frozen=True):
    time: Number = None


class _State(msgspec.Struct, frozen=True):
    state: tuple[str, ...] = ("UP",)


class _Partition(msgspec.Struct, frozen=True):
    name: str
    max_time_limit: Number = None
    default_time_limit: Number = None
    maximums: _Times = _Times()
    defaults: _Times = _Times()
    state: str = "UP"
    partition: _State = _State()
    preemption_mode: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


class _Reservation(msgspec.Struct, frozen=True):
    name: str
    start_time: Number = None
    end_time: Number = None
    node_list: str = ""
    users: str = ""
    accounts: str = ""
    groups: str = ""
    flags: tuple[str, ...] = ()


class _Reservations(msgspec.Struct, frozen=True):
    reservations: tuple[_Reservation, ...]


class _Tres(msgspec.Struct, frozen=True):
    type: str = ""
    name: str | None = None
    count: Number = None


class _Spent(msgspec.Struct, frozen=True):
    average: tuple[_Tres, ...] = ()


class _StepTres(msgspec.Struct, frozen=True):
    requested: _Spent = _Spent()
    """What came in, whatever the name says: `consumed` is what went out."""


class _Step(msgspec.Struct, frozen=True):
    state: str | tuple[str, ...] = ""
    tres: _StepTres = _StepTres()


class _AccountedJob(msgspec.Struct, frozen=True):
    job_id: int
    steps: tuple[_Step, ...] = ()


class _AccountedJobs(msgspec.Struct, frozen=True):
    jobs: tuple[_AccountedJob, ...]


class _AllTres(msgspec.Struct, frozen=True, rename={"now": "TRES"}):
    now: tuple[_Tres, ...] = ()
    tres: tuple[_Tres, ...] = ()


class _Flaws(msgspec.Struct, frozen=True):
    errors: tuple[Flaw, ...] = ()


class _Jobs(msgspec.Struct, frozen=True):
    jobs: tuple[_Job, ...]
    """Always there: where it is missing, that does not say that there are none."""


class _Partitions(msgspec.Struct, frozen=True):
    partitions: tuple[_Partition, ...]


class _Submitted(msgspec.Struct, frozen=True):
    job_id: Annotated[int, Meta(gt=0)]


def _read(body: bytes, shape: type[T]) -> T:
    """Read an answer. What others call their jobs need not be UTF-8. Raises BackendError."""
    try:
        return msgspec.json.decode(body.decode(errors="replace"), type=shape)
    except msgspec.DecodeError as error:
        raise BackendError(f"what slurmrestd says is not understood: {error}") from error


def newest_in(spec: bytes) -> int:
    """Return the newest version that a description of the API offers. Raises BackendError."""
    there = {int(number) for number in VERSION.findall(spec)}
    if not there or max(there) < OLDEST:
        raise BackendError(
            "slurmrestd offers no version of Slurm's API that is known: v0.0.38 or newer is "
            "needed. Start it with `-s openapi/v0.0.38` on Slurm 22.05, `-s slurmctld` on newer"
        )
    return max(there)


def flaws_in(body: bytes) -> tuple[Flaw, ...]:
    """Return what an answer says went wrong; nothing where it is no document."""
    try:
        return msgspec.json.decode(body.decode(errors="replace"), type=_Flaws).errors
    except msgspec.DecodeError:
        return ()


def rows_in(body: bytes, name: str = "") -> Rows:
    """Return the jobs by name and user; only those of a name, if one is given."""
    rows: dict[tuple[str, int], Row] = {}
    for job in _read(body, _Jobs).jobs:
        if name and job.name != name:
            continue
        memory = number_of(job.memory_per_node)
        row = Row(
            str(job.job_id), job.user_id, _state_of(job.job_state), job.state_reason,
            job.nodes, job.name, number_of(job.cpus) or 0, f"{memory}M" if memory else "",
            job.tres_per_node,
        )  # fmt: skip
        known = rows.get((row.name, row.uid))
        if known is None or known.rank < row.rank:
            rows[row.name, row.uid] = row
    return rows


def _state_of(told: str | tuple[str, ...]) -> str:
    words = (told,) if isinstance(told, str) else told
    return next((flag for flag in FLAGS if flag in words), words[0] if words else "")


def number_in(body: bytes) -> str:
    """Return the number of the job that was made. Raises BackendError."""
    return str(_read(body, _Submitted).job_id)


def counts_gpus_in(body: bytes) -> bool:
    """Return whether the accounts say how devices are used. Raises BackendError."""
    found = _read(body, _AllTres)
    return any((each.type, each.name) == ("gres", BUSY) for each in found.now + found.tres)


def accounts_in(body: bytes) -> dict[str, Accounted]:
    """Return what the accounts have of jobs, by number. Raises BackendError."""
    return {
        str(job.job_id): most_of([_step_in(step) for step in job.steps])
        for job in _read(body, _AccountedJobs).jobs
    }


def _step_in(step: _Step) -> Step:
    said = {
        each.name: number_of(each.count)
        for each in step.tres.requested.average
        if each.type == "gres" and each.name
    }
    return Step(_state_of(step.state).startswith(OPEN), said.get(BUSY), said.get(MEMORY_USED))


def owner_in(body: bytes) -> int:
    """Return the number of the user whose one job is told. Raises BackendError."""
    owners = {job.user_id for job in _read(body, _Jobs).jobs}
    if len(owners) != 1:
        raise BackendError("slurmrestd was asked for one job, and told of others or none")
    return owners.pop()


def partition_in(body: bytes, name: str) -> Partition | None:
    """Return the settings of a partition; None where there is none."""
    for found in _read(body, _Partitions).partitions:
        if found.name == name:
            most = number_of(found.max_time_limit) or number_of(found.maximums.time)
            modes = {mode.lower() for mode in found.preemption_mode}
            return Partition(
                name, most, found.state == "UP" and "UP" in found.partition.state,
                bool(modes - {"disabled", "off"}),
                any("root" in flag.lower() for flag in found.flags),
                number_of(found.default_time_limit) or number_of(found.defaults.time),
            )  # fmt: skip
    return None


def reservations_in(body: bytes) -> tuple[SlurmReservation, ...]:
    """Return the reservations of nodes that have times."""
    return tuple(
        SlurmReservation(
            its.name, begin * 1000, end * 1000, nodes,
            words_of(its.users), words_of(its.accounts), words_of(its.groups), its.flags,
        )
        for its in _read(body, _Reservations).reservations
        if (begin := number_of(its.start_time)) and (end := number_of(its.end_time))
        and (nodes := tuple(names_of(its.node_list)))
    )  # fmt: skip


def lines_of_nodes(nodes: Sequence[SlurmNode], partition: str) -> tuple[NodeLine, ...]:
    """Return a line for each node of a partition, as `sinfo` would."""
    return tuple(
        NodeLine(
            node.name, _standing(node.words), str(node.cpus), str(node.real_memory), node.gres,
            node.reason, _used(node),
        )
        for node in nodes
        if partition in node.partitions
    )  # fmt: skip


def _used(node: SlurmNode) -> dict[str, int]:
    used = devices_of(node.gres_used)
    used.update({CPU: node.alloc_cpus, MEMORY: node.alloc_memory})
    return dict(+used)


def _standing(words: Sequence[str]) -> str:
    """Return the state of a node in one word, with a `+` and what is unusual of it."""
    first, *rest = words or ("unknown",)
    return "+".join((first, *(word for word in rest if word not in WITH_WORK))).lower()


# ── what is asked ───────────────────────────────────────────────────────────────────────

FIELDS = {
    "job-name": "name", "comment": "comment", "partition": "partition", "account": "account",
    "qos": "qos", "reservation": "reservation", "chdir": "current_working_directory",
    "output": "standard_output",
}  # fmt: skip
"""Options of `sbatch` that say the same here."""


def submission_of(
    options: Sequence[str], script: str, version: int
) -> tuple[dict[str, object], int | None]:
    """Return the document for options of `sbatch`, and the number of the user they name."""
    pairs = (option.removeprefix("--").partition("=") for option in options)
    told = {name: value for name, _, value in pairs}
    uid = told.pop("uid", "")
    told.pop("gid", "")  # It is the user's own, as Slurm knows it.
    told.pop("export")
    job: dict[str, object] = {
        FIELDS[name]: told.pop(name) for name in list(told) if name in FIELDS
    }
    for name, field in (("ntasks", "tasks"), ("cpus-per-task", "cpus_per_task")):
        job[field] = int(told.pop(name))
    job |= _as_before(told) if version < NEW else _as_now(told)
    if told:
        raise BackendError(f"over REST there is no {', '.join(sorted(told))}")
    return {"script": script, "job": job}, int(uid) if uid else None


def _as_before(told: dict[str, str]) -> Mapping[str, object]:
    """Return the rest in the words of 0.0.38, which takes long options by their names, too."""
    least = int(told.pop("nodes"))
    told.pop("no-requeue")
    told.pop("signal", "")  # It refuses one for the batch script, which tasks are.
    gres, limit = told.pop("gres", ""), told.pop("time", "")
    return {
        "nodelist": told.pop("nodelist"),
        "nodes": [least, least],
        "memory_per_node": _mib(told.pop("mem")),
        "open_mode": told.pop("open-mode"),
        "no_requeue": True,
        "environment": {"PATH": PATH},
        **({"gres": gres} if gres else {}),
        **({"time_limit": int(limit)} if limit else {}),
    }


def _as_now(told: dict[str, str]) -> Mapping[str, object]:
    told.pop("no-requeue")
    gres, limit, warning = (told.pop(name, "") for name in ("gres", "time", "signal"))
    devices = ",".join(f"gres/{each}" for each in gres.split(",") if each)
    return {
        "required_nodes": [told.pop("nodelist")],
        "nodes": told.pop("nodes"),
        "memory_per_node": {"set": True, "number": _mib(told.pop("mem"))},
        "open_mode": [told.pop("open-mode").upper()],
        "requeue": False,
        "environment": [f"PATH={PATH}"],
        **({"tres_per_node": devices} if devices else {}),
        **({"time_limit": {"set": True, "number": int(limit)}} if limit else {}),
        **(_warning(warning) if warning else {}),
    }


def _warning(text: str) -> Mapping[str, object]:
    """Return `B:USR2@60` in the words of the newer versions."""
    name, _, seconds = text.removeprefix("B:").partition("@")
    return {
        "kill_warning_flags": ["BATCH_JOB"],
        "kill_warning_signal": name,
        "kill_warning_delay": {"set": True, "number": int(seconds)},
    }


def _mib(text: str) -> int:
    return int(text.removesuffix("M"))

"""What Slurm says of a job, and what its first process wrote → a report. Pure.

The word of the first process counts for more than Slurm's: RUNNING comes before anything of
the user's runs, and what Slurm forgot after five minutes is still in the folder. That nothing
is said of a job is no news of its end.
"""

from collections.abc import Mapping
from signal import SIGKILL

import msgspec

from allotment.backends.status import RunnerStatus, report_of
from allotment.model.diagnosis import Exit
from allotment.model.ids import TaskKey
from allotment.model.reports import Seen, TaskReport


class Row(msgspec.Struct, frozen=True):
    """A job as `squeue` shows it."""

    id: str
    uid: int
    state: str
    reason: str = ""
    node: str = ""
    name: str = ""
    cpus: int = 0
    memory: str = ""
    """For each node, as `100M`."""
    gres: str = ""

    @property
    def rank(self) -> tuple[bool, bool, int]:
        """Rank jobs with one name: what runs counts most, then what waits, then the newest.

        A copy that was started twice ends at once, which is not the end of the other.
        """
        number = int(self.id) if self.id.isdecimal() else 0
        return self.state in RUNS, self.state in WAITS, number


Rows = Mapping[tuple[str, int], Row]
"""Jobs by name and user: others may give their jobs any name."""

ROW = "|%i|%U|%T|%C|%m|%b|%r|%N|%j"
"""The format of `squeue` that `rows_of` reads, behind a mark that nobody can know."""

WAITS = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD"})
RUNS = frozenset(
    {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"}
)

NEVER = frozenset(
    {
        "PartitionTimeLimit", "PartitionNodeLimit", "PartitionDown", "PartitionInactive",
        "BadConstraints", "InvalidAccount", "InvalidQOS", "AccountNotAllowed", "QOSNotAllowed",
        "AssociationTimeLimit", "QOSTimeLimit", "JobHeldAdmin", "JobHeldUser",
        "AssocMaxCpuPerJobLimit", "AssocMaxMemPerJob", "AssocMaxGRESPerJob",
        "AssocMaxNodePerJobLimit", "AssocMaxWallDurationPerJobLimit",
        "QOSMaxCpuPerJobLimit", "QOSMaxMemoryPerJob", "QOSMaxGRESPerJob",
        "QOSMaxNodePerJobLimit", "QOSMaxWallDurationPerJobLimit",
        "QOSMinCpuNotSatisfied", "QOSMinMemory", "QOSMinGRES",
    }
)  # fmt: skip
"""Reasons for which Slurm lets a job wait that no end of another job changes."""

LOST = {
    "NODE_FAIL": "Slurm lost node {node}",
    "BOOT_FAIL": "node {node} did not start",
    "PREEMPTED": "another job of the Slurm cluster preempted it",
    "REVOKED": "Slurm revoked it",
    "LAUNCH_FAILED": "Slurm could not launch it on node {node}",
    "RECONFIG_FAIL": "Slurm could not reconfigure node {node}",
    "SPECIAL_EXIT": "Slurm set it aside",
    "CANCELLED": "it was cancelled in Slurm (scancel), not by Allotment",
    "DEADLINE": "Slurm could not start it before its deadline",
}
"""What is no fault of the job: it is tried again."""

NOT_BEGUN = (
    "it was cancelled in Slurm, not by Allotment, before it began: by scancel, or as its node "
    "could not start it; then Slurm drains the node, and says why"
)


def rows_of(text: str, mark: str) -> Rows:
    """Read the lines of `squeue` that begin with a mark.

    The others are parts of names: those may have line breaks, and lines like ours in them.
    """
    rows: dict[tuple[str, int], Row] = {}
    for line in text.split("\n"):
        first, *words = line.split("|", 9)
        if first != mark or len(words) != 9 or not words[1].isdecimal():
            continue
        id_, uid, state, cpus, memory, gres, reason, node, name = words
        held = int(cpus) if cpus.isdecimal() else 0
        row = Row(id_, int(uid), state, reason, node, name, held, memory, gres)
        known = rows.get((name, row.uid))
        if known is None or known.rank < row.rank:
            rows[name, row.uid] = row
    return rows


def report(
    key: TaskKey, status: RunnerStatus | None, row: Row | None, *, is_rank: bool = False
) -> TaskReport | None:
    """Return the state of a task; None while nothing new is known of it."""
    told = report_of(key, status) if status is not None else None
    if told is not None and told.seen is Seen.ENDED:
        return _ended(told, status, row)
    if row is None or row.state in WAITS | RUNS:
        return told
    return TaskReport(key, Seen.ENDED, exit=_exit(row, told, is_rank=is_rank))


def _ended(told: TaskReport, status: RunnerStatus | None, row: Row | None) -> TaskReport:
    """Let Slurm say why a task was ended or killed that we did not tell to end."""
    by_slurm = status is not None and status.ended_by == "slurm"
    killed = status is not None and not status.ended_by and status.signal == SIGKILL
    if told.exit is None or not (by_slurm or killed):
        return told
    if row is not None and (row.state in RUNS or _is_old(row)):
        seen = Seen.RUNNING if told.pid else Seen.READY
        return TaskReport(told.key, seen, told.pid)  # Slurm is about to say why.
    if row is not None and row.state == "OUT_OF_MEMORY":
        return msgspec.structs.replace(told, exit=msgspec.structs.replace(told.exit, oom=True))
    if killed:
        return told
    how, node = (row.state, row.node) if row is not None else ("CANCELLED", "")
    exit_ = msgspec.structs.replace(told.exit, platform_error=_why(how, node))
    return msgspec.structs.replace(told, exit=exit_)


def _is_old(row: Row) -> bool:
    """Whether Slurm said this before the task ran, and not after it was requeued."""
    return row.state in ("PENDING", "CONFIGURING") and row.reason != "BeginTime"


def _exit(row: Row, told: TaskReport | None, *, is_rank: bool) -> Exit:
    if row.state == "OUT_OF_MEMORY":
        return Exit(signal=9, oom=True)
    if row.state == "FAILED" and is_rank and told is not None and told.pid:
        return Exit(signal=SIGKILL)  # Another rank died, and Slurm's PMI ends all then.
    if row.state in ("COMPLETED", "FAILED") and told is None and is_rank:
        why = f"Slurm did not start the ranks on {row.node}: slurmd's log there says why"
        return Exit(platform_error=why)
    if row.state in ("COMPLETED", "FAILED") and told is None:
        return Exit(
            platform_error=f"its first process did not come up on {row.node}: is the state "
            "folder on a disk that the node sees and that has room, and Python 3 there?"
        )
    if row.state == "CANCELLED" and told is None:
        return Exit(lost=True, platform_error=NOT_BEGUN)
    return Exit(lost=True, platform_error=_why(row.state, row.node))


def _why(state: str, node: str) -> str:
    if state == "TIMEOUT":
        return "Slurm ended it at the time limit of its partition or account"
    return LOST.get(state, "Slurm says {state} of it").format(node=node or "?", state=state)

"""The jobs in Slurm that hold our nodes."""

import os

import msgspec

from allotment.backends.slurm import client
from allotment.backends.slurm.status import RUNS, WAITS

FORMAT = "%i|%j|%T|%r|%L|%l"
WAITING = "%U|%r|%j"
FOR_NODES = frozenset({"Resources", "Priority"})
"""Why a job waits that would start if nodes were free."""

RENEW_S = 600.0
RENEW_SHARE = 0.1
"""How long before its end a hold is renewed, and of a short one: which part of it."""


class PilotRow(msgspec.Struct, frozen=True):
    """A pilot's job as `squeue` shows it."""

    id: str
    name: str
    state: str
    reason: str = ""
    left: str = ""
    limit: str = ""
    """How long it may yet run, and how long it might at first, as Slurm writes it."""

    @property
    def waits(self) -> bool:
        return self.state in WAITS

    @property
    def is_there(self) -> bool:
        """Whether the job waits or runs."""
        return self.state in WAITS | RUNS

    @property
    def is_nearly_over(self) -> bool:
        """Whether it is to be renewed: 10 minutes before its end, or a tenth of a short one."""
        return seconds_of(self.left) < min(RENEW_S, seconds_of(self.limit) * RENEW_SHARE)


async def rows(prefix: str) -> dict[str, PilotRow]:
    """Return our pilots that Slurm remembers, ended ones too, by name. Raises BackendError."""
    # Of our own user alone: others may give their jobs any name, line breaks and all.
    own = f"--user={os.geteuid()}"
    return rows_of(await client.run("squeue", "-h", "-t", "all", own, "-o", FORMAT), prefix)


async def cancel_named(name: str) -> None:
    """Cancel our pilot of a name, whose number we may not have heard. Raises BackendError."""
    await client.run("scancel", f"--name={name}", f"--user={os.geteuid()}")


async def others_wait(partition: str, prefix: str) -> bool:
    """Whether jobs that are not ours wait for nodes of a partition. Raises BackendError."""
    only = ("-h", "-t", "PENDING", "-p", partition)
    return are_waiting(await client.run("squeue", *only, "-o", WAITING), prefix, os.geteuid())


def are_waiting(text: str, prefix: str, uid: int) -> bool:
    """Whether a line of `squeue` is of a job that is not ours, and that waits for nodes."""
    lines = (line.split("|", 2) for line in text.splitlines())
    return any(
        words[1] in FOR_NODES and not (words[0] == str(uid) and words[2].startswith(prefix))
        for words in lines
        if len(words) == 3
    )


def rows_of(text: str, prefix: str) -> dict[str, PilotRow]:
    """Read the lines of `squeue`, by name; of two of one name the one that is not over."""
    found: dict[str, PilotRow] = {}
    for line in text.splitlines():
        words = line.split("|")
        if len(words) != 6 or not words[1].startswith(f"{prefix}-"):
            continue
        row = PilotRow(*words)
        if row.name not in found or not found[row.name].is_there:
            found[row.name] = row
    return found


def seconds_of(text: str) -> float:
    """Read Slurm's `D-HH:MM:SS` or `MM:SS`, in seconds; anything else is no limit."""
    days, _, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() for part in parts) or (days and not days.isdecimal()):
        return float("inf")
    total = 0
    for part in parts:
        total = total * 60 + int(part)
    return total + 86400 * int(days or 0)

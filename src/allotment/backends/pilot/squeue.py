"""The jobs in Slurm that hold our nodes."""

import os

import msgspec

from allotment.backends.slurm import client
from allotment.backends.slurm.status import RUNS, WAITS

FORMAT = "%i|%j|%T|%r|%L|%l"

RENEW_S = 600.0


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
        return seconds_of(self.left) < min(RENEW_S, seconds_of(self.limit) / 10)


async def rows(prefix: str) -> dict[str, PilotRow]:
    """Return our pilots that Slurm remembers, ended ones too, by name. Raises BackendError."""
    # Of our own user alone: others may give their jobs any name, line breaks and all.
    own = f"--user={os.geteuid()}"
    return rows_of(await client.run("squeue", "-h", "-t", "all", own, "-o", FORMAT), prefix)


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

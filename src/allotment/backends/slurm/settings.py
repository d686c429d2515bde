"""What Slurm says of itself and of a partition. Pure."""

import re

import msgspec

TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<hours>\d+):(?P<minutes>\d+):(?P<seconds>\d+)")


class Partition(msgspec.Struct, frozen=True):
    """The settings of a partition that matter for scheduling there."""

    name: str
    max_min: int | None = None
    """Longest time limit of a job, in minutes; None without one."""
    is_up: bool = True
    preempts: bool = False
    root_only: bool = False
    default_min: int | None = None
    """The limit of a job that asks for none, in minutes; None where that is the longest."""

    @property
    def usual_min(self) -> int | None:
        """Return the limit of a job that asks for none, in minutes; None without one."""
        return self.max_min if self.default_min is None else self.default_min


def partition_of(text: str) -> Partition | None:
    """Read `scontrol --oneliner show partition NAME`; None where it names none."""
    told = dict(word.split("=", 1) for word in text.split() if "=" in word)
    if "PartitionName" not in told:
        return None
    return Partition(
        told["PartitionName"],
        minutes_of(told.get("MaxTime", "")),
        told.get("State", "UP") == "UP",
        told.get("PreemptMode", "OFF") not in ("OFF", "(null)"),
        told.get("RootOnly", "NO") == "YES",
        minutes_of(told.get("DefaultTime", "")),
    )


def minutes_of(text: str) -> int | None:
    """Read a length of time such as `1-02:30:00`, in minutes; None for `UNLIMITED`."""
    found = TIME.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes = (int(found[name] or 0) for name in ("days", "hours", "minutes"))
    return (days * 24 + hours) * 60 + minutes


def settings_of(text: str) -> dict[str, str]:
    """Read `scontrol show config`: a line for each setting."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}

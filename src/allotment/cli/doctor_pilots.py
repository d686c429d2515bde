"""What `allot doctor` says of the nodes that pilots hold: what keeps tasks apart there.

Their runners said it when they came; the service has written it down.
"""

import pwd
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import msgspec

from allotment.backends.pilot.messages import Isolation
from allotment.backends.pilot.node_images import why_no_images
from allotment.cli.doctor_finding import Finding, Level
from allotment.cli.doctor_isolation import CONTROLLERS, PART_OF_V2
from allotment.cli.words import harmless

SOLE, NAMED = "pilot/nodes/*/isolation.json", "engines/{}/pilot/nodes/*/isolation.json"
MOST_NAMED = 5


def findings(folder: Path, engine: str = "") -> Iterator[Finding]:
    """Return findings on the nodes of an engine, those that are alike together."""
    by_kind: dict[bytes, list[str]] = {}
    for path in sorted(folder.glob(NAMED.format(engine) if engine else SOLE)):
        by_kind.setdefault(path.read_bytes(), []).append(path.parent.name)
    if not by_kind:
        yield Finding(
            "pilots", Level.NOTE, "no runner has come from any node yet",
            "Where none comes: Slurm's job of a node says why (`squeue`), or pilot.log in the "
            "node's folder.",
        )  # fmt: skip
    for told, names in by_kind.items():
        if (isolation := msgspec.json.decode(told, type=Isolation | None)) is not None:
            yield _finding(isolation, names)


def _finding(found: Isolation, names: list[str]) -> Finding:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    where = f"{', '.join(names[:MOST_NAMED])}{more}"
    lines = [*_without_root(found), *_lacking(found)]
    if not lines:
        return Finding(
            "pilots", Level.OK, f"{where}: tasks are limited and isolated in all ways"
        )
    return Finding("pilots", Level.NOTE, f"{where}: " + "\n".join(lines), _advice(found))


def _without_root(found: Isolation) -> Iterator[str]:
    if found.uid:
        yield f"pilots of {_name_of(found.uid)}, not of root: only this user's jobs run there"
    if found.fence == "processes":
        yield (
            "no namespaces for a pilot: tasks that outlive both of its first processes are "
            "Slurm's to end (ProctrackType=proctrack/cgroup)"
        )
    if found.namespaces == "none":
        yield f"tasks see each other's GPUs and files: {_why_none(found.missing)}"
    if why := why_no_images(found):
        yield f"jobs with an image are refused: {harmless(why)}"


def _why_none(missing: Mapping[str, str]) -> str:
    told = (harmless(missing[key]) for key in ("own", "bwrap") if key in missing)
    return "; ".join(told) or "unknown"


def _lacking(found: Isolation) -> Iterator[str]:
    there = {*found.controllers, *(PART_OF_V2 if found.cgroup == "v2" else ())}
    if found.namespaces != "none":
        there.add("devices")  # /dev has those of the task alone
    if missing := [name for name in CONTROLLERS if name not in there]:
        yield f"no control groups for {', '.join(missing)}: {_instead(missing)}"


def _instead(missing: Collection[str]) -> str:
    how = {
        "cpu": "CPU is not limited",
        "memory": "memory is looked at four times a second",
        "pids": "processes are counted four times a second",
        "devices": "devices are not hidden",
        "freezer": "a suspended task is stopped process by process",
    }
    return ", ".join(how[name] for name in missing)


def _advice(found: Isolation) -> str:
    if not found.uid:
        return "Mount control groups on the nodes, and set ProctrackType=proctrack/cgroup."
    if found.namespaces == "none":
        return "Install bubblewrap on the nodes and allow user namespaces, or run as root."
    return "A service that runs as root has all of it."


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"

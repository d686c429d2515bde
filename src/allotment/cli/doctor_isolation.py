"""What keeps tasks apart on this machine, and what would do it better.

The launcher of a running service knows what is in force and is asked; without one, the same
look that it takes at its start is taken in a folder of our own.
"""

import os
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from allotment.cli.doctor_finding import Finding, Level

PATIENCE_S = 3.0
CONTROLLERS = {
    "cpu": "CPU shares",
    "memory": "memory limits, and reports of out-of-memory",
    "pids": "a limit on processes",
    "devices": "hiding other tasks' GPUs",
    "freezer": "freezing a whole task at once",
}
"""What each control group is for."""

PART_OF_V2 = ("devices", "freezer")
"""Version 2 of control groups freezes by itself, and has no list of devices."""


class Facts(msgspec.Struct, frozen=True):
    """What a launcher says of its machine."""

    namespaces: str
    cgroup: str
    controllers: tuple[str, ...]
    missing: dict[str, str] = {}


def isolation(folder: Path) -> list[Finding]:
    """Return which isolation is in force, and what to install or allow for more."""
    asked = ask_launcher(folder)
    facts = asked or look()
    in_force = "in force" if asked else "would be in force"
    return [_namespaces(facts, in_force), *_groups(facts, in_force), *_images(facts)]


def ask_launcher(folder: Path) -> Facts | None:
    """Return what the launcher of a state folder says; None when none answers.

    Raises PermissionError if it is that of another user.
    """
    from allotment.backends.local.runner.layout import SOCKET  # noqa: PLC0415 - only here

    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(PATIENCE_S)
            sock.connect(str(folder / SOCKET))
            sock.sendall(b'{"op": "hello"}\n')
            return msgspec.json.decode(sock.makefile("rb").readline(), type=Facts)
    except PermissionError:
        raise
    except (OSError, msgspec.MsgspecError):
        return None


def look() -> Facts:
    """Take the launcher's look, and remove what it leaves."""
    from allotment.backends.local.runner import host  # noqa: PLC0415 - only here

    here = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="allot-doctor-") as folder:
        found = host.Host(folder)
        try:
            groups = found.hierarchy
            return Facts(
                found.namespaces,
                groups.version,
                tuple(sorted(groups.bases)),
                {**found.missing, **groups.missing},
            )
        finally:
            for fd in (found.stdin, found.home, found.proc):
                os.close(fd)
            _remove_groups(found.hierarchy.bases)
            os.chdir(here)


def _remove_groups(bases: Mapping[str, str]) -> None:
    """Remove the empty control groups that looking has made."""
    for base in set(bases.values()):
        for path in [*sorted(Path(base).glob("*/")), Path(base)]:
            try:
                path.rmdir()
            except OSError:
                continue


def _namespaces(facts: Facts, in_force: str) -> Finding:
    if facts.namespaces == "own":
        text = f"{in_force}: namespaces of each task's own (processes, mounts, IPC)"
        return Finding("isolation", Level.OK, text)
    if facts.namespaces == "bwrap":
        text = f"{in_force}: namespaces made by bubblewrap"
        return Finding("isolation", Level.OK, text)
    why = "; ".join(facts.missing[key] for key in ("own", "bwrap") if key in facts.missing)
    text = f"no namespaces: tasks see each other, data and code are not read-only ({why})"
    return Finding("isolation", Level.WARN, text, _for_namespaces(facts.missing))


def _for_namespaces(missing: Mapping[str, str]) -> str:
    if "not installed" in missing.get("bwrap", ""):
        return "apt-get install bubblewrap, or run the service as root."
    return "Allow user namespaces (sysctl kernel.unprivileged_userns_clone=1), or run as root."


def _images(facts: Facts) -> list[Finding]:
    why = facts.missing.get("images", "")
    text = f"jobs with an image are refused: {why}"
    return [Finding("images", Level.NOTE, text)] if why else []


def _groups(facts: Facts, in_force: str) -> list[Finding]:
    have = [name for name in CONTROLLERS if name in facts.controllers]
    lacking = [
        name
        for name in CONTROLLERS
        if name not in facts.controllers and not (facts.cgroup == "v2" and name in PART_OF_V2)
    ]
    found: list[Finding] = []
    if have:
        text = f"{in_force}: control groups ({facts.cgroup}) for {', '.join(have)}"
        found.append(Finding("limits", Level.OK, text))
    if lacking:
        lines = "\n".join(
            f"{name}: {facts.missing.get(name, 'not there')}; it gives {CONTROLLERS[name]}"
            for name in lacking
        )
        text = f"without control groups for {', '.join(lacking)}; rlimits stand in\n{lines}"
        found.append(Finding("limits", Level.WARN, text, FOR_GROUPS))
    return found


FOR_GROUPS = (
    "Run the service as root; or give your user a group of its own: "
    "systemd-run --user --scope -p Delegate=yes allot up"
)

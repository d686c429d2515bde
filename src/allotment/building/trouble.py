"""Why an image was not built or pushed: one code of a few, found in what buildah printed.

The line that tells it is what the service looks for in the output of the job
(engine/log_patterns_builds.py).
"""

import errno
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

MARK: Final = "allotment.building"
"""What our lines begin with."""
_LONGEST: Final = 400
_STEP: Final = re.compile(r'building at STEP "(?P<step>.*?)": (?P<why>.+)')
_STATUS: Final = re.compile(r"exit status (\d+)")
_ERROR: Final = re.compile(r"error|Error|unshare: ")
_NEEDLESS: Final = (
    re.compile(r"^[Ee]rror: "),
    re.compile(r"^creating build container: (?:initializing source )?"),
    re.compile(r'^pushing image "[^"]*" to "[^"]*": '),
    re.compile(r"^trying to reuse blob sha256:[0-9a-f]{64} at destination: "),
    re.compile(r" &imagebuilder\.Step\{.*"),
)

NO_BUILDER: Final = "no_builder"
NO_FOLDER: Final = "no_folder"
NO_ROOM: Final = "no_room"
TOO_LARGE: Final = "too_large"
NOT_BUILT: Final = "not_built"
STEP_FAILED: Final = "step_failed"
PUSH_FAILED: Final = "push_failed"

_DENIED: Final = re.compile(
    r"unauthorized|authentication required|denied: |access to the resource is denied"
    r"|status code: 40[13]|40[13] (?:Unauthorized|Forbidden)|invalid username/password"
)
_GONE: Final = re.compile(
    r"manifest unknown|name unknown|repository name not known|status code: 404|404 Not Found"
    r"|no image found in manifest list|image operating system"
)
_AWAY: Final = re.compile(
    r"connection refused|no such host|i/o timeout|TLS handshake|connection reset"
    r"|network is unreachable|no route to host|unexpected EOF|server gave HTTP response"
    r"|x509: |5\d\d (?:Internal|Bad|Service|Gateway)|dial tcp|status code: 5\d\d"
    r"|context deadline exceeded|Temporary failure in name resolution"
)
_ROOM: Final = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
_NAMESPACE: Final = re.compile(r"error running subprocess: (?:re)?mounting ")
_UNSHARE: Final = "unshare: "

_NO_OVERLAY: Final = re.compile(
    r"overlay.{0,40} not supported|backing file system is unsupported|not support overlay"
)


class Trouble(Exception):
    """Nothing was built, or not pushed: a code, and the words for whoever looks."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code

    def line(self) -> str:
        """Return the line that tells it."""
        return f"{MARK}: [{self.code}] {self}"[:_LONGEST]


def of_folder(folder: Path, error: OSError) -> Trouble:
    """Return what is the matter with the folder of a user's layers."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return Trouble(NO_ROOM if is_full else NO_FOLDER, f"{folder}: {error}")


def of_build(lines: Sequence[str]) -> Trouble:
    """Return what kept an image from being built; `lines` are the last of buildah."""
    said = _last(lines)
    if lines[0].startswith(_UNSHARE):
        return Trouble(NO_BUILDER, lines[0])
    if refused := [line for line in lines if _NAMESPACE.match(line)]:
        why = "the namespaces of this task let no step run; those of a service of root's do"
        return Trouble(NO_BUILDER, f"{why}: {refused[-1]}")
    if _NO_OVERLAY.search(said):
        return Trouble(NO_FOLDER, said)
    if _ROOM.search(said):
        return Trouble(NO_ROOM, said)
    if step := _STEP.match(said):
        status = _STATUS.fullmatch(step["why"])
        if status:
            return Trouble(STEP_FAILED, f"{step['step']}: ended with exit code {status[1]}")
        return Trouble(NOT_BUILT, f"{step['step']}: {step['why']}")
    if found := _of_registry(said, "base_denied", "base_gone"):
        return found
    return Trouble(NOT_BUILT, said or "buildah was killed")


def of_push(lines: Sequence[str], name: str) -> Trouble:
    """Return what kept an image from its registry."""
    said = _last(lines)
    failed = Trouble(PUSH_FAILED, f"{name}: {said}")
    return _of_registry(said, "push_denied", PUSH_FAILED) or failed


def _of_registry(said: str, denied: str, gone: str) -> Trouble | None:
    """Return what a registry, or the way there, is to blame for, by one of these codes."""
    if _DENIED.search(said):
        return Trouble(denied, said)
    if _GONE.search(said):
        return Trouble(gone, said)
    return Trouble("registry_away", said) if _AWAY.search(said) else None


def _last(lines: Sequence[str]) -> str:
    """Return the last line that tells of an error, without what says nothing to its reader."""
    told = [line.strip() for line in lines if line.strip()]
    errors = [line for line in told if _ERROR.match(line)]
    found = (errors or told or [""])[-1]
    for pattern in _NEEDLESS:
        found = pattern.sub("", found)
    return found

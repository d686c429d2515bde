"""A service as a process of its own: started, found, watched until it is ready."""

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from allotment.cli.output import Failed
from allotment.client import ApiError, Client
from allotment.client.address import state_folder
from allotment.service.isolated import isolated, plain_with
from allotment.service.views import Health
from allotment.wiring.options import Options

READY_S = 30.0
GONE_S = 5.0
POLL_S = 0.05
LOG = "service.log"
LAST_LINES = 12
LAST_BYTES = 64 * 1024


def folder_of(state: str) -> Path:
    """Return the named state folder, or else the user's own."""
    return Path(state).expanduser().absolute() if state else state_folder()


def health_of(folder: Path) -> Health | None:
    """Return the health of the service of a folder; None when none answers."""
    try:
        with Client(state=str(folder), timeout=READY_S) as client:
            return client.health()
    except ApiError:
        return None


def start(options: Options) -> Health:
    """Start a service that outlives this process; return when it is ready. Raises Failed."""
    folder = options.folder
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        log = (folder / LOG).open("ab")
    except OSError as error:
        raise Failed(
            f"The state folder {folder} cannot be used: {(error.strerror or '').lower()}.",
            "Name another with --state DIR.",
        ) from error
    told, tell = os.pipe()
    with log, os.fdopen(told, "rb"):
        began = log.tell()
        words = ("up", "--foreground", "--ready-fd", str(tell), *options.argv())
        try:
            process = begin(words, log.fileno(), tell)
        finally:
            os.close(tell)
        return _until_ready(process, told, folder, began)


def begin(words: Sequence[str], log: int, tell: int) -> "subprocess.Popen[bytes]":
    """Start a process of its own that runs `allot` with these words."""
    return subprocess.Popen(
        isolated("allotment.cli", *words),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=plain_with(os.environ),
        cwd="/",
        start_new_session=True,
        pass_fds=(tell,),
    )


def _until_ready(
    process: "subprocess.Popen[bytes]", told: int, folder: Path, began: int
) -> Health:
    """Wait for the line the service writes when it is ready; it closes the pipe if it fails."""
    ready, _, _ = select.select([told], [], [], READY_S)
    if not ready:
        raise Failed(
            f"The service is not ready after {READY_S:g} s (pid {process.pid})."
            + _last_words(folder, began),
            f"It may still come up: allot doctor --state {folder}; its log is {folder / LOG}.",
        )
    if not os.read(told, 4096) or (health := health_of(folder)) is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GONE_S)
        raise Failed(
            f"The service did not start (exit code {process.poll()})."
            + _last_words(folder, began),
            f"Correct that and start it again; the whole log is {folder / LOG}.",
        )
    process.returncode = 0  # it goes on without us: nothing is to be waited for
    return health


def _last_words(folder: Path, began: int) -> str:
    """Return the end of what the service wrote since then."""
    try:
        with (folder / LOG).open("rb") as log:
            log.seek(began)
            lines = log.read()[-LAST_BYTES:].decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    said = [words for line in lines if (words := _for_people(line))]
    return "".join(f"\n    {line}" for line in said[-LAST_LINES:])


class _Entry(msgspec.Struct):
    """What people want to know of a line of the log."""

    event: str
    level: str = ""


def _for_people(line: str) -> str:
    """Return a line of the log in words; '' for one that tells of nothing wrong."""
    try:
        entry = msgspec.json.decode(line, type=_Entry)
    except msgspec.DecodeError:
        return line
    return "" if entry.level in ("info", "debug") else entry.event


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def wait_gone(pid: int, seconds: float) -> bool:
    """Wait until a process has ended."""
    deadline = time.monotonic() + seconds
    while is_running(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True

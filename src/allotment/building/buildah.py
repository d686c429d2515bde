"""Runs buildah as root of a user namespace in which there is nobody else.

So it needs no right that its user lacks, no subordinate numbers (/etc/subuid), and no program
with a set-user-ID bit. All files of an image are root's there, which is this user outside.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from allotment.building.shelf import measure
from allotment.building.trouble import TOO_LARGE, Trouble
from allotment.model.quantity import show_bytes

_UNSHARE: Final = ("unshare", "--user", "--map-root-user", "--mount", "--")
_REUSED: Final = b"--> Using cache "
_OURS: Final = b"ARG APT_CONFIG=/dev/shm/allot-apt-"
"""A step that was put in (apt.py)."""
_PIECE: Final = 1 << 16
_LAST: Final = 200
"""Lines of output that are kept to be looked at."""
_LONGEST: Final = 2000
_PAUSE_S: Final = 2.0
_RARELY: Final = 10
"""How many times as long as measuring took nothing is measured."""


class Done(NamedTuple):
    """How it ended."""

    code: int
    lines: tuple[str, ...]
    """The last."""
    reused: int
    """Steps that an earlier build had done."""


class Buildah:
    """buildah with its layers in one folder, and what it needs for a while in another.

    `near` are registries of this machine, which may be without TLS. `most` bounds the layers,
    in bytes.
    """

    def __init__(self, layers: Path, scratch: Path, near: Iterable[str], most: int) -> None:
        self._layers = layers
        self._scratch = scratch
        self._most = most
        layers.mkdir(mode=0o700, exist_ok=True)
        (scratch / "storage.conf").write_text('[storage]\ndriver = "overlay"\n')
        (scratch / "containers.conf").write_text("[containers]\n")
        (scratch / "registries.conf").write_text(
            'unqualified-search-registries = ["docker.io"]\n'
            + "".join(f'[[registry]]\nlocation = "{host}"\ninsecure = true\n' for host in near)
        )

    def run(self, *words: str) -> Done:
        """Run it to its end, with its output shown as it comes. Raises Trouble."""
        process = subprocess.Popen(
            self._words(*words),
            env=self._env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        watch = Watch(self._layers, self._most, process)
        watch.start()
        try:
            lines, reused = _shown(process)
            code = process.wait()
        finally:
            watch.end()
        if watch.is_beyond:
            raise Trouble(
                TOO_LARGE,
                f"{self._layers.parent} has become larger than {show_bytes(self._most)}",
            )
        return Done(code, lines, reused)

    def ask(self, *words: str) -> int:
        """Run it quietly; return its exit code."""
        return subprocess.run(
            self._words(*words),
            env=self._env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        ).returncode

    def _words(self, *words: str) -> list[str]:
        return [
            *_UNSHARE, "buildah", "--root", str(self._layers),
            "--runroot", str(self._scratch / "run"), "--storage-driver", "overlay", *words,
        ]  # fmt: skip

    def _env(self) -> dict[str, str]:
        """Settings of the machine, or of this user for another tool, do not count.

        Among those for podman are folders that each container sees.
        """
        return {
            **os.environ,
            "TMPDIR": str(self._scratch),
            "CONTAINERS_CONF": str(self._scratch / "containers.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(self._scratch / "registries.conf"),
            "CONTAINERS_STORAGE_CONF": str(self._scratch / "storage.conf"),
            "_CONTAINERS_USERNS_CONFIGURED": "done",
            "_CONTAINERS_ROOTLESS_UID": str(os.getuid()),
            "_CONTAINERS_ROOTLESS_GID": str(os.getgid()),
        }


class Watch(threading.Thread):
    """Ends a process when its folder has become too large."""

    def __init__(self, folder: Path, most: int, process: "subprocess.Popen[bytes]") -> None:
        super().__init__(daemon=True)
        self.is_beyond = False
        self._folder = folder
        self._most = most
        self._process = process
        self._over = threading.Event()

    def run(self) -> None:
        """Measure, less often the longer that takes."""
        pause = _PAUSE_S
        while not self._over.wait(pause):
            began = time.monotonic()
            if measure(self._folder, self._most) > self._most:
                self.is_beyond = True
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                return
            pause = max(_PAUSE_S, _RARELY * (time.monotonic() - began))

    def end(self) -> None:
        """Stop measuring."""
        self._over.set()
        self.join()


def _shown(process: "subprocess.Popen[bytes]") -> tuple[tuple[str, ...], int]:
    """Pass output on as it comes; return its last lines, and how many steps were reused."""
    assert process.stdout is not None
    kept: deque[str] = deque(maxlen=_LAST)
    rest, reused, is_ours = b"", 0, False
    while piece := os.read(process.stdout.fileno(), _PIECE):
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            is_ours = _OURS in line if line.startswith(b"STEP ") else is_ours
            reused += line.startswith(_REUSED) and not is_ours
            kept.append(line[:_LONGEST].decode(errors="replace"))
        rest = rest[-_LONGEST:]
    kept.append(rest.decode(errors="replace"))
    process.stdout.close()
    return tuple(kept), reused

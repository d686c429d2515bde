"""Runs uv, which resolves and installs, as a user of its own with a clean environment.

Only wheels are taken, and the Python of an environment does not run once packages are in it, as
it would run each .pth file. So nothing of a package runs while it is installed. The index is
the one that the machine's pip configuration names.
"""

import configparser
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from allotment.rights.removing import remove
from allotment.service.environments.lasting import Failed, Spoilt
from allotment.service.environments.measuring import size_below
from allotment.service.isolated import PLAIN

BUILDER: Final = 2_147_459_344
"""Whom a service of root's has it run as: no account has this number, and nothing else."""
_CONFIGS: Final = ("/etc/pip.conf", "/etc/xdg/pip/pip.conf", "~/.pip/pip.conf",
                   "~/.config/pip/pip.conf")  # fmt: skip
_SETTINGS: Final = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX",
                    "find-links": "UV_FIND_LINKS", "cert": "SSL_CERT_FILE"}  # fmt: skip
_MOST_WORDS: Final = 1500
_PROGRESS: Final = re.compile(r"^(?:Using|Resolved) .*$", re.MULTILINE)
_STRATEGY: Final = re.compile(
    r" If all indexes are equally trusted, use `--index-strategy[^.]*\."
)
"""Advice for a person who runs uv; here the index is the machine's."""
PYTHONS_S: Final = 60.0
_NO_PYTHON: Final = "No interpreter found"
_SPOILT: Final = ("Hash mismatch", "unsafe member path")
"""What uv says of bytes that are others than those asked for, or that it does not unpack."""
_LOOK_S: Final = 0.25


class _Python(msgspec.Struct):
    version: str


def program() -> str:
    """Return where uv is: beside our Python, else on the path; '' where it is not installed."""
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else shutil.which("uv") or ""


def settings() -> Mapping[str, str]:
    """Return the machine's pip configuration in uv's words."""
    found: dict[str, str] = {}
    for name in _CONFIGS:
        reader = configparser.RawConfigParser()
        try:
            reader.read(Path(name).expanduser())
        except configparser.Error:
            continue
        for key, variable in _SETTINGS.items():
            for section in ("global", "install"):
                if value := reader.get(section, key, fallback=""):
                    found[variable] = " ".join(value.split())
    for key, variable in _SETTINGS.items():
        if value := os.environ.get(f"PIP_{key.upper().replace('-', '_')}"):
            found[variable] = value
    return found


class Uv:
    """uv with its folder: a cache and a home that are the builder's alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.cache = folder / "cache"
        self._program = program()
        self._turn = threading.Lock()
        self._busy = 0

    @property
    def is_there(self) -> bool:
        """Whether uv is installed."""
        return bool(self._program)

    def prepare(self) -> None:
        """Make its folders."""
        for folder in (self._folder, self.cache):
            folder.mkdir(mode=0o700, exist_ok=True)
            own(folder)
        for left in self._folder.glob("gone-*"):
            remove(None, str(left))

    def closed(self) -> str:
        """Return a folder on the way to ours or to uv that the builder may not pass through."""
        if os.geteuid() != 0:
            return ""
        places = (self._folder.resolve(), Path(self._program).resolve())
        above = (folder for place in places for folder in reversed(place.parents))
        return next((str(each) for each in above if not each.stat().st_mode & stat.S_IXOTH), "")

    def clear(self, most: int) -> None:
        """Delete the cache if it is larger than that, and nothing uses it now."""
        if size_below(self.cache)[1] <= most:
            return
        aside = self._folder / f"gone-{os.urandom(8).hex()}"
        with self._turn:
            if self._busy:
                return
            self.cache.rename(aside)
            self.cache.mkdir(mode=0o700)
            own(self.cache)
        remove(None, str(aside))

    def pythons(self, patience_s: float) -> list[str]:
        """List the versions of Python that the machine has, the newest first.

        Raises Failed and TimeoutError.
        """
        words = ("python", "list", "--only-installed", "--output-format", "json")
        found = msgspec.json.decode(self.run(words, patience_s), type=list[_Python])
        return list(dict.fromkeys(each.version for each in found))

    def version_of(self, python: str) -> str:
        """Return the version of the machine's Python that fits; '' if none. Raises Failed."""
        words = ("python", "find", "--system", "--show-version", python)
        try:
            return self.run(words, PYTHONS_S).strip()
        except Failed as error:
            if _NO_PYTHON not in str(error):
                raise
            return ""

    def run(
        self,
        words: Sequence[str],
        patience_s: float,
        stdin: str = "",
        watch: Callable[[], None] | None = None,
        env: Mapping[str, str] = {},
    ) -> str:
        """Run it; return what it printed. Raises Failed or TimeoutError; `watch` may, too."""
        return self.run_as_builder([self._program, *words], patience_s, stdin, watch, env)

    def run_as_builder(
        self,
        argv: Sequence[str],
        patience_s: float,
        stdin: str = "",
        watch: Callable[[], None] | None = None,
        env: Mapping[str, str] = {},
    ) -> str:
        """Run a program of ours with the rights that uv has. See `run`."""
        with self._turn:
            self._busy += 1
        try:
            return self._run(argv, patience_s, stdin, watch, env)
        finally:
            with self._turn:
                self._busy -= 1

    def _run(
        self,
        argv: Sequence[str],
        patience_s: float,
        stdin: str,
        watch: Callable[[], None] | None,
        more: Mapping[str, str],
    ) -> str:
        env = {
            **PLAIN,
            **settings(),
            "HOME": str(self._folder),
            "UV_CACHE_DIR": str(self.cache),
            "UV_NO_CONFIG": "1",
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_LINK_MODE": "copy",
            "UV_NO_PROGRESS": "1",
            **more,
        }
        as_root = os.geteuid() == 0
        # It ends with the service, however that ends.
        with_us = (
            [setpriv, "--pdeathsig", "KILL"] if (setpriv := shutil.which("setpriv")) else []
        )
        process = subprocess.Popen(
            [*with_us, *argv],
            env=env,
            cwd=self._folder,
            umask=0o022,
            user=BUILDER if as_root else None,
            group=BUILDER if as_root else None,
            extra_groups=[] if as_root else None,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            out, said = _followed(process, patience_s, stdin, watch)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        if process.returncode:
            kind = Spoilt if any(words in said for words in _SPOILT) else Failed
            raise kind(shortened(said))
        return out


def _followed(
    process: "subprocess.Popen[str]",
    patience_s: float,
    stdin: str,
    watch: Callable[[], None] | None,
) -> tuple[str, str]:
    """Return what a program says until its end; look at what it makes meanwhile."""
    ends_at = time.monotonic() + patience_s
    pause_s = _LOOK_S
    told: str | None = stdin
    while True:
        try:
            return process.communicate(told, timeout=pause_s)
        except subprocess.TimeoutExpired:
            told = None  # It is on its way.
            began = time.monotonic()
            if began > ends_at:
                raise TimeoutError from None
            if watch is not None:
                watch()
            pause_s = max(_LOOK_S, 4 * (time.monotonic() - began))


def own(path: Path) -> None:
    """Make the builder the owner of a path."""
    if os.geteuid() == 0:
        os.chown(path, BUILDER, BUILDER, follow_symlinks=False)


def shortened(said: str) -> str:
    """Return what uv said as one line, without its progress and what nobody can follow."""
    told = _PROGRESS.sub("", said)
    words = " ".join(told.replace("×", "").replace("╰─▶", "").replace("│", "").split())
    words = _STRATEGY.sub("", words)
    return words.removeprefix("error: ")[:_MOST_WORDS] or "uv ended without a message"

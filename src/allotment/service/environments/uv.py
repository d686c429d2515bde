"""Runs uv, which resolves and installs, as a user of its own with a clean environment.

Only wheels are taken, so that nothing of a package runs while it is installed. The index is the
one that the machine's pip configuration names.
"""

import configparser
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from allotment.service.isolated import PLAIN

BUILDER: Final = 2_147_459_344
"""Whom a service of root's has it run as: no account has this number, and nothing else."""
_CONFIGS: Final = ("/etc/pip.conf", "/etc/xdg/pip/pip.conf", "~/.pip/pip.conf",
                   "~/.config/pip/pip.conf")  # fmt: skip
_SETTINGS: Final = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX",
                    "find-links": "UV_FIND_LINKS", "cert": "SSL_CERT_FILE"}  # fmt: skip
_MOST_WORDS: Final = 1500


class Failed(Exception):
    """uv did not succeed; the text is its own, shortened."""


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
        self._program = program()

    @property
    def is_there(self) -> bool:
        """Whether uv is installed."""
        return bool(self._program)

    def prepare(self) -> None:
        """Make its folder."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        own(self._folder)

    def run(self, words: Sequence[str], patience_s: float, stdin: str = "") -> str:
        """Run it; return what it printed. Raises Failed, or TimeoutError."""
        env = {
            **PLAIN,
            **settings(),
            "HOME": str(self._folder),
            "UV_CACHE_DIR": str(self._folder / "cache"),
            "UV_NO_CONFIG": "1",
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_LINK_MODE": "copy",
            "UV_NO_PROGRESS": "1",
        }
        as_root = os.geteuid() == 0
        # It ends with the service, however that ends.
        with_us = (
            [setpriv, "--pdeathsig", "KILL"] if (setpriv := shutil.which("setpriv")) else []
        )
        process = subprocess.Popen(
            [*with_us, self._program, *words],
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
            out, said = process.communicate(stdin, timeout=patience_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise TimeoutError from None
        if process.returncode:
            raise Failed(_short(said))
        return out


def own(path: Path) -> None:
    """Give a path to the builder."""
    if os.geteuid() == 0:
        os.chown(path, BUILDER, BUILDER, follow_symlinks=False)


def _short(said: str) -> str:
    words = " ".join(said.replace("×", "").replace("╰─▶", "").replace("│", "").split())
    return words.removeprefix("error: ")[:_MOST_WORDS] or "uv ended without a word"

"""Which files of a folder are its code: what git says, and nothing that we would imitate.

In a work tree these are the tracked files and those that git would track; outside of one, what
git would track if it were one. A file `.allotignore`, written like `.gitignore` and read by git
as well, leaves out more. Without git on the machine it is every file.
"""

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from allotment.client.errors import Refused

IGNORE: Final = ".allotignore"
MOST_DIFFERENCE: Final = 1 << 20
"""Bytes that are kept of what `git diff` says."""
_OURS: Final = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
_LIST: Final = ("ls-files", "-z", "-t", "-c", "-o", "--exclude-standard")
_LEFT_OUT: Final = ("ls-files", "-z", "-c", "-o", "-i", f"--exclude-per-directory={IGNORE}")
_DIFF: Final = ("diff", "HEAD", "--no-color", "--no-ext-diff", "--no-textconv", "--", ".")
_NO_TREE: Final = "not a git repository"


class Listed(NamedTuple):
    """The code of a folder: names below it, and what git knows of it."""

    names: list[str]
    commit: str = ""
    branch: str = ""
    changed: int = 0
    """Files that are not as in the commit."""
    difference: bytes = b""


def list_code(folder: Path) -> Listed:
    """Return what belongs to the code of a folder. Raises Refused.

    A repository in it is one name, which is that of a folder.
    """
    try:
        return _by_git(folder)
    except (FileNotFoundError, NotADirectoryError) as error:
        if not folder.is_dir():
            raise _refused(
                folder, "there is no such folder", "Name one that is there."
            ) from error
    return Listed(_all_files(folder))


def _by_git(folder: Path) -> Listed:
    asked = {
        "list": _git(folder, *_LIST),
        "commit": _git(folder, "rev-parse", "--verify", "-q", "HEAD"),
        "branch": _git(folder, "symbolic-ref", "-q", "--short", "HEAD"),
        "diff": _git(folder, *_DIFF),
    }
    told = {name: process.communicate() for name, process in asked.items()}
    listed, said = told["list"]
    if asked["list"].returncode:
        if _NO_TREE in said.decode(errors="replace"):
            return Listed(_outside(folder))
        raise _of_git(folder, said)
    _check_warnings(folder, said)
    tags = [
        (entry[:1], entry[2:]) for entry in listed.decode(errors="surrogateescape").split("\0")
    ]
    names = [name for _, name in tags if name]
    fresh = sum(tag == "?" for tag, _ in tags)
    difference = told["diff"][0] if not asked["diff"].returncode else b""
    changed = fresh + difference.count(b"\ndiff --git ") + difference.startswith(b"diff --git ")
    return Listed(
        _complete(folder, names, ()),
        told["commit"][0].decode().strip(),
        told["branch"][0].decode(errors="replace").strip(),
        changed,
        difference[:MOST_DIFFERENCE],
    )


def _outside(folder: Path) -> list[str]:
    """List a folder that git does not know, with an empty repository that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="allot-code-") as aside:
        made = _git(Path(aside), "init", "-q", "--bare", aside)
        if made.communicate()[1] and made.returncode:
            raise _refused(folder, "git cannot look at it", "Try `git init` there.")
        where = (f"--git-dir={aside}", f"--work-tree={folder}")
        process = _git(folder, *where, *_LIST)
        listed, said = process.communicate()
        if process.returncode:
            raise _of_git(folder, said)
        _check_warnings(folder, said)
        names = [entry[2:] for entry in listed.decode(errors="surrogateescape").split("\0")]
        return _complete(folder, [name for name in names if name], where)


def _complete(folder: Path, names: list[str], where: tuple[str, ...]) -> list[str]:
    """Leave out what .allotignore names."""
    names = list(dict.fromkeys(names))
    if (
        any(name == IGNORE or name.endswith(f"/{IGNORE}") for name in names)
        or (folder / IGNORE).exists()
    ):
        process = _git(folder, *where, *_LEFT_OUT)
        out, said = process.communicate()
        if process.returncode:
            raise _of_git(folder, said)
        left_out = set(out.decode(errors="surrogateescape").split("\0"))
        names = [name for name in names if name not in left_out]
    return names


def _all_files(folder: Path) -> list[str]:
    if (folder / IGNORE).exists():
        raise _refused(
            folder,
            f"{IGNORE} is read by git, and git is not installed here",
            f"Install git, or remove {IGNORE} to take all files along.",
        )
    found: list[str] = []
    for top, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if name != ".git"]
        links = [name for name in folders if Path(top, name).is_symlink()]
        below = os.path.relpath(top, folder)
        prefix = "" if below == "." else f"{below}/"
        found += [prefix + name for name in (*files, *links)]
    return found


def _raise(error: OSError) -> None:
    raise _refused(
        Path(error.filename), (error.strerror or "cannot be read").lower(), "Make it readable."
    ) from error


def _git(folder: Path, *words: str) -> "subprocess.Popen[bytes]":
    environ: Mapping[str, str] = {
        name: value for name, value in os.environ.items() if name not in _OURS
    }
    return subprocess.Popen(
        ["git", *words],
        cwd=folder,
        env={**environ, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _check_warnings(folder: Path, said: bytes) -> None:
    """Raise where git could not look everywhere: a task would miss what is there."""
    lines = [line for line in said.decode(errors="replace").splitlines() if line]
    if closed := [line for line in lines if "could not open directory" in line]:
        raise _refused(
            folder,
            closed[0].removeprefix("warning: "),
            f"Make it readable, or leave it out by a line in {IGNORE} or .gitignore.",
        )


def _of_git(folder: Path, said: bytes) -> Refused:
    words = said.decode(errors="replace").strip().splitlines() or ["it said nothing"]
    return _refused(folder, f"git says: {words[0][:300]}", "See `git status` there.")


def _refused(folder: Path, why: str, hint: str) -> Refused:
    return Refused("bad_request", f"The code of {folder} cannot be taken along: {why}.", hint)

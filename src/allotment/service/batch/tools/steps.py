"""The book of a job's steps: what each holds, so that steps side by side share its CPUs.

It lies in the job's scratch folder, under a lock. A step whose launcher is gone holds nothing.
"""

import fcntl
import json
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

PAUSE_S = 0.05


class Whole(NamedTuple):
    """What a job has."""

    cpus: int
    gpus: tuple[str, ...]


class Held(NamedTuple):
    """What a step got: its number and its devices."""

    step: int
    gpus: tuple[str, ...]


class Book:
    """The book in a folder."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, ".allot-steps")

    @contextmanager
    def _open(self) -> Generator[dict[str, Any]]:
        with open(self._path, "a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            text = file.read()
            book: dict[str, Any] = json.loads(text) if text else {"next": 0, "steps": {}}
            book["steps"] = {
                pid: step
                for pid, step in book["steps"].items()
                if _is_alive(pid, step["since"])
            }
            yield book
            file.seek(0)
            file.truncate()
            file.write(json.dumps(book))

    def take(self, whole: Whole, cpus: int, gpus: int, overlap: bool) -> Held | None:
        """Take so much for a new step; None while other steps hold it."""
        with self._open() as book:
            others = [step for step in book["steps"].values() if not step["overlap"]]
            taken = {gpu for step in others for gpu in step["gpus"]}
            free = [gpu for gpu in whole.gpus if overlap or gpu not in taken]
            used = 0 if overlap else sum(step["cpus"] for step in others)
            if used + cpus > whole.cpus or gpus > len(free):
                return None
            number = int(book["next"])
            book["next"] = number + 1
            mine = free[:gpus]
            me = os.getpid()
            book["steps"][str(me)] = {
                "cpus": cpus,
                "gpus": mine,
                "overlap": overlap,
                "tasks": [],
                "since": _since(me),
            }
            return Held(number, tuple(mine))

    def wait_for(self, whole: Whole, cpus: int, gpus: int, overlap: bool) -> Held:
        """Take so much as soon as other steps release it.

        More than the job has must not be asked for: that would wait for ever.
        """
        while True:
            held = self.take(whole, cpus, gpus, overlap)
            if held is not None:
                return held
            time.sleep(PAUSE_S)

    def started(self, pids: list[int]) -> None:
        """Note the processes of the step that this process launched."""
        with self._open() as book:
            book["steps"][str(os.getpid())]["tasks"] = pids

    def leave(self) -> None:
        """Release what this process took."""
        with self._open() as book:
            book["steps"].pop(str(os.getpid()), None)

    def tasks(self) -> list[int]:
        """Return the processes of all steps, each the leader of its group."""
        if not os.path.exists(self._path):
            return []
        with self._open() as book:
            return [pid for step in book["steps"].values() for pid in step["tasks"]]


def _since(pid: int) -> str:
    """Return what tells a process from a later one of the same number; '' for none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _is_alive(pid: str, since: str) -> bool:
    return _since(int(pid)) == since != ""

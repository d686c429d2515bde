"""A job that stops after a step: its side of the file, played with by hand."""

import struct
import threading
from pathlib import Path

import pytest

from allotment import pausing as p
from allotment.pausing import Pause
from tests.support.cluster import until


class Side:
    """The runner's side of the file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.write_bytes(bytes(p.SIZE))
        self._number = 0

    def say(self, command: int, after: int = 0) -> None:
        self._number += 1
        with self.file.open("r+b") as file:
            file.seek(8)
            file.write(struct.pack("qq", command, after))
            file.flush()
            file.seek(0)
            file.write(struct.pack("q", self._number))

    def answer(self, rank: int = 0) -> int:
        """Return the answer to the newest command; 0 while there is none."""
        words = struct.unpack(f"{p.SIZE // 8}q", self.file.read_bytes())
        line = words[p.LINE * (1 + rank) :]
        return line[p.ANSWER] if line[p.ANSWERED] == self._number else 0

    def until(self, answer: int) -> None:
        until(lambda: self.answer() == answer, f"answer {answer}")


@pytest.fixture
def side(tmp_path: Path) -> Side:
    return Side(tmp_path / "pause")


def running(job: Pause, steps: range) -> tuple[threading.Thread, list[int]]:
    """Let a job make steps in a thread."""
    done: list[int] = []

    def run() -> None:
        for step in steps:
            done.append(step)
            job.step(step)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, done


def test_it_stops_after_the_step_and_gives_back_only_then(side: Side) -> None:
    job, did = Pause(str(side.file), 0, 1), []
    job.on_pause(lambda: did.append("pause"))
    job.on_resume(lambda: did.append("resume"))
    side.say(p.STOP, 3)
    thread, done = running(job, range(1, 6))
    side.until(p.THERE)
    assert (done, did) == ([1, 2, 3], [])
    side.say(p.FREE)
    side.until(p.FREED)
    assert did == ["pause"]
    side.say(p.GO)
    thread.join()
    assert (done, did) == ([1, 2, 3, 4, 5], ["pause", "resume"])


def test_what_is_past_the_step_says_so_and_goes_on(side: Side) -> None:
    job = Pause(str(side.file), 0, 1)
    job.step(7)
    side.say(p.STOP, 5)
    job.step(8)
    assert side.answer() == p.LATE


def test_what_stands_goes_on_to_a_later_step(side: Side) -> None:
    job = Pause(str(side.file), 0, 1)
    side.say(p.STOP, 2)
    thread, done = running(job, range(1, 10))
    side.until(p.THERE)
    side.say(p.STOP, 6)
    side.until(p.THERE)
    assert done[-1] == 6
    side.say(p.GO)
    thread.join()


def test_what_cannot_give_back_is_as_it_was_and_stands(
    side: Side, capsys: pytest.CaptureFixture[str]
) -> None:
    job, did = Pause(str(side.file), 0, 1), []

    def fails() -> None:
        raise MemoryError("host")

    job.on_pause(lambda: did.append("first"))
    job.on_pause(fails)
    job.on_resume(lambda: did.append("back"))
    side.say(p.STOP)
    thread, _ = running(job, range(1, 3))
    side.until(p.THERE)
    side.say(p.FREE)
    side.until(p.KEEPS)
    assert did == ["first", "back"]
    side.say(p.GO)
    thread.join()
    assert "MemoryError('host')" in capsys.readouterr().err


@pytest.mark.parametrize("fails", [False, True], ids=["saves", "fails"])
def test_what_has_to_end_saves_and_exits(side: Side, fails: bool) -> None:
    job, saved = Pause(str(side.file), 0, 1), []

    def save() -> None:
        saved.append(1)
        if fails:
            raise OSError("full")

    job.on_save(save)
    job.step(1)
    side.say(p.SAVE)
    with pytest.raises(SystemExit) as end:
        job.step(2)
    assert (end.value.code, saved) == (85, [1])


def test_a_command_of_before_is_not_obeyed(side: Side) -> None:
    side.say(p.STOP)
    job = Pause(str(side.file), 0, 1)
    job.step(1)
    assert side.answer() == 0


@pytest.mark.parametrize("there", [True, False])
def test_without_the_file_it_runs_as_ever(
    side: Side, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    side.file.unlink()
    if there:
        side.file.touch()
    monkeypatch.setenv("ALLOT_PAUSE_FILE", str(side.file))
    assert p.opened() is None
    monkeypatch.delenv("ALLOT_PAUSE_FILE")
    assert p.opened() is None

"""Output is kept within its cap, never blocks a task, and says what is missing."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.local.harness import Runner, Task, a_runner

CAP = 64 << 10
LINE = 16
NUMBERED = "seq -f 'line %010g' 1 {}"


def numbers(text: str) -> list[int]:
    return [int(line[5:]) for line in text.splitlines() if line.startswith("line ")]


def tails(task: Task) -> str:
    found = sorted(task.folder.glob("stdout.tail.*"), key=lambda path: int(path.suffix[1:]))
    return "".join(path.read_text() for path in found)


def test_both_streams_are_kept_apart(runner: Runner, kind: str) -> None:
    task = runner.launch("echo one; echo two >&2; printf three", namespaces=kind)
    status = task.ended()
    assert (task.output(), task.output("stderr")) == ("one\nthree", "two\n")
    assert status["log_dropped"] == {"stdout": 0, "stderr": 0}


def test_a_silent_task_has_no_files_of_output(runner: Runner) -> None:
    task = runner.launch(["true"])
    task.ended()
    assert sorted(path.name for path in task.folder.iterdir()) == [
        "claim",
        "control",
        "status.json",
    ]


@pytest.mark.parametrize("lines", [CAP // LINE - 1, CAP // LINE])
def test_output_up_to_the_cap_is_kept_whole(runner: Runner, lines: int) -> None:
    task = runner.launch(NUMBERED.format(lines), log_bytes=CAP)
    assert task.ended()["log_dropped"]["stdout"] == 0
    assert numbers(task.output() + tails(task)) == list(range(1, lines + 1))


def test_beyond_the_cap_head_and_tail_are_kept(runner: Runner) -> None:
    lines = 50_000
    task = runner.launch(NUMBERED.format(lines), log_bytes=CAP)
    status = task.ended()
    head, tail = task.output(), tails(task)
    dropped = status["log_dropped"]["stdout"]
    assert f"[allotment: {dropped} bytes of output are missing here]" in head
    assert numbers(head)[: CAP // 2 // LINE] == list(range(1, CAP // 2 // LINE + 1))
    assert numbers(tail)[-1] == lines
    kept = head.partition("\n[allotment:")[0]
    assert len(kept) + len(tail) + dropped == lines * LINE
    assert CAP // 4 <= len(tail) <= CAP // 2


def test_pieces_are_named_for_their_place_in_the_stream(runner: Runner) -> None:
    task = runner.launch(NUMBERED.format(10_000), log_bytes=CAP)
    task.ended()
    whole = "".join(f"line {number:010}\n" for number in range(1, 10_001))
    for piece in task.folder.glob("stdout.tail.*"):
        start = int(piece.suffix[1:])
        text = piece.read_text()
        assert whole[start : start + len(text)] == text


def test_last_words_are_not_lost(runner: Runner, kind: str) -> None:
    task = runner.launch("head -c 1000000 /dev/zero | tr '\\0' x; echo END", namespaces=kind)
    task.ended()
    assert task.output().endswith("xEND\n")
    assert len(task.output()) == 1_000_004


def test_binary_output_is_kept_as_it_is(runner: Runner) -> None:
    task = runner.launch("printf '\\377\\000\\001'")
    task.ended()
    assert (task.folder / "stdout.log").read_bytes() == b"\xff\0\1"


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A state folder on a file system of 1 MiB."""
    folder = Path(tempfile.mkdtemp(prefix="allot-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], check=True)
    try:
        (folder / "state").mkdir()
        yield folder / "state"
    finally:
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()


@pytest.mark.needs_root
def test_a_full_disk_loses_output_but_neither_task_nor_status(small_disk: Path) -> None:
    with a_runner(small_disk) as runner:
        task = runner.launch("head -c 3000000 /dev/zero; echo done; exit 7")
        status = task.ended()
        assert status["exit_code"] == 7
        assert status["log_dropped"]["stdout"] > 1_000_000
        assert "No space left on device" in status["log_error"]


@pytest.mark.needs_root
def test_a_launch_on_a_full_disk_is_refused_and_can_be_repeated(small_disk: Path) -> None:
    with a_runner(small_disk) as runner:
        filler = small_disk / "filler"
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    os.write(file.fileno(), bytes(4096))
            except OSError:
                pass
        request = runner.request(["true"])
        answer = runner.ask({"op": "launch", "request": request})
        assert not answer["ok"]
        assert "No space left on device" in answer["error"]
        filler.unlink()
        assert runner.ask({"op": "launch", "request": request})["launched"] is True
        assert Task(runner, request["key"]).ended()["exit_code"] == 0

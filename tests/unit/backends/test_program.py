"""A program beside the event loop ends with what it started, and is not waited for."""

import asyncio
from pathlib import Path
from time import monotonic

import pytest

from allotment.backends.program import said_by
from tests.support.cluster import until

SCRIPT = "sleep 1000 & echo $! >{}; wait"
"""As a site's own script around a command of Slurm."""


def is_there(pid: str) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


async def story(pid: Path, patience_s: float) -> float:
    """Cancel a script once it has a child; return how long its end took."""
    asked = asyncio.create_task(said_by("sh", "-c", SCRIPT.format(pid), patience_s=patience_s))
    while not (pid.exists() and pid.read_text().strip()):
        await asyncio.sleep(0.01)
    began = monotonic()
    if patience_s > 10:
        asked.cancel()
    with pytest.raises((asyncio.CancelledError, TimeoutError)):
        await asked
    return monotonic() - began


@pytest.mark.parametrize("patience_s", [1000, 0.5])
def test_a_script_is_ended_with_its_children(tmp_path: Path, patience_s: float) -> None:
    pid = tmp_path / "pid"
    assert asyncio.run(story(pid, patience_s)) < 30
    until(lambda: not is_there(pid.read_text().strip()), "its child to be gone")


def test_a_script_that_is_cut_off_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    async def cut_off() -> None:
        asked = asyncio.create_task(said_by("sh", "-c", SCRIPT.format(pid), patience_s=1000))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        # The loop does not get on meanwhile: to it, the program is still about to start.
        until(lambda: pid.exists() and pid.read_text().strip() != "", "the script's child")
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asked, 30)

    asyncio.run(cut_off())
    until(lambda: not is_there(pid.read_text().strip()), "its child to be gone")


def test_what_a_program_says_and_how_it_ends_is_told() -> None:
    said = asyncio.run(said_by("sh", "-c", "echo a; echo b >&2; exit 3", patience_s=60))
    assert said == (3, b"a\n", b"b\n")

"""Output of tasks on a real Slurm: bounded, and on a disk that is full."""

import asyncio
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from allotment.backends.slurm.backend import SlurmBackend
from allotment.model.cluster import Node
from allotment.model.diagnosis import Exit
from allotment.model.ids import AttemptNo, JobId, NodeId, TaskIndex, TaskKey
from allotment.model.quantity import MIB, Resources
from allotment.model.reports import Seen, TaskReport
from allotment.service.ports import Binding, GangLaunch, Report, TaskLaunch
from tests.support.cluster import until
from tests.support.patience import PATIENCE_S
from tests.support.slurm import TOOLS, Slurm

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool(*TOOLS)]

NODE = Node(NodeId(1), "n1", 4000, 2000 * MIB, 0)
KEY = TaskKey(JobId(1), AttemptNo(1), TaskIndex(0))
CAP = 64 * 1024


@pytest.fixture
def small_disk(slurm: Slurm) -> Iterator[Path]:
    """A state folder on a file system of 2 MiB that others reach."""
    folder = Path(tempfile.mkdtemp(prefix="allot-", dir="/var/tmp"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", folder], check=True)
    try:
        yield folder
    finally:
        slurm.clear()  # Until then it has files of the task open.
        until(lambda: not subprocess.run(["umount", folder], check=False).returncode, "umount")
        folder.rmdir()


def a_gang(script: str) -> GangLaunch:
    task = TaskLaunch(
        key=KEY,
        name="main.0",
        binding=Binding("n1"),
        argv=("/bin/sh", "-c", script),
        env=(("PATH", "/usr/bin:/bin"),),
        resources=Resources(cpu_milli=1000, memory=64 * MIB),
    )
    return GangLaunch((task,), "/", log_bytes=CAP)


async def run(folder: Path, script: str) -> tuple[Exit, bytes]:
    """Run a task to its end; return how it ended, and all that is kept of its output."""
    over = asyncio.Event()
    ends: list[TaskReport] = []

    def hear(report: Report) -> None:
        if isinstance(report, TaskReport) and report.seen is Seen.ENDED:
            ends.append(report)
            over.set()

    ours = SlurmBackend(folder, "main", lambda: [NODE])
    await ours.start(hear)
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert await ours.launch(a_gang(script)) == {}
            await over.wait()
        text, offset = b"", 0
        while (chunk := await ours.read_log(KEY, "stdout", offset, 7777)).data:
            text, offset = text + chunk.data, chunk.next
        end = await ours.read_log(KEY, "stdout", -4, 10)
        assert end.data in (text[-4:], b"")
    finally:
        await ours.close()
    exit_ = ends[0].exit
    assert exit_ is not None
    return exit_, text


def test_of_too_much_output_the_beginning_and_the_end_are_kept(
    slurm: Slurm, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    exit_, text = asyncio.run(run(folder / "state", "seq 1 100000; echo END"))
    assert exit_.code == 0
    lines = text.split(b"\n")
    assert lines[:3] == [b"1", b"2", b"3"]
    assert lines[-2:] == [b"END", b""]
    written = sum(len(str(n)) + 1 for n in range(1, 100_001)) + 4
    assert exit_.log_dropped > written - 2 * CAP
    assert f"[allotment: {exit_.log_dropped} bytes of output are missing here]" in text.decode()
    assert len(text) < 1.5 * CAP
    there = folder / "state/slurm/tasks/1/1/0"
    assert sum(path.stat().st_size for path in there.glob("stdout.*")) < 1.5 * CAP


def test_on_a_full_disk_output_is_lost_and_the_end_is_told(
    slurm: Slurm, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    small_disk.chmod(0o755)
    fill = f"cat /dev/zero > {small_disk}/filler 2>/dev/null"
    exit_, _ = asyncio.run(run(small_disk, f"{fill}; seq 1 10000; exit 7"))
    assert exit_.code == 7
    assert not exit_.platform_error
    assert exit_.log_dropped > 30_000


def test_a_launch_on_a_full_disk_is_refused_with_that_and_can_be_repeated(
    slurm: Slurm, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))

    async def story() -> None:
        over = asyncio.Event()

        def hear(report: Report) -> None:
            if isinstance(report, TaskReport) and report.seen is Seen.ENDED:
                over.set()

        ours = SlurmBackend(small_disk, "main", lambda: [NODE])
        await ours.start(hear)
        filler = small_disk / "filler"
        with filler.open("wb", buffering=0) as file:
            while True:
                try:
                    os.write(file.fileno(), bytes(4096))
                except OSError:
                    break
        try:
            refused = await ours.launch(a_gang("true"))
            assert "No space left on device" in refused[KEY]
            filler.unlink()
            assert await ours.launch(a_gang("true")) == {}
            async with asyncio.timeout(PATIENCE_S):
                await over.wait()
        finally:
            await ours.close()

    asyncio.run(story())

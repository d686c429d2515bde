"""Whether the driver takes device memory away here and gives it back: tried, once a node.

A tiny program of our own fills memory, has it taken and given back, and says if it is the same.
Only where that was seen to work are jobs of others trusted to it. What came of it is kept for
as long as the machine runs with the same driver.
"""

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from allotment.backends.local.device_watch import nvml
from allotment.backends.local.driver.calling import DriverTrouble, Helpers, Known
from allotment.backends.local.driver.steps import Wanted
from allotment.backends.local.memory_by_process import is_gone, memory_of
from allotment.backends.local.runner import procfs
from allotment.model.quantity import GIB, MIB
from allotment.rights.writing import write_whole
from allotment.service.isolated import isolated, plain_with

KEPT = "driver-checkpoint.json"
"""In the state folder: what came of the last test."""
TARGET = "allotment.backends.local.driver.target"
WITHIN_S = 90.0
STEP_S = 30.0
LARGE, SMALL = GIB, 64 * MIB
"""The memory that is tried: the large tells how fast it is, the small is there anywhere."""
ROOM = 2 * GIB
"""Free memory of a device beside what is tried: the program's own, and for jobs."""
LEAST_DRIVER = 570


class SelfTest(msgspec.Struct, frozen=True):
    """What came of a test, for one boot and one driver. `why` says why it was not passed."""

    boot: str
    driver: str
    device: str
    passed: bool
    why: str = ""
    size: int = 0
    away_ms: float = 0.0
    back_ms: float = 0.0

    @property
    def away_rate(self) -> int:
        """Return the bytes a second that were copied to the host; 0 where nothing was."""
        return round(1000 * self.size / self.away_ms) if self.away_ms else 0

    @property
    def back_rate(self) -> int:
        """Return the bytes a second that were copied back."""
        return round(1000 * self.size / self.back_ms) if self.back_ms else 0


def kept_test(folder: Path) -> SelfTest | None:
    """Return what came of the last test since the machine was started; None without one."""
    try:
        found = msgspec.json.decode((folder / KEPT).read_bytes(), type=SelfTest)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.boot == procfs.boot_id() else None


async def try_node(folder: Path, uuid: str, why_not: str) -> SelfTest:
    """Return what came of the test of this boot and driver; try it where there is none.

    `why_not` says why a test is not even tried. Raises nothing: what goes wrong is told.
    """
    driver = await asyncio.to_thread(driver_version)
    kept = kept_test(folder)
    if kept is not None and (kept.driver, kept.device) == (driver, uuid) and not why_not:
        return kept
    result = SelfTest(procfs.boot_id(), driver, uuid, False, why_not or _too_old(driver))
    if not result.why:
        result = await _tried(result, folder)
    with suppress(OSError):
        write_whole(folder / KEPT, msgspec.json.encode(result))
    return result


def _too_old(driver: str) -> str:
    first = driver.partition(".")[0]
    if first.isdecimal() and int(first) < LEAST_DRIVER:
        return f"driver {driver} cannot do it; {LEAST_DRIVER} is the first that can"
    return ""


def driver_version() -> str:
    """Return the version of the driver; empty where NVML does not say."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return ""
    try:
        return str(nvml.nvmlSystemGetDriverVersion())
    except nvml.NVMLError:
        return ""
    finally:
        nvml.nvmlShutdown()


async def _tried(blank: SelfTest, folder: Path) -> SelfTest:
    helpers = Helpers()
    try:
        async with asyncio.timeout(WITHIN_S):
            return await _try(blank, helpers, folder)
    except TimeoutError:
        return msgspec.structs.replace(blank, why=f"it took more than {WITHIN_S:.0f} s")
    except (DriverTrouble, nvml.NVMLError, OSError) as trouble:
        return msgspec.structs.replace(blank, why=str(trouble))
    finally:
        await helpers.close()


async def _try(blank: SelfTest, helpers: Helpers, folder: Path) -> SelfTest:
    """Take memory of a program of our own, see it gone, give it back, and have it compared."""
    await helpers.version()
    empty = await asyncio.to_thread(memory_of, blank.device)
    size = LARGE if empty.total - empty.used > LARGE + ROOM else SMALL
    program = await _started(blank.device, size)
    try:
        await _hear(program, "ready")
        tested = Known(program.pid, procfs.start_time(program.pid))
        before = await asyncio.to_thread(memory_of, blank.device)
        had = before.of.get(program.pid, 0)
        if had < size:
            raise DriverTrouble("NVML does not show what the test's program has of the device")
        began = time.monotonic()
        await helpers.move(tested, Wanted.AWAY, had, folder)
        away_ms = round(1000 * (time.monotonic() - began), 1)
        await _until_gone(blank.device, program.pid, had, before.base)
        began = time.monotonic()
        await helpers.move(tested, Wanted.BACK, had, folder)
        back_ms = round(1000 * (time.monotonic() - began), 1)
        assert program.stdin is not None
        program.stdin.write(b"\n")
        await _hear(program, "same")
    finally:
        if program.returncode is None:
            program.kill()
        await program.wait()
    return msgspec.structs.replace(
        blank, passed=True, size=had, away_ms=away_ms, back_ms=back_ms
    )


async def _started(uuid: str, size: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *isolated(TARGET, str(size), bare=True),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd="/",
        env={**plain_with(os.environ), "CUDA_VISIBLE_DEVICES": uuid},
    )


async def _hear(program: asyncio.subprocess.Process, word: str) -> None:
    """Wait for a line of the program. Raises DriverTrouble if it says something else."""
    assert program.stdout is not None
    async with asyncio.timeout(STEP_S):
        line = (await program.stdout.readline()).decode(errors="replace").strip()
    if line != word:
        raise DriverTrouble(f"the test's program said {line or 'nothing'!r}, and not {word!r}")


async def _until_gone(uuid: str, pid: int, had: int, base: int) -> None:
    async with asyncio.timeout(STEP_S):
        while not is_gone(pid, had, base, await asyncio.to_thread(memory_of, uuid)):
            await asyncio.sleep(0.02)

"""Device memory handed over and taken back, by a driver library of the tests' own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allotment.backends.local.driver.handing import NOTE, Process
from allotment.backends.local.driver.steps import Wanted
from allotment.backends.local.runner import procfs
from tests.support import cuda

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool("cc")]

TEST = """
import asyncio, sys
from pathlib import Path
import msgspec
from allotment.backends.local.driver import calling, self_test
calling.MARGIN_S, calling.LOCK_MS, calling.ASK_S = 0.5, 500, 0.5
found = asyncio.run(self_test.try_node(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
print(msgspec.json.encode(found).decode())
"""
TARGET = "from allotment.backends.local.driver.target import main; main()"
HAND = """
import asyncio, json, sys
from pathlib import Path
import msgspec
from allotment.backends.local.driver import calling
from allotment.backends.local.driver.handing import Handing
calling.MARGIN_S, calling.LOCK_MS, calling.ASK_S = 0.5, 500, 0.5
async def main():
    handing = Handing()
    folder, root = Path(sys.argv[1]), int(sys.argv[2])
    for word in sys.argv[3:]:
        try:
            if word == "take":
                taken = await handing.take(folder, root, "GPU-of-a-test", ["/dev/zero"])
                print(json.dumps({"size": taken.size, "ms": dict(taken.ms)}))
            else:
                print(json.dumps({"ms": dict(await handing.give_back(folder))}))
        except calling.DriverTrouble as trouble:
            print(json.dumps({"trouble": str(trouble), "is_lost": trouble.is_lost}))
    await handing.close()
asyncio.run(main())
"""

MOVE = """
import asyncio, json, sys
from pathlib import Path
from allotment.backends.local.driver import calling
async def main():
    helpers = calling.Helpers()
    pid, started, wanted = int(sys.argv[2]), int(sys.argv[3]), calling.Wanted(sys.argv[4])
    try:
        await helpers.move(calling.Known(pid, started), wanted, 0, Path(sys.argv[1]))
        print("{}")
    except calling.DriverTrouble as trouble:
        print(json.dumps({"trouble": str(trouble)}))
    await helpers.close()
asyncio.run(main())
"""
LEFT_OFF = """
import asyncio, json, sys
from pathlib import Path
from allotment.backends.local.driver import calling
from allotment.backends.local.driver.handing import NOTE, Handing
async def main():
    handing, fault = Handing(), Path(sys.argv[3])
    folder, root = Path(sys.argv[1]), int(sys.argv[2])
    take = asyncio.create_task(handing.take(folder, root, "GPU-of-a-test", ["/dev/zero"]))
    while "1" != Path(sys.argv[4]).read_text()[0]:
        await asyncio.sleep(0.01)
    take.cancel()
    await asyncio.wait([take])
    back = asyncio.create_task(handing.give_back(folder))
    fault.unlink()
    print(json.dumps({"cancelled": take.cancelled(), "ms": dict(await back)}))
    await handing.close()
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    return cuda.build(tmp_path_factory.mktemp("driver"))


@pytest.fixture(autouse=True)
def well(env: Mapping[str, str]) -> None:
    """Begin without a fault, and with a device that nobody uses."""
    for path in Path(env["XDG_TEST_CUDA"]).iterdir():
        path.unlink()


def fault(env: Mapping[str, str], text: str) -> None:
    cuda.faulty(Path(env["LD_LIBRARY_PATH"]), text)


def python(env: Mapping[str, str], program: str, *words: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", program, *words], env=env, text=True, capture_output=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def outcome(env: Mapping[str, str], folder: Path, why_not: str = "") -> dict[str, Any]:
    (found,) = python(env, TEST, str(folder), cuda.UUID, why_not)
    return found


def test_a_node_where_it_works_passes_its_test_once(
    env: Mapping[str, str], tmp_path: Path
) -> None:
    found = outcome(env, tmp_path)
    assert (found["passed"], found["why"], found["driver"]) == (True, "", "580.1")
    assert found["size"] == (64 + 300) << 20
    assert found["away_ms"] > 0
    fault(env, "breaks checkpoint")
    assert outcome(env, tmp_path) == found, "kept for this boot and driver"


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("fails checkpoint", "cuCheckpointProcessCheckpoint: CUDA_ERROR_NOT_READY"),
        ("breaks checkpoint", "cuCheckpointProcessCheckpoint: CUDA_ERROR_UNKNOWN"),
        ("hangs checkpoint", "the driver does not answer"),
        ("breaks restore", "cuCheckpointProcessRestore: CUDA_ERROR_UNKNOWN"),
        ("forgets ", "said 'differs', and not 'same'"),
    ],
)
def test_a_node_where_it_does_not_work_fails_softly(
    env: Mapping[str, str], tmp_path: Path, what: str, why: str
) -> None:
    fault(env, what)
    found = outcome(env, tmp_path)
    assert not found["passed"]
    assert why in found["why"], found


def test_without_the_library_the_test_says_what_is_missing(tmp_path: Path) -> None:
    found = outcome({**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}, tmp_path)
    assert not found["passed"]
    assert "libcuda.so.1" in found["why"]


def test_what_is_known_not_to_work_is_not_tried(env: Mapping[str, str], tmp_path: Path) -> None:
    assert outcome(env, tmp_path, "MPS runs")["why"] == "MPS runs"


# ── one task ────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def program(env: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A program that has device memory."""
    words = [sys.executable, "-c", TARGET, str(64 << 20)]
    with subprocess.Popen(
        words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as made:
        assert made.stdout is not None
        assert made.stdout.readline() == "ready\n"
        yield made
        made.kill()


def says(program: subprocess.Popen[str]) -> str:
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write("\n")
    program.stdin.flush()
    return program.stdout.readline().strip()


def test_memory_is_away_and_back_and_the_same(
    env: Mapping[str, str], tmp_path: Path, program: subprocess.Popen[str]
) -> None:
    taken, given = python(env, HAND, str(tmp_path), str(program.pid), "take", "back")
    assert taken["size"] == (64 + 300) << 20
    assert list(taken["ms"]) == ["lock", "checkpoint", "seen_gone"]
    assert list(given["ms"]) == ["restore", "unlock"]
    assert not list(tmp_path.iterdir())
    assert says(program) == "same"


def test_who_was_killed_meanwhile_finds_the_process_again(
    env: Mapping[str, str], tmp_path: Path, program: subprocess.Popen[str]
) -> None:
    python(env, HAND, str(tmp_path), str(program.pid), "take")
    (again,) = python(env, HAND, str(tmp_path), str(program.pid), "take")
    assert list(again["ms"]) == ["seen_gone"], "nothing was left to do"
    python(env, HAND, str(tmp_path), str(program.pid), "back")
    assert python(env, HAND, str(tmp_path), str(program.pid), "back") == [{"ms": {}}]
    assert says(program) == "same"


def test_a_process_that_cannot_be_copied_goes_on(
    env: Mapping[str, str], tmp_path: Path, program: subprocess.Popen[str]
) -> None:
    fault(env, "fails checkpoint")
    (found,) = python(env, HAND, str(tmp_path), str(program.pid), "take")
    assert "CUDA_ERROR_NOT_READY" in found["trouble"]
    assert not found["is_lost"]
    assert says(program) == "same"


def test_a_process_that_broke_is_lost(
    env: Mapping[str, str], tmp_path: Path, program: subprocess.Popen[str]
) -> None:
    fault(env, "breaks checkpoint")
    (found,) = python(env, HAND, str(tmp_path), str(program.pid), "take")
    assert found["is_lost"]


def test_a_call_that_hangs_is_given_up(
    env: Mapping[str, str], tmp_path: Path, program: subprocess.Popen[str]
) -> None:
    fault(env, "hangs lock")
    (found,) = python(env, HAND, str(tmp_path), str(program.pid), "take")
    assert found["trouble"]


def test_a_copy_that_is_left_off_ends_before_it_is_undone(
    env: Mapping[str, str], tmp_path: Path, program: subprocess.Popen[str]
) -> None:
    fault(env, "hangs checkpoint")
    world = Path(env["XDG_TEST_CUDA"])
    (state,) = [path for path in world.iterdir() if path.name.startswith("pid_")]
    words = str(tmp_path), str(program.pid), str(world / "fault"), str(state)
    (found,) = python(env, LEFT_OFF, *words)
    assert found["cancelled"]
    assert list(found["ms"]) == ["restore", "unlock"]
    assert says(program) == "same"


def test_who_has_the_number_of_one_that_ended_keeps_its_memory(
    env: Mapping[str, str], tmp_path: Path, program: subprocess.Popen[str]
) -> None:
    """Root's calls never reach another's process, also if it got the number that was noted."""
    gone = Process(program.pid, procfs.start_time(program.pid) - 1, cuda.UUID, 64 << 20, 0)
    (tmp_path / NOTE).write_bytes(msgspec.json.encode(gone))
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as job:
        (found,) = python(env, HAND, str(tmp_path), str(job.pid), "take")
        job.kill()
    assert found["trouble"] == "0 of its processes have the device open; it must be one"
    assert is_untouched(env)
    for wanted in Wanted:
        (found,) = python(env, MOVE, str(tmp_path), str(gone.pid), str(gone.start_time), wanted)
        assert found["trouble"] == f"process {gone.pid}: it is gone"
    assert is_untouched(env)


COUNT = """
import json, subprocess, sys
from pathlib import Path
from allotment.backends.local.device_memory import ByNvml
from allotment.backends.local.ways import Here
from allotment.model.ids import AttemptNo, JobId, TaskIndex, TaskKey
key = TaskKey(JobId(1), AttemptNo(1), TaskIndex(0))
task = Here(key, int(sys.argv[1]), int(sys.argv[2]), (0,), Path())
(held,) = ByNvml(lambda: {"GPU-of-a-test": ("node", 0)}).of([task])[key]
print(json.dumps({"own": held.own}))
"""


def test_memory_of_what_left_the_main_process_counts_as_the_task_s(
    env: Mapping[str, str], program: subprocess.Popen[str]
) -> None:
    """An orphan of a task comes below its supervisor: here it is this process's child."""
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as main:
        (alone,) = python(env, COUNT, str(main.pid), str(main.pid))
        (found,) = python(env, COUNT, str(main.pid), str(os.getpid()))
        main.kill()
    assert program.poll() is None
    assert (alone["own"], found["own"]) == (0, 64 + 300)


def is_untouched(env: Mapping[str, str]) -> bool:
    """Whether the only program that has device memory runs, and has it."""
    (state,) = Path(env["XDG_TEST_CUDA"]).glob("pid_*")
    return state.read_text().startswith("0 ")


def test_of_a_program_without_a_device_nothing_is_taken(
    env: Mapping[str, str], tmp_path: Path
) -> None:
    (found,) = python(env, HAND, str(tmp_path), str(os.getpid()), "take")
    assert found["trouble"] == "0 of its processes have the device open; it must be one"

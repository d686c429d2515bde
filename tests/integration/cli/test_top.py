"""What running tasks use now, measured on real processes; and pages that draw themselves."""

import asyncio
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import allotment
from allotment.backends.local.task_use import uses_of
from allotment.engine.state import State
from allotment.model.errors import Rejected
from allotment.model.ids import AttemptNo, JobId, TaskIndex, TaskKey
from allotment.service.live_use import LiveUse
from tests.support.builders import NOW, POLICIES
from tests.support.cluster import ALLOT, RealCluster, a_real_cluster, until
from tests.support.fake_backend import FakeBackend
from tests.support.patience import PATIENCE_S

CONFIG = """
virtual_gpus: {type: virtual, count: 2}
tenants: {us: {guaranteed: {gpu: 2}}}
"""
BUSY = "import time; a = bytearray(80 << 20); exec('while True: a[0] = 1')"
SAVES = """
import json, os, time
target = os.environ['ALLOT_CHECKPOINT_FILE']
for step in range(1, 10**6):
    told = {'path': '/x', 'step': step * 10, 'progress': 0.5}
    with open(target + '.new', 'w') as file:
        json.dump(told, file)
    os.replace(target + '.new', target)
    time.sleep(0.05)
"""
TELLS = """
import time
import allotment
for step in range(1, 10**6):
    allotment.progress(step, 10**9, loss=0.25)
    time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def cluster(reachable_once: Path) -> Iterator[RealCluster]:
    with a_real_cluster(reachable_once, CONFIG) as running:
        yield running


def top(cluster: RealCluster, *words: str) -> list[dict[str, object]]:
    done = cluster.allot("top", "--json", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run(cluster: RealCluster, name: str, *command: str, tasks: int = 1) -> int:
    words = ["--name", name, "--tasks", str(tasks), "--cpus", "0.3", "--memory", "256MiB"]
    done = cluster.allot("run", "--detach", *words, "--", *command)
    assert done.returncode == 0, done.stderr
    job = int(done.stdout.split()[0])
    until(lambda: cluster.get(f"/v1/jobs/{job}")["row"]["state"] == "running", name)
    return job


def test_top_tells_a_busy_task_from_an_idle_one(cluster: RealCluster) -> None:
    busy = run(cluster, "busy", sys.executable, "-c", BUSY)
    idle = run(cluster, "idle", "sleep", "1000", tasks=2)
    until(
        lambda: any(
            task["job"] == busy and int(str(task["memory"])) > 80 << 20 for task in top(cluster)
        ),
        "the busy task to have its memory",
    )
    found = {(task["job"], task["task"]): task for task in top(cluster)}
    assert set(found) >= {(busy, "main.0"), (idle, "main.0"), (idle, "main.1")}
    assert int(str(found[busy, "main.0"]["cpu_milli"])) > 100
    assert int(str(found[idle, "main.1"]["cpu_milli"])) < 100
    assert [task["job"] for task in top(cluster, str(idle))] == [idle, idle]
    shown = cluster.allot("top", "--once").stdout.splitlines()
    assert "running" in shown[0]
    assert shown[1].split()[:3] == ["JOB", "NAME", "TASK"]
    assert shown[2].split()[1] == "busy"
    for job in (busy, idle):
        cluster.allot("cancel", str(job))


def test_steps_an_hour_come_from_the_last_two_saves(cluster: RealCluster) -> None:
    job = run(cluster, "saves", sys.executable, "-c", SAVES)

    def rated() -> bool:
        return [bool(task["steps_per_hour"]) for task in top(cluster, str(job))] == [True]

    until(rated, "two saves")
    (task,) = top(cluster, str(job))
    # Ten steps every 50 ms, or fewer where the machine is slow: at most 720,000 an hour.
    assert 0 < int(str(task["steps_per_hour"])) <= 800_000
    assert int(str(task["step"])) % 10 == 0
    cluster.allot("cancel", str(job))


def test_progress_is_shown_with_its_rate_and_the_time_left(cluster: RealCluster) -> None:
    src = Path(allotment.__file__).parents[1]
    job = run(cluster, "tells", "env", f"PYTHONPATH={src}", sys.executable, "-c", TELLS)
    until(
        lambda: [bool(task["steps_per_hour"]) for task in top(cluster, str(job))] == [True],
        "two looks at its progress",
    )
    (task,) = top(cluster, str(job))
    # A step takes 10 ms, or more where the machine is slow: at most 360,000 an hour.
    assert 0 < int(str(task["steps_per_hour"])) <= 400_000
    assert task["total"] == 10**9
    assert int(str(task["left_ms"])) > 10**9
    shown = cluster.allot("show", str(job)).stdout
    assert re.search(r"Progress  step \d+ of 1000000000, [\d,]+ steps an hour, .* left", shown)
    assert "loss 0.25" in shown
    assert cluster.get(f"/v1/jobs/{job}")["progress"]["metrics"] == {"loss": 0.25}
    cluster.allot("cancel", str(job))


def test_memory_and_cpu_of_children_count() -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    with subprocess.Popen([sys.executable, "-c", script, BUSY]) as parent:
        key = TaskKey(JobId(1), AttemptNo(1), TaskIndex(0))

        def grown() -> bool:
            found = uses_of({key: parent.pid})
            return bool(found) and found[0].memory > 80 << 20 and found[0].cpu_ms >= 50

        try:
            until(grown, "the child to be seen")
            assert uses_of({key: parent.pid})[0].processes == 2
        finally:
            children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text()
            for pid in (*map(int, children.split()), parent.pid):
                os.kill(pid, signal.SIGKILL)
    assert uses_of({key: parent.pid}) == []


def test_a_backend_that_cannot_measure_says_so() -> None:
    live = LiveUse(State(POLICIES), FakeBackend(), lambda _: None)
    with pytest.raises(Rejected, match="does not say what running tasks use"):
        asyncio.run(live.now(NOW))


@pytest.mark.parametrize("words", [("ps", "--watch"), ("top",)])
def test_a_watched_page_is_drawn_again_until_interrupted(
    cluster: RealCluster, words: tuple[str, ...]
) -> None:
    """On a terminal: again and again, and the screen is put back at the end."""
    pid, terminal = pty.fork()
    if not pid:
        os.environ["ALLOT_STATE"] = str(cluster.state)
        os.execv(ALLOT[0], [*ALLOT, *words, "--every", "0.2"])
    seen, end = b"", time.monotonic() + PATIENCE_S
    while seen.count(b"\x1b[H\x1b[J") < 3:
        assert time.monotonic() < end, seen
        if select.select([terminal], [], [], 0.1)[0]:
            seen += os.read(terminal, 65536)
    os.kill(pid, signal.SIGINT)
    end = time.monotonic() + PATIENCE_S
    while select.select([terminal], [], [], PATIENCE_S)[0]:
        assert time.monotonic() < end, "it is still drawn after Ctrl-C"
        try:
            seen += os.read(terminal, 65536)
        except OSError:
            break  # The other end is closed.
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert seen.startswith(b"\x1b[?1049h")
    assert seen.endswith(b"\x1b[?25h\x1b[?1049l")
    os.close(terminal)

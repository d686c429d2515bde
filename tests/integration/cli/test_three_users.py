"""A root service with three users, one of whom attacks whatever the kernel lets him."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.local.harness import SYSTEM_PYTHON
from tests.integration.local.test_hostile_user import an_attacker
from tests.support.cluster import RealCluster, a_real_cluster, until
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.needs_root
HOSTILE = 640_000 + os.getpid()
OTHERS = (HOSTILE + 100_000, HOSTILE + 200_000)
CONFIG = """
tenants: {everyone: {guaranteed: {gpu: 1, cpu: 4}}}
nodes: [{name: here, cpu: 4, memory: 8GiB, gpu: {type: T, count: 1}}]
"""
JOB = {"name": "j", "tenant": "everyone", "resources": {"gpu": 1, "cpu": 1}}
ASK = """
import http.client, json, socket, sys
path, method, url, body = sys.argv[1:]
class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
connection = Unix("localhost")
connection.request(method, url, body, {"Content-Type": "application/json"})
answer = connection.getresponse()
print(answer.read().decode())
sys.exit(answer.status >= 300)
"""


@pytest.fixture
def cluster(reachable: Path) -> Iterator[RealCluster]:
    with a_real_cluster(reachable, CONFIG) as made:
        yield made


def ask_as(cluster: RealCluster, uid: int, method: str, url: str, body: object = None) -> Any:
    """Ask the service as a user: the kernel tells it who asks."""
    words = [cluster.address["socket"], method, url, json.dumps(body or {})]
    done = subprocess.run(
        [SYSTEM_PYTHON, "-I", "-c", ASK, *words],
        user=uid,
        group=uid,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def submit_as(cluster: RealCluster, uid: int, command: str, **fields: object) -> int:
    job = {**JOB, "command": command, **fields}
    return ask_as(cluster, uid, "POST", "/v1/jobs", job)["id"]


def test_limits_and_orders_hold_whatever_a_user_does(
    cluster: RealCluster, reachable: Path
) -> None:
    """One device, three users: the hostile one gets no more of it than max_run_time.

    What he sends is sent before: his own clients would fall to the attack first, and so would
    the `mkdir` that makes his output folder as him, which only he then waits for.
    """
    blocker = cluster.submit({**JOB, "command": "sleep 1000"})
    limited = submit_as(cluster, HOSTILE, "sleep 1000", max_run_time="1s")
    unlimited = submit_as(cluster, HOSTILE, "trap '' TERM; sleep 1000")
    cluster.ask("POST", f"/v1/jobs/{unlimited}:hold")
    with an_attacker(reachable, HOSTILE, "allot-"):
        cluster.ask("POST", f"/v1/jobs/{blocker}:cancel")
        first = submit_as(cluster, OTHERS[0], "true")
        cluster.wait_for(limited, "timed_out")
        cluster.wait_for(first, "succeeded")
        cluster.ask("POST", f"/v1/jobs/{unlimited}:release")
        cluster.wait_for(unlimited, "running")
        second = submit_as(cluster, OTHERS[1], "true")
        cluster.ask("POST", f"/v1/jobs/{unlimited}:cancel")
        cluster.wait_for(unlimited, "cancelled")
        cluster.wait_for(second, "succeeded")
    row = cluster.get(f"/v1/jobs/{limited}")["row"]
    assert (row["reason"], row["ran_ms"] < 30_000) == ("run_time", True)
    until(lambda: not live(cluster), "nothing to be left")


def live(cluster: RealCluster) -> list[Path]:
    return list((cluster.state / "run/live").iterdir())

"""kill -9 of the service while data and code come: nothing half is used, nothing is left over.

Each folder that is put is known by a digest of its own, which a job looks at as it finds it.
"""

import hashlib
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from allotment.client import Client
from allotment.client.errors import ApiError
from allotment.model.lifecycle import FINISHED, JobState
from allotment.service.views import JobRow
from tests.support.chaos import DRAINED_S
from tests.support.cluster import RealCluster, a_real_cluster, until

KILLS = int(os.environ.get("ALLOT_KILLS", "4"))
"""`make nightly` makes 300."""
CONFIG = """
nodes: [{name: n, cpu: 8, memory: 8GiB}]
tenants: {vision: }
limits: {platform_retries: 1000, backoff: {first: 100ms, most: 1s}}
"""
UNENDED = [state for state in JobState if not state.finished]
FAILED = [state for state in FINISHED if state is not JobState.SUCCEEDED]
KEPT = 3
"""Versions that stay: others are removed while more come."""
CHECK = (
    "cd {where} && cat part-* | sha256sum | grep -q {digest} && test $(ls | wc -l) = {files}"
)


class Sender(threading.Thread):
    """Makes a folder, sends it, again until it is there; and then the next one."""

    def __init__(
        self, cluster: RealCluster, folder: Path, send: Callable[[Client, Path, str], None]
    ) -> None:
        super().__init__()
        self.cluster, self.folder, self.send = cluster, folder, send
        self.rng = random.Random(folder.name)
        self.over = threading.Event()
        self.sent = self.lost = 0

    def run(self) -> None:
        with Client(state=str(self.cluster.state)) as client:
            while not self.over.is_set():
                command = self.make()
                while not self.over.is_set():
                    try:
                        self.send(client, self.folder, command)
                    except ApiError:
                        self.lost += 1
                        self.over.wait(0.1)
                    else:
                        self.sent += 1
                        break

    def make(self) -> str:
        """Make new files; return a command that checks them."""
        self.folder.mkdir(exist_ok=True)
        for path in self.folder.iterdir():
            path.unlink()
        parts = [self.rng.randbytes(self.rng.choice([10, 40_000, 5 << 20])) for _ in range(9)]
        for number, part in enumerate(parts):
            (self.folder / f"part-{number}").write_bytes(part)
        digest = hashlib.sha256(b"".join(parts)).hexdigest()
        return CHECK.format(where="{where}", digest=digest, files=len(parts))


def submit(client: Client, command: str, **more: object) -> None:
    small = {"cpu": 0.1, "memory": "64MiB"}
    job = {"name": "c", "tenant": "vision", "command": command, "resources": small, **more}
    client.submit(job, key=hashlib.sha256(command.encode()).hexdigest()[:32])


def send_data(client: Client, folder: Path, command: str) -> None:
    """Put a version, have a job look at it, and let go of the oldest."""
    number = client.put_data("words", folder).version.number
    submit(client, command.format(where="/data/w"), data={f"words@{number}": "/data/w"})
    old = [each.number for each in client.dataset("words").versions][:-KEPT]
    for each in old:
        client.remove_data(f"words@{each}")


def send_code(client: Client, folder: Path, command: str) -> None:
    submit(client, command.format(where="$ALLOT_CODE_DIR"), code=client.take_code(folder).code)


@pytest.mark.slow
@pytest.mark.timeout(DRAINED_S + 20 * KILLS)
def test_no_half_of_an_upload_is_used_and_nothing_is_left(reachable: Path) -> None:
    rng = random.Random(2026)
    with a_real_cluster(reachable, CONFIG) as cluster:
        with Client(state=str(cluster.state)) as client:
            client.create_dataset("words", tenant="vision")
        senders = [
            Sender(cluster, reachable / "data", send_data),
            Sender(cluster, reachable / "code", send_code),
        ]
        for sender in senders:
            sender.start()
        amid = 0
        try:
            for _ in range(KILLS):
                time.sleep(rng.uniform(0, 1))
                until(lambda: any(fresh(cluster)), "something to come")
                cluster.kill()
                amid += any(fresh(cluster))
                cluster.up()
        finally:
            for sender in senders:
                sender.over.set()
            for sender in senders:
                sender.join()
        print(f"\n{KILLS} kills, {amid} amid an upload;", [(s.sent, s.lost) for s in senders])
        assert amid > KILLS // 3
        assert all(sender.sent for sender in senders)
        until(lambda: not jobs(cluster, *UNENDED), "every job to end", DRAINED_S)
        assert not jobs(cluster, *FAILED)
        nothing_left(cluster)


def fresh(cluster: RealCluster) -> list[Path]:
    """Return what comes just now."""
    found = [(cluster.state / kind / "new").glob("*") for kind in ("data", "code")]
    return [path for paths in found for path in paths]


def jobs(cluster: RealCluster, *states: JobState) -> list[JobRow]:
    with Client(state=str(cluster.state)) as client:
        return client.jobs(states=states, finished=True, limit=1)


def nothing_left(cluster: RealCluster) -> None:
    """Fail where anything is left that no version has, once all versions are gone."""
    until(lambda: not fresh(cluster), "what was half to be gone")
    with Client(state=str(cluster.state)) as client:
        client.remove_data("words")
    place = cluster.state / "data"
    until(lambda: [path.name for path in place.iterdir()] == ["new"], "the store to be empty")

"""kill -9 of the service at random points under load: nothing lost, nothing run twice."""

import os
import random
import resource
import statistics
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.cluster import RealCluster, a_real_cluster, until

KILLS = int(os.environ.get("ALLOT_KILLS", "12"))
"""`make nightly` makes 300."""
CONFIG = """
virtual_gpus: {type: virtual, count: 8}
tenants:
  a: {guaranteed: {gpu: 4}, queues: {default: {order: skip}}}
  b: {guaranteed: {gpu: 4}, queues: {default: {order: skip}}}
limits: {keep_finished: 50}
"""
BACK_WITHIN_S = 2.0
"""Of the processor: other programs on the machine make it longer by the clock."""


class Load(threading.Thread):
    """Submits all the time, each job with a key; a submission in doubt is repeated."""

    def __init__(self, cluster: RealCluster, witness: Path, number: int, seed: int) -> None:
        super().__init__()
        self.cluster = cluster
        self.witness = witness
        self.number = number
        self.rng = random.Random(seed)
        self.over = threading.Event()
        self.accepted: list[int] = []

    def run(self) -> None:
        count = 0
        while not self.over.is_set():
            count += 1
            spec = self.a_job()
            while not self.over.is_set() or self.in_doubt:
                try:
                    self.in_doubt = True
                    job = self.cluster.submit(spec, key=f"{self.number}-{count}")
                except (OSError, ValueError, KeyError, AssertionError):
                    self.over.wait(0.02)
                    continue
                except Exception as error:  # noqa: BLE001 - http.client has many
                    if "http" not in type(error).__module__:
                        raise
                    continue
                self.in_doubt = False
                self.accepted.append(job)
                break
            self.over.wait(0.12)

    in_doubt = False

    def a_job(self) -> dict[str, object]:
        """One task or a gang of two, short or not so short."""
        tasks = self.rng.choice([1, 1, 1, 2])
        seconds = self.rng.choice([0, 0, 0.05, 0.2, 0.5])
        words = "$ALLOT_JOB_ID.$ALLOT_ATTEMPT.$ALLOT_TASK"
        return {
            "name": "chaos",
            "tenant": self.rng.choice("ab"),
            "roles": {
                "main": {
                    "count": tasks,
                    "command": f"echo {words} >> {self.witness}; sleep {seconds}",
                    "resources": {"gpu": 1, "cpu": 0.1, "memory": "16MiB"},
                }
            },
        }


@pytest.mark.slow
def test_kill_nine_at_random_points(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    witness.touch()
    rng = random.Random(2026)
    returns: list[Return] = []
    with a_real_cluster(tmp_path, CONFIG) as cluster:
        loads = [Load(cluster, witness, number, number) for number in range(3)]
        for load in loads:
            load.start()
        try:
            for _ in range(KILLS):
                time.sleep(rng.uniform(0, 0.4))
                cluster.kill()
                returns.append(_until_it_schedules(cluster))
        finally:
            for load in loads:
                load.over.set()
            for load in loads:
                load.join()
        accepted = sorted(job for load in loads for job in load.accepted)
        assert len(set(accepted)) == len(accepted), "one key made two jobs"
        until(lambda: not _live(cluster), "every job to end", 300)
        finished = _all_jobs(cluster)
        again = [
            job
            for job, row in finished.items()
            if row["attempt"] != 1 + _evictions(cluster, job, row)
        ]
        told = [_story(cluster, job) for job in again[:3]]
    lost = [job for job in accepted if job not in finished]
    assert not lost, f"accepted and lost: {lost[:10]}"
    bad = {job: row for job, row in finished.items() if row["state"] != "succeeded"}
    assert not bad, f"did not succeed: {list(bad.values())[:5]}"
    assert not again, "\n".join([f"tried again without an eviction: {again}", *told])
    runs = Counter(witness.read_text().split())
    twice = {key: count for key, count in runs.items() if count > 1}
    assert not twice, f"started twice: {twice}"
    ran = {int(key.split(".")[0]) for key in runs}
    assert ran == set(finished), "every job that succeeded has really run"
    seconds = [each.seconds for each in returns]
    typical = statistics.median(each.processor_s for each in returns)
    print(
        f"\n{KILLS} kills, {len(accepted)} jobs; scheduling again after "
        f"{statistics.median(seconds):.2f} s, {typical:.2f} s of them on a processor, "
        f"at most {max(seconds):.2f} s"
    )
    assert typical <= BACK_WITHIN_S


class Return(NamedTuple):
    """How long it took a service to be back: by the clock, and of the processor."""

    seconds: float
    processor_s: float


def _until_it_schedules(cluster: RealCluster) -> Return:
    """Restart, and wait until an event of the new service's scheduling is there."""
    before = _last_seq(cluster.state)
    began, starting_s = time.monotonic(), _spent_by_children_s()
    cluster.up()
    starting_s = _spent_by_children_s() - starting_s

    def scheduled() -> bool:
        events = cluster.get(f"/v1/events?after={before}&limit=1000")
        items = events["items"] if isinstance(events, dict) else events
        return any(event["kind"] == "AttemptPlaced" for event in items)

    until(scheduled, "the first job to be placed after a restart")
    return Return(time.monotonic() - began, starting_s + _spent_by_s(cluster.address["pid"]))


def _spent_by_children_s() -> float:
    """Processor time of the children that have ended: of `allot up`, not of its service."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def _spent_by_s(pid: int) -> float:
    """Processor time of a process that is there, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _last_seq(state: Path) -> int:
    import sqlite3

    connection = sqlite3.connect(f"file:{state}/allot.db?mode=ro", uri=True)
    try:
        return connection.execute("SELECT max(seq) FROM events").fetchone()[0] or 0
    finally:
        connection.close()


def _evictions(cluster: RealCluster, job: int, row: dict[str, Any]) -> int:
    return cluster.get(f"/v1/jobs/{job}")["evictions"] if row["attempt"] > 1 else 0


def _story(cluster: RealCluster, job: int) -> str:
    events = cluster.get(f"/v1/jobs/{job}/events")
    items = events["items"] if isinstance(events, dict) else events
    return "\n".join(f"{e['at']} job {job} {e['text']}" for e in items)


def _live(cluster: RealCluster) -> bool:
    states = "&".join(f"state={s}" for s in ("queued", "starting", "running", "stopping"))
    return bool(cluster.get(f"/v1/jobs?limit=1&{states}")["items"])


def _all_jobs(cluster: RealCluster) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    path = "/v1/jobs?finished=true&limit=500"
    page = cluster.get(path)
    while True:
        found |= {row["id"]: row for row in page["items"]}
        if not page["next"]:
            return found
        page = cluster.get(f"{path}&before={page['next']}")

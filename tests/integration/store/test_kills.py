"""kill -9 at any moment: what was acknowledged is there, and nothing is there by halves."""

import os
import random
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from allotment.model.events import JobRequeued
from allotment.model.ids import JobId
from allotment.service.ports import JobFilter
from allotment.store.migrate import newest, revision
from allotment.store.sqlite import FILE, SqliteStore
from tests.integration.store import appender

ROUNDS = 20
MIGRATION_ROUNDS = 4
LONGEST_S = 0.05
"""After a first sign of life, the child lives at most so long."""

MAKE_LOGS = """
import pathlib, sys
from allotment.store.migrate import {way} as make
for number in range(10_000):
    print(number, flush=True)
    make(pathlib.Path(sys.argv[1]) / f"{{number}}.db")
"""


@contextmanager
def a_child(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE)
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def acknowledged_until_killed(child: subprocess.Popen[bytes], life_s: float) -> list[int]:
    """Let the child live a little after its first line; give the numbers it wrote."""
    assert child.stdout is not None
    told = child.stdout.readline()
    assert told, "the child ended by itself"
    os.set_blocking(child.stdout.fileno(), False)
    select.select([], [], [], life_s)  # to be killed at any point, not where it writes
    assert child.poll() is None
    child.send_signal(signal.SIGKILL)
    child.wait()
    os.set_blocking(child.stdout.fileno(), True)
    lines = (told + child.stdout.read()).split(b"\n")[:-1]  # the last may be cut
    return [int(line) for line in lines]


def test_every_acknowledged_event_survives_kill_nine(tmp_path: Path) -> None:
    rng = random.Random(9)
    killed_late = 0
    for seed in range(ROUNDS):
        with a_child(str(appender.__file__), str(tmp_path), str(seed)) as child:
            numbers = acknowledged_until_killed(child, rng.uniform(0, LONGEST_S))
        killed_late += len(numbers) > 1
        store = SqliteStore.open(tmp_path)
        assert store.last_seq() >= numbers[-1]
        check(store)
        store.close()
    assert killed_late > ROUNDS // 2


def check(store: SqliteStore) -> None:
    """Find every batch whole, its archive entry with it, and no number missing but pruned."""
    counts: dict[JobId, int] = {}
    snapshot = store.snapshot()
    replayed = snapshot.seq if snapshot else 0
    last = 0
    for record in store.records():
        assert record.seq == last + 1 or record.seq <= replayed + 1
        last = record.seq
        event = record.event
        assert isinstance(event, JobRequeued)
        counts[event.job] = counts.get(event.job, 0) + 1
    for job, count in counts.items():
        (first, *_) = store.records_of(job)
        assert isinstance(first.event, JobRequeued)
        assert count == int(first.event.cause.split()[0]), f"job {job} is there by halves"
    archived = store.archived_page(JobFilter(), 1_000_000)
    assert {job.id for job in archived} == set(counts)


@pytest.mark.parametrize("seed", range(MIGRATION_ROUNDS))
@pytest.mark.parametrize("way", ["migrate", "upgrade"])
def test_a_killed_migration_is_done_or_was_never_begun(
    tmp_path: Path, way: str, seed: int
) -> None:
    """Also where a new log gets its tables at once."""
    life_s = random.Random(seed).uniform(0.1, 0.4)
    with a_child("-c", MAKE_LOGS.format(way=way), str(tmp_path)) as child:
        numbers = acknowledged_until_killed(child, life_s)
    for number in (numbers[-1], numbers[-1] + 1):
        path = tmp_path / f"{number}.db"
        if path.exists():
            assert revision(path) in {"", newest()}
            (tmp_path / str(number)).mkdir()
            for part in tmp_path.glob(f"{number}.db*"):
                part.rename(tmp_path / str(number) / part.name.replace(f"{number}.db", FILE))
            store = SqliteStore.open(tmp_path / str(number))
            assert store.last_seq() == 0
            store.close()

"""A service with 300 jobs, killed, its books damaged: it refuses to start, or has them all."""

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from allotment.store.sqlite import FILE
from tests.support.cluster import RealCluster, a_real_cluster

JOBS = 300
WAL = f"{FILE}-wal"
CONFIG = """
virtual_gpus: {type: virtual, count: 1}
tenants: {a: {guaranteed: {gpu: 1}}}
"""
BOOKS = (FILE, WAL, "allot.mark")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """A service that was killed with 300 jobs; `books` beside its folder has their files."""
    folder = tmp_path_factory.mktemp("books")
    with a_real_cluster(folder, CONFIG) as cluster:
        for number in range(JOBS):
            cluster.submit({"name": f"j{number}", "command": "true", "tenant": "a"}, "")
            if number == 200:
                checkpoint(cluster.state / FILE)
        cluster.kill()
        (folder / "books").mkdir()
        for name in BOOKS:
            shutil.copy(cluster.state / name, folder / "books" / name)
        yield cluster


def checkpoint(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


@pytest.fixture
def state(cluster: RealCluster) -> Iterator[Path]:
    """The state folder, its books as the crash left them."""
    for found in cluster.state.glob(f"{FILE}*"):
        shutil.rmtree(found) if found.is_dir() else found.unlink()
    for name in BOOKS:
        shutil.copy(cluster.state.parent / "books" / name, cluster.state / name)
    yield cluster.state
    cluster.allot("down")


def cut_wal(state: Path) -> None:
    with (state / WAL).open("r+b") as file:
        file.truncate((state / WAL).stat().st_size // 2)


def flip_wal(state: Path) -> None:
    data = bytearray((state / WAL).read_bytes())
    data[random.Random(1).randrange(len(data) // 2)] ^= 4
    (state / WAL).write_bytes(data)


def delete_wal(state: Path) -> None:
    (state / WAL).unlink()


def empty_file(state: Path) -> None:
    (state / FILE).write_bytes(b"")


def flip_event(state: Path) -> None:
    connection = sqlite3.connect(state / FILE)
    connection.execute("UPDATE events SET body = CAST(x'83a5' || body AS BLOB) WHERE seq = 100")
    connection.commit()
    connection.close()


def delete_event(state: Path) -> None:
    connection = sqlite3.connect(state / FILE)
    connection.execute("DELETE FROM events WHERE seq = 100")
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    "damage", [cut_wal, flip_wal, delete_wal, empty_file, flip_event, delete_event]
)
def test_damaged_books_are_refused_and_the_doctor_says_the_same(
    cluster: RealCluster, state: Path, damage: Callable[[Path], None]
) -> None:
    damage(state)
    told = cluster.allot("up")
    assert told.returncode == 1
    assert f"the event log {state / FILE} is damaged:" in told.stderr
    assert "allot restore" in told.stderr
    assert "allot up --accept-loss" in told.stderr
    assert "bug" not in told.stderr
    doctor = cluster.allot("doctor")
    assert doctor.returncode == 1
    assert ", complete" not in doctor.stdout
    assert "damaged" in doctor.stdout


def test_books_as_a_crash_leaves_them_are_whole(cluster: RealCluster, state: Path) -> None:
    told = cluster.allot("doctor")
    assert f"{state / FILE}, " in told.stdout
    assert ", complete" in told.stdout
    assert cluster.allot("up").returncode == 0
    assert len(cluster.get("/v1/jobs?finished=true&limit=500")["items"]) == JOBS


def test_loss_that_is_accepted_is_an_event(cluster: RealCluster, state: Path) -> None:
    cut_wal(state)
    assert cluster.allot("up").returncode == 1
    told = cluster.allot("up", "--accept-loss")
    assert told.returncode == 0, told.stderr
    assert 200 < len(cluster.get("/v1/jobs?finished=true&limit=500")["items"]) < JOBS
    events = cluster.allot("events", "--limit", "1000").stdout
    assert "the log continues without" in events
    (kept,) = state.glob(f"{FILE}.damaged-*")
    assert (kept / WAL).exists()
    cluster.kill()
    assert cluster.allot("up").returncode == 0

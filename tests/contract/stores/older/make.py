"""Make a database with the code of an older version, and record what that version says of it.

Run in a worktree of that version, into which this file and `tests/golden/corpus` are copied:

    git worktree add ../older COMMIT && cd ../older && scripts/setup dev
    cp -r ../main/tests/golden/corpus tests/golden/
    mkdir -p tests/contract/stores/older
    cp ../main/tests/contract/stores/older/make.py tests/contract/stores/older/
    .venv/bin/python -m tests.contract.stores.older.make 0 cells
    .venv/bin/python -m tests.contract.stores.older.make 78 counted
    .venv/bin/python -m tests.contract.stores.older.make counted.yaml cells.yaml virtual.yaml

`0` and `78` are seeds of the corpus: two stretches of that history are played, with a snapshot
between them, so that a reader needs the snapshot and the tail of the log. Written are

    NAME.db.xz      the database, before anything later has seen it
    NAME.json.xz    the state, and the answers to `show`, `queues` and `tenants`
    NAME.json       what that version makes of NAME.yaml, a configuration with all its keys
"""

import json
import lzma
import sys
import tempfile
from pathlib import Path

import msgspec

from allotment.engine.engine import Engine
from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model import events as e
from allotment.model import quantity
from allotment.model.ids import SYSTEM, JobId
from allotment.model.quantity import Instant
from allotment.service.launch import Folders
from allotment.service.pipeline import archive_of
from allotment.service.ports import ArchivedJob, Snapshot, Store
from allotment.service.queries import job_view, tenant_views
from allotment.service.queue_read import queue_trees
from allotment.store.sqlite import FILE, SqliteStore
from allotment.wire.config import config_to_wire, read_config
from allotment.wire.job_write import job_to_wire
from tests.support.builders import a_node

MOVES = 60
"""Of each of the two stretches."""
KEPT = 12
"""Finished jobs that stay in memory: older ones are in the archive."""
FOLDERS = Folders("/var/lib/allot")

Answers = dict[str, object]


def answers(state: State, store: Store) -> Answers:
    """Return what a service would say now: all there is to show, in JSON's types."""
    now = state.at
    jobs = [*state.jobs.values(), *map(_of_archive, _archived(state, store))]
    said = {
        "image": state.image(),
        "jobs": {job.id: job_view(state, job, now, FOLDERS, _written) for job in jobs},
        "queues": queue_trees(state, now),
        "tenants": tenant_views(state),
    }
    return msgspec.json.decode(msgspec.json.encode(said))


def _written(spec: msgspec.Struct) -> dict[str, object]:
    return dict(job_to_wire(spec))  # pyright: ignore[reportArgumentType]


def _archived(state: State, store: Store) -> list[ArchivedJob]:
    gone = (JobId(job) for job in range(1, state.next_job) if job not in state.jobs)
    return [found for job in gone if (found := store.archived(job)) is not None]


def _of_archive(job: ArchivedJob) -> JobRecord:
    return msgspec.msgpack.decode(job.document, type=JobRecord)


def make(seed: int, folder: Path) -> Answers:
    """Play a history, write its database into a folder, return what is said at its end."""
    from tests.golden.corpus.history import History  # noqa: PLC0415 - an older one may not have it

    history = History(seed)
    world, store = history.world, SqliteStore.open(folder)
    written = 0
    for last in (False, True):
        history.play(MOVES)
        archived = _archive(world.engine, world.now)
        world.collect()
        store.append(world.log[written:], archived)
        written = len(world.log)
        if not last:
            image = msgspec.msgpack.encode(world.state.image())
            store.save_snapshot(Snapshot(world.state.seq, image))
    found = answers(world.state, store)
    store.close()
    return found


def _archive(engine: Engine, now: Instant) -> list[ArchivedJob]:
    leaving = engine.archive(now, KEPT)
    archived = [archive_of(engine, job) for job in leaving]
    for job in leaving:
        engine.emit(e.JobArchived(job), SYSTEM, now)
    return archived


def read(path: Path) -> None:
    """Record what a configuration means."""
    config, warnings = read_config(
        path.read_bytes(), source=path.name, machine=a_node(devices=0)
    )
    said = {"config": config_to_wire(config), "warnings": [str(each) for each in warnings]}
    text = msgspec.json.format(msgspec.json.encode(said), indent=1)
    path.with_suffix(".json").write_bytes(text + b"\n")


def main(seed: str, target: str) -> None:
    # The corpus names times of the wall apart, which older versions do not.
    if not hasattr(quantity, "WallTime"):
        quantity.WallTime = Instant  # pyright: ignore[reportAttributeAccessIssue]
    with tempfile.TemporaryDirectory() as folder:
        found = make(int(seed), Path(folder))
        data = (Path(folder) / FILE).read_bytes()
    Path(f"{target}.db.xz").write_bytes(lzma.compress(data, preset=9))
    text = json.dumps(found, separators=(",", ":")).encode()
    Path(f"{target}.json.xz").write_bytes(lzma.compress(text, preset=9))


if __name__ == "__main__":
    if sys.argv[1].isdecimal():
        main(*sys.argv[1:])
    else:
        for name in sys.argv[1:]:
            read(Path(name))

"""Writes a long history into a state folder with the production engine and store."""

from pathlib import Path

import msgspec

from allotment.engine.engine import Engine
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.cluster import Device, Node
from allotment.model.diagnosis import Exit
from allotment.model.ids import SYSTEM, Actor, DeviceIndex, NodeId
from allotment.model.quantity import GIB, Instant, Resources
from allotment.model.reports import Seen, TaskReport
from allotment.model.spec import JobSpec, TaskRole
from allotment.model.tenancy import Config, Tenant
from allotment.service.pipeline import SNAPSHOT_EVERY, archive_of
from allotment.service.ports import Snapshot
from allotment.store.sqlite import SqliteStore
from allotment.wiring.policies import policies

BATCH = 1000


def write_history(folder: Path, events: int) -> None:
    """Run one-task jobs to their end until the log has so many events."""
    store = SqliteStore.open(folder)
    engine = Engine(State(policies()))
    node = Node(
        NodeId(0),
        "n0",
        8000,
        64 * GIB,
        GIB,
        tuple(Device(DeviceIndex(i), "A100") for i in range(8)),
    )
    share = Resources(gpu_milli=8000, cpu_milli=8000, memory=64 * GIB)
    engine.command(
        c.ApplyConfig(Config((node,), (Tenant("bench", share),))), SYSTEM, Instant(1)
    )
    need = Resources(gpu_milli=1000, cpu_milli=100, memory=GIB)
    spec = JobSpec("bench", "bench", (TaskRole("main", 1, "true", need),))
    now, snapshot_at = 1, 0
    while engine.state.seq < events:
        now += 10
        _one_job(engine, spec, Instant(now))
        if len(engine.records) >= BATCH:
            leaving = engine.archive(Instant(now))
            archived = [archive_of(engine, job) for job in leaving]
            for job in leaving:
                engine.emit(e.JobArchived(job), SYSTEM, Instant(now))
            records, _ = engine.take()
            store.append(records, archived)
        if engine.state.seq - snapshot_at >= SNAPSHOT_EVERY and not engine.records:
            snapshot_at = engine.state.seq
            image = msgspec.msgpack.encode(engine.state.image())
            store.save_snapshot(Snapshot(engine.state.seq, image))
    records, _ = engine.take()
    store.append(records)
    store.close()


def _one_job(engine: Engine, spec: JobSpec, now: Instant) -> None:
    records = engine.command(c.SubmitJob(spec), Actor("bench", 0, ("bench",)), now)
    engine.cycle(now)
    submitted = records[0].event
    assert isinstance(submitted, e.JobSubmitted)
    key = engine.state.jobs[submitted.job].task_keys()[0]
    engine.report(TaskReport(key, Seen.RUNNING, pid=1), now)
    engine.report(TaskReport(key, Seen.ENDED, pid=1, exit=Exit(code=0)), now)

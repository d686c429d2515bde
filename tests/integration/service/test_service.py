"""The service on a real event log, with tasks that follow a script."""

import asyncio
import contextlib
import os
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.cells import CellShare, CellType, RootCell, Topology
from allotment.model.errors import Code, InvariantViolated, Rejected, StoreError
from allotment.model.ids import Actor, JobId, NodeId, TaskKey
from allotment.model.lifecycle import JobState as S
from allotment.model.reasons import Reason
from allotment.model.spec import Completion, Dependency, JobSpec
from allotment.service.clock import SteadyClock
from allotment.service.listing import Which
from allotment.service.ports import ArchivedJob, GangLaunch, LogChunk, Refused, Store
from allotment.service.selector import Selector
from allotment.service.service import Service
from allotment.service.views import EventView, JobRow
from allotment.store.sqlite import SqliteStore
from allotment.wiring.engines import Engines
from allotment.wiring.kept_config import Kept
from allotment.wiring.service import config_files
from tests.support.builders import POLICIES, a_config, a_job, a_tenant
from tests.support.fake_backend import FakeBackend
from tests.support.patience import PATIENCE_S

ME = Actor("me", None, ())
CONFIG = a_config(a_tenant("vision", 4), a_tenant("nlp", 4))


def a_script(
    script: str, gpus: float = 1, tenant: str = "vision", **changes: object
) -> JobSpec:
    spec = a_job().gpus(gpus).of(tenant).spec()
    role = msgspec.structs.replace(spec.roles[0], command=script)
    return msgspec.structs.replace(spec, roles=(role,), **changes)


def made_service(
    folder: Path, backend: FakeBackend | None = None, store: Store | None = None
) -> Service:
    return Service(
        store=store or SqliteStore.open(folder),
        backend=backend or FakeBackend(),
        clock=SteadyClock(),
        policies=POLICIES,
        state_dir=str(folder),
        write_spec=lambda spec: {"name": spec.name},
        version="test",
        config_files=config_files(Kept(folder), Engines(folder)),
    )


@asynccontextmanager
async def running(
    folder: Path, backend: FakeBackend | None = None, store: Store | None = None
) -> AsyncIterator[Service]:
    service = made_service(folder, backend, store)
    await service.start(CONFIG)
    try:
        yield service
    finally:
        await service.stop()


async def paged(service: Service, **which: Any) -> tuple[list[JobRow], JobId | None]:
    """Return a page of all jobs there were."""
    return await service.listing.page(Which(Selector(), finished=True, **which), ME)


async def until(check: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    async with asyncio.timeout(seconds):
        while not check():
            await asyncio.sleep(0.005)


async def told_of(service: Service, job: JobId) -> list[EventView]:
    """Follow a job to its end."""
    found = [each async for told in service.follow_events(job, 0, ME) for each in told]
    return [msgspec.json.decode(each.json, type=EventView) for each in found]


def test_a_job_is_told_from_its_submission_to_its_end(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as service:
            made = await service.submit(c.SubmitJob(a_script("fake 0.05")), ME)
            told = [view.kind for view in await told_of(service, made.id)]
            assert told[0] == "JobSubmitted"
            assert told[-1] == "JobSucceeded"
            view = service.job(made.id, ME)
            assert view.state is S.SUCCEEDED
            assert view.attempts[0].tasks[0].name == "main.0"

    asyncio.run(story())


def test_who_asks_for_a_part_of_a_gpu_is_told_that_it_is_counted(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as service:
            part = c.SubmitJob(a_script("fake 0.05", gpus=0.5))
            made = await service.submit(part, ME)
            assert made.warnings[0].startswith("gpu: 0.5 of a GPU is counted, not enforced")
            assert service.job(made.id, ME).warnings == made.warnings
            whole = await service.submit(c.SubmitJob(a_script("fake 0.05")), ME)
            assert not any("enforced" in each for each in whole.warnings)

    asyncio.run(story())


def test_the_same_key_makes_one_job_even_after_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as service:
            first = await service.submit(c.SubmitJob(a_script("fake"), key="k"), ME)
            again = await service.submit(c.SubmitJob(a_script("fake"), key="k"), ME)
            assert (again.id, again.repeated) == (first.id, True)
            other = await service.submit(c.SubmitJob(a_script("fake"), key="k"), Actor("you"))
            assert other.id != first.id
        async with running(tmp_path) as service:
            again = await service.submit(c.SubmitJob(a_script("fake"), key="k"), ME)
            assert (again.id, again.repeated) == (first.id, True)

    asyncio.run(story())


def test_a_restart_adopts_what_runs_and_starts_nothing_twice(tmp_path: Path) -> None:
    async def story() -> None:
        backend = FakeBackend()
        async with running(tmp_path, backend) as service:
            made = await service.submit(c.SubmitJob(a_script("fake forever")), ME)
            await until(lambda: service.state.jobs[made.id].state is S.RUNNING)
        async with running(tmp_path, backend) as service:
            assert service.state.jobs[made.id].state is S.RUNNING
            assert len(backend.tasks) == 1
            await service.act(c.CancelJob(made.id), ME)
            await until(lambda: service.state.jobs[made.id].state is S.CANCELLED)

    asyncio.run(story())


def test_tasks_nobody_knows_any_more_are_tried_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as service:
            made = await service.submit(c.SubmitJob(a_script("fake forever")), ME)
            await until(lambda: service.state.jobs[made.id].state is S.RUNNING)
        async with running(tmp_path, FakeBackend()) as service:
            job = service.state.jobs[made.id]
            await until(lambda: job.platform_retries == 1 and job.state is S.RUNNING)
            assert job.used_retries == 0

    asyncio.run(story())


def test_finished_jobs_leave_memory_and_can_still_be_asked_for(tmp_path: Path) -> None:
    async def story() -> None:
        config = msgspec.structs.replace(
            CONFIG, limits=msgspec.structs.replace(CONFIG.limits, keep_finished=2)
        )
        async with running(tmp_path) as service:
            await service.act(c.ApplyConfig(config), Actor("root", 0))
            made = [
                await service.submit(
                    c.SubmitJob(a_script("fake", name=f"n{i}"), key=f"k{i}"), ME
                )
                for i in range(6)
            ]
            await until(lambda: len(service.state.jobs) == 2)
            await service.pipeline.committer.idle()
            assert service.job(made[0].id, ME).archived
            assert service.finding.resolve("n0", ME) == made[0].id
            assert service.finding.resolve("last", ME) == made[-1].id
            rows, _ = await paged(service)
            assert [row.id for row in rows] == [m.id for m in reversed(made)]
            rows, more = await paged(service, limit=4)
            assert more == rows[-1].id
            rest, _ = await paged(service, limit=4, before=more)
            assert [row.id for row in rest] == [made[1].id, made[0].id]
            again = await service.submit(c.SubmitJob(a_script("fake"), key="k0"), ME)
            assert again.repeated
            array = c.SubmitJob(a_script("fake"), key="three", copies=3)
            first = await service.submit(array, ME)
            await until(lambda: first.id not in service.state.jobs)
            assert (await service.submit(array, ME)).ids == first.ids

    asyncio.run(story())


def a_report(**words: object) -> bytes:
    return msgspec.json.encode({"path": "/x", **words})


@pytest.mark.parametrize(
    "hostile",
    [
        a_report(step=1).replace(b"1", b"1" + b"0" * 30),
        a_report(step=-1),
        a_report(progress="nan", step="nan"),
        a_report(step=2).replace(b"/x", b"\\u0000"),
        b"[" * 60_000,
        b'{"x": ' + b"[" * 60_000,
        b'{"path": "caf\xe9"}',
        b'{"path": "x", "step": "caf\xe9"}',
        b"",
        "a pipe",
        "a link",
        "a folder",
    ],
)
def test_no_checkpoint_file_harms_the_service(tmp_path: Path, hostile: bytes | str) -> None:
    async def story() -> None:
        async with running(tmp_path) as service:
            made = await service.submit(c.SubmitJob(a_script("fake 60")), ME)
            job = service.state.jobs[made.id]
            await until(lambda: job.state is S.RUNNING)
            file = Path(service.folders.checkpoint_file(job.id, job.spec))
            if isinstance(hostile, bytes):
                file.write_bytes(hostile)
            elif hostile == "a pipe":
                os.mkfifo(file)
            elif hostile == "a folder":
                file.mkdir()
            else:
                (file.parent / "there").write_bytes(a_report(step=6))
                file.symlink_to("there")
            async with asyncio.timeout(PATIENCE_S):
                assert await service.pipeline.checkpoints.look(service.state) == []
            if file.is_dir():
                file.rmdir()
            fresh = file.with_name("fresh")
            fresh.write_bytes(a_report(step=7, progress=0.5))
            fresh.replace(file)
            await until(lambda: job.checkpoint is not None)
            assert job.checkpoint is not None
            assert (job.checkpoint.step, job.checkpoint.progress_milli) == (7, 500)
            await service.pipeline.committer.idle()
            assert not service.trouble

    asyncio.run(story())


@pytest.mark.parametrize("hostile", ["huge", "a pipe", "a link", "a folder"])
def test_no_progress_file_harms_the_service(tmp_path: Path, hostile: str) -> None:
    async def story() -> None:
        async with running(tmp_path) as service:
            made = await service.submit(c.SubmitJob(a_script("fake 60")), ME)
            job = service.state.jobs[made.id]
            await until(lambda: job.state is S.RUNNING)
            file = Path(service.folders.progress_file(job.id, job.spec))
            progress = service.pipeline.progress
            if hostile == "a pipe":
                os.mkfifo(file)
            elif hostile == "a folder":
                file.mkdir()
            elif hostile == "a link":
                (file.parent / "there").write_text('{"step": 6}')
                file.symlink_to("there")
            else:
                with file.open("wb") as sparse:
                    sparse.truncate(1 << 40)
            async with asyncio.timeout(PATIENCE_S):
                await progress.look(service.state)
            assert service.job(job.id, ME).progress is None
            if file.is_dir():
                file.rmdir()
            fresh = file.with_name("fresh")
            fresh.write_text('{"step": 7, "total": 9, "metrics": {"loss": 0.5}}')
            fresh.replace(file)
            async with asyncio.timeout(PATIENCE_S):
                while (told := service.job(job.id, ME).progress) is None:
                    await asyncio.sleep(0.01)
                    await progress.look(service.state)
            assert (told.step, told.total, told.metrics) == (7, 9, {"loss": 0.5})
            other = service.job(job.id, Actor("other", 4711, ())).progress
            assert other is not None
            assert other.metrics == {}

    asyncio.run(story())


def test_a_checkpoint_may_be_odd_in_what_does_no_harm(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as service:
            made = await service.submit(c.SubmitJob(a_script("fake 60")), ME)
            job = service.state.jobs[made.id]
            await until(lambda: job.state is S.RUNNING)
            file = Path(service.folders.checkpoint_file(job.id, job.spec))
            file.write_bytes(a_report(step="12", progress="inf"))
            await until(lambda: job.checkpoint is not None)
            assert job.checkpoint is not None
            assert (job.checkpoint.step, job.checkpoint.progress_milli) == (12, 1000)

    asyncio.run(story())


class Clumsy(FakeBackend):
    """Has bugs: it fails as nobody foresaw."""

    def __init__(self, *, launches: bool) -> None:
        super().__init__()
        self.launches = launches

    async def launch(self, gang: GangLaunch) -> Refused:
        if not self.launches:
            raise KeyError(gang.tasks[0].name)
        return await super().launch(gang)

    async def read_log(self, key: TaskKey, stream: str, offset: int, size: int) -> LogChunk:
        if self.launches:
            raise ZeroDivisionError
        return await super().read_log(key, stream, offset, size)


@pytest.mark.parametrize("launches", [True, False])
def test_a_bug_in_a_backend_ends_the_job_and_nothing_else(
    tmp_path: Path, launches: bool
) -> None:
    async def story() -> None:
        async with running(tmp_path, Clumsy(launches=launches)) as service:
            made = await service.submit(c.SubmitJob(a_script("fake 0 exit 3")), ME)
            job = service.state.jobs[made.id]
            await until(lambda: bool(job.attempts) and bool(job.attempts[0].ended_at))
            diagnosis = job.attempts[0].diagnosis
            assert diagnosis is not None
            why = "no trace of why" if launches else "a bug in Allotment: KeyError('main.0')"
            assert why in diagnosis.cause + diagnosis.evidence
            other = await service.submit(c.SubmitJob(a_script("fake forever")), ME)
            await until(lambda: bool(service.state.jobs[other.id].attempts))

    asyncio.run(story())


def test_a_gang_of_which_one_task_is_refused_is_taken_back(tmp_path: Path) -> None:
    """Also where its job would do with fewer: none of it has begun."""

    async def story() -> None:
        backend = FakeBackend()
        async with running(tmp_path, backend) as service:
            spec = a_script("fake forever")
            good = msgspec.structs.replace(spec.roles[0], name="good")
            bad = msgspec.structs.replace(
                good, name="bad", command="fake refused", completion=Completion(min_failed=0)
            )
            spec = msgspec.structs.replace(spec, roles=(good, bad))
            made = await service.submit(c.SubmitJob(spec), ME)
            job = service.state.jobs[made.id]
            await until(lambda: bool(job.attempts) and bool(job.attempts[0].ended_at))
            first = job.attempts[0]
            assert first.diagnosis is not None
            assert "does not take it" in first.diagnosis.cause + first.diagnosis.evidence
            assert not first.barrier_at
            (key, task) = next(iter(backend.tasks.items()))
            assert key.index == 0
            assert task.report.exit is not None
            assert task.report.exit.signal

    asyncio.run(story())


def test_of_two_changes_at_once_both_are_kept(tmp_path: Path) -> None:
    def named(spec: JobSpec) -> JobSpec:
        return msgspec.structs.replace(spec, name="changed")

    def urgent(spec: JobSpec) -> JobSpec:
        return msgspec.structs.replace(spec, priority=7)

    async def story() -> None:
        async with running(tmp_path) as service:
            for _ in range(10):
                made = await service.submit(c.SubmitJob(a_script("fake"), held=True), ME)
                await asyncio.gather(*(service.edit(made.id, do, ME) for do in (named, urgent)))
                spec = service.state.jobs[made.id].spec
                assert (spec.name, spec.priority) == ("changed", 7)

    asyncio.run(story())


class SlowStore(SqliteStore):
    """Writes only while its gate is open."""

    gate = threading.Event()

    def append(self, records: Sequence[e.Record], archived: Sequence[ArchivedJob] = ()) -> None:
        assert self.gate.wait(PATIENCE_S)
        super().append(records, archived)


class BrokenStore(SqliteStore):
    """Writes until its disk breaks."""

    broken = False

    def append(self, records: Sequence[e.Record], archived: Sequence[ArchivedJob] = ()) -> None:
        if self.broken:
            raise StoreError("the disk is gone")
        super().append(records, archived)


def test_a_service_whose_log_cannot_be_written_stops_and_starts_again(tmp_path: Path) -> None:
    async def story() -> None:
        store = BrokenStore.open(tmp_path)
        assert isinstance(store, BrokenStore)
        service = made_service(tmp_path, store=store)
        await service.start(CONFIG)
        made = await service.submit(c.SubmitJob(a_script("fake forever")), ME)
        store.broken = True
        wish = asyncio.create_task(service.act(c.CancelJob(made.id), ME))
        await until(lambda: bool(service.trouble))
        async with asyncio.timeout(PATIENCE_S):
            await service.stop()
        with pytest.raises(Rejected, match="the disk is gone"):
            await wish
        async with running(tmp_path) as service:
            assert service.state.jobs[made.id].state is not S.CANCELLED

    asyncio.run(story())


def test_a_job_on_its_way_to_the_archive_is_never_nowhere(tmp_path: Path) -> None:
    """Between leaving memory and the commit it is found, told, and its key is known."""
    none = msgspec.structs.replace(
        CONFIG, limits=msgspec.structs.replace(CONFIG.limits, keep_finished=0)
    )

    async def story() -> None:
        store = SlowStore.open(tmp_path)
        assert isinstance(store, SlowStore)
        store.gate.set()
        service = made_service(tmp_path, store=store)
        await service.start(CONFIG)
        try:
            made = await service.submit(c.SubmitJob(a_script("fake", name="n"), key="k"), ME)
            await until(lambda: service.state.jobs[made.id].state.finished)
            await service.pipeline.committer.idle()
            store.gate.clear()
            applied = asyncio.create_task(service.act(c.ApplyConfig(none), Actor("root", 0)))
            await until(lambda: made.id not in service.state.jobs)
            assert service.job(made.id, ME).archived
            assert (
                service.finding.resolve("n", ME)
                == service.finding.resolve("last", ME)
                == made.id
            )
            assert [row.id for row in (await paged(service))[0]] == [made.id]
            with pytest.raises(Rejected, match="finished long ago"):
                await service.act(c.CancelJob(made.id), ME)
            again = asyncio.create_task(
                service.submit(c.SubmitJob(a_script("fake"), key="k"), ME)
            )
            after = asyncio.create_task(
                service.submit(
                    c.SubmitJob(a_script("fake", depends_on=(Dependency(made.id),))), ME
                )
            )
            await asyncio.sleep(0)
            store.gate.set()
            await applied
            assert ((await again).id, (await again).repeated) == (made.id, True)
            await until(lambda: after.done() and after.result().id not in service.state.jobs)
            await service.pipeline.committer.idle()
            assert not service.pipeline.committer.leaving
            rows, _ = await paged(service)
            assert [row.id for row in rows] == [after.result().id, made.id]
        finally:
            store.gate.set()
            await service.stop()

    asyncio.run(story())


def test_pages_are_in_order_also_when_an_old_job_still_runs(tmp_path: Path) -> None:
    """The old one is live, newer ones are in the archive: every page is newest first."""
    few = msgspec.structs.replace(
        CONFIG, limits=msgspec.structs.replace(CONFIG.limits, keep_finished=1)
    )

    async def story() -> None:
        async with running(tmp_path) as service:
            await service.act(c.ApplyConfig(few), Actor("root", 0))
            scripts = ["fake 60", *["fake"] * 6]
            made = [
                (await service.submit(c.SubmitJob(a_script(script, name=f"n{i}")), ME)).id
                for i, script in enumerate(scripts)
            ]
            await until(lambda: len(service.state.jobs) == 2)
            await service.pipeline.committer.idle()
            found: list[JobId] = []
            more: JobId | None = None
            while True:
                rows, more = await paged(service, limit=2, before=more, beginning="n")
                found += [row.id for row in rows]
                if more is None:
                    break
            assert found == made[::-1]

    asyncio.run(story())


def test_names_prefixes_and_their_trouble(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as service:
            for name in ("train-a", "train-b", "eval"):
                await service.submit(c.SubmitJob(a_script("fake forever", name=name)), ME)
            assert service.finding.resolve("ev", ME) == JobId(3)
            with pytest.raises(Rejected) as refused:
                service.finding.resolve("train", ME)
            assert refused.value.code is Code.AMBIGUOUS_JOB
            assert "train-a" in refused.value.message
            for evil in ("../../etc/passwd", "a/b", "", "x" * 500, "\x00"):
                with pytest.raises(Rejected) as refused:
                    service.finding.resolve(evil, ME)
                assert refused.value.code is Code.NO_SUCH_JOB

    asyncio.run(story())


def test_only_the_owner_and_the_administrator_may_change_a_job(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as service:
            alice, bob = Actor("alice", 61001), Actor("bob", 61002)
            made = await service.submit(c.SubmitJob(a_script("fake forever")), alice)
            for wish in (c.CancelJob(made.id), c.HoldJob(made.id), c.SuspendJob(made.id)):
                with pytest.raises(Rejected) as refused:
                    await service.act(wish, bob)
                assert refused.value.code is Code.FORBIDDEN
            with pytest.raises(Rejected):
                await service.act(c.DrainNode(service.node_id("n0")), bob)
            with pytest.raises(Rejected):
                await service.output.files(made.id, bob, 0, 100)
            await service.act(c.CancelJob(made.id), Actor("root", 0))

    asyncio.run(story())


def test_every_event_names_who_acted(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as service:
            alice = Actor("alice", 61001, ("vision", "staff"))
            made = await service.submit(c.SubmitJob(a_script("fake forever")), alice)
            await service.act(c.CancelJob(made.id), Actor("root", 0, ("root",)))
            told = await told_of(service, made.id)
            who = {view.kind: (view.user, view.groups) for view in told}
            assert who["JobSubmitted"] == ("alice", ("vision", "staff"))
            assert who["StopRequested"] == ("root", ("root",))
            assert who["JobCancelled"][0] == "allot"
            cancelled = [view for view in told if view.kind == "JobCancelled"]
            assert "by root" in cancelled[0].text

    asyncio.run(story())


def test_paths_are_checked_as_the_user_when_submitted(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as service:
            for spec, words in (
                (
                    msgspec.structs.replace(a_script("fake"), data_dir="/no/such"),
                    "no such file",
                ),
                (msgspec.structs.replace(a_script("fake"), code_dir="relative"), "absolute"),
            ):
                with pytest.raises(Rejected) as refused:
                    await service.submit(c.SubmitJob(spec), ME)
                assert refused.value.code is Code.PATH_UNUSABLE
                assert words in refused.value.message

    asyncio.run(story())


@pytest.mark.needs_root
def test_a_root_service_does_not_lend_its_eyes(tmp_path: Path) -> None:
    async def story() -> None:
        secret = tmp_path / "secret"
        secret.mkdir(mode=0o700)
        (tmp_path / "state").mkdir()
        async with running(tmp_path / "state") as service:
            nobody = Actor("nobody", 65534)
            with pytest.raises(Rejected) as refused:
                await service.submit(
                    c.SubmitJob(a_script("fake", data_dir=str(secret))), nobody
                )
            assert refused.value.code is Code.PATH_UNUSABLE
            await service.submit(c.SubmitJob(a_script("fake", data_dir="/usr/share")), nobody)

    asyncio.run(story())


def test_secrets_are_in_no_event_and_no_view(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as service:
            spec = a_script("fake", secrets=(("TOKEN", "hunter2hunter2"),))
            made = await service.submit(c.SubmitJob(spec), ME)
            told = await told_of(service, made.id)
            assert "hunter2" not in str(msgspec.to_builtins(told))
            assert "hunter2" not in str(msgspec.to_builtins(service.job(made.id, ME)))
            with pytest.raises(Rejected):
                service.spec_of(made.id, Actor("bob", 61002))

    asyncio.run(story())


@pytest.mark.needs_root
def test_a_full_disk_loses_nothing_and_the_service_goes_on(tmp_path: Path) -> None:
    async def story(folder: Path) -> None:
        async with running(folder) as service:
            kept = await service.submit(c.SubmitJob(a_script("fake forever")), ME)
            await until(lambda: service.state.jobs[kept.id].state is S.RUNNING)
            fill(folder / "ballast")
            with pytest.raises(Rejected) as refused:
                await submit_many(service)
            assert refused.value.code is Code.UNCERTAIN
            assert "free space" in refused.value.message
            with pytest.raises(Rejected) as later:
                await service.submit(c.SubmitJob(a_script("fake"), key="later"), ME)
            assert later.value.code is Code.UNAVAILABLE
            assert service.state.jobs[kept.id].state is S.RUNNING
            (folder / "ballast").unlink()
            await until(lambda: not service.trouble)
            newest = max(service.state.jobs.values(), key=lambda job: job.id)
            wish = c.SubmitJob(newest.spec, key=newest.key)
            again = await service.submit(wish, ME)
            assert again.repeated, "what was uncertain was written as soon as it could be"
            assert (ME.user, "later") not in service.state.keys
        count = service.state.seq  # With what became of its tasks while it stopped.
        with contextlib.closing(SqliteStore.open(folder)) as store:
            assert store.last_seq() == count
            assert sum(1 for _ in store.records()) == count

    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], check=True)
    try:
        asyncio.run(story(disk))
    finally:
        subprocess.run(["umount", disk], check=True)


async def submit_many(service: Service) -> None:
    for number in range(10_000):
        wish = c.SubmitJob(a_script("fake forever", gpus=4), key=f"k{number}")
        await service.submit(wish, ME)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return


def test_why_is_true_while_it_waits(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as service:
            first = await service.submit(c.SubmitJob(a_script("fake forever", gpus=4)), ME)
            other = await service.submit(
                c.SubmitJob(a_script("fake forever", gpus=4, tenant="nlp")), ME
            )
            await until(lambda: service.state.jobs[other.id].state is S.RUNNING)
            waits = await service.submit(c.SubmitJob(a_script("fake", gpus=2)), ME)
            answer = service.why(waits.id)
            assert answer is not None
            assert answer.reason is Reason.CAPACITY
            assert {holder.job for holder in answer.holders} == {first.id, other.id}
            assert service.why(first.id) is None

    asyncio.run(story())


def test_events_are_durable_before_they_are_told(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as service:
            made = await service.submit(c.SubmitJob(a_script("fake")), ME)
            reader = SqliteStore.open(tmp_path)
            records = reader.records_of(made.id)
            assert isinstance(records[0].event, e.JobSubmitted)
            reader.close()

    asyncio.run(story())


def test_ids_of_a_lost_history_are_not_given_out_again(tmp_path: Path) -> None:
    async def story() -> None:
        backend = FakeBackend()
        async with running(tmp_path / "old", backend) as service:
            for _ in range(3):
                await service.submit(c.SubmitJob(a_script("fake")), ME)
            await until(lambda: not service.state.cluster.gangs and len(backend.tasks) == 3)
        async with running(tmp_path / "new", backend) as service:
            made = await service.submit(c.SubmitJob(a_script("fake 0 exit 3")), ME)
            assert made.id == 4
            await until(lambda: service.state.jobs[made.id].state is S.FAILED)

    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    asyncio.run(story())


def test_a_start_that_breaks_ends_and_keeps_nothing_of_it(tmp_path: Path) -> None:
    """Its state holds an event by then that nobody will ever write."""
    broken = msgspec.structs.replace(
        CONFIG,
        tenants=(msgspec.structs.replace(CONFIG.tenants[0], cells=(CellShare("n", 1),)),),
        topology=Topology(
            (CellType("n", "A100", 8, is_node=True),),
            (RootCell("n", "n0", (NodeId(0),), ((0, 1),)),),
        ),
    )

    async def story() -> None:
        async with running(tmp_path) as service:
            made = await service.submit(c.SubmitJob(a_script("fake")), ME)
        service = made_service(tmp_path)
        with pytest.raises(InvariantViolated, match="has 2 leaves"):
            await service.start(broken)
        async with asyncio.timeout(PATIENCE_S):
            await service.stop()
        async with running(tmp_path) as service:
            assert made.id in service.state.jobs
            assert service.state.config == CONFIG

    asyncio.run(story())

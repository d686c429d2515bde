"""What is said of a start that was not seen: the reason, as `allot why` has it."""

import asyncio
from types import SimpleNamespace
from typing import cast

import msgspec

from allotment.model import commands as c
from allotment.model.amounts import Amounts
from allotment.model.forecast import Answer, Question
from allotment.model.ids import JobId, NodeId
from allotment.model.quantity import DAY, DEVICE, MINUTE, Millis
from allotment.model.spec import Dependency
from allotment.model.tenancy import Config, Queue, QueueOrder, QueueState
from allotment.service.archive import Archive
from allotment.service.estimate_view import Outlook, StartEstimate
from allotment.service.estimating import RESERVED, Estimating, in_words
from allotment.service.pipeline import Pipeline
from allotment.service.why import after_others
from allotment.sim.ahead import FORCE_MS
from allotment.sim.forecast import answer
from tests.support.builders import ALICE, POLICIES, a_config, a_job, a_node, a_tenant
from tests.support.world import World


def configured(queue: Queue) -> Config:
    tenant = msgspec.structs.replace(a_tenant("vision", 8), queues=(queue,))
    return a_config(tenant)


def asked(world: World, job: int = 0, submit: c.SubmitJob | None = None) -> Answer:
    question = Question(
        now=world.now,
        image=msgspec.msgpack.encode(world.state.image()),
        past=(),
        horizon_ms=Millis(30 * DAY),
        patience_ms=Millis(0),
        job=JobId(job),
        submit=submit,
        actor=ALICE,
    )
    return answer(question, lambda: POLICIES, lambda _: lambda: False)


def told(world: World, job: JobId) -> StartEstimate:
    return in_words(asked(world, job), world.state, world.now, world.job(job), "job")


STOPPED = Queue("default", state=QueueState.STOPPED)


def test_of_a_stopped_queue_that_is_said_whatever_else_runs() -> None:
    world = World(configured(Queue("default")))
    runs = world.submit(a_job().gpus(1))
    world.cycle()
    world.runs(runs)
    job = world.submit(a_job().gpus(8))
    world.do(c.ApplyConfig(configured(STOPPED)))
    found = told(world, job)
    assert found.outlook is Outlook.NEVER
    assert found.note == (
        "Queue default of vision is stopped: no job in it starts. It starts when the "
        "administrator opens the queue again."
    )
    assert found.confidence == "sure, if nothing changes"
    assert found.basis == ()


def test_of_a_job_over_its_queues_limit_that_is_said() -> None:
    world = World(configured(Queue("default", QueueOrder.SKIP)))
    world.submit(a_job().gpus(8))
    world.cycle()
    job = world.submit(a_job().gpus(4))
    limit = Amounts((("gpu", 3 * DEVICE),))
    world.do(c.ApplyConfig(configured(Queue("default", QueueOrder.SKIP, limit=limit))))
    found = told(world, job)
    blocked = world.why(job)
    assert found.outlook is Outlook.NEVER
    assert found.note.endswith(f"{blocked.message} {blocked.hint}")
    assert "it needs 4 GPUs" in found.note


def test_of_a_job_larger_than_its_share_that_may_not_borrow_no_date_is_given() -> None:
    world = World(a_config(a_tenant("vision", 8, borrow=False)))
    runs = world.submit(a_job().gpus(1))
    world.cycle()
    world.runs(runs)
    job = world.submit(a_job().gpus(8))
    world.do(c.ApplyConfig(a_config(a_tenant("vision", 4, borrow=False))))
    found = told(world, job)
    assert found.outlook is Outlook.NEVER
    assert found.note == (
        "It cannot start as the configuration is: it is larger than its tenant's cells, and "
        "its tenant may not borrow. It needs more than the whole guarantee: ask for less, or "
        "let it borrow."
    )
    assert found.not_before is None
    assert found.basis == ()


def test_of_a_tenant_that_is_gone_that_is_said() -> None:
    world = World(a_config(a_tenant("vision", 4), a_tenant("nlp", 4)))
    job = world.submit(a_job().of("nlp").gpus(4))
    world.do(c.ApplyConfig(a_config(a_tenant("vision", 8))))
    found = told(world, job)
    assert found.outlook is Outlook.NEVER
    assert found.note.startswith(
        "It cannot start as the configuration is: tenant nlp is not in the configuration."
    )


def test_who_runs_on_and_on_is_named_and_no_horizon_is_told_as_a_date() -> None:
    world = World(configured(Queue("default")))
    runs = world.submit(a_job().gpus(8))
    world.cycle()
    world.runs(runs)
    found = told(world, world.submit(a_job().gpus(1)))
    assert (found.outlook, found.endless) == (Outlook.UNKNOWN, (runs,))
    assert found.not_before is None
    assert found.earliest == world.now
    assert found.note == (
        "Job 1 is in its way, and its end is unknown: it has no max_run_time, and "
        "no job like it has ended. Others hold what it needs; too little is free of: GPU. A "
        "start can be estimated if jobs have a max_run_time."
    )
    assert found.confidence.startswith("weak")


def test_the_earliest_start_behind_known_and_unknown_jobs_is_a_lower_bound() -> None:
    world = World(configured(Queue("default")))
    for job in (a_job().gpus(4), a_job().gpus(4).within(run_ms=60 * MINUTE)):
        submitted = world.submit(job)
        world.cycle()
        world.runs(submitted)
    found = told(world, world.submit(a_job().gpus(8)))
    assert (found.outlook, found.endless) == (Outlook.UNKNOWN, (JobId(1),))
    assert found.earliest == world.now + 15 * MINUTE  # A quarter of the limit that is known.
    assert found.not_before is None


def test_only_those_are_named_that_hold_what_it_waits_for() -> None:
    nodes = tuple(a_node(at, 8, kind) for at, kind in enumerate(("A100", "T4")))
    config = msgspec.structs.replace(a_config(a_tenant("vision", 16)), nodes=nodes)
    world = World(config)
    for _ in range(9):
        for kind in ("A100", "T4"):
            world.submit(a_job().gpus(1).types(kind))
    world.cycle()
    for job in [*world.state.cluster.gangs]:
        world.runs(job)
    found = told(world, JobId(17))
    assert found.endless == tuple(JobId(job) for job in range(1, 17, 2))
    assert found.note.startswith("Jobs 1, 3, 5, 7, 9 and 3 more are in its way, and their ends")


def test_a_chain_of_dependencies_ends_at_whoever_runs_on_and_on() -> None:
    world = World(configured(Queue("default")))
    runs = world.submit(a_job().gpus(8))
    world.cycle()
    world.runs(runs)
    second = world.submit(a_job().gpus(8))
    found = told(world, world.submit(a_job().gpus(1).after(Dependency(second))))
    assert found.endless == (runs,)
    assert found.note.startswith("Job 1 is in its way")
    assert "It starts after job 2 (queued)." in found.note


def test_where_nothing_is_known_to_come_the_horizon_is_not_told() -> None:
    world = World(configured(Queue("default")))
    job = world.submit(a_job().gpus(8))
    world.do(c.DrainNode(NodeId(0)))
    found = told(world, job)
    assert (found.outlook, found.endless, found.not_before) == (Outlook.UNKNOWN, (), None)
    assert found.note.startswith(
        "Nothing that is known of the future lets it start. It would fit if"
    )


def test_what_is_beyond_the_horizon_is_told_as_that() -> None:
    world = World(configured(Queue("default")))
    runs = world.submit(a_job().gpus(8).within(run_ms=300 * DAY))
    world.cycle()
    world.runs(runs)
    found = told(world, world.submit(a_job().gpus(8)))
    assert (found.outlook, found.endless) == (Outlook.UNKNOWN, ())
    assert found.not_before == world.now + 30 * DAY
    assert found.note.startswith("It does not start within 30 d 0 h.")


def test_of_one_that_was_not_submitted_the_reason_is_the_copys() -> None:
    world = World(configured(Queue("default")))
    runs = world.submit(a_job().gpus(8))
    world.cycle()
    world.runs(runs)
    found = asked(world, submit=c.SubmitJob(a_job().gpus(1).spec()))
    estimate = in_words(found, world.state, world.now, None, "job")
    assert estimate.outlook is Outlook.UNKNOWN
    assert "too little is free of: GPU." in estimate.note


def test_a_reserved_place_hangs_on_nobodys_run_time() -> None:
    world = World(a_config(a_tenant("vision", 0), a_tenant("nlp", 8)))
    runs = world.submit(a_job().gpus(8).checkpointing(grace_ms=7000))
    world.cycle()
    world.runs(runs)
    job = world.submit(a_job().of("nlp").gpus(8))
    world.cycle()
    found = told(world, job)
    assert (found.outlook, found.basis, found.confidence) == (Outlook.LATER, (), RESERVED)
    assert found.earliest == world.now
    assert found.latest == world.now + 7000 + FORCE_MS


def test_what_no_job_causes_is_not_laid_on_jobs() -> None:
    world = World(configured(Queue("default")))
    runs = world.submit(a_job().gpus(2))
    world.cycle()
    world.runs(runs)
    job = world.submit(a_job().gpus(1))
    world.do(c.DrainNode(NodeId(0)))
    found = told(world, job)
    assert found.note.startswith(
        "Nothing that is known of the future lets it start. It would fit if"
    )


def test_one_that_was_not_submitted_is_told_on_whom_it_depends() -> None:
    world = World(configured(Queue("default")))
    for limits in (a_job(), a_job().within(run_ms=60_000)):
        runs = world.submit(limits.gpus(2))
        world.cycle()
        world.runs(runs)
        spec = a_job().gpus(1).after(Dependency(runs)).spec()
        found = asked(world, submit=c.SubmitJob(spec))
        after = after_others(world.state, spec)
        estimate = in_words(found, world.state, world.now, None, "job", after)
        after_it = f"It starts after job {runs} (running)."
        assert after_it in estimate.note
        assert ("its end is unknown" in estimate.note) is (estimate.latest is None)
    world.ends(runs)
    assert after_others(world.state, spec) is None


def test_of_one_that_is_over_it_is_said_how() -> None:
    world = World(configured(Queue("default")))
    job = world.submit(a_job().gpus(2))
    world.do(c.CancelJob(job))
    pipeline = SimpleNamespace(clock=SimpleNamespace(now=lambda: world.now))
    estimating = Estimating(cast("Pipeline", pipeline), cast("Archive", None), None)
    found = asyncio.run(estimating.start_of(world.job(job)))
    assert found.note == "It is over: it was cancelled."

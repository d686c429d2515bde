"""A job's way through the engine, told as short stories. Every step is audited."""

import msgspec
import pytest

from allotment.model import commands as c
from allotment.model import effects as f
from allotment.model import events as e
from allotment.model.diagnosis import Exit
from allotment.model.errors import Code, Rejected
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Entitlement
from allotment.model.lifecycle import JobState as S
from allotment.model.lifecycle import TaskState
from allotment.model.quantity import GIB
from allotment.model.reasons import Reason, StopCause
from allotment.model.reports import NodeReport, Seen, TaskReport
from allotment.model.spec import Dependency, EndKind
from allotment.model.tenancy import Limits, QueueOrder
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.world import FAILED, PERMANENT, PLATFORM, World


@pytest.fixture
def world() -> World:
    return World(a_config(a_tenant("vision", 4), a_tenant("nlp", 4)))


def test_a_job_starts_runs_and_succeeds(world: World) -> None:
    job = world.submit(a_job().gpus(2))
    assert world.is_(job) is S.QUEUED
    world.cycle()
    assert world.is_(job) is S.STARTING
    assert [type(effect) for effect in world.effects] == [f.LaunchGang]
    world.runs(job)
    assert world.is_(job) is S.RUNNING
    world.ends(job)
    assert world.is_(job) is S.SUCCEEDED
    assert world.state.cluster.ledger.free().gpu_milli == 8000


def test_a_gang_starts_whole_through_one_barrier(world: World) -> None:
    job = world.submit(a_job().tasks(3).gpus(1))
    world.cycle()
    (launch,) = (e for e in world.effects if isinstance(e, f.LaunchGang))
    assert [key.index for key in launch.keys] == [0, 1, 2]
    assert launch.at_barrier
    world.runs(job)
    barriers = [e for e in world.effects if isinstance(e, f.OpenBarrier)]
    assert len(barriers) == 1
    assert world.is_(job) is S.RUNNING


def test_a_gang_that_does_not_fit_holds_nothing(world: World) -> None:
    first = world.submit(a_job().tasks(6).gpus(1))
    world.cycle()
    second = world.submit(a_job().tasks(4).gpus(1).of("nlp"))
    third = world.submit(a_job().tasks(5).gpus(1).of("nlp"))
    world.cycle()
    assert world.is_(first) is S.STOPPING, "borrows, and nlp is guaranteed four devices"
    assert world.is_(second) is S.QUEUED
    assert world.is_(third) is S.QUEUED
    assert world.why(second).reason is Reason.WAITING_FOR_VICTIMS


def test_a_borrower_is_warned_evicted_and_comes_back(world: World) -> None:
    borrower = world.submit(a_job().tasks(6).gpus(1).checkpointing("USR1", 3000))
    world.cycle()
    world.runs(borrower)
    assert world.job(borrower).attempts[0].entitlement is Entitlement.OPPORTUNISTIC
    world.wait(5000)
    world.saves(borrower)
    world.wait(2000)
    owner = world.submit(a_job().tasks(4).gpus(1).of("nlp"))
    world.cycle()
    stops = [e for e in world.effects if isinstance(e, f.StopTask)]
    assert {(stop.signal, stop.grace_ms) for stop in stops} == {("USR1", 3000)}
    stop = world.job(borrower).attempts[0].stop
    assert stop is not None
    assert (stop.cause, stop.wanted_by) == (StopCause.EVICTED, owner)
    world.ends(borrower, 85)
    assert world.is_(borrower) is S.QUEUED
    assert world.job(borrower).evictions == 1
    assert world.job(borrower).lost_ms == 2000
    world.cycle()
    assert world.is_(owner) is S.STARTING
    world.runs(owner)
    world.ends(owner)
    world.cycle()
    assert world.is_(borrower) is S.STARTING
    checkpoint = world.job(borrower).checkpoint
    assert checkpoint is not None
    assert checkpoint.path == "ckpt-1"


def test_only_those_in_the_way_are_evicted(world: World) -> None:
    jobs = [world.submit(a_job().gpus(1).named(f"j{i}")) for i in range(8)]
    world.cycle()
    for job in jobs:
        world.runs(job)
    world.submit(a_job().gpus(2).of("nlp"))
    world.cycle()
    stopping = [job for job in jobs if world.is_(job) is S.STOPPING]
    assert len(stopping) == 2


def test_a_borrower_is_promoted_when_its_tenant_has_room_again(world: World) -> None:
    own = world.submit(a_job().gpus(4))
    borrower = world.submit(a_job().gpus(4))
    world.cycle()
    world.runs(own)
    world.runs(borrower)
    assert world.job(borrower).attempts[0].entitlement is Entitlement.OPPORTUNISTIC
    world.ends(own)
    world.cycle()
    assert world.job(borrower).attempts[0].entitlement is Entitlement.GUARANTEED
    late = world.submit(a_job().gpus(4).of("nlp"))
    world.cycle()
    assert world.is_(borrower) is S.RUNNING
    assert world.is_(late) is S.STARTING


@pytest.mark.parametrize("retry", [0, 1, 3])
def test_exactly_so_many_retries(world: World, retry: int) -> None:
    job = world.submit(a_job().retry(retry))
    for attempt in range(retry + 1):
        world.cycle()
        world.runs(job)
        world.ends(job, 1, FAILED)
        if attempt < retry:
            assert world.is_(job) is S.QUEUED
            assert world.why(job).reason is Reason.BACKOFF
            world.wait(10_000_000)
    assert world.is_(job) is S.FAILED
    assert len(world.job(job).attempts) == retry + 1


def test_back_off_doubles(world: World) -> None:
    job = world.submit(a_job().retry(3))
    waits: list[int] = []
    for _ in range(3):
        world.cycle()
        world.runs(job)
        world.ends(job, 1)
        waits.append(world.job(job).not_before - world.now)
        world.wait(waits[-1])
    assert waits == [1000, 2000, 4000]


def test_what_cannot_help_is_never_retried(world: World) -> None:
    job = world.submit(a_job().retry(5))
    world.cycle()
    world.runs(job)
    world.ends(job, 127, PERMANENT)
    assert world.is_(job) is S.FAILED


def test_platform_faults_have_a_cap_of_their_own() -> None:
    world = World(a_config(a_tenant("vision", 4), limits=Limits(platform_retries=2)))
    job = world.submit(a_job().retry(0))
    for _ in range(2):
        world.cycle()
        world.runs(job)
        world.ends(job, 1, PLATFORM)
        assert world.is_(job) is S.QUEUED
        world.wait(1_000_000)
    world.cycle()
    world.runs(job)
    world.ends(job, 1, PLATFORM)
    assert world.is_(job) is S.FAILED


def test_one_failure_stops_the_gang_and_the_first_one_is_named(world: World) -> None:
    job = world.submit(a_job().tasks(2).gpus(1))
    world.cycle()
    world.runs(job)
    first, second = world.job(job).task_keys()
    world.task_ends(first, 3, PERMANENT)
    assert world.is_(job) is S.STOPPING
    world.task_ends(second, 143, FAILED)
    assert world.is_(job) is S.FAILED
    assert world.job(job).diagnosis == PERMANENT


def test_min_failed_lets_a_job_live_with_failures(world: World) -> None:
    job = world.submit(a_job().tasks(3).completes(min_failed=2))
    world.cycle()
    world.runs(job)
    keys = world.job(job).task_keys()
    world.task_ends(keys[0], 1)
    assert world.is_(job) is S.RUNNING
    world.task_ends(keys[1])
    world.task_ends(keys[2])
    assert world.is_(job) is S.SUCCEEDED


def test_a_gang_that_lost_a_task_before_its_barrier_gives_back_its_place(world: World) -> None:
    job = world.submit(a_job().tasks(3).completes(min_failed=2))
    world.cycle()
    first, second, third = world.job(job).task_keys()
    world.tell(TaskReport(first, Seen.READY))
    refused = Exit(platform_error="its node does not take it")
    world.tell(TaskReport(second, Seen.ENDED, exit=refused, diagnosis=PLATFORM))
    assert world.is_(job) is S.STOPPING, "it would wait for nothing"
    world.wait(1)
    world.task_ends(first, 1)
    world.tell(TaskReport(third, Seen.ENDED, exit=refused, diagnosis=PLATFORM))
    assert world.is_(job) is S.QUEUED, "it is tried again"
    assert world.state.cluster.ledger.free().gpu_milli == 8000


def test_min_succeeded_completes_the_job_and_stops_the_rest(world: World) -> None:
    job = world.submit(a_job().tasks(3).completes(min_succeeded=1))
    world.cycle()
    world.runs(job)
    keys = world.job(job).task_keys()
    world.task_ends(keys[1])
    assert world.is_(job) is S.STOPPING
    world.task_ends(keys[0], 143)
    world.task_ends(keys[2], 143)
    assert world.is_(job) is S.SUCCEEDED


def test_a_late_or_repeated_report_says_nothing(world: World) -> None:
    job = world.submit(a_job())
    world.cycle()
    key = world.job(job).task_keys()[0]
    world.runs(job)
    world.runs(job)
    world.task_ends(key)
    count = len(world.log)
    world.task_ends(key, 1)
    assert len(world.log) == count


def test_a_job_too_large_is_refused_with_what_there_is(world: World) -> None:
    with pytest.raises(Rejected, match="can never start") as refused:
        world.submit(a_job().gpus(9))
    assert refused.value.code is Code.NEVER_FITS
    assert "8 GPU" in refused.value.hint


def test_unknown_tenants_name_those_there_are(world: World) -> None:
    with pytest.raises(Rejected, match="nlp, vision"):
        world.submit(a_job().of("speech"))


def test_hold_release_and_cancel(world: World) -> None:
    job = world.submit(a_job())
    world.do(c.HoldJob(job))
    world.cycle()
    assert world.is_(job) is S.HELD
    assert world.why(job).reason is Reason.HELD
    world.do(c.ReleaseJob(job))
    world.cycle()
    assert world.is_(job) is S.STARTING
    world.do(c.CancelJob(job))
    assert world.is_(job) is S.STOPPING
    world.ends(job, 143)
    assert world.is_(job) is S.CANCELLED
    with pytest.raises(Rejected, match="is cancelled"):
        world.do(c.CancelJob(job))


def test_who_cancels_again_after_a_second_waits_for_no_grace(world: World) -> None:
    job = world.submit(a_job())
    world.cycle()
    world.runs(job)
    world.do(c.CancelJob(job))

    def signals() -> list[str]:
        asked = [record.event for record in world.log]
        return [event.signal for event in asked if isinstance(event, e.StopRequested)]

    world.wait(999)
    world.do(c.CancelJob(job))
    assert signals() == ["TERM"]
    world.wait(1)
    world.do(c.CancelJob(job))
    assert signals() == ["TERM", "KILL"]


def test_suspension_frees_devices_and_keeps_memory(world: World) -> None:
    job = world.submit(a_job().gpus(4))
    world.cycle()
    world.runs(job)
    free = world.state.cluster.ledger.free()
    world.do(c.SuspendJob(job))
    after = world.state.cluster.ledger.free()
    assert after.gpu_milli - free.gpu_milli == 4000
    assert after.memory == free.memory
    other = world.submit(a_job().gpus(8))
    world.cycle()
    world.runs(other)
    world.do(c.ResumeJob(job))
    world.cycle()
    assert world.is_(job) is S.SUSPENDED
    assert world.is_(other) is S.STOPPING, "it borrows the devices that the first is guaranteed"
    world.ends(other, 143)
    world.cycle()
    assert world.is_(job) is S.RUNNING
    assert any(isinstance(effect, f.ThawTask) for effect in world.effects)


def test_one_that_goes_on_by_itself_is_not_said_to_be_suspended_for_good(world: World) -> None:
    job = world.submit(a_job().gpus(4))
    world.cycle()
    world.runs(job)
    world.do(c.SuspendJob(job))
    world.do(c.SuspendJob(job))
    world.do(c.ResumeJob(job))
    with pytest.raises(Rejected, match="continues by itself"):
        world.do(c.SuspendJob(job))
    world.cycle()
    assert world.is_(job) is S.RUNNING


def test_an_opportunistic_job_goes_on_as_a_borrower(world: World) -> None:
    job = world.submit(a_job().gpus(2).opportunistic())
    world.cycle()
    world.runs(job)
    world.do(c.SuspendJob(job))
    world.do(c.ResumeJob(job))
    world.cycle()
    assert world.is_(job) is S.RUNNING
    assert world.job(job).attempts[-1].entitlement is Entitlement.OPPORTUNISTIC


def test_a_strict_queue_is_first_come_first_served(world: World) -> None:
    running = world.submit(a_job().gpus(3))
    world.cycle()
    large = world.submit(a_job().gpus(2).not_preemptible())
    small = world.submit(a_job().gpus(1).not_preemptible())
    world.cycle()
    assert world.is_(running) is S.STARTING
    assert world.is_(large) is S.QUEUED
    assert world.why(large).reason is Reason.QUOTA
    assert world.is_(small) is S.QUEUED, "the share will be the first one's in its turn"
    assert world.why(small).reason is Reason.BEHIND


def test_a_strict_queue_holds_up_those_behind_a_blocked_head() -> None:
    world = World(a_config(a_tenant("vision", 8)))
    world.submit(a_job().gpus(6).memory(200 << 30))
    world.cycle()
    blocked = world.submit(a_job().gpus(1).memory(450 << 30))
    last = world.submit(a_job().gpus(0))
    world.cycle()
    assert world.is_(blocked) is S.QUEUED
    assert world.is_(last) is S.QUEUED
    assert world.why(last).reason is Reason.BEHIND
    assert world.why(last).ahead == blocked
    assert world.why(last).position == 2


def test_a_skipping_queue_lets_smaller_jobs_by() -> None:
    world = World(a_config(a_tenant("vision", 8, order=QueueOrder.SKIP)))
    world.submit(a_job().gpus(6))
    world.cycle()
    blocked = world.submit(a_job().gpus(8))
    small = world.submit(a_job().gpus(1))
    world.cycle()
    assert world.is_(blocked) is S.QUEUED
    assert world.is_(small) is S.STARTING


def test_priority_goes_first(world: World) -> None:
    world.submit(a_job().gpus(8))
    world.cycle()
    low = world.submit(a_job().gpus(8).priority(50))
    high = world.submit(a_job().gpus(8).priority(500))
    world.do(c.CancelJob(JobId(1)))
    world.ends(JobId(1), 143)
    world.cycle()
    assert world.is_(high) is S.STARTING
    assert world.is_(low) is S.QUEUED


def test_dependencies_wait_and_fail_with_their_reason(world: World) -> None:
    first = world.submit(a_job())
    after = world.submit(a_job().after(Dependency(first)))
    whatever = world.submit(a_job().after(Dependency(first, EndKind.ANY)))
    chained = world.submit(a_job().after(Dependency(after)))
    world.cycle()
    assert world.why(after).reason is Reason.DEPENDENCY
    world.runs(first)
    world.ends(first, 1)
    assert world.is_(after) is S.FAILED
    assert world.is_(chained) is S.FAILED
    world.cycle()
    assert world.is_(whatever) is S.STARTING


def test_dependencies_in_a_circle_are_refused(world: World) -> None:
    first = world.submit(a_job())
    second = world.submit(a_job().after(Dependency(first)))
    with pytest.raises(Rejected, match="circle"):
        world.do(c.EditJob(first, a_job().after(Dependency(second)).spec()))


def test_an_array_runs_so_many_at_a_time(world: World) -> None:
    first = world.submit(a_job(), copies=5, max_running=2)
    world.cycle()
    members = [JobId(first + i) for i in range(5)]
    assert [world.is_(m) for m in members].count(S.STARTING) == 2
    assert world.why(members[4]).reason is Reason.ARRAY_CAP
    for done in range(5):
        world.runs(members[done])
        world.ends(members[done])
        world.cycle()
        assert [world.is_(m) for m in members].count(S.STARTING) <= 2
    assert {world.is_(m) for m in members} == {S.SUCCEEDED}


def test_time_limits(world: World) -> None:
    waits = world.submit(a_job().gpus(8))
    world.cycle()
    late = world.submit(a_job().gpus(8).within(queue_ms=5000))
    world.wait(4999)
    assert world.is_(late) is S.QUEUED
    world.wait(1)
    assert world.is_(late) is S.TIMED_OUT
    world.do(c.CancelJob(waits))
    world.ends(waits, 143)
    runs = world.submit(a_job().within(run_ms=3000))
    world.cycle()
    world.runs(runs)
    world.wait(3000)
    assert world.is_(runs) is S.STOPPING
    world.ends(runs, 143)
    assert world.is_(runs) is S.TIMED_OUT


def test_a_gang_that_does_not_come_up_is_stopped_and_tried_again(world: World) -> None:
    job = world.submit(a_job().tasks(2))
    world.cycle()
    key = world.job(job).task_keys()[0]
    world.tell(TaskReport(key, Seen.READY))
    world.wait(180_000)
    assert world.is_(job) is S.STOPPING
    stop = world.job(job).attempts[0].stop
    assert stop is not None
    assert stop.diagnosis is not None
    assert "main.1" in stop.diagnosis.cause
    world.ends(job, 137)
    assert world.is_(job) is S.QUEUED
    assert world.job(job).platform_retries == 1


def test_a_drained_node_takes_no_work_and_says_so(world: World) -> None:
    world.do(c.DrainNode(NodeId(0), "new fans"))
    job = world.submit(a_job())
    world.cycle()
    assert world.is_(job) is S.QUEUED
    assert world.why(job).reason is Reason.NODES_UNAVAILABLE
    world.do(c.UndrainNode(NodeId(0)))
    world.cycle()
    assert world.is_(job) is S.STARTING


def test_fractions_share_a_device_and_fill_the_fullest(world: World) -> None:
    jobs = [world.submit(a_job().gpus(0.5)) for _ in range(3)]
    world.cycle()
    devices = [world.job(job).attempts[0].slots[0].devices for job in jobs]
    assert devices == [(0,), (0,), (1,)]


def test_capacity_is_explained_with_its_holders(world: World) -> None:
    holder = world.submit(a_job().gpus(4).named("big"))
    other = world.submit(a_job().gpus(4).of("nlp").named("other"))
    world.cycle()
    world.runs(holder)
    world.runs(other)
    job = world.submit(a_job().gpus(1))
    world.cycle()
    answer = world.why(job)
    assert answer.reason is Reason.CAPACITY
    assert {h.name for h in answer.holders} == {"big", "other"}
    assert "GPU" in answer.message


def test_a_smaller_guarantee_leaves_work_alone_as_borrowers(world: World) -> None:
    first = world.submit(a_job().gpus(2))
    second = world.submit(a_job().gpus(2))
    world.cycle()
    world.runs(first)
    world.runs(second)
    world.do(c.ApplyConfig(a_config(a_tenant("vision", 2), a_tenant("nlp", 4))))
    kinds = [world.job(job).attempts[0].entitlement for job in (first, second)]
    assert kinds == [Entitlement.GUARANTEED, Entitlement.OPPORTUNISTIC]
    assert world.is_(second) is S.RUNNING


def test_a_job_that_has_nothing_of_what_shrinks_keeps_its_guarantee(world: World) -> None:
    older = world.submit(a_job().gpus(4))
    newer = world.submit(a_job().gpus(0))
    world.cycle()
    world.runs(older)
    world.runs(newer)
    world.do(c.ApplyConfig(a_config(a_tenant("vision", 2), a_tenant("nlp", 4))))
    kinds = [world.job(job).attempts[0].entitlement for job in (older, newer)]
    assert kinds == [Entitlement.OPPORTUNISTIC, Entitlement.GUARANTEED]


def test_nodes_keep_their_identity_and_cannot_go_while_in_use() -> None:
    tenant = a_tenant("vision", 16)
    world = World(a_config(tenant, nodes=2))
    job = world.submit(a_job().gpus(8))
    world.cycle()
    used = world.job(job).attempts[0].slots[0].node
    config = a_config(tenant, nodes=2)
    without = msgspec.structs.replace(
        config, nodes=tuple(n for n in config.nodes if n.id != used)
    )
    with pytest.raises(Rejected, match="still uses it"):
        world.do(c.ApplyConfig(without))
    turned = msgspec.structs.replace(
        config,
        nodes=tuple(
            msgspec.structs.replace(node, id=NodeId(1 - node.id)) for node in config.nodes
        ),
    )
    assert world.do(c.ApplyConfig(turned)) == [], "the same nodes under other numbers"


def test_a_lost_node_ends_its_gangs_which_try_again_elsewhere() -> None:
    world = World(a_config(a_tenant("vision", 16), nodes=2))
    gang = world.submit(a_job().tasks(9).gpus(1))
    world.cycle()
    world.runs(gang)
    there = {slot.node for slot in world.job(gang).attempts[0].slots}
    assert there == {0, 1}
    world.tell(NodeReport(NodeId(1), alive=False, reason="no heartbeat"))
    assert world.is_(gang) is S.STOPPING
    for key in world.job(gang).task_keys():
        if world.job(gang).attempt is not None:
            world.task_ends(key, 143)
    assert world.is_(gang) is S.QUEUED
    assert world.job(gang).platform_retries == 1
    assert world.job(gang).used_retries == 0
    world.wait(2000)
    world.cycle()
    assert world.why(gang).reason is Reason.NODES_UNAVAILABLE
    world.tell(NodeReport(NodeId(1), alive=True))
    world.cycle()
    assert world.is_(gang) is S.STARTING


def test_a_lost_node_frees_what_was_on_it_at_once() -> None:
    world = World(a_config(a_tenant("vision", 8)))
    job = world.submit(a_job().gpus(1))
    world.cycle()
    world.runs(job)
    world.tell(NodeReport(NodeId(0), alive=False))
    assert world.is_(job) is S.QUEUED
    assert world.job(job).attempts[0].diagnosis is not None


def test_a_failed_task_can_be_held_for_a_look(world: World) -> None:
    job = world.submit(a_job())
    world.cycle()
    world.runs(job)
    key = world.job(job).task_keys()[0]
    world.tell(TaskReport(key, Seen.HOLDING, 1, exit=Exit(code=3)))
    assert world.is_(job) is S.RUNNING
    assert world.job(job).attempts[0].task(key.index).state is TaskState.HOLDING
    world.task_ends(key, 3)
    assert world.is_(job) is S.FAILED


@pytest.mark.parametrize("wish", [c.CancelJob, c.HoldJob])
def test_a_job_that_leaves_the_head_of_a_strict_queue_lets_those_behind_go_on(
    wish: type[c.CancelJob | c.HoldJob],
) -> None:
    world = World(a_config(a_tenant("vision", 8)))
    world.submit(a_job().gpus(2))
    world.cycle()
    head = world.submit(a_job().gpus(4).memory(512 * GIB))
    behind = world.submit(a_job().gpus(1))
    world.cycle()
    assert world.why(behind).reason is Reason.BEHIND
    world.do(wish(head))
    world.cycle()
    assert world.is_(behind) is S.STARTING


def test_what_is_held_is_told_once_and_with_how_it_ended(world: World) -> None:
    job = world.submit(a_job())
    world.cycle()
    world.runs(job)
    key = world.job(job).task_keys()[0]
    world.tell(TaskReport(key, Seen.HOLDING, 1))
    assert world.job(job).attempts[0].task(key.index).state is TaskState.RUNNING
    for news in (1, 0):
        before = len(world.log)
        world.tell(TaskReport(key, Seen.HOLDING, 1, exit=Exit(code=3)))
        assert len(world.log) - before == news


def test_only_what_waits_is_held_and_only_what_is_held_is_released(world: World) -> None:
    runs, waits = world.submit(a_job().gpus(8)), world.submit(a_job().gpus(8))
    world.cycle()
    world.runs(runs)
    with pytest.raises(Rejected, match="waits in its queue"):
        world.do(c.HoldJob(runs))
    with pytest.raises(Rejected, match="is held"):
        world.do(c.ReleaseJob(runs))
    assert world.do(c.ReleaseJob(waits)) == []
    assert [type(record.event) for record in world.do(c.HoldJob(waits))] == [e.JobHeld]
    assert world.do(c.HoldJob(waits)) == []
    assert [type(record.event) for record in world.do(c.ReleaseJob(waits))] == [e.JobReleased]


@pytest.mark.parametrize(
    ("ready", "phase", "names"),
    [
        (0, "launch", "main.0, main.1"),
        (1, "barrier", "main.1"),
        (2, "launch", "main.0, main.1"),
    ],
)
def test_a_gang_that_does_not_come_up_in_time_is_told_where_it_stood(
    world: World, ready: int, phase: str, names: str
) -> None:
    job = world.submit(a_job().tasks(2).gpus(1))
    world.cycle()
    for key in world.job(job).task_keys()[:ready]:
        world.tell(TaskReport(key, Seen.READY))
    limits = world.state.config.limits
    world.wait(limits.phase_ms + limits.barrier_ms)
    told = [each.event for each in world.log if isinstance(each.event, e.StopRequested)]
    assert told[-1].diagnosis is not None
    cause = told[-1].diagnosis.cause
    assert f"(phase {phase}); still not running: {names}." in cause

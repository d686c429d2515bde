"""Queues in queues: which one a job goes to, what each may hold, and which take no more."""

import msgspec
import pytest

from allotment.model import commands as c
from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor, JobId
from allotment.model.lifecycle import JobState
from allotment.model.reasons import Reason
from allotment.model.tenancy import Config, Queue, QueueState
from allotment.wire.config import read_config
from tests.support.builders import JobBuilder, a_job
from tests.support.world import World

ALICE = Actor("alice", 1001, ("alice", "vision"))
BOB = Actor("bob", 1002, ("bob", "vision"))
CAROL = Actor("carol", 1003, ("carol", "audio"))

NODES = """\
nodes:
  - {name: n1, cpu: 64, memory: 512GiB, gpu: {type: V100, count: 8}}
  - {name: n2, cpu: 64, memory: 512GiB, gpu: {type: A100, count: 8}}
tenants:
"""


def config_of(tenants: str) -> Config:
    config, _ = read_config((NODES + tenants).encode(), source="c.yaml", machine=None)
    return config


def tree(queues: str, more: str = "") -> Config:
    return config_of(f"  lab: {{guaranteed: {{gpu: 16}}, queues: {{{queues}}}{more}}}\n")


def submit(world: World, queue: str, job: JobBuilder, actor: Actor = ALICE) -> JobId:
    number = world.state.next_job
    world.do(c.SubmitJob(job.of("lab", queue).spec()), actor)
    return number


def states(world: World, *jobs: JobId) -> list[str]:
    return [world.is_(job).value for job in jobs]


DEEP = "a: {queues: {train: {}, dev: {}}}, b: {queues: {train: {}}}, default: {}"


def test_a_job_goes_to_a_leaf_by_its_path_or_by_its_last_part() -> None:
    world = World(tree(DEEP))
    jobs = [submit(world, queue, a_job()) for queue in ("a.train", "dev", "default")]
    assert [world.job(job).spec.queue for job in jobs] == ["a.train", "a.dev", "default"]


@pytest.mark.parametrize(
    ("queue", "words"),
    [
        (
            "train",
            "Tenant lab has 2 queues called 'train'. Say which: a.train, b.train.",
        ),
        (
            "a",
            "Queue a of tenant lab has queues inside: jobs go to those. "
            "Queues in it: a.train, a.dev.",
        ),
        (
            "x",
            "Tenant lab has no queue 'x'. Its queues: a.train, a.dev, b.train, default.",
        ),
    ],
)
def test_a_queue_that_is_not_clear_is_refused(queue: str, words: str) -> None:
    world = World(tree(DEEP))
    with pytest.raises(Rejected) as caught:
        submit(world, queue, a_job())
    assert caught.value.code is Code.NO_SUCH_QUEUE
    assert str(caught.value) == words


def test_a_job_is_moved_to_another_queue_by_editing_it() -> None:
    world = World(tree(DEEP))
    job = submit(world, "default", a_job())
    spec = msgspec.structs.replace(world.job(job).spec, queue="dev")
    world.do(c.EditJob(job, spec))
    assert world.job(job).spec.queue == "a.dev"


def test_a_limit_holds_for_all_queues_inside_and_holds_up_nobody() -> None:
    world = World(tree("a: {limit: {gpu: 6}, queues: {x: {}, y: {}}}, b: {}"))
    jobs = [
        submit(world, "x", a_job().gpus(4)),
        submit(world, "y", a_job().gpus(4)),
        submit(world, "y", a_job().gpus(2)),
        submit(world, "b", a_job().gpus(8)),
    ]
    world.cycle()
    assert states(world, *jobs) == ["starting", "queued", "starting", "starting"]
    blocked = world.why(jobs[1])
    assert (blocked.reason, blocked.message, blocked.hint) == (
        Reason.QUEUE_LIMIT,
        "Queue a of lab holds 6 of the 6 GPUs that it may hold at once; it needs 4 GPUs.",
        "It starts when jobs of queue a end.",
    )
    world.runs(jobs[0])
    world.ends(jobs[0])
    world.cycle()
    assert states(world, jobs[1]) == ["starting"]


def test_a_limit_of_one_type_sends_a_job_to_another() -> None:
    world = World(tree("a: {order: skip, limit: {gpu_by_type: {V100: 4}}}"))
    either = [submit(world, "a", a_job().tasks(2).gpus(2)) for _ in range(4)]
    only = submit(world, "a", a_job().gpus(2).types("V100"))
    world.cycle()
    assert states(world, *either, only) == ["starting"] * 3 + ["queued"] * 2
    held = {"V100": 0, "A100": 0}
    for job in either[:3]:
        for slot in world.job(job).attempts[-1].slots:
            held["V100" if slot.node == 0 else "A100"] += len(slot.devices)
    assert held == {"V100": 4, "A100": 8}
    assert world.why(only).message == (
        "Queue a of lab holds 4 of the 4 V100 GPUs that it may hold at once; it needs 2 V100 "
        "GPUs."
    )


@pytest.mark.parametrize("part", ["cpu: 2", "memory: 2GiB"])
def test_a_limit_may_be_of_cpu_or_memory(part: str) -> None:
    world = World(tree(f"a: {{order: skip, limit: {{{part}}}}}"))
    jobs = [submit(world, "a", a_job().cpus(1).memory(1 << 30)) for _ in range(3)]
    world.cycle()
    assert states(world, *jobs) == ["starting", "starting", "queued"]


def test_so_many_jobs_hold_a_place_at_once_and_so_many_wait() -> None:
    world = World(tree("a: {max_jobs: 1, max_waiting: 2}"))
    jobs = [submit(world, "a", a_job()) for _ in range(2)]
    with pytest.raises(Rejected) as caught:
        submit(world, "a", a_job())
    assert caught.value.code is Code.QUEUE_FULL
    assert caught.value.message == "2 jobs wait in queue a of tenant lab, and 2 may."
    world.cycle()
    assert states(world, *jobs) == ["starting", "queued"]
    assert world.why(jobs[1]).message == (
        "Queue a of lab holds 1 of the 1 job that it may hold at once."
    )
    with pytest.raises(Rejected, match="this is 2 more"):
        world.do(c.SubmitJob(a_job().of("lab", "a").spec(), copies=2))


def test_users_and_groups_have_caps_in_a_queue() -> None:
    world = World(
        tree("a: {order: skip, per_user: {gpu: 2}, per_group: {gpu: 3}}", ", groups: [vision]")
    )
    jobs = [
        submit(world, "a", a_job().gpus(2), ALICE),
        submit(world, "a", a_job().gpus(1), ALICE),
        submit(world, "a", a_job().gpus(1), BOB),
        submit(world, "a", a_job().gpus(1), BOB),
    ]
    world.cycle()
    assert states(world, *jobs) == ["starting", "queued", "starting", "queued"]
    assert [world.why(job).message for job in (jobs[1], jobs[3])] == [
        "alice holds 2 of the 2 GPUs that one user of queue a of lab may hold at once; it "
        "needs 1 GPU.",
        "group vision holds 3 of the 3 GPUs that one group of queue a of lab may hold at "
        "once; it needs 1 GPU.",
    ]
    assert world.why(jobs[3]).reason is Reason.USER_CAP


@pytest.mark.parametrize(
    ("queue", "words"),
    [
        ("limit: {gpu: 2}", "It needs 4 GPUs, and queue a may hold 2 GPUs at once."),
        (
            "per_user: {gpu: 2}",
            "It needs 4 GPUs, and one user of queue a may hold 2 GPUs at once.",
        ),
    ],
)
def test_what_alone_is_too_much_is_refused(queue: str, words: str) -> None:
    world = World(tree(f"a: {{{queue}}}"))
    with pytest.raises(Rejected) as caught:
        submit(world, "a", a_job().gpus(4))
    assert (caught.value.code, caught.value.message) == (Code.NEVER_FITS, words)


@pytest.mark.parametrize("state", ["closed", "draining", "stopped"])
def test_a_queue_that_is_not_open_refuses_and_only_a_stopped_one_starts_nothing(
    state: str,
) -> None:
    queues = "a: {{state: {}, queues: {{x: {{}}}}}}, b: {{}}"
    world = World(tree(queues.format("open")))
    waiting = submit(world, "x", a_job())
    world.do(c.ApplyConfig(tree(queues.format(state))))
    with pytest.raises(Rejected) as caught:
        submit(world, "x", a_job())
    assert caught.value.code is Code.QUEUE_CLOSED
    assert str(caught.value) == (
        f"Queue a of tenant lab is {state}: it takes no new jobs. Open queues: b."
    )
    world.cycle()
    assert states(world, waiting) == ["queued" if state == "stopped" else "starting"]
    if state == "stopped":
        assert world.why(waiting).reason is Reason.QUEUE_STOPPED
        assert world.why(waiting).message.startswith("Queue a of lab is stopped")
        world.do(c.ApplyConfig(tree(queues.format("open"))))
        world.cycle()
        assert states(world, waiting) == ["starting"]


@pytest.mark.parametrize(
    ("after", "what"),
    [
        ("b: {}", "would be gone"),
        ("b: {queues: {a: {}}}", "would move to b.a"),
        ("a: {queues: {x: {}}}", "would have queues inside it"),
    ],
)
def test_a_queue_with_jobs_in_it_stays_where_it_is(after: str, what: str) -> None:
    world = World(tree("a: {}"))
    job = submit(world, "a", a_job())
    before = world.state.config
    with pytest.raises(Rejected) as caught:
        world.do(c.ApplyConfig(tree(after)))
    assert caught.value.code is Code.CONFLICT
    assert caught.value.message == (
        f"Queue a of tenant lab {what}, and 1 job waits or runs in it (1)."
    )
    assert world.state.config is before
    world.cycle()
    world.runs(job)
    world.ends(job)
    world.do(c.ApplyConfig(tree(after)))


@pytest.mark.parametrize(
    ("queues", "words"),
    [
        ((Queue("a", parent="b"),), "Queue a of tenant lab: tenant lab has no queue b."),
        (
            (Queue("a", parent="b"), Queue("b", parent="a")),
            "Queue a of tenant lab: is inside itself: a in b in a.",
        ),
        ((Queue("a"), Queue("a")), "Queue a of tenant lab: tenant lab has another queue a."),
    ],
)
def test_a_tree_that_is_none_is_never_put_in_force(
    queues: tuple[Queue, ...], words: str
) -> None:
    world = World(tree("a: {}"))
    (tenant,) = world.state.config.tenants
    wrong = msgspec.structs.replace(
        world.state.config, tenants=(msgspec.structs.replace(tenant, queues=queues),)
    )
    with pytest.raises(Rejected) as caught:
        world.do(c.ApplyConfig(wrong))
    assert caught.value.message == words
    assert world.state.config.tenants == (tenant,)


def test_a_limit_that_is_lowered_takes_nothing_away() -> None:
    world = World(tree("a: {limit: {gpu: 8}}"))
    first = submit(world, "a", a_job().gpus(8))
    world.cycle()
    second = submit(world, "a", a_job().gpus(1))
    world.do(c.ApplyConfig(tree("a: {limit: {gpu: 4}}")))
    world.cycle()
    assert states(world, first, second) == ["starting", "queued"]
    assert world.why(second).message.startswith("Queue a of lab holds 8 of the 4 GPUs")


def test_a_suspended_job_goes_on_only_within_the_limit() -> None:
    world = World(tree("a: {limit: {gpu: 4}}"))
    first = submit(world, "a", a_job().gpus(4))
    world.cycle()
    world.runs(first)
    world.do(c.SuspendJob(first))
    second = submit(world, "a", a_job().gpus(4))
    world.cycle()
    assert world.is_(second) is JobState.STARTING
    world.do(c.ResumeJob(first))
    world.cycle()
    assert world.why(first).reason is Reason.QUEUE_LIMIT
    world.runs(second)
    world.ends(second)
    world.cycle()
    assert world.is_(first) is JobState.RUNNING


def test_open_is_what_a_queue_is_unless_told_otherwise() -> None:
    (tenant,) = tree("a: {}").tenants
    assert tenant.queues == (Queue("a", state=QueueState.OPEN),)


def test_a_queue_that_may_hold_no_job_is_not_to_be_asked_for_less() -> None:
    world = World(tree("a: {max_jobs: 0}"))
    job = world.submit(a_job().of("lab", "a"))
    world.cycle()
    assert world.why(job).hint == (
        "No job may start there: move it (allot edit JOB --set queue=NAME)."
    )

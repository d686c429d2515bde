"""What queues of a tenant owe each other: guarantees, lending, soft limits, reclaiming."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.errors import BadInput, Rejected
from allotment.model.ids import JobId
from allotment.model.reasons import Reason, StopCause
from allotment.model.tenancy import Config
from allotment.wire.config import read_config
from tests.support.builders import a_job
from tests.support.world import World


def tree(queues: str, gpus: int, more: str = "", nodes: int = 0) -> Config:
    machines = "".join(
        f"  - {{name: n{at}, cpu: 640, memory: 5120GiB, gpu: {{type: V100, count: 10}}}}\n"
        for at in range(nodes or -(-gpus // 10))
    )
    text = (
        f"nodes:\n{machines}tenants:\n  lab:\n    guaranteed: {{gpu: {gpus}}}\n"
        f"    queues: {{{queues}}}\n{more}"
    )
    config, _ = read_config(text.encode(), source="c.yaml", machine=None)
    return config


def submit(world: World, queue: str, gpus: int, count: int = 1, size: int = 1) -> list[JobId]:
    jobs: list[JobId] = []
    for _ in range(count):
        jobs.append(world.state.next_job)
        job = a_job().of("lab", queue).tasks(gpus // size if gpus > size else 1)
        world.do(c.SubmitJob(job.gpus(min(gpus, size)).spec()))
    return jobs


def held(world: World) -> dict[str, int]:
    """Return what each queue holds, without the jobs that are told to go."""
    found: dict[str, int] = {}
    for job in world.state.jobs.values():
        if job.attempt is not None and job.attempt.stop is None:
            gpus = job.spec.total().gpu_milli // 1000
            found[job.spec.queue] = found.get(job.spec.queue, 0) + gpus
    return found


def settle(world: World) -> list[JobId]:
    """Schedule, let whoever is told to go end, and go on; give who was sent away."""
    gone: list[JobId] = []
    for _ in range(50):
        world.cycle()
        leaving = [
            job.id
            for job in world.state.jobs.values()
            if job.attempt is not None
            and job.attempt.stop is not None
            and job.attempt.stop.cause is StopCause.EVICTED
        ]
        if not leaving:
            return gone
        gone += leaving
        for job in leaving:
            world.ends(job, 143)
    raise AssertionError("it does not come to rest")


def run_all(world: World) -> None:
    world.cycle()
    for job in list(world.state.jobs.values()):
        if job.attempt is not None and not job.attempt.started_at:
            world.runs(job.id)


ABC = """
  a: {order: skip, guaranteed: {gpu: 10}, limit: {gpu: 60}},
  b: {order: skip, guaranteed: {gpu: 20}, limit: {gpu: 40}},
  c: {order: skip, guaranteed: {gpu: 30}}""".replace("\n", " ")


def test_teams_a_b_c_with_min_and_max_a_asks_for_45_more_while_c_starves() -> None:
    world = World(tree(ABC, 60))
    submit(world, "a", 1, count=15)
    submit(world, "b", 1, count=10)
    run_all(world)
    assert held(world) == {"a": 15, "b": 10}
    # A asks for 45 more, up to its limit: what nobody uses is lent to it.
    more = submit(world, "a", 1, count=46)
    run_all(world)
    assert held(world) == {"a": 50, "b": 10}
    # C starves: it gets its 30 back from A, and only from A, the newest first.
    submit(world, "c", 1, count=40)
    gone = settle(world)
    assert held(world) == {"a": 20, "b": 10, "c": 30}
    assert set(gone) <= set(more)
    assert sorted(gone) == sorted(more[:35])[-30:]
    # B asks for the rest of its own, too: A keeps its 10.
    submit(world, "b", 1, count=15)
    settle(world)
    assert held(world) == {"a": 10, "b": 20, "c": 30}


def test_bonus_devices_are_marked_warned_and_gone_within_a_grace_and_nobody_else() -> None:
    queues = (
        "a: {guaranteed: {gpu: 10}}, b: {guaranteed: {gpu: 10}}, c: {guaranteed: {gpu: 20}}"
    )
    world = World(tree(queues, 40))
    own = submit(world, "b", 10)
    mine = submit(world, "a", 1, count=10)
    bonus = submit(world, "a", 5, count=4)
    run_all(world)
    assert held(world) == {"a": 30, "b": 10}
    (asks,) = submit(world, "c", 20)
    at = len(world.log)
    world.cycle()
    told = [r.event for r in world.log[at:] if isinstance(r.event, e.StopRequested)]
    assert {event.job for event in told} == set(bonus)
    assert all(event.cause is StopCause.EVICTED and event.wanted_by == asks for event in told)
    assert all(event.grace_ms > 0 for event in told)
    assert world.why(asks).reason is Reason.WAITING_FOR_VICTIMS
    for job in bonus:
        world.ends(job, 143)
    world.cycle()
    assert held(world) == {"a": 10, "b": 10, "c": 20}
    assert all(world.job(job).attempt is not None for job in (*own, *mine))
    # Who was sent away waits, and does not take it back.
    world.cycle()
    assert held(world) == {"a": 10, "b": 10, "c": 20}


def test_no_queue_is_taken_below_its_guarantee() -> None:
    world = World(tree("a: {guaranteed: {gpu: 10}}, c: {guaranteed: {gpu: 10}}", 20))
    submit(world, "a", 4, count=3)
    run_all(world)
    (asks,) = submit(world, "c", 10)
    assert settle(world) == []
    assert world.is_(asks).value == "queued"
    (fits,) = submit(world, "c", 8)
    assert world.is_(fits).value == "queued"


def test_within_comes_before_beyond_whoever_came_first() -> None:
    world = World(tree("a: {guaranteed: {gpu: 4}}, c: {guaranteed: {gpu: 6}}", 10))
    submit(world, "a", 4)
    run_all(world)
    beyond = submit(world, "a", 6)
    guaranteed = submit(world, "c", 6)
    world.cycle()
    assert [world.is_(job).value for job in (*beyond, *guaranteed)] == ["queued", "starting"]


def test_a_queue_that_may_not_borrow_stops_at_its_guarantee() -> None:
    world = World(tree("a: {guaranteed: {gpu: 4}, borrow: false}, c: {}", 10))
    submit(world, "a", 4)
    (waits,) = submit(world, "a", 1)
    world.cycle()
    assert held(world) == {"a": 4}
    assert world.why(waits).reason is Reason.QUEUE_LIMIT


def test_what_a_queue_does_not_lend_stays_free() -> None:
    world = World(tree("a: {guaranteed: {gpu: 2}}, c: {guaranteed: {gpu: 6}, lend: false}", 10))
    jobs = submit(world, "a", 2, count=3)
    world.cycle()
    assert held(world) == {"a": 4}
    assert world.why(jobs[2]).message == (
        "Queue c of lab does not lend: 6 GPUs of the idle resources stay free for it."
    )
    assert world.why(jobs[2]).reason is Reason.QUEUE_SHARE
    submit(world, "c", 6)
    world.cycle()
    assert held(world) == {"a": 4, "c": 6}


def test_a_soft_limit_is_exceeded_only_while_others_leave_room() -> None:
    queues = "a: {order: skip, soft_limit: {gpu: 4}}, c: {order: skip, limit: {gpu: 8}}"
    world = World(tree(queues, 10))
    first = submit(world, "a", 2, count=4)
    submit(world, "c", 5)
    blocker = submit(world, "c", 3)
    world.cycle()
    assert held(world) == {"a": 4, "c": 5}
    assert world.why(first[2]).message == (
        "Queue a of lab holds 4 of the 4 GPUs of its soft limit, and jobs of queue c, which is "
        "below its own, wait."
    )
    world.do(c.CancelJob(blocker[0]))
    world.cycle()
    assert held(world) == {"a": 4, "c": 5}
    one = submit(world, "a", 1)
    world.cycle()
    assert world.is_(one[0]).value == "starting"


def test_a_guarantee_inside_a_guarantee_is_kept_on_both_levels() -> None:
    queues = (
        "a: {guaranteed: {gpu: 6}, queues: {x: {guaranteed: {gpu: 2}}, y: {}}}, "
        "c: {guaranteed: {gpu: 4}}"
    )
    world = World(tree(queues, 10))
    submit(world, "y", 1, count=10)
    run_all(world)
    submit(world, "x", 1, count=2)
    settle(world)
    assert held(world) == {"a.y": 8, "a.x": 2}
    submit(world, "c", 1, count=4)
    settle(world)
    assert held(world) == {"a.y": 4, "a.x": 2, "c": 4}


def test_where_devices_are_idle_nobody_is_sent_away() -> None:
    more = "  other: {guaranteed: {gpu: 10}}\n"
    world = World(tree("a: {}, c: {guaranteed: {gpu: 4}}", 10, more, nodes=2))
    submit(world, "a", 1, count=10)
    run_all(world)
    submit(world, "c", 4)
    assert settle(world) == []
    assert held(world) == {"a": 10, "c": 4}


def waits(world: World, queue: str) -> bool:
    return any(
        job.state.waiting and job.spec.queue == queue for job in world.state.jobs.values()
    )


QUEUES = {"a": (3, 6), "b.x": (2, 10), "b.y": (1, 4), "c": (0, 10)}
"""Guarantee and limit of each."""
FOREST = """
  a: {order: skip, guaranteed: {gpu: 3}, limit: {gpu: 6}},
  b: {guaranteed: {gpu: 5}, queues: {
    x: {order: skip, guaranteed: {gpu: 2}},
    y: {order: skip, guaranteed: {gpu: 1}, limit: {gpu: 4}}}},
  c: {order: skip}""".replace("\n", " ")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["submit", "submit", "submit", "end", "cycle"]),
            st.sampled_from(list(QUEUES)),
            st.integers(1, 3),
        ),
        max_size=25,
    )
)
@example(  # A promise to b.y is no reason to take from it what it holds.
    [
        ("submit", "a", 3), ("submit", "c", 3), ("submit", "c", 3), ("cycle", "a", 1),
        ("submit", "b.y", 2), ("submit", "b.x", 1),
    ]
)  # fmt: skip
def test_limits_hold_and_every_guarantee_can_be_had(steps: list[tuple[str, str, int]]) -> None:
    world = World(tree(FOREST, 10))
    for what, queue, number in steps:
        if what == "submit":
            submit(world, queue, 1, count=number)
        elif what == "end":
            end_some(world, queue, number)
        else:
            settle(world)
            run_all(world)
        for name, most in held(world).items():
            assert most <= QUEUES[name][1]
    settle(world)
    have = held(world)
    free = 10 - sum(have.values())
    for name, (guaranteed, limit) in QUEUES.items():
        if waits(world, name):
            assert have.get(name, 0) >= guaranteed
            assert not free or have.get(name, 0) == limit
    if waits(world, "b.x"):
        assert have.get("b.x", 0) + have.get("b.y", 0) >= 5


def end_some(world: World, queue: str, number: int) -> None:
    runs = [
        job.id
        for job in world.state.jobs.values()
        if job.spec.queue == queue and job.attempt is not None and job.attempt.started_at
    ]
    for job in runs[:number]:
        world.ends(job)


@pytest.mark.parametrize(
    ("queues", "words"),
    [
        ("a: {guaranteed: {gpu: 4}, limit: {gpu: 2}}", "a.guaranteed: 4 GPUs is more than the"),
        (
            "a: {per_user: {gpu: 3}, limit: {gpu: 2}}",
            "a.per_user: 3 GPUs for one user is more than the limit of the queue, 2 (lower "
            "`per_user`, or raise `limit`)",
        ),
        ("a: {soft_limit: {gpu: 4}, limit: {gpu: 2}}", "a.soft_limit: 4 GPUs is more than the"),
        ("a: {soft_limit: {gpu: 1}, guaranteed: {gpu: 2}}", "a.soft_limit: 1 is less than the"),
        ("a: {borrow: false}", "a.borrow: is false, and the queue has no guarantee"),
        (
            "a: {guaranteed: {gpu: 6}}, b: {guaranteed: {gpu: 6}}",
            "a.guaranteed: the queues inside tenant lab are guaranteed 12 GPUs in all, and it "
            "has 10: a 6, b 6",
        ),
        (
            "a: {guaranteed: {gpu: 2}, queues: {x: {guaranteed: {gpu: 3}}}}",
            "a.queues.x.guaranteed: the queues inside queue a are guaranteed 3 GPUs in all, "
            "and it has 2: a.x 3",
        ),
        (
            "a: {limit: {gpu: 3}, queues: {x: {guaranteed: {gpu: 6}}}}",
            "a.queues.x.guaranteed: the queues inside queue a are guaranteed 6 GPUs in all, "
            "and its limit is 3: a.x 6",
        ),
        (
            "a: {limit: {gpu: 3}, queues: {x: {queues: {y: {guaranteed: {gpu: 2}}, "
            "z: {guaranteed: {gpu_by_type: {V100: 2}}}}}}}",
            "a.queues.x.guaranteed: the queues inside queue a are guaranteed 4 GPUs in all, "
            "and its limit is 3: a.x 4",
        ),
        (
            "a: {guaranteed: {gpu_by_type: {V100: 3}}, limit: {gpu: 2}}",
            "a.guaranteed: 3 GPUs by type is more than the limit of the queue, 2",
        ),
        (
            "a: {guaranteed: {gpu: 2, gpu_by_type: {V100: 3}}}",
            "a.guaranteed: 3 GPUs by type is more than all that the queue is guaranteed, 2",
        ),
        (
            "a: {guaranteed: {gpu_by_type: {V100: 8}}}, b: {guaranteed: {gpu: 8}}",
            "a.guaranteed: the queues inside tenant lab are guaranteed 16 GPUs in all, and it "
            "has 10: a 8, b 8",
        ),
        (
            "a: {guaranteed: {gpu_by_type: {H100: 1}}}",
            "line 6: tenants.lab.queues.a.guaranteed.gpu_by_type.H100: no node has GPUs of "
            "type H100, and this names 1",
        ),
        (
            "a: {limit: {gpu_by_type: {V9: 3}}}",
            "a.limit.gpu_by_type.V9: no node has GPUs of type V9, and this names 3",
        ),
        ("a: {weight: -1}", "a.weight: must not be negative"),
    ],
)
def test_shares_that_do_not_add_up_are_refused(queues: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        tree(queues, 10)
    assert words in str(caught.value)


def test_guarantees_of_a_type_that_no_tenant_could_have_are_refused() -> None:
    text = """
nodes:
  - {name: n1, cpu: 8, memory: 8GiB, gpu: [{type: A100, count: 4}, {type: T4, count: 8}]}
tenants:
  lab:
    queues: {a: {queues: {x: {guaranteed: {gpu_by_type: {A100: 3}}}}}}
    guaranteed: {gpu: 6}
  nlp: {guaranteed: {gpu: 6}, queues: {b: {guaranteed: {gpu_by_type: {A100: 2}}}}}
"""
    with pytest.raises(BadInput) as caught:
        read_config(text.encode(), source="c.yaml", machine=None)
    assert (
        "line 6: tenants.lab.queues.a.guaranteed: queues are guaranteed 5 A100 GPUs in all, "
        "and there are 4: lab/a 3, nlp/b 2 (lower one of them, or add nodes)"
    ) in str(caught.value)


def test_what_matters_in_leaves_only_is_told_of_other_queues() -> None:
    text = """
nodes: [{name: n1, cpu: 8, memory: 8GiB, gpu: {type: T4, count: 8}}]
tenants:
  lab:
    queues:
      a: {order: easy, rank: shortest, overtaken: 2, queues: {x: {order: easy}}}
      b: {order: skip}
      y: {parent: b}
"""
    _, warnings = read_config(text.encode(), source="c.yaml", machine=None)
    assert [(each.line, each.path) for each in warnings] == [
        (6, "tenants.lab.queues.a.order"),
        (6, "tenants.lab.queues.a.overtaken"),
        (6, "tenants.lab.queues.a.rank"),
        (7, "tenants.lab.queues.b.order"),
    ]
    assert "queue a has queues inside it, and its jobs are there" in warnings[0].message


def test_what_may_not_be_preempted_and_is_more_than_its_queue_is_guaranteed_is_refused() -> (
    None
):
    world = World(tree("a: {guaranteed: {gpu: 4}}, b: {}", 10))
    for queue, gpus in (("a", 8), ("b", 1)):
        with pytest.raises(Rejected) as refused:
            world.submit(a_job().of("lab", queue).gpus(gpus).not_preemptible())
        guaranteed = {"a": "4 GPUs", "b": "nothing"}[queue]
        assert f"what queue {queue} of lab is guaranteed: {guaranteed}." in str(refused.value)
    first, second = (
        world.submit(a_job().of("lab", "a").gpus(3).not_preemptible()) for _ in range(2)
    )
    world.cycle()
    assert "that is in use" in world.why(second).message
    world.do(c.ApplyConfig(tree("a: {guaranteed: {gpu: 2}}, b: {}", 10)))
    assert "it is guaranteed 2 GPUs" in world.why(second).message
    assert world.job(first).attempt is not None

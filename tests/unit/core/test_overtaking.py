"""How often those in line were overtaken, against counting each by itself."""

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from allotment.core import overtaking
from allotment.core.overtaking import Overtaken, Overtaking
from allotment.core.rank import Key
from allotment.explain.queues import overtaken_words
from allotment.model import commands as c
from allotment.model.ids import Actor, JobId
from allotment.model.lifecycle import JobState as S
from allotment.model.quantity import Resources
from allotment.model.reasons import Reason
from allotment.model.tenancy import Queue, QueueOrder, Terms
from tests.support.builders import ALICE, a_config, a_job, a_tenant
from tests.support.world import World

MOST = 3
STEP = st.tuples(st.sampled_from(["add", "add", "remove", "overtake"]), st.integers(0, 40))


def key(number: int) -> Key:
    return ((number // 4,), JobId(number))


@example(steps=[("add", 0), *[("overtake", 5)] * MOST, ("remove", 0)], size=1)
@given(steps=st.lists(STEP, max_size=120), size=st.sampled_from([1, 2, 5, 128]))
def test_a_line_counts_as_one_does_by_hand(steps: list[tuple[str, int]], size: int) -> None:
    before, overtaking.SIZE = overtaking.SIZE, size
    try:
        compare(steps)
    finally:
        overtaking.SIZE = before


def compare(steps: list[tuple[str, int]]) -> None:
    line = Overtaken(MOST)
    slow: dict[int, int] = {}
    for what, number in steps:
        match what:
            case "add" if number not in slow:
                slow[number] = number % 3
                line.add(key(number), number % 3)
            case "remove" if number in slow:
                assert line.remove(key(number)) == (slow.pop(number) >= MOST)
            case "overtake":
                line.overtake(key(number))
                slow |= {each: count + 1 for each, count in slow.items() if each < number}
            case _:
                pass
        assert {each: line.count(key(each)) for each in slow} == slow
        full = [key(each) for each, count in sorted(slow.items()) if count >= MOST]
        assert line.full == full


def test_lines_without_a_bound_are_not_kept() -> None:
    lines = Overtaking({("t", "a"): 2})
    for number, queue in enumerate(("a", "b", "a", "b")):
        lines.came(("t", queue), key(number))
    lines.passes(JobId(3))
    lines.passes(JobId(2))
    assert [lines.of(JobId(number)) for number in range(4)] == [(1, 2), None, (0, 2), None]
    assert lines.counts() == {JobId(0): 1}
    assert not lines.left(JobId(3))


# ── what an overtaken job holds up ──────────────────────────────────────────────────────


def bounded(most: int, **terms: object) -> World:
    """A queue in which a job is overtaken so often at most."""
    queue = Queue("default", QueueOrder.SKIP, terms=Terms(overtaken=most))
    tenant = replace(a_tenant("vision", 8), queues=(queue,), **terms)
    return World(a_config(tenant, a_tenant("nlp", 8), nodes=2))


def coming(world: World, *gpus: int, who: Actor = ALICE) -> list[JobId]:
    """Let jobs come one by one, each seen to before the next comes."""
    jobs: list[JobId] = []
    for count in gpus:
        jobs.append(world.state.next_job)
        world.do(c.SubmitJob(a_job().gpus(count).not_preemptible().spec()), who)
        world.cycle()
    return jobs


def test_what_was_overtaken_as_often_as_it_may_be_holds_up_those_behind_it() -> None:
    world = bounded(2)
    first, head, *small = coming(world, 4, 8, 1, 1, 1)
    assert [world.is_(job) for job in (first, head, *small)] == [
        S.STARTING, S.QUEUED, S.STARTING, S.STARTING, S.QUEUED,
    ]  # fmt: skip
    held = world.why(small[2])
    assert held.reason is Reason.BEHIND
    assert held.message == (
        f"Job {head} is before it in queue default, and was overtaken 2 times, "
        "the most that this queue allows."
    )
    assert overtaken_words(world.state.cluster, small[2]) == (
        "It was overtaken 0 of at most 2 times."
    )
    assert "so it blocks the jobs behind it" in overtaken_words(world.state.cluster, head)
    for job in (first, *small[:2]):
        world.runs(job)
        world.ends(job)
    world.cycle()
    assert (world.is_(head), world.is_(small[2])) == (S.STARTING, S.QUEUED)


def test_what_was_overtaken_less_often_holds_up_none() -> None:
    world = bounded(2)
    _, head, small = coming(world, 4, 8, 1)
    assert world.is_(small) is S.STARTING
    assert overtaken_words(world.state.cluster, head) == (
        "It was overtaken 1 of at most 2 times."
    )
    (urgent,) = coming(world, 1)
    assert world.is_(urgent) is S.STARTING


def test_without_a_bound_nothing_is_said_of_it() -> None:
    world = bounded(0)
    _, head, *small = coming(world, 4, 8, 1, 1, 1)
    assert {world.is_(job) for job in small} == {S.STARTING}
    assert overtaken_words(world.state.cluster, head) == ""


def test_what_waits_for_its_users_cap_holds_up_none() -> None:
    world = bounded(1, per_user=Resources(gpu_milli=4000))
    _, head, _ = coming(world, 3, 3, 1)
    (other,) = coming(world, 1, who=Actor("bob", 1002))
    assert (world.is_(head), world.is_(other)) == (S.QUEUED, S.STARTING)

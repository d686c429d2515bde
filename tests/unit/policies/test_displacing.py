"""Whose turn is over, against dealing the devices out anew to all in order."""

from hypothesis import given
from hypothesis import strategies as st

from allotment.core.cluster import Cluster
from allotment.core.gang import Gang
from allotment.core.plan import PreemptionPlan
from allotment.core.request import needs_of
from allotment.model.quantity import DEVICE, Instant
from allotment.policies.rescheduling.displacing import displace
from allotment.policies.rescheduling.taking_turns import TakingTurns
from tests.unit.core.books import a_cluster, a_standing, place

NOW = Instant(1_000)
RANKS = st.tuples(st.integers(0, 5), st.integers(1, 5))
"""Priority and devices of jobs."""


class Scene:
    """A small cluster, as full as the jobs allow; and one job that waits."""

    def __init__(self, text: str, jobs: list[tuple[int, int]], each: int = 1) -> None:
        self.cluster: Cluster = a_cluster(text)
        self.gangs: list[Gang] = []
        *others, (priority, gpus) = jobs
        for job, (theirs, size) in enumerate(others, 1):
            if size <= self.cluster.ledger.whole_free:
                self.gangs.append(place(self.cluster, a_standing(job, size, theirs)))
        self.waiting = a_standing(len(jobs), gpus * each, priority, each)
        self.cluster.pending.add(self.waiting, NOW)

    def key(self, gang: Gang) -> tuple[int, int]:
        return -gang.priority, gang.id

    @property
    def mine(self) -> tuple[int, int]:
        return -self.waiting.priority, self.waiting.id

    def size(self, gang: Gang) -> int:
        return gang.held().gpu_milli // DEVICE

    def displaced(self) -> PreemptionPlan | None:
        before = self.books()
        rescheduler = self.cluster.rescheduler
        assert isinstance(rescheduler, TakingTurns)
        turn = displace(self.cluster, rescheduler.order, self.waiting, NOW)
        assert self.books() == before
        return turn

    def books(self) -> list[object]:
        ledger = self.cluster.ledger
        return [
            [(book.device_milli.copy(), book.cpu) for book in ledger.books.values()],
            ledger.version,
            ledger.whole_free,
            ledger.awaited,
            dict(self.cluster.gangs),
            self.cluster.queues.tenants["t"].own(),
        ]


def dealt_anew(scene: Scene) -> set[int] | None:
    """Return which jobs lose devices when all get theirs in order; None if it gets none."""
    free = sum(len(node.devices) for node in scene.cluster.nodes.values())
    behind = sorted((g for g in scene.gangs if scene.key(g) > scene.mine), key=scene.key)
    free -= sum(scene.size(gang) for gang in scene.gangs if scene.key(gang) < scene.mine)
    free -= scene.waiting.gpu_milli // DEVICE
    if free < 0 or not behind:
        return None
    gone: set[int] = set()
    for gang in behind:
        if scene.size(gang) <= free:
            free -= scene.size(gang)
        else:
            gone.add(gang.id)
    return gone


@given(
    text=st.sampled_from(["1x4", "2x3", "3x4"]),
    jobs=st.lists(RANKS, min_size=2, max_size=12),
)
def test_who_must_go_is_whom_dealing_out_anew_leaves_out(
    text: str, jobs: list[tuple[int, int]]
) -> None:
    scene = Scene(text, jobs)
    turn = scene.displaced()
    anew = dealt_anew(scene)
    if turn is None:
        assert anew is None
        return
    assert anew == set(turn.evict)
    sizes = {gang.id: scene.size(gang) for gang in scene.gangs}
    left = scene.cluster.ledger.whole_free + sum(sizes[job] for job in turn.evict)
    left -= scene.waiting.gpu_milli // DEVICE
    assert left >= 0
    assert all(sizes[job] > left for job in turn.evict), "one of them could have stayed"


@given(
    text=st.sampled_from(["2x4", "3x4", "4x2"]),
    each=st.sampled_from([2, 3, 4]),
    jobs=st.lists(RANKS, min_size=2, max_size=12),
)
def test_where_a_task_needs_devices_together_its_place_is_there_once_they_are_gone(
    text: str, each: int, jobs: list[tuple[int, int]]
) -> None:
    scene = Scene(text, [*jobs[:-1], (jobs[-1][0], 1)], each)
    turn = scene.displaced()
    if turn is None:
        return
    by_id = {gang.id: gang for gang in scene.gangs}
    assert all(scene.key(by_id[job]) > scene.mine for job in turn.evict)
    for job in turn.evict:
        scene.cluster.drop(by_id[job].id)
    ledger = scene.cluster.ledger
    ledger.take(turn.slots, needs_of(scene.waiting.shape.requests))
    assert ledger.settled(turn.slots)
    ledger.give(turn.slots, needs_of(scene.waiting.shape.requests))
    for job in turn.evict:
        gang = by_id[job]
        ledger.take(gang.slots, gang.needs)
        ledger.take(turn.slots, needs_of(scene.waiting.shape.requests))
        assert not ledger.settled(turn.slots), "one of them could have stayed"
        ledger.give(turn.slots, needs_of(scene.waiting.shape.requests))
        ledger.give(gang.slots, gang.needs)


def test_a_job_that_leaves_anyway_comes_first() -> None:
    scene = Scene("1x4", [(1, 2), (2, 2), (3, 2)])
    scene.cluster.mark_leaving(scene.gangs[1].id)
    turn = scene.displaced()
    assert turn is None or set(turn.evict) == {scene.gangs[1].id}


def test_what_leaves_and_is_promised_already_does_not_count() -> None:
    """Two wait, each for two of four devices: the second needs another one to go."""
    scene = Scene("1x4", [(1, 2), (2, 2), (3, 2)])
    worst, other = scene.gangs
    scene.cluster.mark_leaving(worst.id)
    scene.cluster.ledger.take(worst.slots, worst.needs)
    turn = scene.displaced()
    assert turn is not None
    assert turn.evict == (other.id,)
    assert turn.slots == other.slots


def test_a_job_of_the_same_rank_that_came_before_stays() -> None:
    scene = Scene("1x2", [(5, 2), (5, 2)])
    assert scene.displaced() is None


def test_a_suspended_gang_has_no_devices_to_give() -> None:
    scene = Scene("1x2", [(1, 2), (5, 2)])
    scene.cluster.suspend(scene.gangs[0].id, NOW)
    assert scene.displaced() is None

"""The queue pass and `why` stop a job at the same gate, and to ask changes nothing."""

from functools import partial

import pytest

from allotment.core.cluster import Cluster
from allotment.core.cycle import in_turn
from allotment.core.gang import Standing
from allotment.core.gates import Gate, aside
from allotment.core.places import Places
from allotment.core.queue_pass import QueuePass
from allotment.explain.question import Question
from allotment.explain.waiting import explain
from allotment.model.ids import JobId
from tests.golden.corpus.history import History

STEPS, MOVES = 4, 25


class Watched(QueuePass):
    """A queue pass that notes at which gate each job was stopped, if not for another walk."""

    def __init__(self, history: History) -> None:
        cluster, now = history.world.state.cluster, history.world.now
        places = Places(cluster, now, cluster.displaces(now))
        super().__init__(cluster, now, places, partial(in_turn, places))
        self.stopped_at: dict[JobId, Gate | None] = {}

    def first_shut(self, job: Standing) -> Gate | None:
        gate = super().first_shut(job)
        if gate is Gate.ROOM and self.entitled is None:
            gate = Gate.RIGHT  # It may take the place of gangs at their turn, and none is over.
        another_walk = gate is Gate.RIGHT and self.entitled is not None
        another_stage = gate is Gate.TIER and aside(self.cluster, job.shape, self.stage)
        if not another_walk and not another_stage:
            self.stopped_at[job.id] = gate
        return gate


@pytest.mark.parametrize("seed", [*range(30), *range(400, 420)])
def test_why_names_the_gate_at_which_the_pass_stops_a_job(seed: int) -> None:
    history = History(seed)
    for _ in range(STEPS):
        history.play(MOVES)
        history.world.cycle()
        cluster, now = history.world.state.cluster, history.world.now
        cluster.memos.blocked.clear()  # The pass does not look at what it knows to be blocked.
        walk = Watched(history)
        assert list(walk.serve()) == []
        for job, gate in walk.stopped_at.items():
            asked = Question(cluster, cluster.pending[job], now)
            with cluster.fenced(asked.job.shape, now):
                told = asked.first_shut(asked.job)
                # What makes way for it the pass asks only where none is before it.
                behind = told is Gate.ORDER and asked.preempts
            assert (job, gate) == (job, told) or behind


@pytest.mark.parametrize("seed", [*range(60, 75), *range(440, 450)])
def test_to_ask_sets_no_timer_and_closes_no_node(seed: int) -> None:
    history = History(seed)
    for _ in range(STEPS):
        history.play(MOVES)
        history.world.cycle()
        cluster, now = history.world.state.cluster, history.world.now
        before = looks(cluster)
        for waiting in cluster.pending.all():
            explain(cluster, waiting, now)
            assert looks(cluster) == before


def looks(cluster: Cluster) -> tuple[object, ...]:
    """Return what a question could leave behind."""
    wake_at = cluster.disruption.wake_at if cluster.disruption is not None else None
    books = cluster.ledger.books.items()
    shut = [(node, book.open, book.bad) for node, book in books]
    return (
        cluster.ledger.version,
        wake_at,
        shut,
        dict(cluster.placed.leaving),
        cluster.seen_version,
    )

"""The line walked class by class, against walking every shape of every queue.

Two services live through the same history, one of which knows of no classes: they must decide
alike, event by event.
"""

import os
from collections.abc import Callable
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from allotment.model import commands as c
from allotment.model.errors import Rejected
from allotment.model.ids import Actor, JobId, NodeId
from allotment.model.quantity import Resources
from allotment.model.reasons import Reason
from allotment.model.reports import NodeReport
from allotment.model.tenancy import Config, Preempt, Queue, QueueOrder, Tenant
from tests.support.builders import a_config, a_job, gpus
from tests.support.world import World

TENANTS, QUEUES = ("vision", "nlp"), ("a", "b", "c", "d")
ORDERS = st.tuples(*[st.sampled_from(list(QueueOrder))] * len(QUEUES))
SHARES = st.tuples(*[st.integers(0, 9)] * len(TENANTS))
PICK = st.integers(0, 10**6)
CAP = st.sampled_from([0, 0, 3])


def no_classes(*_: object, **__: object) -> None:
    """Let every shape be a class of its own."""


class Twins(RuleBasedStateMachine):
    """Two tenants with four queues each, on three nodes of four devices."""

    @initialize(orders=ORDERS, shares=SHARES, preempt=st.sampled_from(list(Preempt)), cap=CAP)
    def begin(
        self,
        orders: tuple[QueueOrder, ...],
        shares: tuple[int, ...],
        preempt: Preempt,
        cap: int,
    ) -> None:
        self.ways = orders, preempt, cap
        config = self.config(shares)
        self.fast = World(config)
        with patch("allotment.core.cluster.equivalence_classes", no_classes):
            self.slow = World(config)
        assert self.fast.state.cluster.classes is not None
        assert self.slow.state.cluster.classes is None

    def config(self, shares: tuple[int, ...]) -> Config:
        orders, preempt, cap = self.ways
        queues = tuple(map(Queue, QUEUES, orders))
        tenants = (
            Tenant(name, gpus(share), queues, preempt=preempt, per_user=gpus_alone(cap))
            for name, share in zip(TENANTS, shares, strict=True)
        )
        return a_config(*tenants, nodes=3, devices=4)

    @rule(
        tenant=st.sampled_from(TENANTS),
        queue=st.sampled_from(QUEUES),
        user=st.sampled_from(["ann", "bob"]),
        tasks=st.integers(1, 2),
        each=st.sampled_from([0, 0.5, 1, 1, 2, 3, 4]),
        priority=st.sampled_from([50, 100, 200]),
        preemptible=st.booleans(),
        limit=st.sampled_from([None, 1000, 3000]),
        copies=st.integers(1, 4),
        then=st.booleans(),
    )
    def submit(  # noqa: PLR0917
        self,
        tenant: str,
        queue: str,
        user: str,
        tasks: int,
        each: float,
        priority: int,
        preemptible: bool,
        limit: int | None,
        copies: int,
        then: bool,
    ) -> None:
        """Often several come before the next cycle."""
        job = a_job().of(tenant, queue).tasks(tasks).gpus(each).priority(priority)
        job.within(run_ms=limit)
        if not preemptible:
            job.not_preemptible()
        command = c.SubmitJob(job.spec(), copies=copies)
        self.both(lambda world: world.do(command, Actor(user, 1)), then=then)

    @rule(kind=st.sampled_from([c.HoldJob, c.ReleaseJob, c.CancelJob]), which=PICK)
    def ask(self, kind: type[c.CancelJob], which: int) -> None:
        jobs = sorted(self.fast.state.jobs)
        if jobs:
            job = jobs[which % len(jobs)]
            self.both(lambda world: world.do(kind(job)))

    @rule(which=PICK, leaving=st.booleans())
    def end(self, which: int, leaving: bool) -> None:
        """A gang ends; one that was told to go, if there is one and it is asked for."""
        cluster = self.fast.state.cluster
        gangs = sorted((cluster.placed.leaving if leaving else None) or cluster.gangs)
        if gangs:
            job = gangs[which % len(gangs)]
            self.both(lambda world: world.ends(JobId(job)))

    @rule(node=st.integers(0, 2), alive=st.booleans())
    def node(self, node: int, alive: bool) -> None:
        self.both(lambda world: world.tell(NodeReport(NodeId(node), alive=alive, reason="x")))

    @rule(shares=SHARES)
    def reconfigure(self, shares: tuple[int, ...]) -> None:
        command = c.ApplyConfig(self.config(shares))
        self.both(lambda world: world.do(command))

    @rule(ms=st.sampled_from([1, 500, 2000]))
    def wait(self, ms: int) -> None:
        self.both(lambda world: world.wait(ms))

    def both(self, do: Callable[[World], object], *, then: bool = True) -> None:
        """Let both do it, and as a rule look through the line then."""
        said = self.said(self.fast, do)
        with patch("allotment.core.cluster.equivalence_classes", no_classes):
            assert self.said(self.slow, do) == said
        for world in (self.fast, self.slow) if then else ():
            world.cycle()
        events = [[record.event for record in world.log] for world in (self.fast, self.slow)]
        assert events[0] == events[1]

    def said(self, world: World, do: Callable[[World], object]) -> str:
        try:
            do(world)
        except Rejected as refusal:
            return str(refusal)
        return ""


def test_a_job_is_held_up_though_one_like_the_blocked_one_waits_in_another_queue() -> None:
    """Both may make others give way, so each is looked at by itself."""
    queues = tuple(Queue(name) for name in QUEUES)
    vision = Tenant("vision", gpus(4), queues, preempt=Preempt.EVICT)
    world = World(a_config(vision, Tenant("nlp", gpus(8), queues), nodes=3, devices=4))
    world.submit(a_job().of("nlp", "a").gpus(4).tasks(2))
    world.submit(a_job().of("vision", "a").gpus(3))
    world.cycle()
    world.submit(a_job().of("vision", "a").gpus(2))
    world.submit(a_job().of("vision", "b").gpus(2))
    behind = world.submit(a_job().of("vision", "a").gpus(1))
    world.cycle()
    assert behind not in world.state.cluster.gangs
    assert world.why(behind).reason is Reason.BEHIND


def gpus_alone(count: int) -> Resources:
    return Resources(gpu_milli=count * 1000)


TestTwins = Twins.TestCase
TestTwins.settings = settings(
    max_examples=int(os.environ.get("ALLOT_HISTORIES", "60")),
    stateful_step_count=40,
    deadline=None,
)


def test_a_job_that_lost_its_right_on_the_way_holds_up_those_behind_it() -> None:
    """Two jobs of three devices fit nowhere.

    Before the second, its tenant uses up its share. It is guaranteed a place all the same.
    """
    queues = tuple(Queue(name) for name in QUEUES)
    config = a_config(
        Tenant("vision", gpus(3), queues), Tenant("nlp", gpus(9), queues), nodes=3, devices=4
    )
    world = World(config)
    for size in (4, 3, 2):
        world.submit(a_job().of("nlp", "a").gpus(size))
    world.cycle()
    assert world.state.cluster.ledger.whole_free == 3  # One on a node, two on another.
    first = world.submit(a_job().of("vision", "a").gpus(3))
    passed = world.submit(a_job().of("vision", "b").gpus(2))
    second = world.submit(a_job().of("vision", "c").gpus(3))
    behind = world.submit(a_job().of("vision", "c").gpus(1))
    world.cycle()
    gangs = world.state.cluster.gangs
    assert (first in gangs, passed in gangs, second in gangs) == (False, True, False)
    assert behind not in gangs
    assert world.why(behind).reason is Reason.BEHIND

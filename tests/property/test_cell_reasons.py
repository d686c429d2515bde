"""Where shares are cells, the reason why a job waits is true: the world is changed to see.

Each reason says what would help, or would not. So it is tried, on a copy: hardware comes
back, other tenants go, its own tenant's jobs go, those before it in its queue are held.
"""

import os
from collections.abc import Callable

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from allotment.core.own_cells import guaranteed_place
from allotment.core.sharing import may_borrow
from allotment.engine.engine import Engine
from allotment.engine.state import Image, State
from allotment.model import commands as c
from allotment.model.errors import Rejected
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Entitlement
from allotment.model.lifecycle import JobState
from allotment.model.reasons import Blocked, Reason
from tests.support.builders import POLICIES, a_job
from tests.support.cells import cell_config
from tests.support.world import World

CONFIG = """\
hardware:
  - 4 x dgx-v100 in racks of 2
  - 1 x mi100-8
cells:
  pins: [{id: own, type: dgx-v100-socket, node: n4, device: 4}]
tenants:
  vision:
    cells: {dgx-v100-node: 2, dgx-v100-switch: 1}
    pins: [own]
    queues: {default: {order: %(order)s}}
  nlp:
    cells: {dgx-v100-socket: 1, mi100-8-node: 1}
    borrow: false
    queues: {default: {order: %(order)s}}
  guest: {queues: {default: {order: %(order)s}}}
"""
TENANTS = ("vision", "nlp", "guest")
PICK = st.integers(0, 10**6)


class CellReasons(RuleBasedStateMachine):
    """Three tenants on four machines in two racks and one of another kind."""

    @initialize(order=st.sampled_from(["strict", "skip", "easy"]))
    def begin(self, order: str) -> None:
        self.world = World(cell_config(CONFIG % {"order": order}))

    @rule(
        tenant=st.sampled_from(TENANTS),
        tasks=st.integers(1, 3),
        gpus=st.sampled_from([0.5, 1, 2, 4, 8]),
        types=st.sampled_from([(), ("V100",), ("MI100",)]),
        cpus=st.sampled_from([1, 1, 1, 20]),
        within=st.sampled_from(["", "", "", "node", "socket", "rack"]),
        kind=st.sampled_from(["", "", "", "", "pin", "opportunistic", "stays"]),
        priority=st.sampled_from([100, 100, 200]),
    )
    def submit(  # noqa: PLR0917
        self,
        tenant: str,
        tasks: int,
        gpus: float,
        types: tuple[str, ...],
        cpus: int,
        within: str,
        kind: str,
        priority: int,
    ) -> None:
        job = a_job().of(tenant).tasks(tasks).gpus(gpus).types(*types).cpus(cpus)
        job.within_one(within).priority(priority).within(run_ms=10_000 * tasks)
        if kind == "pin":
            job.of("vision").pinned("own")
        elif kind == "opportunistic":
            job.opportunistic()
        elif kind == "stays":
            job.not_preemptible()
        try:
            self.world.submit(job)
        except Rejected:
            return
        self.settle()

    @rule(which=PICK)
    def ends(self, which: int) -> None:
        jobs = sorted(self.world.state.cluster.gangs)
        if not jobs:
            return
        job = jobs[which % len(jobs)]
        if self.world.is_(job) is JobState.STARTING:
            self.world.runs(job)
        self.world.ends(job)
        self.settle()

    @rule(node=st.integers(0, 4), back=st.booleans())
    def drain(self, node: int, back: bool) -> None:
        self.world.do(c.UndrainNode(NodeId(node)) if back else c.DrainNode(NodeId(node)))
        self.settle()

    # ── the check ───────────────────────────────────────────────────────────────────────

    def settle(self) -> None:
        self.world.cycle()
        waiting = [j for j in sorted(self.world.state.jobs) if self.waits(j)]
        # Each step two of them in turn: a check is several worlds.
        for at in range(min(2, len(waiting))):
            job = waiting[(self.world.state.seq + at) % len(waiting)]
            self.check(job, self.world.why(job))

    def waits(self, job: JobId) -> bool:
        return self.world.is_(job) is JobState.QUEUED

    def check(self, job: JobId, why: Blocked) -> None:
        own = self.world.job(job).spec
        match why.reason:
            case Reason.WAITING_FOR_VICTIMS:
                assert all(
                    h.job in self.world.state.cluster.placed.leaving for h in why.holders
                )
            case Reason.NODES_UNAVAILABLE:
                assert not self.starts(job, _alone)
                assert self.starts(job, _alone, _mended)
            case Reason.CAPACITY if "lie between its own" in why.message:
                assert not self.starts(job, _alone, _without_own)
                assert self.starts(job, _mended, _without_others, _without_own, _nobody)
            case Reason.QUOTA | Reason.FRAGMENTED if "may not borrow" in why.message or own.pin:
                assert not self.starts(job, _alone, _mended, _without_others)
                # What is promised to its tenant's own is theirs as what they hold.
                assert self.starts(job, _nobody, _without_own)
                if why.reason is Reason.QUOTA:
                    assert {h.tenant for h in why.holders} <= {own.tenant}
            case Reason.BEHIND:
                first = JobId(int(why.message.split()[1]))
                assert self.world.is_(first) is JobState.QUEUED
                assert self.world.job(first).spec.tenant == own.tenant
                if self.has_room(job):
                    assert self.starts(job, _without_those_before)
            case Reason.CAPACITY | Reason.FRAGMENTED:
                assert not self.starts(job, _alone, _mended)
                assert self.starts(job, _mended, _without_others, _without_own, _nobody)
            case reason:
                raise AssertionError(f"job {job} waits: {reason}: {why.message}")

    def has_room(self, job: JobId) -> bool:
        cluster = self.world.state.cluster
        shape = cluster.pending[job].shape
        if guaranteed_place(cluster, shape) is not None:
            return True
        return (
            may_borrow(cluster, shape)
            and cluster.guarantee.idle_place(shape.requests) is not None
        )

    def starts(self, job: JobId, *changes: "Change") -> bool:
        """Whether a job has or gets a place in a world like this one but for changes."""
        image = msgspec.msgpack.decode(
            msgspec.msgpack.encode(self.world.state.image()), type=Image
        )
        twin = World.__new__(World)
        twin.engine, twin.now = Engine(State.from_image(image, POLICIES)), self.world.now
        twin.log, twin.effects = [], []
        for change in changes:
            change(twin, job)
        if _alone in changes:
            _alone(twin, job)  # Who had to go meanwhile is back in line.
        twin.cycle()
        return job in twin.state.cluster.gangs or job in twin.state.cluster.reserved


Change = Callable[[World, JobId], None]


def _alone(world: World, job: JobId) -> None:
    """Nobody else is in line, but those to whom a place is promised."""
    promised = world.state.cluster.reserved
    for other in list(world.state.jobs):
        if other not in {job, *promised} and world.is_(other) is JobState.QUEUED:
            world.do(c.HoldJob(other))


def _nobody(world: World, job: JobId) -> None:
    """Nobody else is in line, whatever was promised."""
    for other in list(world.state.jobs):
        if other != job and world.is_(other) is JobState.QUEUED:
            world.do(c.HoldJob(other))


def _without_those_before(world: World, job: JobId) -> None:
    """Whoever waits before it in its queue is held."""
    pending = world.state.cluster.pending
    if job in pending:
        for group in [[*group] for group in pending.ahead(pending[job])]:
            for other in group:
                if other.id not in world.state.cluster.reserved:
                    world.do(c.HoldJob(other.id))


def _mended(world: World, job: JobId) -> None:
    for node in list(world.state.nodes):
        world.do(c.UndrainNode(node))


def _without(world: World, *, own: bool, tenant: str) -> None:
    for other, gang in list(world.state.cluster.gangs.items()):
        guaranteed = gang.entitlement is Entitlement.GUARANTEED
        if own is (gang.tenant == tenant and guaranteed):
            if world.is_(other) is JobState.STARTING:
                world.runs(other)
            world.ends(other)


def _without_others(world: World, job: JobId) -> None:
    _without(world, own=False, tenant=world.job(job).spec.tenant)


def _without_own(world: World, job: JobId) -> None:
    _without(world, own=True, tenant=world.job(job).spec.tenant)


CellReasons.TestCase.settings = settings(
    max_examples=int(os.environ.get("ALLOT_HISTORIES", "40")),
    stateful_step_count=25,
    deadline=None,
)
TestCellReasons = CellReasons.TestCase


def test_a_victim_that_is_back_elsewhere_is_not_waited_for() -> None:
    state = CellReasons()
    state.begin(order="strict")
    state.drain(node=0, back=False)

    def submit(tenant: str, gpus: float, tasks: int = 1, kind: str = "") -> None:
        state.submit(tenant, tasks, gpus, (), 1, "", kind, 100)

    submit("nlp", 0.5)
    submit("vision", 0.5)
    submit("vision", 0.5, kind="opportunistic")
    state.ends(which=0)
    submit("guest", 0.5)
    submit("vision", 4, tasks=2)
    state.ends(which=1)
    waiting = max(state.world.state.jobs)
    assert [each.job for each in state.world.why(waiting).holders] == [waiting - 1]

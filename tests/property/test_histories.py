"""Generated histories against the audit: any order of wishes, reports, faults and restarts."""

import os
from collections.abc import Iterable

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from allotment.engine.engine import Engine
from allotment.engine.state import Image, State
from allotment.model import commands as c
from allotment.model.dated import as_written
from allotment.model.errors import Rejected
from allotment.model.ids import JobId, NodeId, TaskIndex, TaskKey
from allotment.model.lifecycle import TaskState
from allotment.model.others import NOBODY, Others
from allotment.model.quantity import GIB, NOTHING, Instant, Resources, WallTime
from allotment.model.reasons import Reason
from allotment.model.reports import NodeReport, OthersReport, Seen, TaskReport
from allotment.model.spec import Dependency, EndKind
from allotment.model.tenancy import (
    Config,
    DatedChange,
    Preempt,
    Queue,
    QueueOrder,
    RankBy,
    Share,
    ShareBy,
)
from tests.support.builders import POLICIES, a_config, a_job, a_tenant, gpus
from tests.support.world import FAILED, PERMANENT, PLATFORM, World


def sum_up(parts: Iterable[Resources]) -> Resources:
    total = NOTHING
    for part in parts:
        total += part
    return total


def parting_of(state: State) -> dict[JobId, tuple[object, ...]]:
    """Return what surplus tasks hold; what their gangs have saved since is not told of them."""
    parting = state.cluster.placed.parting
    return {job: (gang.slots, gang.needs, gang.requests) for job, gang in parting.items()}


TENANTS = ("vision", "nlp", "speech")
PICK = st.integers(0, 10**6)


SHARE = st.sampled_from(list(ShareBy))
RANK = st.sampled_from(list(RankBy))


def gpus_of(devices: int) -> Resources:
    """Return a guarantee of all parts; of disk so little that it is often what runs out."""
    return msgspec.structs.replace(
        gpus(devices), disk=devices * 250 * GIB, gpu_memory=devices * 80 * GIB
    )


def shared(
    shares: tuple[int, ...],
    order: QueueOrder,
    share: ShareBy,
    rank: RankBy,
    preempt: Preempt = Preempt.NONE,
) -> Config:
    """Let three tenants, their queues and the users of these share by a rule."""
    queue = Queue("default", order, rank, share, weight_milli=1500)
    tenants = [
        msgspec.structs.replace(
            a_tenant(name),
            guaranteed=gpus_of(guaranteed),
            queues=(queue,),
            share=share,
            weight_milli=1000 * weight,
            preempt=preempt,
        )
        for weight, (name, guaranteed) in enumerate(zip(TENANTS, shares, strict=True), 1)
    ]
    config = a_config(*tenants, nodes=3, devices=4)
    return msgspec.structs.replace(config, share=share)


class Histories(RuleBasedStateMachine):
    """Three tenants on three nodes of four devices."""

    policies = POLICIES
    cut: tuple[Reason, ...] = (Reason.QUOTA,)
    """What a job is told whose tenant's share became too small for it."""

    @initialize(
        shares=st.tuples(*[st.integers(0, 4)] * 3),
        order=st.sampled_from(list(QueueOrder)),
        share=SHARE,
        rank=RANK,
        preempt=st.sampled_from(list(Preempt)),
    )
    def begin(
        self,
        shares: tuple[int, ...],
        order: QueueOrder,
        share: ShareBy,
        rank: RankBy,
        preempt: Preempt = Preempt.NONE,
    ) -> None:
        self.world = World(shared(shares, order, share, rank, preempt))

    # ── wishes ──────────────────────────────────────────────────────────────────────────

    @rule(
        tenant=st.sampled_from(TENANTS),
        tasks=st.integers(1, 5),
        most=st.sampled_from([0, 0, 5, 8]),
        gpus=st.sampled_from([0, 0.25, 0.5, 1, 2, 4]),
        memory=st.sampled_from([1, 100, 400]),
        disk=st.sampled_from([0, 0, 100, 300]),
        gpu_memory=st.sampled_from([0, 0, 20, 80]),
        priority=st.sampled_from([50, 100, 200]),
        retry=st.integers(0, 2),
        preemptible=st.booleans(),
        limit=st.sampled_from([None, 3000]),
        copies=st.sampled_from([1, 1, 1, 4]),
        cap=st.integers(0, 2),
        after=st.one_of(st.none(), PICK),
    )
    def submit(  # noqa: PLR0917
        self,
        tenant: str,
        tasks: int,
        most: int,
        gpus: float,
        memory: int,
        disk: int,
        gpu_memory: int,
        priority: int,
        retry: int,
        preemptible: bool,
        limit: int | None,
        copies: int,
        cap: int,
        after: int | None,
    ) -> None:
        job = a_job().of(tenant).tasks(tasks).gpus(gpus).memory(memory * GIB)
        job.disk(disk * GIB)
        if gpus:
            job.gpu_memory(gpu_memory * GIB)
        if most:
            job.between(tasks, most, elastic=most == 8)
        job.priority(priority).retry(retry).within(run_ms=limit, queue_ms=limit)
        if not preemptible:
            job.not_preemptible()
        if after is not None and (target := self.pick(after)) is not None:
            job.after(Dependency(target, EndKind.ANY if after % 2 else EndKind.SUCCESS))
        self.attempt(c.SubmitJob(job.spec(), copies=copies, max_running=cap))

    @rule(
        kind=st.sampled_from([c.HoldJob, c.ReleaseJob, c.CancelJob, c.SuspendJob, c.ResumeJob]),
        which=PICK,
    )
    def ask(self, kind: type[c.CancelJob], which: int) -> None:
        if (job := self.pick(which)) is not None:
            self.attempt(kind(job))

    @rule(which=PICK, gpus=st.sampled_from([0, 1, 2]), priority=st.sampled_from([10, 900]))
    def edit(self, which: int, gpus: float, priority: int) -> None:
        if (job := self.pick(which)) is not None:
            spec = self.world.job(job).spec
            role = msgspec.structs.replace(
                spec.roles[0],
                resources=msgspec.structs.replace(
                    spec.roles[0].resources, gpu_milli=gpus * 1000, gpu_memory=0
                ),
            )
            self.attempt(
                c.EditJob(job, msgspec.structs.replace(spec, roles=(role,), priority=priority))
            )

    @rule(node=st.integers(0, 2), alive=st.booleans())
    def node(self, node: int, alive: bool) -> None:
        self.world.tell(NodeReport(NodeId(node), alive=alive, reason="test"))

    @rule(
        node=st.integers(0, 2),
        gpus=st.sampled_from([0, 0, 1, 8]),
        cpus=st.sampled_from([0, 0, 1, 30]),
    )
    def others(self, node: int, gpus: int, cpus: int) -> None:
        """Others, who run beside Allotment, use so much of a node from now on."""
        use = Others((("", gpus),) if gpus else (), cpus * 1000)
        self.world.tell(OthersReport(NodeId(node), use))

    @rule(shares=st.tuples(*[st.integers(0, 4)] * 3), share=SHARE, rank=RANK)
    def reconfigure(self, shares: tuple[int, ...], share: ShareBy, rank: RankBy) -> None:
        self.attempt(c.ApplyConfig(shared(shares, QueueOrder.STRICT, share, rank)))

    @rule(
        shares=st.tuples(*[st.integers(0, 4)] * 3),
        after=st.sampled_from([0, 1, 1000, 50_000]),
        length=st.sampled_from([1, 1000, 100_000]),
    )
    def reconfigure_by_date(self, shares: tuple[int, ...], after: int, length: int) -> None:
        """For some time the tenants are guaranteed something else."""
        begin = Instant(self.world.now + after)
        plain = as_written(self.world.state.config)
        changes = tuple(
            DatedChange(
                tenant.name,
                WallTime(begin),
                WallTime(begin + length),
                Share(gpus_of(devices), weight_milli=3000),
            )
            for tenant, devices in zip(plain.tenants, shares, strict=True)
        )
        self.attempt(c.ApplyConfig(msgspec.structs.replace(plain, changes=changes)))

    @rule(node=st.integers(0, 2), drain=st.booleans())
    def drain(self, node: int, drain: bool) -> None:
        self.attempt(c.DrainNode(NodeId(node)) if drain else c.UndrainNode(NodeId(node)))

    def attempt(self, command: c.AnyCommand) -> None:
        before = self.world.state.seq
        try:
            self.world.do(command)
        except Rejected:
            assert self.world.state.seq == before, "a refusal changes nothing"

    # ── the world ───────────────────────────────────────────────────────────────────────

    @rule()
    def cycle(self) -> None:
        self.world.cycle()

    @rule(ms=st.sampled_from([0, 1, 1000, 100_000]))
    def wait(self, ms: int) -> None:
        self.world.wait(ms)

    @rule(which=PICK)
    def run_one(self, which: int) -> None:
        if (job := self.pick_placed(which)) is not None:
            self.world.runs(job)

    @rule(
        which=PICK,
        index=st.integers(0, 4),
        seen=st.sampled_from(list(Seen)),
        how=st.sampled_from([None, FAILED, PERMANENT, PLATFORM]),
        stale=st.booleans(),
    )
    def report(self, which: int, index: int, seen: Seen, how: object, stale: bool) -> None:
        from allotment.model.diagnosis import Diagnosis, Exit

        job = self.pick_placed(which)
        if job is None:
            return
        no = self.world.job(job).attempts[-1].no
        key = TaskKey(job, no.__class__(no - stale), TaskIndex(index))
        diagnosis = how if isinstance(how, Diagnosis) else None
        over = seen in (Seen.ENDED, Seen.HOLDING)
        ended = Exit(code=1 if diagnosis else 0) if over else None
        self.world.tell(TaskReport(key, seen, 7, exit=ended, diagnosis=diagnosis))

    @rule(which=PICK, code=st.sampled_from([0, 0, 1]))
    def end(self, which: int, code: int) -> None:
        if (job := self.pick_placed(which)) is not None:
            self.world.runs(job)
            self.world.ends(job, code)

    @rule(which=PICK, lost=st.integers(0, 1))
    def surplus_ends(self, which: int, lost: int) -> None:
        """Tasks that were told to stop as surplus are gone, but for some."""
        parting = sorted(self.world.state.cluster.placed.parting)
        if not parting:
            return
        job = parting[which % len(parting)]
        attempt = self.world.job(job).attempts[-1]
        for index in range(attempt.staying, len(attempt.slots) - lost):
            self.world.task_ends(TaskKey(job, attempt.no, TaskIndex(index)), 143)

    @rule(which=PICK)
    def checkpoint(self, which: int) -> None:
        if (job := self.pick_placed(which)) is not None:
            self.world.saves(job, step=which)

    @rule(keep=st.integers(0, 3))
    def archive(self, keep: int) -> None:
        from allotment.model import events as e
        from allotment.model.ids import SYSTEM

        for job in self.world.engine.archive(self.world.now, keep):
            self.world.engine.emit(e.JobArchived(job), SYSTEM, self.world.now)
            self.world.collect()

    @rule()
    def restart(self) -> None:
        """Through bytes and back: nothing of the state may be lost on the way."""
        state = self.world.state
        data = msgspec.msgpack.encode(state.image())
        again = State.from_image(msgspec.msgpack.decode(data, type=Image), self.policies)
        assert msgspec.msgpack.encode(again.image()) == data
        assert set(again.cluster.pending.all()) >= {
            waiting
            for waiting in state.cluster.pending.all()
            if not state.jobs[waiting.id].not_before and not state.jobs[waiting.id].spec.array
        }
        assert again.cluster.gangs == state.cluster.gangs
        assert parting_of(again) == parting_of(state)
        if (ends := state.cluster.ends) is not None and again.cluster.ends is not None:
            now = self.world.now
            assert list(again.cluster.ends.soonest(now)) == list(ends.soonest(now))
        self.world.engine = Engine(again)
        self.world.collect()

    # ── the end ─────────────────────────────────────────────────────────────────────────

    def teardown(self) -> None:
        """9: once every node is back and everybody else is gone, whoever may start, starts."""
        if not hasattr(self, "world"):
            return
        world = self.world
        for node in range(3):
            self.attempt(c.UndrainNode(NodeId(node)))
            world.tell(NodeReport(NodeId(node), alive=True))
            world.tell(OthersReport(NodeId(node), NOBODY))
        for _ in range(200):
            world.cycle()
            placed = [job.id for job in world.state.jobs.values() if job.attempt]
            waiting = world.state.cluster.pending.all()
            if not placed:
                # A share that became smaller than the job is the one reason left to wait.
                left = [why for w in waiting if (why := world.why(w.id)).reason not in self.cut]
                assert not left
                break
            for job in placed:
                while world.job(job).attempt is not None:
                    key = next(
                        key
                        for key in world.job(job).task_keys()
                        if world.job(job).attempts[-1].task(key.index).state
                        is not TaskState.ENDED
                    )
                    world.task_ends(key)
                    if world.job(job).attempts[-1].no != key.attempt:
                        break
        assert all(
            m == 1000 for b in world.state.cluster.ledger.books.values() for m in b.device_milli
        )

    @invariant()
    def no_refusals(self) -> None:
        if hasattr(self, "world"):
            assert self.world.engine.refusals == 0

    @invariant()
    def sums_and_places_in_line_are_those_of_a_count(self) -> None:
        if not hasattr(self, "world"):
            return
        cluster = self.world.state.cluster
        books = cluster.ledger.books.values()
        assert cluster.ledger.free() == sum_up(book.free() for book in books if book.open)
        sizes = {
            (gang.id, milli)
            for milli, gangs in cluster.placed.by_devices.items()
            for gang in gangs.values()
        }
        assert sizes == {(gang.id, gang.held().gpu_milli) for gang in cluster.gangs.values()}
        line = sorted(cluster.pending.all(), key=lambda job: cluster.pending.key(job.id))
        for place, job in enumerate(line):
            queue = (job.shape.tenant, job.shape.queue)
            ahead = [
                other.id
                for other in line[:place]
                if (other.shape.tenant, other.shape.queue) == queue
            ]
            first = ahead[0] if ahead else None
            assert cluster.pending.ahead_of(job) == (len(ahead), first)
            groups = [standing.id for group in cluster.pending.ahead(job) for standing in group]
            assert sorted(groups) == sorted(ahead)

    def pick(self, which: int) -> JobId | None:
        jobs = sorted(self.world.state.jobs)
        return jobs[which % len(jobs)] if jobs else None

    def pick_placed(self, which: int) -> JobId | None:
        jobs = sorted(job.id for job in self.world.state.jobs.values() if job.attempt)
        return jobs[which % len(jobs)] if jobs else None


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=int(os.environ.get("ALLOT_HISTORIES", "200")),
    stateful_step_count=40,
    deadline=None,
)

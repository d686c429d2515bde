"""The simulated machines: start, slow down, stop, fail and finish the gangs they are given.

They report to the engine as a backend would, and to nothing else. Chance is drawn from the
seed, the job's place and the attempt, so that a draw does not depend on what else happened.
"""

from collections.abc import Callable, Sequence
from random import Random

from allotment.engine.engine import Engine
from allotment.engine.records import JobRecord, Shrink
from allotment.model import effects as f
from allotment.model.cluster import Node
from allotment.model.diagnosis import Diagnosis, Exit, Owner, RetryClass
from allotment.model.ids import AttemptNo, JobId, NodeId, TaskIndex, TaskKey
from allotment.model.ledger import Slot
from allotment.model.lifecycle import AttemptState
from allotment.model.quantity import (
    HOUR,
    NO_TIME,
    SECOND,
    Instant,
    Millis,
    show_milli,
    show_millis,
)
from allotment.model.reports import GangReport, NodeReport, PaceReport, Seen, TaskReport
from allotment.sim.agenda import (
    END,
    FAILURE,
    FAULT,
    GONE,
    NO_ATTEMPT,
    REPAIR,
    SHED,
    START,
    TOLD,
    Agenda,
    Entry,
    Phase,
)
from allotment.sim.bad import BadScenario
from allotment.sim.settings import Settings
from allotment.sim.speeds import Speeds
from allotment.sim.trace import TraceJob
from allotment.sim.work import FULL_SPEED, STANDS_STILL, Work

RUNNING, ENDED = Seen.RUNNING, Seen.ENDED

LEAST_VAIN, VAIN_A_NODE = 10_000, 100
"""So many failures of nodes in a row without a job running, and so many for each node, are
all that there will ever be. Nodes that fail once a day come to it after 100 idle days."""


TOLD_AFTER = 15 * SECOND
"""How long a job tells of its steps before its pace is known."""


class Standstill(BadScenario):
    """A world in which no job can ever start."""


class Machines:
    """Every node of the cluster, and the work of every job that has not finished."""

    def __init__(
        self,
        engine: Engine,
        nodes: Sequence[Node],
        settings: Settings,
        speeds: Speeds,
        seed: int,
        shared: bool = False,
    ) -> None:
        self.works: dict[JobId, Work] = {}
        self.agenda = Agenda()
        self._engine = engine
        self._settings = settings
        self.leaving: Callable[[JobRecord, Millis], int] | None = None
        """How long a job takes to be gone, given its grace; without it as the settings say."""
        self._speeds = speeds
        self._seed = seed
        self._busy: dict[NodeId, set[JobId]] = {node.id: set() for node in nodes}
        """The gangs on each node; kept only where that matters."""
        self._paced = speeds.disturbed or shared
        """Whether the speed of a job changes as others come and go."""
        self._shared = shared
        self.tracked = self._paced or settings.mtbf_ms > 0
        """Whether it is known what is where; must be before anything starts, if nodes fail."""
        self.early_ms = 0
        """How long before they are told to, gangs have begun, if a policy tells them late."""
        self._vain = 0
        """Failures of nodes in a row while no job ran."""

    def open(self, now: Instant) -> None:
        """Begin: draw when each node fails first."""
        if self._settings.mtbf_ms:
            for node in self._busy:
                self._plan_fault(node, 0, now)

    def adopt(self, job: JobRecord, work: Work, now: Instant) -> None:
        """Take over a job as it stands in the engine: waiting, or holding a place."""
        self.works[job.id] = work
        work.began = any(attempt.started_at for attempt in job.attempts)
        attempt = job.attempt
        if attempt is None:
            return
        work.attempt = attempt.no
        if attempt.state is AttemptState.STARTING:
            self.agenda.add(now, START, job.id, attempt.no)
            return
        work.begun = True
        if attempt.stop is not None:
            work.stopped_at = attempt.stop.at
            gone_at = attempt.stop.at + self._stop_ms(job.id, attempt.stop.grace_ms)
            self.agenda.add(max(now, gone_at), GONE, job.id, attempt.no)
        elif attempt.state is AttemptState.RUNNING or attempt.packing is not None:
            self._go_on(job.id, work, now)
            if attempt.shrink is not None:
                gone_at = attempt.shrink.at + self._stop_ms(job.id, attempt.shrink.grace_ms)
                self.agenda.add(max(now, gone_at), SHED, job.id, attempt.no)

    def _go_on(self, job: JobId, work: Work, now: Instant) -> None:
        work.since = now
        self.agenda.add(work.ends_at(now), END, job, work.attempt)

    # ── orders ──────────────────────────────────────────────────────────────────────────

    def carry_out(self, effect: f.AnyEffect, now: Instant) -> None:
        """Do what the engine wants; a gang is started with its first task."""
        if isinstance(effect, f.LaunchGang):
            if effect.tasks[0] == 0:
                self._launch(effect.job, effect.attempt, now)
        elif isinstance(effect, f.StopTask):
            key = effect.key
            shrink = self._shrinking(key.job, key.attempt)
            if shrink is None:
                self._stop(key.job, key.attempt, now)
            elif key.index == shrink.tasks:
                gone_at = now + self._stop_ms(key.job, shrink.grace_ms)
                self.agenda.add(gone_at, SHED, key.job, key.attempt)
        elif isinstance(effect, f.FreezeGang):
            self._freeze(effect.keys[0].job, now)
        elif isinstance(effect, f.ThawTask):
            self._thaw(effect.key.job, now)

    def _freeze(self, job: JobId, now: Instant) -> None:
        work = self.works[job]
        if work.since < 0:
            return
        work.pause(now)
        work.since, work.frozen = STANDS_STILL, True
        if self._paced:
            self._repace(work.nodes, now)

    def _thaw(self, job: JobId, now: Instant) -> None:
        work = self.works[job]
        if work.since >= 0 or work.stopped_at is not None:
            return
        work.frozen = False
        work.lose(self._settings.switch_ms)
        self._go_on(job, work, now)
        if self._paced:
            self._repace(work.nodes, now)

    def _grace_of(self, job: JobId) -> int:
        stop = self._engine.state.jobs[job].attempts[-1].stop
        return self._stop_ms(job, stop.grace_ms) if stop is not None else 0

    def _stop_ms(self, job: JobId, grace_ms: Millis) -> int:
        """Return how long after it was told to go a gang, or its surplus, is gone."""
        if self.leaving is None:
            return self._settings.stop_ms
        return self.leaving(self._engine.state.jobs[job], grace_ms)

    def _shrinking(self, job: JobId, no: AttemptNo) -> Shrink | None:
        """Return how a gang shrinks, if it is not told to stop altogether."""
        record = self._engine.state.jobs.get(job)
        attempt = record.attempt if record is not None else None
        if attempt is None or attempt.no != no or attempt.stop is not None:
            return None
        return attempt.shrink

    def _shed(self, job: JobId, work: Work, now: Instant) -> None:
        """Report that surplus tasks are gone, and let the others go on, the slower."""
        shrink = self._shrinking(job, work.attempt)
        if shrink is None:
            return
        count = len(self._slots(job))
        for index in range(shrink.tasks, count):
            key = TaskKey(job, work.attempt, TaskIndex(index))
            self._engine.report(TaskReport(key, ENDED, exit=STOPPED), now)
        nodes = work.nodes
        if self.tracked:
            slots = self._slots(job)
            work.nodes = tuple(sorted({slot.node for slot in slots}))
            work.devices = _devices(slots) if self._shared else work.devices
            for node in set(nodes) - set(work.nodes):
                self._busy[node].discard(job)
        if self._paced:
            self._repace(nodes, now)
        elif work.since >= 0:
            work.pause(now)
            self._set_speed(job, work)
            self.agenda.add(work.ends_at(now), END, job, work.attempt)
        if self._settings.grow_ms:
            self.agenda.add(now + TOLD_AFTER, TOLD, job, work.attempt)

    def _tell(self, job: JobId, work: Work, now: Instant) -> None:
        """Report how fast a job is: a step is a second of work at the speed of the trace."""
        tasks, left = len(self._slots(job)), work.ends_at(now) - now
        rate = HOUR // SECOND * work.speed // FULL_SPEED
        self._engine.report(PaceReport(job, work.attempt, tasks, rate, left), now)

    def _launch(self, job: JobId, attempt: AttemptNo, now: Instant) -> None:
        work = self.works[job]
        work.attempt, work.begun, work.stopped_at = attempt, False, None
        wait = self._settings.resume_ms if work.began else self._settings.start_ms
        if wait:
            self.agenda.add(now + wait, START, job, attempt)
        else:
            self._begin(job, work, now)

    def _begin(self, job: JobId, work: Work, now: Instant) -> None:
        self._engine.report(GangReport(job, work.attempt, RUNNING), now)
        work.begun = work.began = True
        work.since = Instant(now - self.early_ms)
        if self.tracked:
            slots = self._slots(job)
            work.nodes = tuple(sorted({slot.node for slot in slots}))
            if self._shared:
                work.devices = _devices(slots)
            for node in work.nodes:
                self._busy[node].add(job)
        if self._paced:
            self._repace(work.nodes, now, job)
        else:
            self._set_speed(job, work)
            self.agenda.add(work.ends_at(now), END, job, work.attempt)
        if self._settings.grow_ms:
            self.agenda.add(now + TOLD_AFTER, TOLD, job, work.attempt)
        if self._settings.job_failure:
            self._plan_failure(job, work, now)

    def _stop(self, job: JobId, attempt: AttemptNo, now: Instant) -> None:
        work = self.works.get(job)
        if work is None or work.attempt != attempt:
            return
        saves = self._settings.warned == "save"
        work.unsaved_ms = work.stop(now, 0 if saves else self._settings.checkpoint_ms)
        work.stopped_at = now
        wait = self._settings.stop_ms if self.leaving is None else self._grace_of(job)
        if wait:
            self.agenda.add(now + wait, GONE, job, attempt)
        else:
            self._leave(job, work, STOPPED, now, Millis(work.unsaved_ms))

    # ── what happens ────────────────────────────────────────────────────────────────────

    def play_until(self, now: Instant) -> None:
        """Let everything happen that is entered for up to this instant, each in its own."""
        for entry in self.agenda.take(now):
            self.play(entry)

    def play(self, entry: Entry) -> None:
        """Let one entry of the agenda happen, unless it outlived its reason."""
        now, phase, _, subject, attempt = entry
        if phase is FAULT:
            self._fault(NodeId(subject), attempt, now)
            return
        if phase is REPAIR:
            self._repair(NodeId(subject), attempt, now)
            return
        job = JobId(subject)
        work = self.works.get(job)
        if work is None or work.attempt != attempt:
            return
        if phase is END:
            if work.since >= 0 and work.ends_at(now) == now:
                self._finish(job, work, now)
        elif phase is GONE and work.stopped_at is not None:
            lost = Millis(work.unsaved_ms + work.in_vain(now))
            self._leave(job, work, STOPPED, now, lost)
        elif phase is SHED and work.stopped_at is None:
            self._shed(job, work, now)
        elif phase is START and work.stopped_at is None:
            self._begin(job, work, now)
        elif work.since >= 0:
            self._amid(phase, job, work, now)

    def _amid(self, phase: Phase, job: JobId, work: Work, now: Instant) -> None:
        """Let what may happen to a running job happen: its pace is known, or it fails."""
        if phase is TOLD:
            self._tell(job, work, now)
        elif phase is FAILURE:
            lost = Millis(work.stop(now, self._settings.checkpoint_ms))
            self._leave(job, work, FAILED, now, lost, OWN_FAULT)

    def _finish(self, job: JobId, work: Work, now: Instant) -> None:
        work.left_ms = 0
        self._leave(job, work, DONE, now)

    def _leave(
        self,
        job: JobId,
        work: Work,
        how: Exit,
        now: Instant,
        lost_ms: Millis = NO_TIME,
        diagnosis: Diagnosis | None = None,
    ) -> None:
        """Report that a gang is gone, and let its neighbours go on faster."""
        attempt, work.attempt = work.attempt, NO_ATTEMPT
        work.since, work.frozen = STANDS_STILL, False
        nodes, work.nodes = work.nodes, ()
        for node in nodes:
            self._busy[node].discard(job)
        report = GangReport(job, attempt, ENDED, how, diagnosis, lost_ms)
        self._engine.report(report, now)
        if self._paced:
            self._repace(nodes, now)

    # ── pace ────────────────────────────────────────────────────────────────────────────

    def _set_speed(self, job: JobId, work: Work) -> None:
        """Set how fast a job is where it begins, with no gang beside it that matters."""
        if not self._speeds.constant:
            work.speed = self._speeds.of(work.job, self._slots(job))
        if self._engine.state.jobs[job].spec.roles[-1].least:
            whole = FULL_SPEED if self._speeds.constant else work.speed
            work.speed = self._by_size(job, work, whole)

    def _by_size(self, job: JobId, work: Work, speed: int) -> int:
        """Return the speed of a job that has more or fewer tasks: so many times as high."""
        size = size_of(self._slots(job))
        work.size = work.size or size
        if self._settings.scaling < 1:
            return max(1, round(speed * (size / work.size) ** self._settings.scaling))
        return max(1, speed * size // work.size)

    def _slots(self, job: JobId) -> tuple[Slot, ...]:
        return self._engine.state.jobs[job].attempts[-1].slots

    def _repace(
        self, nodes: tuple[NodeId, ...], now: Instant, begins: JobId | None = None
    ) -> None:
        """Work out anew how fast the gangs on these nodes are, and when they end."""
        touched = sorted({job for node in nodes for job in self._busy[node]})
        for job in touched:
            work = self.works[job]
            if work.since < 0:
                continue
            beside = {
                other
                for node in work.nodes
                for other in self._busy[node]
                if other != job and not self.works[other].frozen
            }
            partners = self._partners(work, beside) if self._shared else ()
            neighbours = len(beside) if self._speeds.disturbed else 0
            speed = self._speeds.of(work.job, self._slots(job), neighbours, partners)
            if self._engine.state.jobs[job].spec.roles[-1].least:
                speed = self._by_size(job, work, speed)
            if speed == work.speed and job != begins:
                continue
            work.pause(now)
            work.speed = speed
            self.agenda.add(work.ends_at(now), END, job, work.attempt)

    def _partners(self, work: Work, beside: set[JobId]) -> list[TraceJob]:
        """Return the jobs that share a device with a job, by their ids."""
        others = (self.works[other] for other in sorted(beside))
        return [other.job for other in others if not work.devices.isdisjoint(other.devices)]

    # ── chance ──────────────────────────────────────────────────────────────────────────

    def _plan_failure(self, job: JobId, work: Work, now: Instant) -> None:
        chance = Random(f"{self._seed}/job/{work.place}/{work.attempt}")
        if chance.random() < self._settings.job_failure:
            length = max(1, round((work.ends_at(now) - now) * chance.random()))
            self.agenda.add(now + length, FAILURE, job, work.attempt)

    def _plan_fault(self, node: NodeId, count: int, now: Instant) -> None:
        chance = Random(f"{self._seed}/node/{node}/{count}")
        wait = max(1, round(chance.expovariate(1 / self._settings.mtbf_ms)))
        self.agenda.add(now + wait, FAULT, node, AttemptNo(count))

    def go_down(self, node: NodeId, now: Instant) -> None:
        """Let a node fail: what ran there ends, what was not saved is lost."""
        for job in sorted(self._busy[node]):
            work = self.works[job]
            lost = work.stop(now, self._settings.checkpoint_ms)
            lost = Millis(lost + work.in_vain(now))
            self._leave(job, work, LOST, now, lost, NODE_FAULT)
        self._engine.report(NodeReport(node, alive=False, reason="failure"), now)

    def come_back(self, node: NodeId, now: Instant) -> None:
        """Let a node that failed answer again."""
        self._engine.report(NodeReport(node, alive=True), now)

    def _fault(self, node: NodeId, count: int, now: Instant) -> None:
        self.go_down(node, now)
        self._fear_standstill()
        chance = Random(f"{self._seed}/repair/{node}/{count}")
        wait = max(1, round(chance.expovariate(1 / max(1, self._settings.mttr_ms))))
        self.agenda.add(now + wait, REPAIR, node, AttemptNo(count))

    def _fear_standstill(self) -> None:
        """Stop a run in which nodes go on failing and no job runs any more.

        Every job that starts comes to an end, for a job is given up after some failed nodes.
        So a run that does not end is one in which no job starts.
        """
        nodes = len(self._busy)
        self._vain = 0 if self._engine.state.cluster.gangs else self._vain + 1
        if self._vain < max(LEAST_VAIN, VAIN_A_NODE * nodes):
            return
        mtbf, mttr = self._settings.mtbf_ms, self._settings.mttr_ms
        first = min(self.works.values(), key=lambda work: work.place, default=None)
        waits = (
            f"{len(self.works):,} wait, the first of them, {first.job.id}, for "
            f"{show_milli(first.job.gpu_milli)} devices"
            if first
            else "none is there"
        )
        raise Standstill(
            f"Nodes failed {self._vain:,} times in a row while no job ran; {waits}. With "
            f"mtbf={show_millis(mtbf)} and mttr={show_millis(mttr)}, "
            f"{nodes * mtbf / (mtbf + mttr):.1f} of {nodes:,} nodes work at a time: take a "
            "longer mtbf or a shorter mttr."
        )

    def _repair(self, node: NodeId, count: int, now: Instant) -> None:
        self.come_back(node, now)
        self._plan_fault(node, count + 1, now)


DONE = Exit(code=0)
STOPPED = Exit(signal=15)
FAILED = Exit(code=1)
LOST = Exit(lost=True)
OWN_FAULT = Diagnosis(
    "simulated", "It failed by itself, as drawn.", Owner.USER, RetryClass.UNKNOWN, ""
)
NODE_FAULT = Diagnosis(
    "node_lost", "Its node failed, as drawn.", Owner.HARDWARE, RetryClass.PLATFORM, ""
)


def size_of(slots: Sequence[Slot]) -> int:
    """Return how large a gang is: its devices in thousandths, or its tasks if it has none."""
    return sum(slot.gpu_milli for slot in slots) or len(slots)


def _devices(slots: Sequence[Slot]) -> frozenset[tuple[NodeId, int]]:
    return frozenset((slot.node, index) for slot in slots for index in slot.devices)

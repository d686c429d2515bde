"""Whatever happens: a job's past has no gaps and ends as things are; queues add up."""

from itertools import pairwise

from hypothesis import settings
from hypothesis.stateful import invariant, rule

from allotment.metrics.fold import Folds
from allotment.metrics.reasons import MOST, LifePhase, ReasonHistory, Stretch
from allotment.model.ids import SYSTEM, JobId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import Instant
from allotment.model.spec import Dependency
from allotment.service.queue_read import queue_trees
from allotment.service.reason_watch import TOLD_BY_EVENTS, ReasonWatch
from allotment.service.why import reason_of
from tests.property.test_histories import Histories

PHASES = {
    JobState.HELD: {LifePhase.WAITING},
    JobState.QUEUED: {LifePhase.WAITING},
    JobState.STARTING: {LifePhase.STARTING, LifePhase.BARRIER},
    JobState.RUNNING: {LifePhase.RUNNING},
    JobState.SUSPENDED: {LifePhase.SUSPENDED},
    JobState.STOPPING: {LifePhase.STOPPING},
}


class Told(Histories):
    """The histories, watched for reasons."""

    @rule()
    def look(self) -> None:
        """Record what the service would find."""
        for event in ReasonWatch(self.world.state, look_s=1).look(self.world.now):
            self.world.engine.emit(event, SYSTEM, self.world.now)
        self.world.collect()

    @invariant()
    def every_past_is_whole_and_ends_as_things_are(self) -> None:
        if not hasattr(self, "world"):
            return
        for job in list(self.world.state.jobs.values())[-6:]:
            past = self._past(job.id)
            now = job.finished_at or self.world.now
            assert len(past) <= MOST
            assert sum(each.ms for each in past) == now - job.submitted_at
            assert all(one.since + one.ms == two.since for one, two in pairwise(past))
            if job.state.finished:
                continue
            assert past[-1].phase in PHASES[job.state]
            reason = reason_of(self.world.state, job, self.world.now)
            if reason in TOLD_BY_EVENTS or past[-1].reason in TOLD_BY_EVENTS:
                assert past[-1].reason is reason, past

    @invariant()
    def queues_add_up_to_what_their_tenant_holds(self) -> None:
        if not hasattr(self, "world"):
            return
        cluster = self.world.state.cluster
        for tree in queue_trees(self.world.state, self.world.now):
            used = cluster.queues.tenants[tree.tenant].total()
            own = cluster.queues.tenants[tree.tenant].own().gpu_milli
            assert tree.used.get("gpu", 0) == used.gpu_milli
            assert tree.used.get("memory", 0) == used.memory
            assert tree.used.get("gpu", 0) - tree.borrowed.get("gpu", 0) == own
            assert sum(queue.used.get("cpu", 0) for queue in tree.queues) == used.cpu_milli

    def _past(self, job: JobId) -> list[Stretch]:
        over = {
            record.event.job: record.at  # type: ignore[union-attr]
            for record in self.world.log
            if type(record.event).__name__
            in ("JobSucceeded", "JobFailed", "JobCancelled", "JobTimedOut")
        }

        def end_of(need: Dependency) -> Instant | None:
            return over.get(need.job)

        fold = ReasonHistory(end_of)
        Folds(fold).feed(r for r in self.world.log if getattr(r.event, "job", None) == job)
        return fold.stretches(self.world.now)


TestTold = Told.TestCase
TestTold.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

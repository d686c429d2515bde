"""Studies: sweeps whose trials get their parameters when their turn comes.

All trials are there from the beginning, held. When fewer are under way than may be, the next
one gets the parameters that are proposed from what the others reported, and is released: both
in one group of events. Nothing else is kept, so a service that was killed goes on from its log.
"""

import asyncio

import structlog

from allotment.engine.sweep_records import SweepRecord
from allotment.engine.sweeps import history, next_trial
from allotment.model import commands as c
from allotment.model.errors import Code, Rejected
from allotment.model.ids import SYSTEM, JobId
from allotment.model.quantity import SECOND, Instant
from allotment.model.sweeps import Sweep
from allotment.service.pipeline import Pipeline
from allotment.service.ports import Proposer

LOOK_EVERY_S = 1.0
AGAIN_AFTER_MS = 30 * SECOND
"""After a proposal that failed."""

log = structlog.get_logger("allot.service")


class Studying:
    """The studies of one service."""

    def __init__(self, pipeline: Pipeline, proposer: Proposer | None) -> None:
        self._pipeline, self._proposer = pipeline, proposer
        self._troubles: dict[JobId, tuple[Instant, str]] = {}
        """Of studies for which nothing could be proposed: when it is tried again, and why."""

    def check(self, sweep: Sweep) -> None:
        """Raise Rejected if a sweep is a study, and nothing here proposes its trials."""
        if sweep.is_study and (missing := self._missing()):
            raise Rejected(
                Code.NOT_SUPPORTED,
                missing,
                "Its administrator installs it: pip install 'allotment[optuna]'. Or write "
                "`random` for `optuna`.",
            )

    def _missing(self) -> str:
        if self._proposer is None:
            return "This service proposes no trials."
        return self._proposer.missing()

    def trouble(self, sweep: JobId) -> str:
        """Return what keeps the trials of a study from being proposed; '' if nothing does."""
        _, why = self._troubles.get(sweep, (0, ""))
        return why

    async def look(self) -> None:
        """Propose the trials whose turn it is."""
        while due := self._due():
            for sweep in due:
                await self._proposed(sweep)

    def _due(self) -> list[SweepRecord]:
        """Return the studies in which it is the turn of a trial: one of each user.

        A proposal takes its time, and a user with many does not keep the others waiting.
        """
        state, now = self._pipeline.state, self._pipeline.clock.now()
        if self._pipeline.committer.trouble:
            return []
        for gone in [sweep for sweep in self._troubles if sweep not in state.sweeps]:
            del self._troubles[gone]
        due: dict[str, SweepRecord] = {}
        for sweep in state.sweeps.values():
            again_at, _ = self._troubles.get(sweep.id, (now, ""))
            if sweep.owner.user not in due and again_at <= now and next_trial(state, sweep):
                due[sweep.owner.user] = sweep
        return list(due.values())

    async def _proposed(self, sweep: SweepRecord) -> None:
        """Set the parameters of the next trial, or note why that is not possible."""
        why = self._missing()
        if not why and self._proposer is not None:
            tried = history(sweep)
            try:
                params = await asyncio.to_thread(self._proposer.propose, sweep.sweep, tried)
            except Exception as error:  # What a library may raise is not known.
                log.exception("no trial can be proposed", sweep=sweep.id)
                why = f"No trial can be proposed: {error}"
            else:
                # It took its time: what was the next trial may be over.
                job = next_trial(self._pipeline.state, sweep)
                if job is not None:
                    await self._pipeline.command(c.ProposeTrial(job.id, params), SYSTEM)
                self._troubles.pop(sweep.id, None)
                return
        again_at = Instant(self._pipeline.clock.now() + AGAIN_AFTER_MS)
        self._troubles[sweep.id] = again_at, why

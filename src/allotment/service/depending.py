"""Dependencies as their user wrote them into ids, once, when a job is submitted or edited.

What is met already needs no waiting: an archived job cannot be waited for, and of several of
which one is enough it may have been the one.
"""

from collections.abc import Sequence

import msgspec

from allotment.engine.decide import too_late
from allotment.engine.state import State
from allotment.model.dependencies import choices
from allotment.model.ids import Actor, JobId
from allotment.model.lifecycle import JobState
from allotment.model.spec import Dependency
from allotment.service.archive import Archive
from allotment.service.finding import Finding


class Depending:
    """Settles what jobs depend on."""

    def __init__(self, state: State, finding: Finding, archive: Archive) -> None:
        self._state = state
        self._finding = finding
        self._archive = archive

    def settled(self, needs: Sequence[Dependency], actor: Actor) -> tuple[Dependency, ...]:
        """Return dependencies on jobs in memory, by their ids. Raises Rejected."""
        jobs = self._state.jobs
        if not any(need.ref or need.any_of or need.job not in jobs for need in needs):
            return tuple(needs)
        found: list[Dependency] = []
        for choice in choices(needs):
            each = [one for need in choice for one in self._by_id(need, actor)]
            if choice[0].any_of:
                found += self._open_choice(each)
            else:
                found += [one for need in each for one in self._open_choice([need])]
        return tuple(dict.fromkeys(found))

    def _by_id(self, need: Dependency, actor: Actor) -> list[Dependency]:
        if not need.ref:
            return [need]
        members = self._finding.for_dependency(need.ref, actor)
        return [msgspec.structs.replace(need, job=each.id, ref="") for each in members]

    def _open_choice(self, choice: list[Dependency]) -> list[Dependency]:
        """Leave out what is over: nothing is left where one was enough and is met.

        Live jobs of which all are needed stay, as their ends may be told of.
        """
        states = {need: self._state_of(need.job) for need in choice}
        met = any(
            state.finished and need.met_by(state is JobState.SUCCEEDED)
            for need, state in states.items()
            if state is not None and (need.any_of or need.job not in self._state.jobs)
        )
        if met:
            return []
        lost = [
            (need.job, state)
            for need, state in states.items()
            if state is not None and need.job not in self._state.jobs
        ]
        if lost and len(lost) == len(choice):
            raise too_late(lost)
        gone = {job for job, _ in lost}
        return [need for need in choice if need.job not in gone]

    def _state_of(self, job: JobId) -> JobState | None:
        live = self._state.jobs.get(job) or self._archive.job(job)
        return live.state if live is not None else None

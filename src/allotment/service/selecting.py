"""A selector into jobs: the one way in which every verb chooses what it is for."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase

from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor, JobId
from allotment.model.lifecycle import JobState
from allotment.service.finding import Finding, Member
from allotment.service.selector import Chosen, Selector, ranges_of

Fits = Callable[[JobRecord], bool]

WILD = frozenset("*?[")


class Selecting:
    """Finds the jobs that a selector chooses."""

    def __init__(self, state: State, finding: Finding) -> None:
        self._state = state
        self._finding = finding

    def chosen(self, selector: Selector, actor: Actor) -> list[Member]:
        """Return the jobs that a selector chooses, in order of their ids. Raises Rejected.

        Without names these are jobs in memory: finished ones that left it are not chosen.
        """
        _check(selector)
        fits = fits_of(selector, actor)
        named = self._named(selector, actor)
        if named is None:
            return [Member(job.id, job.state) for job in self._in_order() if fits(job)]
        if not selector.filters:
            return list(named)
        return [each for each in named if fits(self._finding.record(each.id))]

    def told(self, selector: Selector, actor: Actor) -> Chosen:
        """Return the state of the jobs that a selector chooses. Raises Rejected."""
        found = self.chosen(selector, actor)
        states = Counter(each.state.value for each in found)
        going_on = [each.id for each in found if not each.state.finished]
        ids = ranges_of([each.id for each in found])
        return Chosen(len(found), dict(states), ids, ranges_of(going_on))

    def _in_order(self) -> Iterator[JobRecord]:
        jobs = self._state.jobs
        return (jobs[job] for job in sorted(jobs))

    def _named(self, selector: Selector, actor: Actor) -> Iterable[Member] | None:
        if not selector.names_jobs:
            return None
        found = {job: self._member(job) for job in _all_in(selector.ids)}
        for ref in selector.refs:
            found |= {member.id: member for member in self._finding.unit(ref, actor)}
        return [found[job] for job in sorted(found)]

    def _member(self, job: JobId) -> Member:
        return Member(job, self._finding.record(job).state)


def fits_of(selector: Selector, actor: Actor) -> Fits:
    """Return the test of whether a job fits a selector, apart from names."""
    user = selector.user
    if selector.mine or not (selector.names_jobs or selector.all or user):
        user = actor.user
    states = frozenset(selector.states)

    def fits(job: JobRecord) -> bool:
        return (
            (not user or job.owner.user == user)
            and (not selector.tenant or job.spec.tenant == selector.tenant)
            and (not states or job.state in states)
            and (not selector.name or is_called(job, selector.name))
            and all(is_labelled(job, label) for label in selector.labels)
        )

    return fits


def is_called(job: JobRecord, pattern: str) -> bool:
    """Whether the name of a job, or of its array, matches this pattern."""
    if not WILD.isdisjoint(pattern):
        return fnmatchcase(job.spec.name, pattern) or fnmatchcase(job.spec.family, pattern)
    return pattern in (job.spec.name, job.spec.family)


def is_labelled(job: JobRecord, label: str) -> bool:
    """Whether a job has a label: `KEY=VALUE`, or `KEY` whatever its value."""
    key, equals, value = label.partition("=")
    return any(own == key and (not equals or has == value) for own, has in job.spec.labels)


def _all_in(ranges: tuple[tuple[JobId, JobId], ...]) -> Iterator[JobId]:
    for first, last in ranges:
        yield from (JobId(job) for job in range(first, last + 1))


MOST_IDS = 1_000_000


def _check(selector: Selector) -> None:
    if not (selector.names_jobs or selector.filters):
        raise Rejected(
            Code.BAD_REQUEST,
            "No job is named.",
            "Name jobs, or choose them: --mine, --all, --name, --tenant, --state, --label.",
        )
    if sum(max(0, last - first) + 1 for first, last in selector.ids) > MOST_IDS:
        raise Rejected(
            Code.BAD_REQUEST,
            f"More than {MOST_IDS:,} jobs are named.",
            "Name fewer, or choose them: --mine, --name, --tenant, --state.",
        )
    if selector.mine and (selector.all or selector.user not in ("",)):
        raise Rejected(
            Code.BAD_REQUEST, "--mine cannot be used with --all or --user.", "Keep one of them."
        )


def is_single(selector: Selector, found: list[Member]) -> bool:
    """Whether every job was named by itself: then a refusal is an error, not passed over."""
    return not selector.filters and len(found) <= len(selector.refs)


def by_state(members: Iterable[Member], wanted: frozenset[JobState]) -> dict[str, int]:
    """Count jobs by state, without those in these states."""
    return dict(Counter(each.state.value for each in members if each.state not in wanted))

"""Jobs that are submitted again as they are, elements of arrays with their indices.

The elements of one array make a new one, of just those indices: `ALLOT_ARRAY_INDEX` and
`ALLOT_ARRAY_SIZE` stay what they were, so each computes what it was to compute.
"""

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from allotment.engine.queueing import check_queue, check_user, in_its_queue
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor, JobId
from allotment.model.spec import JobSpec, TaskRole

Check = Callable[[State, JobSpec, Actor], tuple[str, ...]]


def submit_again(
    state: State, command: c.SubmitAgain, actor: Actor, check: Check
) -> Iterator[e.AnyEvent]:
    """Accept all jobs of the command or none. Raises Rejected."""
    for spec in command.specs:
        not_of_others(spec)
    specs = [in_its_queue(state, spec) for spec in command.specs]
    warnings = {shape: check(state, shape, actor) for shape in map(_checked, specs)}
    for alike in _by_queue(specs).values():
        check_queue(state, alike[0], len(alike))
    check_user(state, actor, len(specs))
    sizes = Counter(spec.array.parent for spec in specs if spec.array)
    parents: dict[JobId, JobId] = {}
    for spec in specs:
        job = state.next_job
        mine = spec
        if spec.array:
            parent = parents.setdefault(spec.array.parent, job)
            members = sizes[spec.array.parent]
            array = msgspec.structs.replace(
                spec.array, parent=parent, members=members if members < spec.array.size else 0
            )
            mine = msgspec.structs.replace(spec, array=array)
        yield e.JobSubmitted(job, mine, "", warnings[_checked(spec)])


def not_of_others(spec: JobSpec) -> None:
    """Refuse to change or repeat a job that others made. Raises Rejected."""
    if spec.offered:
        raise Rejected(
            Code.WRONG_STATE,
            f"{spec.offered[0].name} was not made here: Allotment only places it.",
            "Change it, or make it again, where it was made.",
        )


def _by_queue(specs: list[JobSpec]) -> dict[tuple[str, str], list[JobSpec]]:
    found: dict[tuple[str, str], list[JobSpec]] = {}
    for spec in specs:
        found.setdefault((spec.tenant, spec.queue), []).append(spec)
    return found


def _checked(spec: JobSpec) -> JobSpec:
    """Leave out what is not checked, so that alike elements are checked once."""
    roles = tuple(_without_command(role) for role in spec.roles)
    return msgspec.structs.replace(spec, name="", roles=roles, env=(), secrets=(), array=None)


def _without_command(role: TaskRole) -> TaskRole:
    return msgspec.structs.replace(role, command="")

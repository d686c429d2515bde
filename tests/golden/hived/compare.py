"""How an answer of ours is compared with HiveD's: decision by decision, from one state.

Placements need not be the same: HiveD's depend on the history of its lists. Ours must be
*valid*, and *at least as good*.

What is valid, whatever HiveD said, is told in `valid`.

- HiveD binds: ours binds, without victims, demoting no more gangs; task by task, and as a
  gang, in the same or a smaller common cell; on no more nodes.
- HiveD waits: ours waits; or places; or refuses what exceeds all the tenant is owed.
- HiveD preempts: the same, with no more gangs as victims.
- User error: ours refuses at submission. A spec that is wrong by itself never gets here.
- HiveD crashes: ours does not; at a start it takes what is sound, and refuses what is not.
- HiveD takes up what ran before a restart: ours keeps every guarantee that HiveD keeps.

`DEFECTS` lists the operations where HiveD is known to be wrong, and what is right.
"""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from tests.golden.hived import geometry
from tests.golden.hived.cluster import Cluster
from tests.golden.hived.decisions import Place
from tests.golden.hived.valid import exceeds, invalid
from tests.golden.hived.words import Answer, Broke, Placed, Refused, Task, Waits

DEFECTS = {
    ("ed_07_filter_bind_over_reserved_cells", 11): Waits("a lower priority reserved it once"),
    ("ed_07_filter_bind_over_reserved_cells", 12): Waits("a lower priority reserved it once"),
}
"""Right answers where HiveD's is a defect (hived.md §13)."""


class Outcome(StrEnum):
    """How ours relates to HiveD's."""

    SAME = "same"
    """The same leaves, the same victims; or both wait, or both refuse."""
    AS_GOOD = "as good"
    BETTER = "better"
    """Fewer victims, or a smaller common cell, or placed where HiveD waits."""
    INVALID = "invalid"
    WORSE = "worse"
    """A larger common cell, or more victims, or more gangs that lose their guarantee."""
    NOT_PLACED = "not placed"
    """Waits or refuses where HiveD places."""
    NOT_REFUSED = "not refused"
    REFUSED = "refused"
    """Refuses what HiveD would place one day."""

    @property
    def agrees(self) -> bool:
        return self in {Outcome.SAME, Outcome.AS_GOOD, Outcome.BETTER}


class Verdict(msgspec.Struct, frozen=True):
    outcome: Outcome
    detail: str = ""


def compare(decision: Place, ours: Answer) -> Verdict:
    """Judge one answer of ours."""
    theirs = DEFECTS.get((decision.scenario, decision.op), decision.answer)
    match ours:
        case Broke(message):
            return Verdict(Outcome.INVALID, message)
        case Placed():
            return _ours_places(decision, theirs, ours)
        case Waits(reason) | Refused(reason):
            if isinstance(theirs, Placed):
                return Verdict(Outcome.NOT_PLACED, reason)
            if isinstance(theirs, Refused) and isinstance(ours, Waits):
                return Verdict(Outcome.NOT_REFUSED, theirs.reason)
            early = isinstance(theirs, Waits) and isinstance(ours, Refused)
            if early and not exceeds(decision.cluster, decision.ask):
                return Verdict(Outcome.REFUSED, reason)
            return Verdict(Outcome.SAME)


def _ours_places(decision: Place, theirs: Answer, ours: Placed) -> Verdict:
    wrong = invalid(decision.cluster, decision.book, decision.ask, ours)
    if wrong:
        return Verdict(Outcome.INVALID, "; ".join(wrong))
    if isinstance(theirs, Placed):
        return _both_place(decision.cluster, theirs, ours)
    if isinstance(theirs, Refused):
        return Verdict(Outcome.NOT_REFUSED, theirs.reason)
    return Verdict(Outcome.BETTER, f"HiveD: {theirs}")


def _both_place(cluster: Cluster, theirs: Placed, ours: Placed) -> Verdict:
    if _leaves(theirs.tasks) == _leaves(ours.tasks) and theirs.victims == ours.victims:
        return Verdict(Outcome.SAME)
    for word in ("victims", "demoted"):
        mine, other = getattr(ours, word), getattr(theirs, word)
        if len(mine) > len(other):
            return Verdict(Outcome.WORSE, f"{word} {mine}, HiveD {other}")
    mine, other = _commons(cluster, ours.tasks), _commons(cluster, theirs.tasks)
    if any(here > there for here, there in zip(mine, other, strict=True)):
        return Verdict(Outcome.WORSE, f"common cells of tasks {mine}, HiveD {other}")
    spread, apart = _spread(cluster, ours.tasks), _spread(cluster, theirs.tasks)
    if any(here > there for here, there in zip(spread, apart, strict=True)):
        return Verdict(Outcome.WORSE, f"the gang spreads over {spread}, HiveD {apart}")
    mine, other = [*mine, spread], [*other, apart]
    fewer = len(ours.victims) < len(theirs.victims) or len(ours.demoted) < len(theirs.demoted)
    return Verdict(Outcome.BETTER if fewer or mine != other else Outcome.AS_GOOD)


def _spread(cluster: Cluster, tasks: Sequence[Task]) -> tuple[int, int]:
    """Return the leaves of the gang's common cell, all there are if it has none; its nodes."""
    common = geometry.common_leaves(cluster, tasks)
    return common or len(cluster.spots), len(geometry.nodes_of(tasks))


def _leaves(tasks: Sequence[Task]) -> set[tuple[int, frozenset[int]]]:
    return {(task.node, frozenset(task.devices)) for task in tasks}


def _commons(cluster: Cluster, tasks: Sequence[Task]) -> list[tuple[int, int]]:
    """Return each task's size and the leaves of its common cell, smallest first."""
    return sorted((len(t.devices), geometry.common_leaves(cluster, [t])) for t in tasks)

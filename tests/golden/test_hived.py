"""HiveD's recorded scenarios, one decision at a time, against our cells.

`hived.compare` says what is compared and what counts as agreeing; `hived.decisions` how its
protocol maps to ours.
"""

from collections import Counter
from collections.abc import Iterator
from functools import cache

import msgspec
import pytest

from allotment.model.ids import NodeId
from tests.conftest import SHARED
from tests.golden.hived import compare, geometry, replay
from tests.golden.hived.decisions import (
    Again,
    Decision,
    Open,
    Place,
    Recover,
    decisions,
)
from tests.golden.hived.ours import Ours
from tests.golden.hived.recording import scenarios
from tests.golden.hived.words import Book, Broke, Placed, Refused, Task, Waits

pytestmark = pytest.mark.needs_shared("hived-vectors/scenarios.tar.zst")

ARCHIVE = SHARED / "hived-vectors" / "scenarios.tar.zst"

KNOWN = {
    ("ut_06_safe_relaxed_buddy_alloc", 5): "nodes that one gang may not use are shut for all",
}
"""Where ours is not as good yet, and why."""


@cache
def all_decisions() -> dict[str, tuple[Decision, ...]]:
    return {each.name: tuple(decisions(each)) for each in scenarios(ARCHIVE)}


def everything(kind: type[Decision]) -> list[Decision]:
    return [d for each in all_decisions().values() for d in each if isinstance(d, kind)]


# ── the recordings themselves ─────────────────────────────────────────────────────────────


def test_every_decision_is_read() -> None:
    names = all_decisions()
    assert Counter(name[:2] for name in names) == {"ed": 25, "ft": 14, "ut": 8}
    count = Counter(type(d) for each in names.values() for d in each)
    assert count == {Open: 56, Place: 267, Again: 36, Recover: 9}
    answers = Counter(type(d.answer) for d in everything(Place) if isinstance(d, Place))
    assert answers == {Placed: 207, Waits: 43, Refused: 17}
    again = Counter(type(d.answer) for d in everything(Again) if isinstance(d, Again))
    assert again == {Placed: 33, Refused: 1, Broke: 2}


def test_every_state_that_is_loaded_keeps_every_share_safe() -> None:
    for decision in (*everything(Place), *everything(Again)):
        assert isinstance(decision, Place | Again)
        bound = geometry.bound_in(decision.cluster, decision.book)
        broken = geometry.broken_shares(decision.cluster, bound)
        assert not broken, (decision.scenario, decision.op)


def test_a_configuration_is_sound_unless_cells_are_missing() -> None:
    for decision in everything(Open):
        assert isinstance(decision, Open)
        bound = geometry.bound_in(decision.cluster, Book())
        broken = geometry.broken_shares(decision.cluster, bound)
        assert bool(broken) == (decision.scenario in replay.UNSOUND), decision.scenario


def test_hiveds_own_answers_agree_with_themselves() -> None:
    """A check of the yardstick: nothing HiveD did, defects aside, is held against it."""
    for decision in everything(Place):
        assert isinstance(decision, Place)
        verdict = compare.compare(decision, decision.answer)
        defect = (decision.scenario, decision.op) in compare.DEFECTS
        assert (verdict.outcome is compare.Outcome.SAME) != defect, (
            decision.scenario,
            decision.op,
            verdict,
        )


# ── our cells ─────────────────────────────────────────────────────────────────────────────


def test_our_cells_decide_at_least_as_well() -> None:
    found: dict[tuple[str, int], str] = {}
    for name, each in all_decisions().items():
        for result in replay.replay(Ours(), each):
            if not result.verdict.outcome.agrees:
                verdict = result.verdict
                found[name, result.decision.op] = f"{verdict.outcome}: {verdict.detail}"
    assert {key: why for key, why in found.items() if key not in KNOWN} == {}


def test_what_hived_breaks_stays_whole() -> None:
    """Its defects 1, 2, 5 and 6: nothing is bound twice, lost, or refused without need."""
    wanted = ("ed_03", "ed_05", "ed_06", "ed_07", "ed_19")
    for name, each in all_decisions().items():
        if name.startswith(wanted):
            for result in replay.replay(Ours(), each):
                assert result.verdict.outcome.agrees, (name, result)


# ── the yardstick finds what is wrong ─────────────────────────────────────────────────────


def bad_answers(place: Place) -> Iterator[tuple[str, Placed]]:
    """Spoil what HiveD answered in ways that must be noticed."""
    assert isinstance(place.answer, Placed)
    good, first = place.answer, place.answer.tasks[0]
    rest = good.tasks[1:]
    yield "a task too few", msgspec.structs.replace(good, tasks=rest)
    yield "twice the same leaf", msgspec.structs.replace(good, tasks=(first, first, *rest[1:]))
    if len(good.tasks) == 1:
        wide = Task(first.node, (*first.devices, first.devices[0]), first.cell)
        yield "a leaf twice", msgspec.structs.replace(good, tasks=(wide,))
    other = (
        "" if first.cell else place.cluster.chains[next(iter(place.cluster.chains))].names[0]
    )
    wrong = Task(first.node, first.devices, other)
    yield "another's charge", msgspec.structs.replace(good, tasks=(wrong, *rest))
    if good.victims:
        yield "nobody goes", msgspec.structs.replace(good, victims=())


def test_a_spoiled_answer_is_noticed() -> None:
    for place in everything(Place):
        if isinstance(place, Place) and isinstance(place.answer, Placed):
            if (place.scenario, place.op) in compare.DEFECTS:
                continue
            for how, answer in bad_answers(place):
                verdict = compare.compare(place, answer)
                assert not verdict.outcome.agrees, (place.scenario, place.op, how)


def test_a_node_that_is_bad_or_barred_is_noticed() -> None:
    for place in everything(Place):
        if isinstance(place, Place) and isinstance(place.answer, Placed):
            node = place.answer.tasks[0].node
            broken = msgspec.structs.replace(place.book, bad=place.book.bad | {node})
            barred = msgspec.structs.replace(place.ask, nodes=frozenset[NodeId]())
            for spoiled in (
                msgspec.structs.replace(place, book=broken),
                msgspec.structs.replace(place, ask=barred),
            ):
                assert not compare.compare(spoiled, place.answer).outcome.agrees

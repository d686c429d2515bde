"""HiveD's recorded scenarios, one decision at a time, against our cells.

`hived.compare` says what is compared and what counts as agreeing; `hived.decisions` how its
protocol maps to ours.
"""

from collections import Counter
from functools import cache

import pytest

from tests.conftest import SHARED
from tests.golden.hived import compare, geometry
from tests.golden.hived.decisions import (
    Again,
    Decision,
    Open,
    Place,
    Recover,
    decisions,
)
from tests.golden.hived.recording import scenarios
from tests.golden.hived.words import Book, Broke, Placed, Refused, Waits

pytestmark = pytest.mark.needs_shared("hived-vectors/scenarios.tar.zst")

ARCHIVE = SHARED / "hived-vectors" / "scenarios.tar.zst"

UNSOUND = {"ed_23_infeasible_but_equal_sum", "ut_08_invalid_initial_assignment"}
"""Configurations that HiveD refuses for want of cells, and we must refuse too."""


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
        assert bool(broken) == (decision.scenario in UNSOUND), decision.scenario


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

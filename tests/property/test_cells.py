"""Histories over a cluster of cells: wishes, ends, faults, changes, restarts in any order."""

import os

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from allotment.model.tenancy import Preempt, QueueOrder
from tests.property.cells_moves import ALL_MOVES, MOVES, Moves
from tests.property.cells_nightly import history
from tests.property.cells_world import Plan


class CellsHistories(RuleBasedStateMachine):
    """Three tenants on three kinds of machines, audited after every move."""

    @initialize(
        preempt=st.sampled_from(list(Preempt)),
        borrow=st.booleans(),
        order=st.sampled_from(list(QueueOrder)),
    )
    def begin(self, preempt: Preempt, borrow: bool, order: QueueOrder) -> None:
        self.moves = Moves(Plan(preempt=preempt, borrow=borrow, order=order))

    def teardown(self) -> None:
        if hasattr(self, "moves"):
            self.moves.finish()


def _add_rules() -> None:
    """Make a rule of every move."""
    for name, (_, choices) in ALL_MOVES.items():
        drawn = {key: st.sampled_from(some) for key, some in choices.items()}

        def move(self: CellsHistories, _name: str = name, **how: object) -> None:
            getattr(self.moves, _name)(**how)

        move.__name__ = name
        setattr(CellsHistories, name, rule(**drawn)(move))  # pyright: ignore


_add_rules()

TestCellsHistories = CellsHistories.TestCase
TestCellsHistories.settings = settings(
    max_examples=int(os.environ.get("ALLOT_HISTORIES", "60")),
    stateful_step_count=40,
    deadline=None,
)


def test_the_nightly_run_in_small() -> None:
    for seed in range(3):
        outcome = history(seed, length=150, every=1)
        assert (outcome.crash, outcome.audit) == ("", "")
        assert outcome.operations >= 150


@pytest.mark.parametrize("seed", [770_077, 880_021, 880_106])
def test_histories_that_once_went_wrong(seed: int) -> None:
    outcome = history(seed, length=400, every=20, table=MOVES)
    assert (outcome.crash, outcome.audit) == ("", "")


def test_a_seed_gives_the_same_history() -> None:
    assert history(7, length=120, every=50) == history(7, length=120, every=1)

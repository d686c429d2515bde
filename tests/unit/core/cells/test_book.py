"""The book: what comes in any order ends the same, and what is undone was never there."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.core.cells.book import Cells
from allotment.core.cells.borrow import find_idle
from allotment.core.cells.holding import Holding
from allotment.core.cells.rights import objection
from allotment.core.cells.search import find
from allotment.core.cells.space import Space
from allotment.core.ledger import Ledger
from allotment.core.request import needs_of
from allotment.model.cells import PinnedCell
from allotment.model.errors import InvariantViolated
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Quota, Slot
from allotment.model.quantity import Resources
from tests.property.cells_world import pages
from tests.support.audit_cells import flaws, worse
from tests.unit.core.cells.plots import MACHINES, NODE, a_book, gang, owns, sound

TENANTS = (owns("a", "p", node=1, pair=1), owns("b", rack=1), owns("c", V100=2))
PINS = (PinnedCell("p", "socket", NodeId(0), 0),)

Entry = tuple[str, str, tuple[Slot, ...], tuple[Resources, ...], Quota]
"""Tenant, '' for a borrower; pin; place, needs and cells."""


def a_plain_book() -> Cells:
    return a_book(*TENANTS, pins=PINS)


def enter(cells: Cells, job: int, entry: Entry) -> None:
    tenant, pin, slots, needs, quota = entry
    if tenant:
        cells.take(tenant, pin, slots, needs, quota)
    else:
        cells.lend(JobId(job), slots, needs)


def strike(cells: Cells, job: int, entry: Entry) -> None:
    tenant, pin, slots, needs, quota = entry
    if tenant:
        cells.give(tenant, pin, slots, needs, quota)
    else:
        cells.call_in(JobId(job), slots, needs)


def filled(rng: random.Random) -> tuple[Cells, dict[int, Entry]]:
    """Let gangs of all kinds come and go; give the book and who is left in it."""
    cells, ledger = a_plain_book(), Ledger(MACHINES)
    entries: dict[int, Entry] = {}
    for job in range(24):
        if entries and rng.random() < 0.25:
            gone = rng.choice(list(entries))
            ledger.give(entries[gone][2], entries[gone][3])
            strike(cells, gone, entries.pop(gone))
        requests = gang(rng.choice([1, 1, 2, 3]), rng.choice([0, 0.5, 1, 2, 4, 8]))
        needs, tenant = needs_of(requests), rng.choice(["a", "b", "c", ""])
        pin = "p" if tenant == "a" and rng.random() < 0.3 else ""
        if not tenant:
            slots = find_idle(cells, requests, ledger)
            entry = ("", "", slots, needs, ()) if slots else None
        else:
            found = find(cells, tenant, pin, requests)
            free = found is not None and not found.borrowers
            entry = (tenant, pin, found.slots, needs, found.quota) if free and found else None
        if entry is not None:
            entries[job] = entry
            ledger.take(entry[2], needs)
            enter(cells, job, entry)
        sound(cells)
    return cells, entries


@given(st.integers(0, 10**6))
def test_the_order_in_which_gangs_are_reported_does_not_matter(seed: int) -> None:
    rng = random.Random(seed)
    cells, entries = filled(rng)
    closed = rng.sample(range(4), 2)
    for node in closed:
        cells.set_open(NodeId(node), is_open=False)
    for _ in range(3):
        again, order = a_plain_book(), list(entries)
        rng.shuffle(order)
        faults_at = rng.randrange(len(order) + 1)
        for place, job in enumerate([*order, -1]):
            if place == faults_at:
                for node in reversed(closed):
                    again.set_open(NodeId(node), is_open=False)
            if job >= 0:
                enter(again, job, entries[job])
        assert pages(again) == pages(cells)
        assert sorted(again.uses[0].parts.items()) == sorted(cells.uses[0].parts.items())


@given(st.integers(0, 10**6))
def test_whoever_is_sound_together_is_taken_up_in_any_order(seed: int) -> None:
    """As after a restart: each gang alone is no wrong, whoever came before it."""
    rng = random.Random(seed)
    _, entries = filled(rng)
    own = [entry for entry in entries.values() if entry[0]]
    rng.shuffle(own)
    again = a_plain_book()
    for tenant, pin, slots, needs, quota in own:
        assert objection(again, tenant, pin, slots, needs, quota) == ""
        again.take(tenant, pin, slots, needs, quota)
        sound(again)


@given(st.integers(0, 10**6))
def test_what_is_undone_was_never_there(seed: int) -> None:
    rng = random.Random(seed)
    cells, entries = filled(rng)
    order = list(entries)
    rng.shuffle(order)
    for job in order:
        before = pages(cells)
        strike(cells, job, entries[job])
        sound(cells)
        enter(cells, job, entries[job])
        assert pages(cells) == before
        strike(cells, job, entries[job])
    assert pages(cells) == pages(a_plain_book())


def test_a_search_is_made_again_when_anything_changed() -> None:
    cells = a_book(owns("a", node=1))
    first = find(cells, "a", "", gang(1, 8))
    assert first is not None
    assert find(cells, "a", "", gang(1, 8)) is first
    cells.take("a", "", first.slots, needs_of(gang(1, 8)), first.quota)
    assert find(cells, "a", "", gang(1, 8)) is None
    cells.give("a", "", first.slots, needs_of(gang(1, 8)), first.quota)
    assert find(cells, "a", "", gang(1, 8)) == first
    cells.set_open(NodeId(0), is_open=False)
    moved = find(cells, "a", "", gang(1, 8))
    assert moved is not None
    assert moved.slots[0].node != 0


def test_cells_are_bound_while_somebody_sits_in_them() -> None:
    cells = a_book(owns("a", node=1))
    holding = cells.holdings["a", ""][0]
    one, other = (Slot(NodeId(2), (0,), 1000),), (Slot(NodeId(2), (5,), 1000),)
    needs = needs_of(gang(1, 1))
    cells.take("a", "", one, needs, ("node",))
    cells.take("a", "", other, needs, ("node",))
    assert holding.bound == {(NODE, 2): 2}
    assert (holding.room(NODE, 2), holding.room_in_all(), cells.room_of("a", "")) == (6, 6, 6)
    cells.give("a", "", one, needs, ("node",))
    assert holding.bound == {(NODE, 2): 1}
    cells.give("a", "", other, needs, ("node",))
    assert holding.bound == {}
    assert cells.room_of("a", "") == 8


def test_nobody_takes_what_another_holds() -> None:
    cells = a_book(owns("a", node=1), owns("b", node=1))
    slots, needs = (Slot(NodeId(0), (0,), 1000),), needs_of(gang(1, 1))
    cells.take("a", "", slots, needs, ("node",))
    with pytest.raises(InvariantViolated, match="held already"):
        cells.take("b", "", (Slot(NodeId(0), (1,), 1000),), needs, ("node",))


def test_nobody_owns_what_lies_outside_of_all_cells() -> None:
    cells = a_book(owns("a", node=1))
    slots, needs = (Slot(NodeId(9), (0,), 1000),), needs_of(gang(1, 1))
    assert objection(cells, "a", "", slots, needs, ("node",))
    with pytest.raises(InvariantViolated, match="no such leaf"):
        cells.take("a", "", slots, needs, ("node",))
    with pytest.raises(InvariantViolated, match="no chain"):
        cells.chain_of("A100")


def test_a_job_that_borrows_outside_of_all_cells_is_in_nobodys_way() -> None:
    cells = a_book(owns("a", node=1))
    before, needs = repr(pages(cells)), needs_of(gang(1, 2))
    beside = (Slot(NodeId(9), (0, 1), 2000),)
    in_part = (Slot(NodeId(0), (7, 8), 2000),)
    cells.lend(JobId(1), beside, needs)
    cells.set_aside(beside, needs)
    assert repr(pages(cells)) == before
    assert not cells.are_in_cells(in_part)
    cells.lend(JobId(2), in_part, needs)
    assert cells.borrowers_on(0, [(NODE, 0, 1 << 7, 0)]) == (2,)
    sound(cells)
    cells.call_in(JobId(1), beside, needs)
    cells.put_back(beside, needs)
    cells.call_in(JobId(2), in_part, needs)
    assert repr(pages(cells)) == before


def test_borrowers_are_known_by_where_they_sit() -> None:
    cells = a_book(owns("a", node=4))
    half = needs_of(gang(1, 0.5))
    for job in (1, 2):
        cells.lend(JobId(job), (Slot(NodeId(1), (3,), 500),), half)
    assert cells.borrowers_on(0, [(NODE, 1, 0b1000, 0)]) == (1, 2)
    assert cells.borrowers_on(0, [(NODE, 1, 0b0111, 0)]) == ()
    assert list(cells.uses[0].parts.items()) == [((1, 3), 1000)]
    cells.call_in(JobId(1), (Slot(NodeId(1), (3,), 500),), half)
    assert cells.spaces[0].lent[1] == 0b1000
    sound(cells)
    assert list(cells.uses[0].idle.nodes_with(8)) == [3, 2, 0]
    assert list(cells.uses[0].idle.nodes_in(range(1, 3), 1)) == [1, 2]


# ── the audit ───────────────────────────────────────────────────────────────────────────


def _space(cells: Cells) -> Space:
    return cells.spaces[0]


def _holding(cells: Cells) -> Holding:
    return cells.holdings["a", ""][0]


SPOILT: dict[str, Callable[[Cells], object]] = {
    "held": lambda cells: _space(cells).held.__setitem__(3, 1),
    "count": lambda cells: _space(cells).count.__setitem__(0, 1),
    "whole": lambda cells: _space(cells).whole.__setitem__(0, 1),
    "lent": lambda cells: _space(cells).lent.__setitem__(2, 1),
    "guaranteed": lambda cells: _space(cells).unbound.__setitem__(NODE, 1),
    "order": lambda cells: _space(cells).buckets()[NODE][0].append(1),
    "taken": lambda cells: cells.uses[0].taken.__setitem__(2, 1),
    "bound": lambda cells: _holding(cells).bound.__setitem__((NODE, 0), 0),
    "used": lambda cells: _holding(cells).used.__setitem__(1, 1),
    "unbound": lambda cells: _holding(cells).unbound.__setitem__(NODE, 2),
    "room": lambda cells: _holding(cells).claims.__setitem__((NODE, 0), 3),
    "idle": lambda cells: cells.uses[0].idle.leaves.__setitem__(1, 0),
}


@pytest.mark.parametrize("what", SPOILT)
def test_the_audit_finds_what_is_wrong(what: str) -> None:
    cells = a_book(owns("a", node=2), owns("b", node=1))
    slots = (Slot(NodeId(0), (0,), 1000),)
    cells.take("a", "", slots, needs_of(gang(1, 1)), ("node",))
    sound(cells)
    SPOILT[what](cells)
    assert list(flaws(cells))


def test_shares_that_cannot_be_had_are_found_though_hardware_is_broken() -> None:
    cells = a_book(owns("a", node=4))
    cells.set_open(NodeId(0), is_open=False)
    assert list(flaws(cells)) == []
    cells.spaces[0].unbound[NODE] += 1
    cells.holdings["a", ""][0].unbound[NODE] += 1
    cells.holdings["a", ""][0].guaranteed[NODE] += 1
    assert [flaw for flaw in flaws(cells) if "not safe" in flaw]


def test_worse_is_more_lacking_at_any_level() -> None:
    assert not worse([(0, 1)], [(0, 1)])
    assert not worse([(0, 2)], [(0, 1)])
    assert worse([(0, 2)], [(1, 0)])


def test_a_place_stands_while_its_own_devices_are_sound() -> None:
    cells = a_book(owns("a", node=1))
    slots = (Slot(NodeId(0), (0, 1), 2000),)

    def stands(*bad: int) -> bool:
        cells.set_bad(NodeId(0), frozenset(bad))
        return cells.stands("a", "", slots, ("node",))

    assert [stands(), stands(2), stands(1), stands()] == [True, True, False, True]
    assert not cells.stands("b", "", slots, ("node",))

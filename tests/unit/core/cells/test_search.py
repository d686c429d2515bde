"""Where gangs go in their tenant's cells: by hand, and against trying every way there is."""

from itertools import combinations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from allotment.core.cells.book import Cells
from allotment.core.cells.borrow import find_idle
from allotment.core.cells.choices import fresh_cells, side_by_side
from allotment.core.cells.rights import objection, quota_for
from allotment.core.cells.search import find
from allotment.core.cells.space import allows
from allotment.core.ledger import Ledger
from allotment.core.request import Request, needs_of
from allotment.model.cell_quota import shortages
from allotment.model.cells import PinnedCell
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Quota, Slot
from allotment.model.quantity import GIB, Resources
from allotment.model.tenancy import Tenant
from tests.unit.core.cells.plots import (
    LEAVES,
    MACHINES,
    NODE,
    PAIR,
    RACK,
    SOCKET,
    TOPOLOGY,
    WIDTH,
    a_book,
    cells_at,
    common_level,
    gang,
    leaves_in,
    leaves_of,
    owns,
    sound,
)

PINS = (PinnedCell("p", "socket", NodeId(0), 0),)


def take(cells: Cells, tenant: str, requests: tuple[Request, ...], pin: str = "") -> set[int]:
    """Place a gang, see that nobody objects, and say where it is."""
    found = find(cells, tenant, pin, requests)
    assert found is not None
    needs = needs_of(requests)
    assert objection(cells, tenant, pin, found.slots, needs, found.quota) == ""
    cells.take(tenant, pin, found.slots, needs, found.quota)
    sound(cells)
    return leaves_in(found.slots)


def test_gangs_are_packed_into_bound_cells_first() -> None:
    cells = a_book(owns("a", node=2), owns("b", node=1))
    assert take(cells, "a", gang(1, 2)) == {0, 1}
    assert take(cells, "b", gang(1, 1)) == {8}
    assert take(cells, "a", gang(1, 4)) == {4, 5, 6, 7}
    assert take(cells, "a", gang(1, 2)) == {2, 3}
    assert find(cells, "a", "", gang(2, 8)) is None
    assert take(cells, "a", gang(1, 8)) in ({*range(16, 24)}, {*range(24, 32)})


def test_the_smallest_cells_that_serve_are_bound() -> None:
    cells = a_book(owns("a", node=1, pair=1))
    assert take(cells, "a", gang(1, 1)) == {0}
    assert cells.holdings["a", ""][0].unbound == {NODE: 1, PAIR: 0}


def test_small_cells_side_by_side_serve_a_large_task() -> None:
    cells = a_book(owns("a", pair=3))
    assert common_level(take(cells, "a", gang(1, 6))) == NODE
    assert find(cells, "a", "", gang(1, 1)) is None


def test_no_empty_node_is_opened_for_what_fits_as_well_beside_others() -> None:
    cells = a_book(owns("a", pair=8))
    assert take(cells, "a", gang(1, 2)) == {0, 1}
    assert take(cells, "a", gang(1, 6)) == {2, 3, 4, 5, 6, 7}


def test_a_gang_lies_in_one_rack_if_it_can() -> None:
    cells = a_book(owns("a", node=1), owns("b", node=3))
    take(cells, "a", gang(1, 8))
    assert common_level(take(cells, "b", gang(2, 8))) == RACK


def test_what_is_owed_as_a_rack_is_not_parted_by_what_is_owed_as_a_node() -> None:
    cells = a_book(owns("a", node=1, rack=1))
    assert common_level(take(cells, "a", gang(2, 8))) == RACK


def test_a_level_that_must_hold_a_gang_does() -> None:
    cells = a_book(owns("a", node=2))
    assert common_level(take(cells, "a", gang(2, 2, within="socket"))) == SOCKET
    assert common_level(take(cells, "a", gang(2, 1, within="pair"))) == PAIR
    assert find(cells, "a", "", gang(2, 8, within="node")) is None
    assert find(cells, "a", "", gang(1, 1, within="datacentre")) is None


def test_a_level_that_is_liked_is_no_condition() -> None:
    cells = a_book(owns("a", node=1, socket=2))
    assert common_level(take(cells, "a", gang(2, 2, prefer="socket"))) == SOCKET
    assert len(take(cells, "a", gang(2, 4, prefer="socket"))) == 8


def test_parts_of_devices_share_one() -> None:
    cells = a_book(owns("a", V100=2))
    assert take(cells, "a", gang(3, 0.25)) == {0}
    assert take(cells, "a", gang(1, 0.5)) == {1}
    assert take(cells, "a", gang(1, 0.25)) == {1} or cells.room_of("a", "") == 0


def test_parts_of_devices_share_one_as_far_as_its_memory_goes() -> None:
    """Devices have 16 GiB: a quarter of one with 8 GiB is half of it."""
    cells = a_book(owns("a", V100=2))
    assert take(cells, "a", in_part(2, 0.25, 8)) == {0}
    assert take(cells, "a", in_part(1, 0.25, 10)) == {1}
    assert find(cells, "a", "", in_part(1, 0.25, 8)) is None
    assert take(cells, "a", in_part(1, 0.25, 6)) == {1}
    assert find(cells, "a", "", in_part(1, 0.25, 17)) is None


def test_all_of_the_memory_of_a_device_is_all_of_it() -> None:
    cells = a_book(owns("a", V100=2))
    assert take(cells, "a", in_part(2, 0.5, 16, cpus=8)) == {0, 1}, "a device brings 8 CPUs"
    assert cells.room_of("a", "") == 0


def test_borrowers_share_a_device_as_far_as_its_memory_goes() -> None:
    cells, ledger = a_book(owns("a", node=1)), Ledger(MACHINES)
    small, large = in_part(2, 0.25, 8), in_part(1, 0.25, 16)
    for job, requests, devices in ((1, large, 1), (2, small, 1), (3, small, 1), (4, large, 1)):
        slots = find_idle(cells, requests, ledger)
        assert slots is not None
        assert len(leaves_in(slots)) == devices
        cells.lend(JobId(job), slots, needs_of(requests))
        sound(cells)
    assert sorted(used for _, used in cells.uses[0].parts.items()) == [1000] * 4


def in_part(tasks: int, gpus: float, memory: int, cpus: int = 1) -> tuple[Request, ...]:
    """Ask for a part of a device, and for so many GiB of its memory."""
    need = Resources(round(gpus * 1000), cpus * 1000, GIB, 0, memory * GIB)
    return (Request(tasks, need),)


def test_a_host_share_beyond_the_leaves_is_covered_by_others_of_the_node() -> None:
    cells = a_book(owns("a", node=1), owns("b", socket=2))
    take(cells, "a", gang(1, 1, cpus=32))
    assert find(cells, "a", "", gang(1, 5)) is None
    take(cells, "a", gang(1, 4))
    assert take(cells, "b", gang(1, 1, cpus=32)) == {8}
    assert find(cells, "b", "", gang(1, 5)) is None
    assert take(cells, "b", gang(1, 4)) == {12, 13, 14, 15}
    assert find(cells, "b", "", gang(1, 1)) is None


def test_a_host_share_that_broke_is_no_objection_to_who_takes_none_of_it() -> None:
    cells = a_book(owns("a", node=1))
    assert take(cells, "a", gang(1, 0.5, cpus=32)) == {0}
    cells.set_bad(NodeId(0), frozenset(range(2, WIDTH)))
    assert take(cells, "a", gang(1, 0.5)) == {0}


def test_work_without_devices_uses_a_host_share() -> None:
    cells = a_book(owns("a", node=1))
    take(cells, "a", gang(1, 0, cpus=60))
    assert find(cells, "a", "", gang(1, 1)) is None


def test_a_pinned_cell_is_used_by_name_only() -> None:
    cells = a_book(owns("a", "p", node=1), owns("b", node=1), pins=PINS)
    assert take(cells, "a", gang(1, 4), pin="p") == {0, 1, 2, 3}
    assert not take(cells, "a", gang(1, 8)) & set(range(8))
    assert find(cells, "a", "p", gang(1, 1)) is None
    assert find(cells, "b", "p", gang(1, 1)) is None


def test_borrowers_are_avoided_and_named_when_they_cannot_be() -> None:
    cells = a_book(owns("a", node=3))
    need = gang(1, 1)
    for job, node in ((1, 0), (2, 1)):
        cells.lend(JobId(job), (Slot(NodeId(node), (0,), 1000),), needs_of(need))
    first = find(cells, "a", "", gang(2, 8))
    assert first is not None
    assert first.borrowers == ()
    more = find(cells, "a", "", gang(3, 8))
    assert more is not None
    assert len(more.borrowers) == 1


def test_broken_leaves_are_worked_around() -> None:
    cells = a_book(owns("a", node=1), owns("b", node=3))
    cells.set_bad(NodeId(0), frozenset({3}))
    assert not take(cells, "a", gang(1, 8)) & set(range(8))
    assert find(cells, "b", "", gang(3, 8)) is None
    assert take(cells, "b", gang(3, 7)) & set(range(8)) == set(range(8)) - {3}


def test_small_cells_further_apart_serve_where_larger_ones_are_owed_to_others() -> None:
    cells = a_book(owns("a", V100=2), owns("b", pair=1, socket=1, node=2))
    cells.set_bad(NodeId(0), frozenset({0, 2}))
    cells.set_bad(NodeId(1), frozenset({0, 2, 4}))
    # Both pairs of a socket are broken in part: nobody is guaranteed what is left of them.
    assert take(cells, "a", gang(1, 2)) == {1, 3}
    cells = a_book(owns("a", V100=4, node=1), owns("b", V100=1, pair=2, socket=1, node=1))
    cells.set_bad(NodeId(0), frozenset({0}))
    cells.set_bad(NodeId(1), frozenset({0, 2}))
    take(cells, "a", gang(1, 5))
    assert take(cells, "a", gang(1, 4)) == {9, 11, 12, 13}, "what is left of a socket is a pair"


# ── every way there is ──────────────────────────────────────────────────────────────────

SHARES = st.fixed_dictionaries(
    {},
    optional={
        "V100": st.integers(1, 4),
        "pair": st.integers(1, 3),
        "socket": st.integers(1, 2),
        "node": st.integers(1, 2),
    },
)
JOBS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from([0.5, 1, 1, 2, 3, 4, 8])), max_size=8
)
BROKEN = st.dictionaries(st.integers(0, 3), st.frozensets(st.integers(0, 7)), max_size=2)


def a_full_book(
    shares: tuple[dict[str, int], dict[str, int]],
    jobs: list[tuple[str, float]],
    broken: dict[int, frozenset[int]],
) -> Cells:
    tenants = owns("a", **shares[0]), owns("b", **shares[1])
    assume(not shortages(TOPOLOGY, tenants))
    cells = a_book(*tenants)
    for node, devices in broken.items():
        cells.set_bad(NodeId(node), devices)
    for tenant, gpus in jobs:
        if find(cells, tenant, "", gang(1, gpus)) is not None:
            take(cells, tenant, gang(1, gpus))
    return cells


def every_place(cells: Cells, tenant: str, gpus: int) -> list[tuple[set[int], Quota]]:
    """Try all leaves of every node, in cells of every type: what nobody objects to."""
    needs = needs_of(gang(1, gpus))
    return [
        (leaves_in(slots), (kind,))
        for node in range(4)
        for devices in combinations(range(WIDTH), gpus)
        for slots in ((Slot(NodeId(node), devices, 1000 * gpus),),)
        for kind in ("V100", "pair", "socket", "node", "rack")
        if not objection(cells, tenant, "", slots, needs, (kind,))
    ]


@settings(max_examples=40)
@given(st.tuples(SHARES, SHARES), JOBS, BROKEN, st.sampled_from([1, 2, 4, 8]))
def test_a_task_that_could_be_placed_is(
    shares: tuple[dict[str, int], dict[str, int]],
    jobs: list[tuple[str, float]],
    broken: dict[int, frozenset[int]],
    gpus: int,
) -> None:
    cells = a_full_book(shares, jobs, broken)
    found = find(cells, "a", "", gang(1, gpus))
    possible = every_place(cells, "a", gpus)
    assert (found is not None) == bool(possible)
    if found is not None:
        assert (leaves_in(found.slots), found.quota) in possible


@given(st.tuples(SHARES, SHARES), JOBS, BROKEN)
def test_fresh_cells_are_those_that_may_be_had(
    shares: tuple[dict[str, int], dict[str, int]],
    jobs: list[tuple[str, float]],
    broken: dict[int, frozenset[int]],
) -> None:
    cells = a_full_book(shares, jobs, broken)
    holding = cells.holdings["a", ""].get(0)
    for level in holding.unbound if holding is not None else ():
        assert holding is not None
        space = holding.space
        if not holding.unbound[level]:
            continue
        given_out = list(fresh_cells(space, level, None))
        for cell in given_out:
            assert space.is_unheld(cell)
            assert allows(space, [cell])
        may = [c for c in cells_at(level) if space.is_unheld(c) and allows(space, [c])]
        assert bool(given_out) == bool(may)
        for region in cells_at(RACK):
            inside = list(fresh_cells(space, level, region))
            assert all(leaves_of(cell) <= leaves_of(region) for cell in inside)


@given(st.tuples(SHARES, SHARES), JOBS, BROKEN, st.integers(2, 8))
def test_cells_side_by_side_are_together_and_legal(
    shares: tuple[dict[str, int], dict[str, int]],
    jobs: list[tuple[str, float]],
    broken: dict[int, frozenset[int]],
    want: int,
) -> None:
    cells = a_full_book(shares, jobs, broken)
    holding = cells.holdings["a", ""].get(0)
    for level in holding.unbound if holding is not None else ():
        assert holding is not None
        if level >= NODE:
            continue
        for group in side_by_side(holding, level, want, None):
            assert len({cells.chains[0].nodes_of(cell)[0] for cell in group}) == 1
            assert all(holding.space.is_free(cell) for cell in group)
            assert allows(holding.space, group)


@given(st.tuples(SHARES, SHARES), JOBS, BROKEN, st.integers(1, 3), st.sampled_from([1, 2, 8]))
def test_an_idle_place_is_idle(
    shares: tuple[dict[str, int], dict[str, int]],
    jobs: list[tuple[str, float]],
    broken: dict[int, frozenset[int]],
    tasks: int,
    gpus: int,
) -> None:
    cells = a_full_book(shares, jobs, broken)
    slots = find_idle(cells, gang(tasks, gpus), Ledger(MACHINES))
    idle = [
        {leaf for leaf in range(WIDTH) if not (
            cells.uses[0].taken[node] | cells.spaces[0].shut[node]) >> leaf & 1}
        for node in range(4)
    ]  # fmt: skip
    assert (slots is not None) == (sum(len(free) // gpus for free in idle) >= tasks)
    if slots is not None:
        leaves = leaves_in(slots)
        assert len(leaves) == tasks * gpus
        assert all(leaf % WIDTH in idle[leaf // WIDTH] for leaf in leaves)
        cells.lend(JobId(9), slots, needs_of(gang(tasks, gpus)))
        sound(cells)


def test_borrowers_stay_away_from_guaranteed_work() -> None:
    cells = a_book(owns("a", node=4))
    take(cells, "a", gang(1, 1))
    slots = find_idle(cells, gang(1, 1), Ledger(MACHINES))
    assert slots is not None
    assert slots[0].node == 3


def test_a_borrower_keeps_to_the_level_that_must_hold_it() -> None:
    cells = a_book(owns("a", node=4))
    needs = gang(2, 4, within="node", prefer="rack")
    slots = find_idle(cells, needs, Ledger(MACHINES))
    assert slots is not None
    assert len({slot.node for slot in slots}) == 1
    assert find_idle(cells, gang(2, 8, within="node"), Ledger(MACHINES)) is None
    assert find_idle(cells, gang(1, 1, within="hall", prefer="node"), Ledger(MACHINES)) is None


# ── rights ──────────────────────────────────────────────────────────────────────────────


def refused(tenants: tuple[Tenant, ...], quota: Quota, *slots: Slot, cpus: float = 1) -> str:
    cells = a_book(*tenants)
    gpus = len(slots[0].devices)
    return objection(cells, "a", "", slots, needs_of(gang(len(slots), gpus, cpus=cpus)), quota)


def at(node: int, *devices: int) -> Slot:
    return Slot(NodeId(node), devices, 1000 * len(devices))


def test_objections_say_what_is_wrong() -> None:
    a = owns("a", node=1)
    assert (
        refused((owns("b"),), ("node",), at(0, 0)) == "tenant a has no guaranteed cells there"
    )
    assert refused((a,), (), at(0, 0)) == "tenant a has no guaranteed cells there"
    assert refused((a,), ("rack",), at(0, 0)) == "no more rack are guaranteed"
    assert refused((a,), ("node",), at(0, 0), at(1, 0)) == "no more node are guaranteed"
    assert refused((a,), ("node",), at(0, 0), at(0, 0)) == "leaves of node 0 are in use"
    assert "host share" in refused((a,), ("node",), at(0, *range(8)), cpus=65)
    assert "leaf by leaf" in refused((owns("a", pair=1),), ("pair",), at(0, 0), cpus=9)
    both = (owns("a", V100=1, node=1), owns("b", node=3))
    assert refused(both[:1], ("V100",), at(0, 0)) == ""
    assert refused(both, ("V100",), at(0, 0)) == "those cells are guaranteed to another tenant"


def test_the_smallest_cells_by_which_a_gang_may_keep_its_place() -> None:
    cells = a_book(owns("a", node=1, pair=1))
    needs = needs_of(gang(1, 2))
    assert quota_for(cells, "a", "", (at(0, 0, 1),), needs) == ("pair",)
    assert quota_for(cells, "a", "", (at(0, 1, 2),), needs) == ("node",)
    assert quota_for(cells, "b", "", (at(0, 1, 2),), needs) == ()
    assert quota_for(cells, "a", "", (), ()) == ()
    assert LEAVES == 32

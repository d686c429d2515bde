"""Free cells against a recomputation from sets of leaves; shares against dealing them out."""

from hypothesis import given
from hypothesis import strategies as st

from allotment.core.cells.chain import Cell
from allotment.core.cells.space import Space, allows, spare
from tests.support.audit_cells import can_be_dealt, lacking, worse
from tests.unit.core.cells.plots import (
    LEAF,
    LEAVES,
    NODE,
    NODES,
    PAIR,
    RACK,
    SIZES,
    SOCKET,
    WIDTH,
    a_chain,
    cells_at,
    largest,
    leaves_of,
    listed,
)

CHAIN = a_chain()
CELL = st.sampled_from([cell for level in range(5) for cell in cells_at(level)])
STEP = st.one_of(
    st.tuples(st.just("hold"), CELL),
    st.tuples(st.just("let_go"), st.integers(0, 99)),
    st.tuples(st.just("shut"), st.tuples(st.integers(0, NODES - 1), st.integers(0, 255))),
    st.tuples(st.just("lent"), st.tuples(st.integers(0, NODES - 1), st.integers(0, 255))),
)


class Plain:
    """What a space says, kept as sets."""

    def __init__(self) -> None:
        self.space = Space(CHAIN)
        self.held: list[Cell] = []
        self.shut: set[int] = set()
        self.lent: set[int] = set()

    @property
    def taken(self) -> set[int]:
        return {leaf for cell in self.held for leaf in leaves_of(cell)}

    def do(self, what: str, how: object) -> None:
        if what == "hold" and isinstance(how, tuple):
            level, number = how
            if not leaves_of((level, number)) & self.taken:
                self.space.hold((level, number))
                self.held.append((level, number))
        elif what == "let_go" and isinstance(how, int):
            if self.held:
                self.space.let_go(self.held.pop(how % len(self.held)))
        elif isinstance(how, tuple):
            node, mask = how
            leaves = {node * WIDTH + leaf for leaf in range(WIDTH) if mask >> leaf & 1}
            kept = {leaf for leaf in getattr(self, what) if leaf // WIDTH != node}
            setattr(self, what, kept | leaves)
            getattr(self.space, f"set_{what}")(node, mask)

    def check(self) -> None:
        space, everything = self.space, set(range(LEAVES))
        free = largest(everything - self.taken - self.shut)
        assert listed(space) == free
        assert space.count == [len(cells) for cells in free]
        assert space.whole == [len(cells) for cells in largest(everything - self.taken)]
        for level, buckets in enumerate(space.buckets()):
            for lent, numbers in buckets.items():
                assert numbers == sorted(numbers)
                for number in numbers:
                    assert len(leaves_of((level, number)) & self.lent) == lent
        for number, nodes in enumerate(space.free_nodes(RACK)):
            inside = leaves_of((RACK, number))
            whole = [leaves_of(cell) for cell in cells_at(NODE) if leaves_of(cell) <= inside]
            assert nodes == sum(not node & (self.taken | self.shut) for node in whole)
        for level in range(5):
            broken = {
                number
                for _, number in cells_at(level)
                if leaves_of((level, number)) & self.shut
                and not leaves_of((level, number)) & self.taken
            }
            assert set(space.broken_at(level, 0, CHAIN.cells[level])) == broken


@given(st.lists(STEP, max_size=25))
def test_free_cells_are_the_largest_that_are_nobodys(steps: list[tuple[str, object]]) -> None:
    plain = Plain()
    for what, how in steps:
        plain.do(what, how)
        plain.check()


@given(st.lists(CELL, max_size=8), st.randoms(use_true_random=False))
def test_the_order_in_which_cells_come_and_go_does_not_matter(
    cells: list[Cell], random: object
) -> None:
    plain = Plain()
    for cell in cells:
        plain.do("hold", cell)
    other = Space(CHAIN)
    order = list(plain.held)
    getattr(random, "shuffle")(order)  # noqa: B009 - typed as object
    for cell in order:
        other.hold(cell)
    assert other.buckets() == plain.space.buckets()
    for cell in order:
        other.let_go(cell)
    assert other.buckets() == Space(CHAIN).buckets()


def test_a_cell_is_split_and_merged_again() -> None:
    space = Space(CHAIN)
    space.hold((PAIR, 0))
    assert listed(space) == [set(), {1}, {1}, {1}, {1}]
    space.let_go((PAIR, 0))
    assert listed(space) == [set(), set(), set(), set(), {0, 1}]


def test_free_cells_with_the_fewest_borrowers_come_first() -> None:
    space = Space(CHAIN)
    space.hold((NODE, 3))
    space.set_lent(2, 0b1)
    space.hold((RACK, 0))
    space.let_go((RACK, 0))
    space.set_lent(0, 0b111)
    assert list(space.free_at(NODE, 0, 4, quiet=None)) == [2]
    assert list(space.free_at(NODE, 0, 4, quiet=True)) == []
    assert list(space.free_at(RACK, 0, 2, quiet=False)) == [0]


# ── shares ──────────────────────────────────────────────────────────────────────────────

GUARANTEED = st.tuples(*[st.integers(0, most) for most in (4, 3, 3, 3, 1)])


def deal(free: set[int], guaranteed: list[int]) -> bool:
    """Find a cell for everything that is guaranteed by trying: largest first, buddies apart."""
    for level in range(4, -1, -1):
        if guaranteed[level]:
            left = [n if at != level else n - 1 for at, n in enumerate(guaranteed)]
            seen: list[list[set[int]]] = []
            for cell in cells_at(level):
                if leaves_of(cell) <= free:
                    rest = free - leaves_of(cell)
                    shape = [{len(c)} for c in largest(rest)]
                    if shape not in seen:
                        seen.append(shape)
                        if deal(rest, left):
                            return True
            return False
    return True


@given(st.sets(st.integers(0, 15)), GUARANTEED)
def test_shares_can_be_had_when_nothing_lacks(
    gone: set[int], guaranteed: tuple[int, ...]
) -> None:
    free = set(range(16)) - gone
    count = [len(cells) for cells in largest(free)]
    left = spare(CHAIN, count, guaranteed)
    possible = deal(free, list(guaranteed))
    assert (min(left) >= 0) == possible
    assert can_be_dealt(CHAIN, count, guaranteed) == possible


def a_space(guaranteed: tuple[int, ...], held: list[Cell], shut: dict[int, int]) -> Space:
    space = Space(CHAIN)
    space.unbound = list(guaranteed)
    taken: set[int] = set()
    for cell in held:
        if not leaves_of(cell) & taken:
            taken |= leaves_of(cell)
            space.hold(cell)
    for node, mask in shut.items():
        space.set_shut(node, mask)
    return space


@given(
    GUARANTEED,
    st.lists(CELL, max_size=4),
    st.dictionaries(st.integers(0, NODES - 1), st.integers(0, 255), max_size=2),
    st.lists(CELL, min_size=1, max_size=3),
)
def test_what_is_allowed_takes_from_nobody(
    guaranteed: tuple[int, ...], held: list[Cell], shut: dict[int, int], asked: list[Cell]
) -> None:
    space = a_space(guaranteed, held, shut)
    cells: list[Cell] = []
    for cell in asked:
        apart = not any(leaves_of(cell) & leaves_of(other) for other in cells)
        if apart and space.is_unheld(cell):
            cells.append(cell)
    enough = all(sum(c[0] == level for c in cells) <= guaranteed[level] for level in range(5))
    if not cells or not enough:
        return
    before = lacking(space)
    whole = [len(some) for some in largest({
        leaf for leaf in range(LEAVES) if not space.held[leaf // WIDTH] >> leaf % WIDTH & 1
    })]  # fmt: skip
    mendable = can_be_dealt(CHAIN, whole, space.unbound)
    answer = allows(space, cells)
    for cell in cells:
        space.hold(cell)
        space.unbound[cell[0]] -= 1
    harmless = not worse([before], [lacking(space)])
    if mendable:
        assert answer == (harmless and can_be_dealt(CHAIN, space.whole, space.unbound))
    elif answer:
        assert harmless


def test_parts_of_broken_cells_are_not_given_away_for_good() -> None:
    """Two nodes are broken: pairs may be taken from one of them, not from both."""
    space = a_space((0, 4, 0, 3, 0), [], {0: 1, 1: 1})
    space.hold((NODE, 2))
    space.unbound[NODE] -= 1
    pairs: list[Cell] = [(PAIR, 1), (PAIR, 5)]
    assert allows(space, pairs[:1])
    assert allows(space, pairs[1:])
    assert not allows(space, pairs)


def test_a_level_that_lacks_cells_already_may_not_lack_more() -> None:
    space = a_space((8, 0, 0, 3, 0), [], {1: 255, 2: 255})
    assert lacking(space) == (8, 0, 0, 1, 0)
    assert allows(space, [(NODE, 0)])
    assert not allows(space, [(LEAF, 0)])
    assert SIZES[SOCKET] == 4

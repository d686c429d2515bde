"""Dominant resource fairness: what the paper proves of it, and against slow twins."""

from collections.abc import Sequence
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from allotment.explain.claims import Claim, Grant, Quantities
from allotment.explain.fair_shares import fluid
from tests.support.whole_shares import whole

Found = dict[str, Grant]


@st.composite
def needs(draw: st.DrawFn, width: int) -> Quantities:
    """A need of something."""
    amounts = st.lists(st.integers(0, 6), min_size=width, max_size=width)
    return tuple(draw(amounts.filter(any)))


@st.composite
def flat(
    draw: st.DrawFn, *, weights: bool = True, bounds: bool = True
) -> tuple[Quantities, list[Claim]]:
    """A small cluster, and claims of up to five."""
    width = draw(st.integers(1, 3))
    capacity = tuple(draw(st.lists(st.integers(1, 24), min_size=width, max_size=width)))
    claims = [
        Claim(
            f"c{at}",
            draw(needs(width)),
            draw(st.none() | st.integers(0, 8)) if bounds else None,
            weight=draw(st.integers(1, 3)) if weights else 1,
        )
        for at in range(draw(st.integers(1, 5)))
    ]
    return capacity, claims


@st.composite
def trees(draw: st.DrawFn) -> tuple[Quantities, Claim]:
    """Two levels of claims, with weights, caps, guarantees that fit in sum."""
    capacity, claims = draw(flat())
    at, branches = 0, list[Claim]()
    while at < len(claims):
        size = draw(st.integers(1, 3))
        parts = tuple(claims[at : at + size])
        guarantee = tuple(draw(st.integers(0, all_ // 5)) for all_ in capacity)
        bounded = draw(st.booleans())
        limit = tuple(draw(st.integers(g, 24)) for g in guarantee) if bounded else ()
        branches.append(
            Claim(
                f"b{at}", parts=parts, weight=draw(st.integers(1, 3)), limit=limit,
                guaranteed=guarantee if draw(st.booleans()) else (),
            )
        )  # fmt: skip
        at += size
    return capacity, Claim("top", parts=tuple(branches))


def top(claims: Sequence[Claim]) -> Claim:
    return Claim("top", parts=tuple(claims))


def tasks_in(held: Sequence[Fraction], claim: Claim) -> Fraction:
    """Return how many tasks of a claim these amounts are good for; cut ones too."""
    room = min(Fraction(h, 1) / n for h, n in zip(held, claim.need, strict=True) if n)
    return room if claim.most is None else min(room, Fraction(claim.most))


# ── the four properties, of fluid shares ────────────────────────────────────────────────


@given(flat())
def test_sharing_incentive(case: tuple[Quantities, list[Claim]]) -> None:
    """Nobody would rather have its weighted part of every resource for itself."""
    capacity, claims = case
    found, weights = fluid(capacity, top(claims)), sum(claim.weight for claim in claims)
    for claim in claims:
        own = [Fraction(all_ * claim.weight, weights) for all_ in capacity]
        assert found[claim.name].tasks >= tasks_in(own, claim)


@given(flat())
def test_envy_freeness(case: tuple[Quantities, list[Claim]]) -> None:
    """Nobody would rather have what another holds, by weight."""
    capacity, claims = case
    found = fluid(capacity, top(claims))
    for claim in claims:
        for other in claims:
            theirs = [held * claim.weight / other.weight for held in found[other.name].held]
            assert found[claim.name].tasks >= tasks_in(theirs, claim)


@given(flat(), st.data())
def test_strategy_proofness(case: tuple[Quantities, list[Claim]], data: st.DataObject) -> None:
    """Nobody gets more of its tasks going by asking for something else than it needs."""
    capacity, claims = case
    liar = data.draw(st.integers(0, len(claims) - 1))
    honest = claims[liar]
    said = replace(
        honest,
        need=data.draw(needs(len(capacity))),
        most=data.draw(st.none() | st.integers(0, 20)),
    )
    lied = fluid(capacity, top([*claims[:liar], said, *claims[liar + 1 :]]))
    truth = fluid(capacity, top(claims))
    assert tasks_in(lied[honest.name].held, honest) <= truth[honest.name].tasks


@given(trees())
def test_pareto_efficiency(case: tuple[Quantities, Claim]) -> None:
    """Who has not all it wants misses something that is all given, or is at a cap."""
    capacity, tree = case
    assert_nothing_is_left(capacity, tree, fluid(capacity, tree), whole_tasks=False)


def assert_nothing_is_left(
    capacity: Quantities, tree: Claim, found: Found, *, whole_tasks: bool
) -> None:
    for branch in tree.parts:
        for claim in branch.parts or (branch,):
            if found[claim.name].tasks == claim.most:
                continue
            bounds = [(found["top"], capacity), (found[branch.name], branch.limit)]
            assert any(
                (held + need > most) if whole_tasks else held >= most
                for grant, bound in bounds
                if bound
                for held, need, most in zip(grant.held, claim.need, bound, strict=True)
                if need
            ), claim.name


# ── slow twins ──────────────────────────────────────────────────────────────────────────


@given(flat())
def test_it_is_the_one_max_min_division(case: tuple[Quantities, list[Claim]]) -> None:
    """Each claim has all it wants, or a full resource of which nobody is ahead of it.

    There is only one division like that (Bertsekas and Gallager's bottlenecks).
    """
    capacity, claims = case
    found = fluid(capacity, top(claims))
    levels = {c.name: found[c.name].share / c.weight for c in claims}
    assert all(h <= c for h, c in zip(found["top"].held, capacity, strict=True))
    for claim in claims:
        if found[claim.name].tasks == claim.most:
            continue
        assert any(
            found["top"].held[r] == all_
            and all(levels[c.name] <= levels[claim.name] for c in claims if c.need[r])
            for r, all_ in enumerate(capacity)
            if claim.need[r]
        ), claim.name


FINE = 40
"""Pieces of a task that the slow twin hands out one at a time."""

CLOSE = Fraction(1, 4)
"""How near fluid shares and pieces must be, in tasks."""


class Crumbs:
    """Hands out pieces of tasks, always below the branch, then to the part, that has least."""

    def __init__(self, capacity: Quantities, tree: Claim) -> None:
        self.full = [all_ * FINE for all_ in capacity]
        self.branches = tree.parts
        self.got = {part.name: 0 for branch in tree.parts for part in branch.parts}
        for branch in self.branches:
            self.hand_out((branch,), [amount * FINE for amount in branch.guaranteed])
        self.hand_out(self.branches, self.full)

    def hand_out(self, branches: Sequence[Claim], room: Sequence[int]) -> None:
        while room:
            able = {
                branch.name: parts
                for branch in branches
                if (parts := [p for p in branch.parts if self.fits(p, branch, branches, room)])
            }
            if not able:
                return
            going = [branch for branch in branches if branch.name in able]
            branch = min(going, key=lambda each: self.level(each, able[each.name]))
            self.got[min(able[branch.name], key=self.level).name] += 1

    def held(self, branches: Sequence[Claim]) -> list[int]:
        parts = [part for branch in branches for part in branch.parts or (branch,)]
        return [sum(self.got[p.name] * p.need[r] for p in parts) for r in range(len(self.full))]

    def level(self, claim: Claim, able: Sequence[Claim] = ()) -> Fraction:
        """Of a branch each part counts up to the level of the least that is able to go on."""
        least = min((self.level(part) for part in able), default=None)
        total = [Fraction(0)] * len(self.full)
        for part in claim.parts or (claim,):
            scale = Fraction(1)
            if least is not None and (level := self.level(part)) > least:
                scale = least / level
            total = [
                t + n * self.got[part.name] * scale
                for t, n in zip(total, part.need, strict=True)
            ]
        share = max(h / f for h, f in zip(total, self.full, strict=True))
        return share / claim.weight

    def fits(
        self, part: Claim, branch: Claim, among: Sequence[Claim], room: Sequence[int]
    ) -> bool:
        if part.most is not None and self.got[part.name] >= part.most * FINE:
            return False
        limit = [amount * FINE for amount in branch.limit]
        return all(
            not need or held + need <= most
            for bound, claims in ((room, among), (limit, (branch,)))
            for need, held, most in zip(part.need, self.held(claims), bound, strict=False)
        )


@settings(max_examples=40)
@given(trees())
def test_hierarchies_as_by_handing_out_crumbs(case: tuple[Quantities, Claim]) -> None:
    """Within a few crumbs for each claim that may come before or after."""
    capacity, tree = case
    found, crumbs = fluid(capacity, tree), Crumbs(capacity, tree).got
    for name, pieces in crumbs.items():
        assert abs(found[name].tasks - Fraction(pieces, FINE)) <= CLOSE, name


# ── whole tasks: the same, up to one ────────────────────────────────────────────────────


@given(flat())
def test_whole_tasks_sharing_incentive_up_to_one(case: tuple[Quantities, list[Claim]]) -> None:
    """Nobody is more than a task short of its part of what is left by a task of each other."""
    capacity, claims = case
    found, weights = whole(capacity, top(claims)), sum(claim.weight for claim in claims)
    for claim in claims:
        if found[claim.name].tasks == claim.most:
            continue
        left = min(
            1 - sum(Fraction(other.need[r], all_) for other in claims if other is not claim)
            for r, all_ in enumerate(capacity)
        )
        task = max(Fraction(n, c) for n, c in zip(claim.need, capacity, strict=True))
        assert found[claim.name].share + task > left * claim.weight / weights


@given(flat(weights=False))
def test_whole_tasks_envy_freeness_up_to_one(case: tuple[Quantities, list[Claim]]) -> None:
    """Nobody would rather have what another holds, less one task of that other."""
    capacity, claims = case
    found = whole(capacity, top(claims))
    for claim in claims:
        for other in claims:
            held = found[other.name].held
            less = [max(Fraction(0), h - n) for h, n in zip(held, other.need, strict=True)]
            assert found[claim.name].tasks >= tasks_in(less, claim) // 1


@given(trees())
def test_whole_tasks_pareto_efficiency(case: tuple[Quantities, Claim]) -> None:
    """Not one more task of anybody fits."""
    capacity, tree = case
    assert_nothing_is_left(capacity, tree, whole(capacity, tree), whole_tasks=True)


@given(flat(weights=False, bounds=False))
def test_whole_tasks_are_level_up_to_one(case: tuple[Quantities, list[Claim]]) -> None:
    """Who could still take a task when another got its last was not ahead of it."""
    capacity, claims = case
    found = whole(capacity, top(claims))
    for claim in claims:
        for other in claims:
            if not found[other.name].tasks:
                continue
            before = found[other.name].tasks - 1
            task = max(Fraction(n, c) for n, c in zip(other.need, capacity, strict=True))
            fitted = all(
                held - lost + need <= all_
                for held, lost, need, all_ in zip(
                    found["top"].held, other.need, claim.need, capacity, strict=True
                )
                if need
            )
            if fitted:
                assert before * task <= found[claim.name].share, (claim, other)

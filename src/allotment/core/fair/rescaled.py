"""Hierarchical DRF: how much of what its parts hold counts for one that shares with others.

Rule: a part counts for no more than what would bring it level with the least part that can
go on. So a queue that fills idle devices nobody else asks for does not keep a queue beside
it, which wants CPUs, from its share of these. A part that cannot go on, because it wants no
more or nothing of what it wants is left, is no such least part: it would hold the claimant
at its own level while the others take all there is.

Source: Bhattacharya et al., Hierarchical Scheduling for Diverse Datacenter Workloads, SoCC
2013, 4.1 (rescaling to the minimum, blocked nodes ignored). There a blocked part counts in
full; here, too, for no more than the least: else one that holds all of what ran out starves
the part beside it after all.
"""

from heapq import heappop, heappush

from allotment.core.claimant import Shares

Path = tuple[str, ...]
_FINE = 1 << 64
_NONE: Shares = (0, 0, 0, 0, 0)


class Rescaled:
    """The parts of one claimant: each with its level, its share by weight, and its shares.

    O(log parts) amortised for what changes while the least rises; O(parts) where it falls.
    """

    def __init__(self) -> None:
        self._parts: dict[Path, tuple[int, Shares, bool]] = {}
        """Level, shares, and whether it is ahead of the least."""
        self._least = 0
        self._even, self._ahead = [*_NONE], [*_NONE]
        """Sums: the shares of those that are not ahead; those of the others by their level."""
        self._levels: list[tuple[int, Path]] = []
        """Those ahead, and some that were; the least first."""

    def put(self, part: Path, level: int, shares: Shares) -> None:
        """Note what a part has now."""
        known = self._parts.get(part)
        if known is not None:
            if known[0] == level and known[1] == shares:
                return
            self._count(known, -1)
        self._enter(part, level, shares)

    def rise_to(self, part: Path) -> None:
        """Note which part has least of those that can go on."""
        parts, levels = self._parts, self._levels
        least = parts[part][0] if part in parts else 0
        falls, self._least = least < self._least, least
        if falls:
            self._begin_anew()
        while levels and levels[0][0] <= least:
            level, passed = heappop(levels)
            found = parts[passed]
            if found[2] and found[0] == level:
                self._count(found, -1)
                self._enter(passed, level, found[1])

    def shares(self) -> Shares:
        """Return what counts."""
        least = self._least
        both = zip(self._even, self._ahead, strict=True)
        return tuple(even + ahead * least // _FINE for even, ahead in both)

    def _enter(self, part: Path, level: int, shares: Shares) -> None:
        known = self._parts[part] = (level, shares, level > self._least)
        self._count(known, +1)
        if known[2]:
            heappush(self._levels, (level, part))

    def _count(self, known: tuple[int, Shares, bool], sign: int) -> None:
        level, shares, is_ahead = known
        if not level:
            return  # Most parts of a large claimant hold nothing.
        if is_ahead:
            for at, share in enumerate(shares):
                self._ahead[at] += sign * (share * _FINE // level)
        else:
            for at, share in enumerate(shares):
                self._even[at] += sign * share

    def _begin_anew(self) -> None:
        known = [*self._parts.items()]
        self._levels.clear()
        self._even, self._ahead = [*_NONE], [*_NONE]
        for part, (level, shares, _) in known:
            self._enter(part, level, shares)

"""Pods that wait → gangs that are whole. Pure: it is told of pods, and asked what is new.

A gang is offered once as many pods are there as it claims. It stays offered while they are. A
pod that goes before its job has a place takes the offer back; the rest wait for another pod.
"""

from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from allotment.backends.kubernetes.foreign import MOST_PODS, Claim

Size = int | str
"""Of a gang whose object says it: a number, or why it is not known."""


class Word(msgspec.Struct, frozen=True):
    """Why a pod is not placed yet: one word for programs, and a sentence."""

    reason: str
    message: str


class Gang(msgspec.Struct, frozen=True):
    """Pods that are placed together, in rank order."""

    key: str
    claims: tuple[Claim, ...]


class Gangs:
    """Knows which pods wait, and which gangs they make."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, Claim]] = {}
        """By gang and uid: pods that are on no node yet."""
        self._gang_of: dict[str, str] = {}
        """The gang of each of them."""
        self._offers: dict[str, Gang] = {}
        """By their keys."""
        self._offer_of: dict[str, str] = {}
        """The key of the offer that has a pod."""
        self._over: set[str] = set()
        """Offers whose jobs are over, and whose pods all wait still: not made again."""
        self._over_of: dict[str, str] = {}
        self._held: dict[str, set[str]] = {}
        """By gang: pods that have a place, or had one and have not gone."""
        self._held_in: dict[str, str] = {}
        self._stopping: set[str] = set()
        """Gangs of which pods are told to stop."""
        self._sizes: dict[str, Size] = {}
        self._sources: dict[str, set[str]] = {}
        """The gangs that ask an object for their size."""
        self._changed: set[str] = set()

    # ── what happens ────────────────────────────────────────────────────────────────────

    def put(self, claim: Claim) -> None:
        """Take note of a pod that waits."""
        gang = claim.gang or claim.uid
        known = self._waiting.setdefault(gang, {})
        if known.get(claim.uid) == claim:
            return
        if claim.uid in self._gang_of and self._gang_of[claim.uid] != gang:
            self.drop(claim.uid)
            known = self._waiting.setdefault(gang, {})
        elif claim.uid in self._offer_of and claim.uid not in self._held_in:
            self._take_back(self._offer_of[claim.uid])  # it asks for something else now
        known[claim.uid] = claim
        self._gang_of[claim.uid] = gang
        if claim.source:
            self._sources.setdefault(claim.source, set()).add(gang)
        self._changed.add(gang)

    def drop(self, uid: str) -> None:
        """Take note that a pod is gone, or on a node."""
        gang = self._gang_of.pop(uid, None)
        if gang is None:
            return
        claim = self._waiting[gang].pop(uid)
        if not self._waiting[gang]:
            del self._waiting[gang]
            if claim.source:
                self._forget_source(claim.source, gang)
        self._over.discard(self._over_of.pop(uid, ""))
        if (key := self._offer_of.get(uid)) is not None:
            self._take_back(key)
        self._changed.add(gang)

    def _forget_source(self, source: str, gang: str) -> None:
        """What is made anew under the same name may say another size."""
        asking = self._sources.get(source, set())
        asking.discard(gang)
        if not asking:
            self._sources.pop(source, None)
            self._sizes.pop(source, None)

    def hold(self, uid: str, gang: str = "") -> None:
        """Take note that a pod has a place: no other gang is made of it meanwhile. `gang` is
        its own where the pod does not wait."""
        gang = gang or self._gang_of.get(uid, uid)
        if self._held_in.get(uid) != gang:
            self.let_go(uid)
        self._held.setdefault(gang, set()).add(uid)
        self._held_in[uid] = gang
        self._changed.add(gang)

    def stop(self, uid: str) -> None:
        """Take note that a pod is told to stop, and its gang with it."""
        if (gang := self._held_in.get(uid)) is not None:
            self._stopping.add(gang)

    def let_go(self, uid: str) -> None:
        """Take note that a pod has no place any more."""
        gang = self._held_in.pop(uid, None)
        if gang is None:
            return
        self._held[gang].discard(uid)
        if not self._held[gang]:
            del self._held[gang]
            self._stopping.discard(gang)
        self._changed.add(gang)

    def end(self, key: str) -> None:
        """Take note that the job of an offer is over: what still waits may make another."""
        offer = self._offers.get(key)
        if offer is None:
            return
        self._take_back(key)
        if all(claim.uid in self._gang_of for claim in offer.claims):
            self._over.add(key)
            self._over_of |= {claim.uid: key for claim in offer.claims}

    def learn(self, source: str, size: Size) -> None:
        """Take note of what an object says of the size of its gangs."""
        if self._sizes.get(source) != size:
            self._sizes[source] = size
            self._changed |= self._sources.get(source, set())

    def _take_back(self, key: str) -> None:
        for claim in self._offers.pop(key).claims:
            self._offer_of.pop(claim.uid, None)
            self._changed.add(claim.gang or claim.uid)

    # ── what is asked ───────────────────────────────────────────────────────────────────

    def is_offered(self, key: str) -> bool | None:
        """Whether all pods of an offer still wait for their place; None while that is not
        settled, as after a start."""
        if key in self._offers:
            return True
        is_settled = not self._changed and self._sizes.keys() >= self._sources.keys()
        return False if is_settled else None

    @property
    def is_weighed(self) -> bool:
        """Whether all that changed was looked at."""
        return not self._changed

    def unknown_sources(self) -> list[str]:
        """Return the objects that have to be asked for the size of gangs that wait."""
        return [
            source
            for source, gangs in self._sources.items()
            if gangs and not isinstance(self._sizes.get(source), int)
        ]

    def waiting(self) -> Iterable[str]:
        """Return the uids of all pods that wait."""
        return self._gang_of

    def take(self) -> tuple[list[Gang], list[tuple[Claim, Word]]]:
        """Return the gangs that are whole since the last time, and why other pods wait."""
        made: list[Gang] = []
        words: list[tuple[Claim, Word]] = []
        changed, self._changed = self._changed, set()
        for gang in sorted(changed):
            free = [
                claim
                for uid, claim in self._waiting.get(gang, {}).items()
                if uid not in self._offer_of and uid not in self._held_in
            ]
            if free:
                self._make(gang, sorted(free, key=_order), made, words)
        return made, words

    def _make(
        self, gang: str, free: list[Claim], made: list[Gang], words: list[tuple[Claim, Word]]
    ) -> None:
        word = self._disagreement(gang, free)
        size = self._size_of(free[0])
        if word is None and isinstance(size, str):
            word = Word("GangUnknown", size)
        if word is None and isinstance(size, int):
            first = free[0]
            if self._held.get(gang) or any(
                uid in self._offer_of for uid in self._waiting[gang]
            ):
                if first.may_exceed and gang not in self._stopping:
                    made += [self._offer((claim,)) for claim in free if self._is_new((claim,))]
                    return
                word = Word(
                    "GangComplete",
                    f"its gang {gang} has its {size} pods already: it waits until those have "
                    "ended, or more come",
                )
            elif len(free) >= size:
                mine = tuple(free if first.may_exceed else free[:size])
                if self._is_new(mine):
                    made.append(self._offer(mine))
                return
            else:
                word = Word(
                    "GangIncomplete",
                    f"its gang {gang} has {len(free)} of its {size} pods: none is placed "
                    "before all are there",
                )
        if word is not None:
            words += [(claim, word) for claim in free]

    def _size_of(self, claim: Claim) -> Size:
        if not claim.source:
            return claim.size
        size = self._sizes.get(claim.source, "the size of its gang is being looked up")
        if isinstance(size, int) and size > MOST_PODS:
            return f"its gang has {size:,} pods, and {MOST_PODS:,} are the most"
        return size

    @staticmethod
    def _disagreement(gang: str, free: list[Claim]) -> Word | None:
        """Return that pods of one gang claim what does not go together."""
        first = free[0]
        for other in free:
            if other.terms != first.terms:
                return Word(
                    "GangDisagrees",
                    f"pods of gang {gang} do not agree: {first.name} claims {_terms(first)}, "
                    f"{other.name} {_terms(other)}",
                )
        return None

    def _is_new(self, claims: tuple[Claim, ...]) -> bool:
        return _key(claims) not in self._over

    def _offer(self, claims: tuple[Claim, ...]) -> Gang:
        offer = Gang(_key(claims), claims)
        self._offers[offer.key] = offer
        for claim in claims:
            self._offer_of[claim.uid] = offer.key
        return offer


def _key(claims: tuple[Claim, ...]) -> str:
    """Return what tells an offer from every other: just these pods, with just these claims."""
    said = sorted((claim.uid, repr((claim.terms, claim.need, claim.types))) for claim in claims)
    return blake2b(repr(said).encode(), digest_size=16).hexdigest()


def _order(claim: Claim) -> tuple[int, str, str]:
    return claim.index, claim.made, claim.name


def _terms(claim: Claim) -> str:
    queue = f"/{claim.queue}" if claim.queue else ""
    return f"{claim.size or '?'} pods for {claim.tenant}{queue} at priority {claim.priority}"

"""What shares with what, and how much each has: tenants, a tree of queues, users of a leaf.

At every level the claimant with least, as that level's policy measures it and for its weight,
comes first; its parts are compared with each other only then. The order of the jobs of one
claimant is another matter: that of its queue.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from allotment.core.book import Holder
from allotment.core.claimant import STEPS, Claimant, Past, Shares
from allotment.core.gang import Gang, ReservedPlace
from allotment.core.ports import Fairness
from allotment.core.request import sum_of
from allotment.model.cluster import Node
from allotment.model.ids import JobId
from allotment.model.quantity import NOTHING, Instant, Millis, Resources
from allotment.model.queue_tree import QueueTree
from allotment.model.tenancy import ShareBy

Path = tuple[str, ...]
"""A tenant; its queues from the outermost to the leaf, by their whole names; a user of that."""


class Spent(msgspec.Struct, frozen=True):
    """What a claimant has used, as it is kept in a snapshot."""

    path: Path
    value: int


class Claimants:
    """The accounts of all that share by some rule. Without rules there is none of this."""

    def __init__(
        self,
        share: ShareBy,
        half_life_ms: Millis,
        trees: Iterable[QueueTree],
        nodes: Iterable[Node],
        policies: Mapping[ShareBy, Fairness],
    ) -> None:
        self.now = Instant(0)
        """The time of the newest event."""
        self._step_ms = max(1, half_life_ms // STEPS)
        self._rules: dict[Path, Fairness] = {}
        """How the parts of a claimant are compared, where not by which came first."""
        self._weights: dict[Path, int] = {}
        self._numbers: dict[Path, int] = {}
        self._leaves: dict[tuple[str, str], Path] = {}
        """The ways to the leaves, by tenant and leaf."""
        self._add_rule((), share, policies)
        for tree in trees:
            self._add_tree(tree, policies)
        rescaling = {path for path, rule in self._rules.items() if rule.rescales}
        self._parts: dict[Path, dict[Path, Claimant]] = {
            path: {} for path in rescaling if path and path[:-1] in rescaling
        }
        """The parts that hold anything, of claimants that count as their least part goes."""
        self._whole = NOTHING
        for node in nodes:
            self._whole += node.total()
        self._known: dict[Path, Claimant] = {}
        self._reserved: dict[JobId, tuple[Path, Resources]] = {}

    def _add_tree(self, tree: QueueTree, policies: Mapping[ShareBy, Fairness]) -> None:
        tenant = tree.of
        top = (tenant.name,)
        self._numbers[top] = len(self._numbers)
        self._weights[top] = tenant.weight_milli
        self._add_rule(top, tenant.share, policies)
        for queue in tenant.queues:
            way = (each.name for each in reversed(tree.upward(queue.name)))
            path = (tenant.name, *way)
            self._numbers[path] = len(self._numbers)
            self._weights[path] = queue.weight_milli
            self._add_rule(path, queue.share, policies)
            self._leaves[tenant.name, queue.name] = path

    def _add_rule(
        self, path: Path, share: ShareBy, policies: Mapping[ShareBy, Fairness]
    ) -> None:
        if share is not ShareBy.FIRST_COME:
            self._rules[path] = policies[share]

    @property
    def any(self) -> bool:
        """Whether anything is shared by a rule."""
        return bool(self._rules)

    def by_user(self, tenant: str, queue: str) -> bool:
        """Whether the users of a leaf share it by a rule."""
        return self._leaves.get((tenant, queue)) in self._rules

    def path(self, tenant: str, queue: str, user: str) -> Path:
        """Return the way down to the user of a leaf."""
        return (*self._leaves.get((tenant, queue), (tenant, queue)), user)

    # ── writing ─────────────────────────────────────────────────────────────────────────

    def enter(self, gang: Gang) -> None:
        """Add what a gang holds."""
        self._change(self._path_of(gang), gang.held(), +1)

    def leave(self, gang: Gang) -> None:
        """Undo `enter`."""
        self._change(self._path_of(gang), gang.held(), -1)

    def reserve(self, place: ReservedPlace, holder: Holder) -> None:
        """Add a reserved place."""
        path = self.path(holder.shape.tenant, holder.shape.queue, holder.user)
        self._reserved[place.job] = (path, sum_of(place.needs))
        self._change(*self._reserved[place.job], +1)

    def release(self, place: ReservedPlace) -> None:
        """Undo `reserve`."""
        self._change(*self._reserved.pop(place.job), -1)

    def _path_of(self, gang: Gang) -> Path:
        return self.path(gang.tenant, gang.standing.shape.queue, gang.user)

    def _change(self, path: Path, amount: Resources, sign: int) -> None:
        for depth in range(len(path)):
            if path[:depth] not in self._rules:
                continue
            claimant = self._claimant(path[: depth + 1])
            claimant.settle(self.now)
            claimant.hold(claimant.held + amount if sign > 0 else claimant.held - amount)
            parts = self._parts.get(path[:depth])
            if parts is not None and claimant.held == NOTHING:
                parts.pop(path[: depth + 1], None)
            elif parts is not None:
                parts[path[: depth + 1]] = claimant

    def _claimant(self, path: Path) -> Claimant:
        known = self._known.get(path)
        if known is None:
            known = Claimant(self._whole, self._weights.get(path, 1000), self._step_ms)
            known.past.at = self.now
            self._known[path] = known
        return known

    # ── reading ─────────────────────────────────────────────────────────────────────────

    def shared(self, path: Path) -> bool:
        """Whether the parts of a claimant share by a rule, not by which came first."""
        return path in self._rules

    def parts(self, path: Path) -> Mapping[Path, Claimant] | None:
        """Return the parts of a claimant that hold anything, if what they have is rescaled."""
        return self._parts.get(path)

    def known(self, path: Path, counted: Shares | None = None) -> Claimant | None:
        """Return a claimant, with only `counted` of its shares; None if it never had any."""
        found = self._known.get(path)
        return found if found is None or counted is None else found.counting(counted)

    def place(
        self, path: Path, now: Instant, claimant: Claimant | None = None
    ) -> tuple[int, int]:
        """Return where one stands among those it shares with by a rule: the smaller is next.

        Equals go as configured; users, who are not, by which came first. `claimant` is the one
        at that path as it counts, if that is not as it is.
        """
        found = claimant or self._known.get(path)
        share = self._rules[path[:-1]].share(found, now) if found else 0
        return share, self._numbers.get(path, 0)

    def held(self) -> Iterator[tuple[Path, Resources]]:
        """Return what every claimant holds."""
        return ((path, known.held) for path, known in self._known.items())

    # ── snapshots, and new configurations ───────────────────────────────────────────────

    def spent(self) -> tuple[Spent, ...]:
        """Return what every claimant has used by now."""
        used = ((path, known.used(self.now)) for path, known in sorted(self._known.items()))
        return tuple(Spent(path, value) for path, value in used if value)

    def recall(self, spent: Iterable[Spent], now: Instant) -> None:
        """Take over what the claimants of now used before."""
        self.now = now
        for known in self._known.values():
            known.past = Past(0, now)
        for each in spent:
            if each.path[:-1] in self._rules:
                self._claimant(each.path).past = Past(each.value, now)

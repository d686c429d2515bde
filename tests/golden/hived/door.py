"""HiveD's recordings as they can be said to a Kubernetes cluster: whole nodes, counted devices.

A kubelet picks the devices of a pod, so no cell may be smaller than a node there. What of a
configuration is smaller is rounded up, and said; how gangs lie is compared node by node, but
for the names of nodes that are alike in everything. Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from tests.golden.hived.cluster import Cluster, word

Tree = dict[str, Any]
Spot = tuple[str, int]
"""A pod's node, and how many devices of it."""
Both = tuple[Sequence[Spot], Sequence[Spot]]
"""One gang, or one node that is broken: at HiveD, and here."""


class Rounded(msgspec.Struct, frozen=True):
    """A configuration in whole nodes, and what of it had to be made larger."""

    config: Tree
    changes: tuple[str, ...]


def whole_nodes(config: Tree) -> Rounded:
    """Return a configuration of HiveD without any cell below a node."""
    return _Rounding(config).done()


class _Rounding:
    def __init__(self, config: Tree) -> None:
        plain = cast("Tree", _plain(config))
        self._cluster: Tree = plain["physicalCluster"]
        self._tenants: dict[str, Tree] = plain["virtualClusters"]
        self._types: dict[str, Tree] = self._cluster["cellTypes"]
        self._changes: list[str] = []

    def done(self) -> Rounded:
        nodes = {name for name, kind in self._types.items() if kind.get("isNodeLevel")}
        below = {name for node in nodes for name in self._below(node)}
        types: Tree = {}
        for name, kind in self._types.items():
            if name in nodes:
                leaf, count = self._leaves(name)
                types[name] = {**kind, "childCellType": leaf, "childCellNumber": count}
            elif name not in below:
                types[name] = kind
        cells = [self._cell(cell, str(cell["cellType"])) for cell in self._roots()]
        tenants = {name: self._tenant(name, each) for name, each in self._tenants.items()}
        return Rounded(
            {"physicalCluster": {"cellTypes": types, "physicalCells": cells},
             "virtualClusters": tenants},
            tuple(self._changes),
        )  # fmt: skip

    def _roots(self) -> list[Tree]:
        return self._cluster["physicalCells"]

    def _below(self, kind: str) -> Iterator[str]:
        child = self._types[kind]["childCellType"]
        if child in self._types:
            yield child
            yield from self._below(child)

    def _leaves(self, kind: str) -> tuple[str, int]:
        """Return what a cell is made of in the end, and of how many."""
        if kind not in self._types:
            return kind, 1
        leaf, count = self._leaves(self._types[kind]["childCellType"])
        return leaf, count * self._types[kind]["childCellNumber"]

    def _cell(self, cell: Tree, kind: str) -> Tree:
        """Return a physical cell down to its nodes; a pin below one is the node's."""
        kept = {key: value for key, value in cell.items() if key != "cellChildren"}
        children: list[Tree] = cell.get("cellChildren") or []
        if not self._types[kind].get("isNodeLevel"):
            child = self._types[kind]["childCellType"]
            inner = [self._cell(each or {}, child) for each in children]
            return kept | ({"cellChildren": inner} if inner else {})
        for pin in _pins(children):
            self._changes.append(f"pinned cell {pin} is a whole node")
            kept["pinnedCellId"] = pin
        return kept

    def _tenant(self, name: str, tenant: Tree) -> Tree:
        """Return a tenant's shares; its parts of nodes of one chain are put together."""
        shares: list[Tree] = []
        parts: dict[str, int] = {}
        for share in tenant.get("virtualCells") or []:
            dotted = str(share["cellType"]).split(".")
            at = next(
                (i for i, kind in enumerate(dotted) if self._types[kind].get("isNodeLevel")),
                len(dotted) - 1,
            )
            if at == len(dotted) - 1:
                shares.append(share)
                continue
            path = ".".join(dotted[: at + 1])
            leaves = self._leaves(dotted[-1])[1] * share["cellNumber"]
            parts[path] = parts.get(path, 0) + leaves
        for path, leaves in parts.items():
            size = self._leaves(path.rpartition(".")[2])[1]
            count = -(-leaves // size)
            self._changes.append(f"{name} has {count} × {path} for {leaves} devices of it")
            shares.append({"cellType": path, "cellNumber": count})
        return {**tenant, "virtualCells": shares}


def _pins(cells: Sequence[Tree]) -> Iterator[str]:
    for cell in cells:
        if pin := (cell or {}).get("pinnedCellId"):
            yield pin
        yield from _pins((cell or {}).get("cellChildren") or [])


def _plain(value: object) -> object:
    """Return names as they were meant: one file went through a YAML in which `y` is true."""
    match value:
        case dict():
            inner = cast("Mapping[str, object]", value)
            names = {"cellType", "cellAddress", "childCellType"}
            return {
                word(key): word(cast("Any", item))
                if key in names and item is not None
                else _plain(item)
                for key, item in inner.items()
            }
        case list():
            return [_plain(item) for item in cast("Sequence[object]", value)]
        case _:
            return value


# ── nodes that are alike ────────────────────────────────────────────────────────────────


Names = dict[object, object]
"""Which node, or cell, of ours stands for which of HiveD's."""


class Likeness:
    """Whether what HiveD placed and what we placed are the same, but for nodes that are alike.

    Two nodes may stand for each other only if the cells around them do, and what is on them
    now. A node that is empty and well is like any other in cells like its own.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cells = {
            cluster.nodes[spot.node].name: tuple(
                (spot.chain, level, spot.at // size)
                for level, size in enumerate(cluster.chains[spot.chain].sizes)
                if level >= cluster.chains[spot.chain].node_level
            )
            for spot in cluster.spots.values()
        }
        self._fixed = set[tuple[str, int, int]]()
        for chain, level, number in cluster.pinned.values():
            sizes, node = cluster.chains[chain].sizes, cluster.chains[chain].node_level
            for above in range(max(level, node), len(sizes)):
                self._fixed.add((chain, above, number * sizes[level] // sizes[above]))

    def ours(self, node: str, held: Sequence[Both]) -> str:
        """Return which node of ours stands for one of HiveD's: itself, if that may be."""
        for name in (node, *sorted(self._cells)):
            if self.agree([*held, ([(node, 0)], [(name, 0)])]):
                return name
        raise AssertionError(f"nothing stands for {node}")

    def agree(self, held: Sequence[Both]) -> bool:
        """Whether all of these placements are the same but for nodes that are alike."""
        return self._match(list(held), {}, {})

    def spread(self, nodes: Sequence[str]) -> tuple[int, int]:
        """Return how high the smallest cell is in which all of these lie, and their number."""
        columns = zip(*(self._cells.get(node, ()) for node in nodes), strict=False)
        heights = [at for at, cells in enumerate(columns) if len({*cells}) == 1]
        return min(heights, default=99), len({*nodes})

    def _match(self, held: list[Both], forth: Names, back: Names) -> bool:
        while held and not held[0][0] and not held[0][1]:
            held = held[1:]
        if not held:
            return True
        (theirs, ours), *rest = held
        if len(theirs) != len(ours):
            return False
        (node, size), *others = sorted(theirs)
        tried: set[str] = set()
        # Itself first: then names differ only where they have to.
        for at, (name, count) in sorted(enumerate(ours), key=lambda each: each[1][0] != node):
            if count != size or name in tried:
                continue
            tried.add(name)
            joined = self._join(node, name, forth, back)
            left = [*ours[:at], *ours[at + 1 :]]
            if joined is not None and self._match([(others, left), *rest], *joined):
                return True
        return False

    def _join(
        self, node: str, name: str, forth: Names, back: Names
    ) -> tuple[Names, Names] | None:
        """Return what is known once a node stands for another; None where it cannot."""
        mine, other = self._cells.get(node, ()), self._cells.get(name, ())
        if len(mine) != len(other) or (mine and mine[0][0] != other[0][0]):
            return None
        forth, back = dict(forth), dict(back)
        for here, there in ((node, name), *zip(mine, other, strict=True)):
            if forth.setdefault(here, there) != there or back.setdefault(there, here) != here:
                return None
            if here != there and (here in self._fixed or there in self._fixed):
                return None
        return forth, back

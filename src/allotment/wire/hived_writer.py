"""Our configuration out of HiveD's, and where each part of it stands there."""

from collections.abc import Iterator, Mapping

from allotment.model.cells import CellType
from allotment.wire.amounts import write_size
from allotment.wire.cells_types import circles
from allotment.wire.hived_cells import LaidRoot, laid_out
from allotment.wire.hived_names import Names
from allotment.wire.hived_nodes import (
    HivedNode,
    Share,
    leaf_word,
    machines_of,
    node_to_wire,
    together,
)
from allotment.wire.hived_shape import HivedConfig
from allotment.wire.problems import Finding
from allotment.wire.tree import Place, Plain

MOST_LEVELS = 24
Written = dict[str, Plain]


class Writer:
    """One file: what it comes to, and where each part of ours stands in it."""

    def __init__(self, shape: HivedConfig, share: Share) -> None:
        self._shape = shape
        self._share = share
        self.errors: list[Finding] = []
        self.warnings: list[Finding] = []
        self._places: dict[Place, Place] = {}
        self._names = Names(self.warnings)
        self._roots: list[LaidRoot] = []
        self._lay()

    def place_of(self, ours: Place) -> Place:
        """Return the place in HiveD's file behind one in ours; () if there is none."""
        for length in range(len(ours), 0, -1):
            if ours[:length] in self._places:
                return self._places[ours[:length]]
        return ()

    def _lay(self) -> None:
        cluster = self._shape.cluster
        types = {
            name: CellType(name, kind.child, kind.count, kind.is_node)
            for name, kind in cluster.types.items()
        }
        for place, message, hint in circles(types):
            where = ("physicalCluster", "cellTypes", place[2], "childCellType")
            self.errors.append((where, message, hint))
        if not self.errors:
            self.errors += _too_deep(types)
        if self.errors:
            return
        for at, cell in enumerate(cluster.cells):
            root = laid_out(cell, at, cluster.types)
            self._roots.append(root)
            self.errors += root.errors
        if not self._shape.tenants:
            self.errors.append((("virtualClusters",), "has none", "name at least one"))

    # ── to ours ─────────────────────────────────────────────────────────────────────────

    def write(self) -> Written:
        """Return our configuration."""
        skus = self._shape.cluster.skus
        machines, warnings = machines_of(self._roots, skus)
        self.warnings += [*warnings, *self._assumed(machines)]
        names = {
            name: self._names.of("node", name, one.place) for name, one in machines.items()
        }
        nodes = together(
            node_to_wire(names[name], machine, skus, self._share)
            for name, machine in machines.items()
        )
        roots: list[Plain] = [self._root(at, machines) for at in range(len(self._roots))]
        cells: Written = {"types": self._types(), "roots": roots}
        pins = self._pins(machines)
        if pins:
            cells["pins"] = pins
        return {"nodes": nodes, "cells": cells, "tenants": self._tenants()}

    def _types(self) -> Written:
        types: Written = {}
        for name, kind in self._shape.cluster.types.items():
            place: Place = ("physicalCluster", "cellTypes", name)
            ours = self._names.of("type", name, place)
            inner = kind.child in self._shape.cluster.types
            child = (
                self._names.of("type", kind.child, place)
                if inner
                else leaf_word(kind.child, self._shape.cluster.skus)
            )
            written: Written = {"of": child, "count": kind.count}
            types[ours] = written | ({"node": True} if kind.is_node else {})
            self._places["cells", "types", ours] = place
            self._places["cells", "types", ours, "of"] = (*place, "childCellType")
            self._places["cells", "types", ours, "count"] = (*place, "childCellNumber")
        return types

    def _root(self, at: int, machines: Mapping[str, HivedNode]) -> Written:
        root = self._roots[at]
        place: Place = ("physicalCluster", "physicalCells", at)
        self._places["cells", "roots", at] = place
        self._places["cells", "roots", at, "type"] = (*place, "cellType")
        for number, node in enumerate(root.nodes):
            self._places["cells", "roots", at, "nodes", number] = node.place
        rows = [
            [machines[node.name].index_of.get((root.leaf, leaf), leaf) for leaf in node.leaves]
            for node in root.nodes
        ]
        usual = all(row == list(range(len(row))) for row in rows)
        hosts = leaf_word(root.leaf, self._shape.cluster.skus) != root.leaf
        address = root.address.rpartition("/")[2]
        devices: Written = {} if usual or hosts else {"devices": [[*row] for row in rows]}
        return {
            "type": self._names.of("type", root.type, place),
            "name": self._names.of("root", f"{root.type}/{address}", place, address),
            "nodes": [self._names.of("node", node.name, node.place) for node in root.nodes],
            **devices,
        }

    def _pins(self, machines: Mapping[str, HivedNode]) -> list[Plain]:
        """Write the pinned cells that a tenant owns; others are ordinary cells."""
        owned = {pin.id for tenant in self._shape.tenants.values() for pin in tenant.pins}
        pins: list[Plain] = []
        for root in self._roots:
            for pin in root.pins:
                if pin.id not in owned:
                    message = (
                        f"{pin.id} belongs to no virtual cluster: it becomes an ordinary cell"
                    )
                    self.warnings.append((pin.place, message, ""))
                    continue
                self._places["cells", "pins", len(pins)] = pin.place
                leaves = next(node.leaves for node in root.nodes if node.name == pin.node)
                indexes = machines[pin.node].index_of
                known = pin.type in self._shape.cluster.types
                kind = self._names.of("type", pin.type, pin.place) if known else pin.type
                pins.append(
                    {
                        "id": self._names.of("pin", pin.id, pin.place),
                        "type": kind if known else leaf_word(kind, self._shape.cluster.skus),
                        "node": self._names.of("node", pin.node, pin.place),
                        "device": indexes.get((root.leaf, leaves[pin.leaf]), pin.leaf),
                    }
                )
        return pins

    def _tenants(self) -> Written:
        """Write the virtual clusters.

        As in HiveD jobs pass those that wait, and take the place of less urgent ones.
        """
        strict = self._shape.block_ms not in ("", "0")
        queues: Plain = {"default": {"order": "strict" if strict else "skip"}}
        tenants: Written = {}
        for name, tenant in self._shape.tenants.items():
            place: Place = ("virtualClusters", name)
            ours = self._names.of("tenant", name, place)
            cells: dict[str, int] = {}
            for at, share in enumerate(tenant.cells):
                where: Place = (*place, "virtualCells", at, "cellType")
                key = self._share_key(share.type, where)
                if key:
                    cells[key] = cells.get(key, 0) + share.count
                    self._places.setdefault(("tenants", ours, "cells", key), where)
            pins: list[Plain] = []
            for at, pin in enumerate(tenant.pins):
                where = (*place, "pinnedCells", at, "pinnedCellId")
                self._places["tenants", ours, "pins", at] = where
                pins.append(self._names.of("pin", pin.id, where))
            written: Written = {"cells": dict(cells)} if cells else {}
            if pins:
                written["pins"] = pins
            tenants[ours] = written | {"preempt": "evict", "queues": queues}
        return tenants

    def _share_key(self, dotted: str, place: Place) -> str:
        """Turn `RACK.NODE` into ours; the chain is left out where one only has the type."""
        types = self._shape.cluster.types
        top, _, _ = dotted.partition(".")
        kind = dotted.rpartition(".")[2]
        chains: dict[str, list[str]] = {}
        for root in self._roots:
            names = [root.type]
            while names[-1] in types:
                names.append(types[names[-1]].child)
            chains[root.type] = names
        if top not in chains:
            known = f"such as {', '.join(list(chains)[:6])}"
            self.errors.append((place, f"there is no physical cell of type {top}", known))
            return ""
        if kind not in chains[top]:
            below = f"a {top} is made of {', '.join(chains[top][1:])}"
            self.errors.append((place, f"there is no {kind} in a {top}", below))
            return ""
        word = self._names.of("type", kind, place) if kind in types else kind
        word = word if kind in types else leaf_word(kind, self._shape.cluster.skus)
        leaf = leaf_word(kind, self._shape.cluster.skus)
        alike = [
            names
            for names in chains.values()
            if kind in names or leaf_word(names[-1], self._shape.cluster.skus) == leaf
        ]
        return word if len(alike) == 1 else f"{self._names.of('type', top, place)}/{word}"

    def _assumed(self, machines: Mapping[str, HivedNode]) -> Iterator[Finding]:
        kinds = {kind for m in machines.values() for kind in (*m.devices, *m.cores)}
        skus = self._shape.cluster.skus
        without = sorted(kind for kind in kinds if kind not in skus)
        if without:
            cpus, memory = self._share.cpu_milli // 1000, write_size(self._share.memory)
            message = (
                f"nothing says what goes with a {', '.join(without)}: "
                f"{cpus} CPUs and {memory} are assumed for each"
            )
            yield ("physicalCluster",), message, "see --cpus and --memory, or edit `nodes`"


def _too_deep(types: Mapping[str, CellType]) -> Iterator[Finding]:
    for name in types:
        depth, at = 0, name
        while at in types:
            depth, at = depth + 1, types[at].child
        if depth > MOST_LEVELS:
            place = ("physicalCluster", "cellTypes", name)
            yield place, f"lies {depth} levels deep, and {MOST_LEVELS} are accepted", ""
            return

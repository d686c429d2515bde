"""What is new of a cluster's nodes → reports, and the nodes that are found."""

from collections.abc import Callable, Mapping, Sequence
from math import inf

import structlog

from allotment.backends.kubernetes.cluster import Cluster, News
from allotment.backends.kubernetes.discover import (
    all_used,
    as_found,
    is_silent,
    joined,
    others_of,
    report_of,
)
from allotment.backends.kubernetes.modes import mode_on
from allotment.backends.kubernetes.objects import KubeNode
from allotment.backends.kubernetes.silent_nodes import SilentNodes
from allotment.backends.kubernetes.visible import IsVisible
from allotment.model.cells import CellType, Topology
from allotment.model.cells_by_label import settled
from allotment.model.cluster import Node
from allotment.model.ids import NodeId
from allotment.model.others import Others
from allotment.model.reports import NodeReport, OthersReport
from allotment.service.ports import Report

log = structlog.get_logger("allot.kubernetes")

SETTLE_S = 10.0
"""For so long the labels of a node must stay as they are before a cell in force changes."""
MIXED = "its mode was changed, and tasks still have some of them in the old mode"
At = tuple[NodeId, str]
"""Id and name of a node: the id of one that left is given again."""


class NodeNews:
    """Tells `sink` of the nodes in force, which are `nodes`."""

    def __init__(
        self,
        cluster: Cluster,
        silent: SilentNodes,
        nodes: Callable[[], Sequence[Node]],
        sink: Callable[[Report], None],
        is_visible: IsVisible,
        topology: Callable[[], Topology] = Topology,
    ) -> None:
        self._cluster, self._silent, self._is_visible = cluster, silent, is_visible
        self._nodes, self._sink, self._topology = nodes, sink, topology
        self._types: tuple[CellType, ...] = ()
        self._labels: dict[str, tuple[object, float]] = {}
        """The labels of each node, and since when it has them."""
        self._moves_until = inf
        """When the next node has had its labels for long enough."""
        self._contradict: Mapping[str, str] = {}
        """The nodes whose labels contradict the cells, and how."""
        self.too_old = ""
        """Why nothing new is to run anywhere: Kubernetes itself is too old."""
        self.found: tuple[Node, ...] = ()
        self._told: dict[At, NodeReport] = {}
        self._told_others: dict[At, Others] = {}
        self._looked_at: tuple[Node, ...] = ()
        """The nodes in force of which all is told that is known."""

    @property
    def is_anew(self) -> bool:
        """Whether other nodes or types of cells are in force than were told of."""
        return tuple(self._nodes()) != self._looked_at or self._topology().types != self._types

    def is_due(self, now: float) -> bool:
        """Whether there is something to tell that no watch tells of."""
        return self.is_anew or now >= self._moves_until or bool(self._cluster.short.late(now))

    def look(self, now: float) -> None:
        """Report what is new of nodes: all of it where other nodes are in force than before."""
        cluster = self._cluster
        if not cluster.nodes_known or cluster.node_watch.refused:
            return
        if not cluster.devices.listed.is_set():  # what has names would seem to be gone
            return
        nodes = tuple(self._nodes())
        news, cluster.news = cluster.news, News()
        late = cluster.short.late(now)
        cluster.short.forget(late)
        news.nodes.update(late)
        is_anew, self._types = self.is_anew, self._topology().types
        if news.nodes or is_anew or now >= self._moves_until:
            there = list(cluster.nodes.values())
            found = joined(
                nodes, there, cluster.inventory.on, self._is_visible, cluster.own_labels
            )
            news.nodes |= self._settle(nodes, found, self._moving(nodes, found, now))
        if is_anew:
            self._forget_all_but({(node.id, node.name) for node in nodes})
        self._looked_at = nodes
        for node in nodes:
            if is_anew or node.name in news.nodes or node.name in news.use:
                self._tell_of(node)

    def _moving(self, nodes: Sequence[Node], found: Sequence[Node], now: float) -> set[str]:
        """Return the nodes whose labels changed a moment ago, as those of others may next. One
        that is seen for the first time had those that are in force, if it is."""
        before = {node.name: (node.labels, -inf) for node in nodes} | self._labels
        self._labels = {}
        for node in found:
            labels, since = before.get(node.name, (node.labels, -inf))
            self._labels[node.name] = node.labels, since if labels == node.labels else now
        ends = {name: since + SETTLE_S for name, (_, since) in self._labels.items()}
        moving = {name for name, end in ends.items() if now < end}
        self._moves_until = min((ends[name] for name in moving), default=inf)
        return moving

    def _settle(
        self, nodes: Sequence[Node], found: tuple[Node, ...], moving: set[str]
    ) -> set[str]:
        """Take the nodes that were found, but for labels that contradict the cells; return the
        nodes of which that is news."""
        what = settled(self._types, [as_found(node) for node in nodes], found, moving)
        changed = {name for name, _ in what.contradict.items() ^ self._contradict.items()}
        self._contradict = what.contradict
        if what.nodes != self.found:
            self.found = what.nodes
        return changed

    def tell_closed_again(self) -> None:
        """Report nodes again that were closed, as one of them may not be any more."""
        self._told = {at: told for at, told in self._told.items() if not told.closed}
        self._looked_at = ()

    def _forget_all_but(self, there: set[At]) -> None:
        self._told = {at: told for at, told in self._told.items() if at in there}
        self._told_others = {at: told for at, told in self._told_others.items() if at in there}

    def _tell_of(self, node: Node) -> None:
        found = self._cluster.nodes.get(node.name)
        self._silent.note(node.name, is_silent=found is not None and is_silent(found))
        named = self._cluster.inventory.on(node.name)
        short = self._cluster.short.why(node.name)
        amiss = self.too_old or short or self._contradict.get(node.name, "")
        told = report_of(node, found, named, amiss, self._cluster.service)
        if self._told.get((node.id, node.name)) != told:
            self._told[node.id, node.name] = told
            self._sink(told)
        if found is not None:
            self._tell_others(node, found)

    def _tell_others(self, node: Node, found: KubeNode) -> None:
        cluster, is_visible = self._cluster, self._is_visible(node.name)
        named = cluster.inventory.on(node.name)
        others = others_of(
            node,
            found,
            cluster.others_on(node.name),
            named,
            cluster.is_of_others,
            cluster.picked_on(node.name) if is_visible else None,
        )
        mode = mode_on(node, is_named=bool(named), is_visible=is_visible)
        is_mixed = cluster.modes.is_mixed(node.name, mode)
        if is_mixed:
            others = all_used(node, others)
        if self._told_others.get((node.id, node.name)) != others:
            if is_mixed:
                log.warning("no devices of a node are given out", node=node.name, why=MIXED)
            self._told_others[node.id, node.name] = others
            self._sink(OthersReport(node.id, others))

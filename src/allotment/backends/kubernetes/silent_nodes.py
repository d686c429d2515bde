"""Nodes that do not report: since when, and what is certain of what they ran."""

from math import inf
from time import monotonic

from allotment.backends.contact import Contact
from allotment.backends.kubernetes.cluster import Cluster
from allotment.model.quantity import Millis
from allotment.service.ports import Silence

BACK_S = 30.0
"""After a node reports again, or a pod was taken away under its kubelet: what the node still
ran of pods that are gone, it has ended by then."""


class SilentNodes:
    """Nodes of which the state is not known. After `force_after_ms` one is taken for dead;
    0: never. While Kubernetes itself is away no node can report to it: that does not count."""

    def __init__(self, cluster: Cluster, contact: Contact, force_after_ms: Millis) -> None:
        self._cluster, self._contact = cluster, contact
        self._force_s = force_after_ms / 1000
        self.since: dict[str, float] = {}
        """Since when a node has been silent."""
        self._away_s: dict[str, float] = {}
        """For how long Kubernetes had been away before."""
        self._back: dict[str, float] = {}
        """When a node that was silent reported again."""

    def note(self, node: str, *, is_silent: bool) -> None:
        """Note whether a node is silent now."""
        if is_silent:
            self._back.pop(node, None)
            self.since.setdefault(node, monotonic())
            self._away_s.setdefault(node, self._contact.away_s)
        elif self.since.pop(node, None) is not None:
            self._away_s.pop(node, None)
            self._back[node] = monotonic()

    def is_certain(self, node: str, gone_at: float = -inf) -> bool:
        """Whether what is gone in Kubernetes does not run on a node any more.

        It does not where the node is gone itself, or has reported for a while since it came
        back, and since `gone_at`; or where the rule of its engine says that it has been silent
        for long enough.
        """
        if node not in self._cluster.nodes:
            return self._cluster.nodes_known
        if node in self.since:
            return self.is_given_up(node)
        return monotonic() - max(self._back.get(node, -inf), gone_at) >= BACK_S

    def is_given_up(self, node: str) -> bool:
        """Whether a node is taken for dead: it has been silent for as long as the rule says."""
        since = self.since.get(node)
        if since is None or self._force_s <= 0:
            return False
        away_s = self._contact.away_s - self._away_s[node]
        return monotonic() - since - away_s >= self._force_s

    def silence(self, node: str) -> Silence | None:
        """Return for how long a node has been silent; None where it is not."""
        since = self.since.get(node)
        if since is None:
            return None
        for_ms = Millis(int((monotonic() - since) * 1000))
        return Silence(f"Kubernetes node {node}", for_ms, "its kubelet does not report")

"""Nodes that are short of memory, disk or process numbers, as their pods tell it first.

A kubelet says at once that it evicted a pod, and only with its next report, 10 s later by
default, that its node is short of something. Until then a job would be put there again.
"""

REPORTED_S = 30.0
"""After which a node that is still short of something has said so itself."""


class ShortNodes:
    """Knows which nodes evicted a pod of ours a moment ago."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[float, str]] = {}

    def note(self, node: str, what: str, now: float) -> None:
        """Note that a node evicted a pod, as it is short of something."""
        self._told[node] = now, what

    def why(self, node: str) -> str:
        """Return why nothing new is to run on a node; '' where nothing speaks against it."""
        told = self._told.get(node)
        return f"short of {told[1]}: its kubelet evicted a task just now" if told else ""

    def late(self, now: float) -> list[str]:
        """Return the nodes that would have said it themselves by now."""
        return [node for node, (at, _) in self._told.items() if now - at >= REPORTED_S]

    def forget(self, nodes: list[str]) -> None:
        """Believe again what nodes say of themselves."""
        for node in nodes:
            del self._told[node]

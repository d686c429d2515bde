"""What tells all pods of a service that it is there: one small object, written now and then.

Kubelets bring it into the pods. Each beat names the nodes that are silent, and on these it does
not count. So tasks there have ended at the latest when, after the first beat that named their
node, their time has run out, with some for the way.
"""

from collections.abc import Collection, Mapping, Set
from time import monotonic, time_ns

import structlog

from allotment.backends.kubernetes.client import LATE_S, Client
from allotment.backends.kubernetes.runner import BEAT
from allotment.backends.kubernetes.spaces import HOME
from allotment.model.errors import BackendError, EngineAway

log = structlog.get_logger("allot.kubernetes")

MARGIN_S = 150.0
"""How much later than their time tasks may end: a kubelet hands on what it heard within 90 s, a
guard looks each 5 s, and ends by force 10 s after a warning."""
BEATS = 10
"""How many a task hears in its time, if it hears all."""
LONGEST_S = 60.0
TRUSTED = 3
"""How many beats may be missing before no task is started that would soon end itself."""


class Beats:
    """Writes beats into the ConfigMap `name`, and knows which nodes they leave out."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self.name = client, name
        self._every_s = LONGEST_S
        self._next_at = self._written_at = 0.0
        self._trouble = "none has been written yet"
        self._left_out: dict[str, float] = {}
        """Nodes on which no beat has counted since."""
        self._late_until = monotonic() + LATE_S
        """Until when a beat that was not answered may still be carried out, over one that names
        more nodes: also one of the service before us."""

    @property
    def is_due(self) -> bool:
        return monotonic() >= self._next_at

    @property
    def left_out(self) -> Set[str]:
        """Return the nodes that the last beat names."""
        return self._left_out.keys()

    async def write(self, fence_s: float, silent: Collection[str]) -> None:
        """Write a beat for tasks that end after so long. Raises nothing of Kubernetes'."""
        self._every_s = min(LONGEST_S, fence_s / BEATS)
        self._next_at = monotonic() + self._every_s
        for node in self._left_out.keys() - set(silent):
            del self._left_out[node]  # it may count from now on, whatever is answered
        text = f"{time_ns()}\n{' '.join(sorted(silent))}\n"
        try:
            await self._client.keep_map(self.name, {BEAT: text})
        except BackendError as error:
            if not self._trouble:
                log.warning("pods are not told that the service is there", why=str(error))
            self._trouble = str(error)
            self._next_at = monotonic() + self._every_s / BEATS
            self._late_until = monotonic() + LATE_S
            return
        self._trouble, self._written_at = "", monotonic()
        for node in silent:
            self._left_out.setdefault(node, max(self._written_at, self._late_until))

    def need(self, node: str) -> None:
        """Raise EngineAway where a task that is started there would end itself before long."""
        if node in self._left_out:
            raise EngineAway(f"pods on node {node} have not been told yet that it is back")
        is_late = monotonic() - self._written_at > TRUSTED * self._every_s
        if self._trouble and (is_late or not self._written_at):
            raise EngineAway(
                "pods cannot be told that the service is there (`fence_after`): "
                f"{self._trouble}"
            )

    def is_over(self, node: str, fence_s: float) -> bool:
        """Whether tasks on a node that end after so long have ended."""
        since = self._left_out.get(node)
        return since is not None and monotonic() - since >= fence_s + MARGIN_S


class BeatsIn:
    """The beats of each namespace in which tasks hear of us: a pod sees objects of its own one
    only. Who has his rights over one taken away holds up nobody elsewhere."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self.name = client, name
        self._beats = {HOME: Beats(client, name)}

    def within(self, namespace: str) -> Beats:
        """Return the beats of a namespace, HOME for that of the engine. They are written from
        then on."""
        found = self._beats.get(namespace)
        if found is None:
            found = Beats(self._client.within(namespace), self.name)
            self._beats[namespace] = found
        return found

    def all(self) -> Mapping[str, Beats]:
        """Return the beats that are written, by namespace."""
        return self._beats

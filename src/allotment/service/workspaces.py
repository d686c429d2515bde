"""Which workspace has the files of a job: that of the engine that its tasks are on."""

from collections.abc import Iterator, Mapping, Sequence

from allotment.engine.records import AttemptRecord, JobRecord
from allotment.engine.state import State
from allotment.model.cluster import Node
from allotment.model.engines import ANY_ENGINE
from allotment.model.ids import NodeId, TaskKey
from allotment.model.spec import JobSpec
from allotment.service.ports import Backend
from allotment.service.workspace import OwnDisks, Workspace


class Workspaces:
    """The workspaces of all engines. `own` is that of all that see the service's disk."""

    def __init__(self, state: State, backend: Backend, own: Workspace) -> None:
        self._state = state
        self._apart = backend if isinstance(backend, OwnDisks) else None
        self.own = own
        self._nodes: Mapping[NodeId, Node] = {}
        """Those of which `_one_of` holds the name of one for each engine."""
        self._one_of: dict[str, str] = {}

    def of(self, job: JobRecord, attempt: AttemptRecord | None = None) -> Workspace:
        """Return where the files of an attempt are: of the newest if none is named."""
        if self._apart is None or not job.attempts:
            return self.own
        node = self.nodes_of(attempt or job.attempts[-1])[0]
        return self._apart.workspace_of(node) or self.own

    def node_of(self, job: JobRecord) -> str:
        """Return the node on which a job reports; '' where the service sees its disk."""
        if self._apart is None:
            return ""
        node = self.nodes_of(job.attempts[-1])[0]
        return node if self._apart.workspace_of(node) is not None else ""

    def spread_of(self, attempt: AttemptRecord) -> tuple[str, ...]:
        """Return all nodes of an attempt; none where the service sees all disks."""
        return tuple(self.nodes_of(attempt)) if self._apart is not None else ()

    def nodes_of(self, attempt: AttemptRecord) -> list[str]:
        """Return the names of an attempt's nodes, that of its first task first."""
        nodes = self._state.cluster.nodes
        found = (nodes.get(slot.node) for slot in attempt.slots)
        return list(dict.fromkeys(node.name if node else "" for node in found))

    def parts(
        self, job: JobRecord, keys: Sequence[TaskKey]
    ) -> Iterator[tuple[Workspace, Sequence[str], Sequence[TaskKey]]]:
        """Return tasks of the newest attempt by the workspace and nodes that they are on."""
        attempt = job.attempts[-1]
        nodes = self._state.cluster.nodes
        found: dict[int, tuple[Workspace, dict[str, None], list[TaskKey]]] = {}
        for key in keys:
            node = nodes[attempt.slots[key.index].node].name
            theirs = self._apart.workspace_of(node) if self._apart is not None else None
            workspace = theirs or self.own
            part = found.setdefault(id(workspace), (workspace, {}, []))
            part[1][node] = None
            part[2].append(key)
        for workspace, names, own in found.values():
            yield workspace, tuple(names), own

    def is_seen(self, spec: JobSpec) -> bool:
        """Whether the service sees the disk of some node that a job may run on.

        The nodes of an engine are alike; of thousands, a submission looks at one of each.
        """
        if self._apart is None:
            return True
        nodes = self._state.cluster.nodes
        if nodes is not self._nodes:  # a cluster keeps its nodes; others come with another
            self._nodes = nodes
            self._one_of = {node.engine: node.name for node in nodes.values()}
        is_any = spec.engine in ("", ANY_ENGINE)
        return any(
            self._apart.workspace_of(name) is None
            for engine, name in self._one_of.items()
            if is_any or engine in ("", spec.engine)
        )

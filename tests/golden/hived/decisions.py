"""The recordings, one decision at a time: what HiveD knew, what was asked, what it said.

How its protocol maps to ours:

- A group of pods is a gang; HiveD is asked once for each pod, we are asked once for the gang.
  Asking for a further pod of a group that is placed has nothing to decide (`Again`).
- Filtering and Preempting ask the same question. The second also begins the preemption: it
  reserves, and cancels reservations of lower priority. So both are compared by the answer,
  and what Preempting reserved is in the state that is loaded next.
- A group that has a reservation and asks again keeps it, without those victims that are gone.
- Suggested nodes are those that a gang may use; where it ignores them, all.
- `set_bad_node` is a node all of whose devices are bad. After a start all nodes are.
- A second `init` is a restart, or a new configuration: what ran is reported, and taken up.
"""

from collections.abc import Iterator

import msgspec

from allotment.model.ids import NodeId
from tests.golden.hived import recording as hived
from tests.golden.hived.cluster import Cluster, cluster_of
from tests.golden.hived.loading import Memory, book_of, report_of, tasks_of
from tests.golden.hived.words import (
    Answer,
    Ask,
    Book,
    Broke,
    Held,
    Placed,
    Refused,
    Waits,
)

LOWEST, HIGHEST = -1, 1000
"""Priorities that HiveD takes; the lowest is opportunistic."""


class Open(msgspec.Struct, frozen=True):
    """Is this configuration taken? `refused` is why HiveD did not, empty if it did."""

    scenario: str
    op: int
    cluster: Cluster
    refused: str = ""


class Place(msgspec.Struct, frozen=True):
    """Where does this gang go? `malformed` says what is wrong with the spec by itself."""

    scenario: str
    op: int
    cluster: Cluster
    book: Book
    ask: Ask
    answer: Answer
    malformed: str = ""


class Again(msgspec.Struct, frozen=True):
    """A further pod of a gang that is placed already: there is nothing to decide."""

    scenario: str
    op: int
    cluster: Cluster
    book: Book
    gang: str
    answer: Answer


class Recover(msgspec.Struct, frozen=True):
    """What ran before a restart is reported to a new start. Who keeps its guarantee?

    `reported` is each gang as it was bound, in the order of the reports, with the leaves that
    still exist; `kept` are those that HiveD still guaranteed when all were reported.
    """

    scenario: str
    op: int
    cluster: Cluster
    reported: tuple[Held, ...]
    bad: frozenset[NodeId]
    kept: frozenset[str]


Decision = Open | Place | Again | Recover


def decisions(scenario: hived.Scenario) -> Iterator[Decision]:
    """Return every decision of a scenario, in order."""
    return _Walk(scenario).decisions()


def malformed(spec: hived.Spec) -> str:
    """Return what is wrong with a spec, whatever the cluster; empty if nothing is."""
    if not spec.virtual_cluster:
        return "no tenant"
    if not LOWEST <= spec.priority <= HIGHEST:
        return f"priority {spec.priority}"
    if spec.leaf_cell_number <= 0:
        return f"{spec.leaf_cell_number} devices"
    if spec.affinity_group is None:
        return ""
    members = spec.affinity_group.members
    if any(m.pod_number <= 0 or m.leaf_cell_number <= 0 for m in members):
        return "a member of no pods or no devices"
    if all(m.leaf_cell_number != spec.leaf_cell_number for m in members):
        return f"no member of {spec.leaf_cell_number} devices"
    return ""


class _Walk:
    """Follows a scenario, keeping what no state tells."""

    def __init__(self, scenario: hived.Scenario) -> None:
        self.scenario = scenario
        self.memory = Memory()
        self.state: hived.State | None = None
        self.starts = 0
        self.reports: dict[str, None] = {}
        """Groups reported since the last start, in that order."""
        self.live: set[str] = set()
        """Pods that were bound since the last start: adding them is no report."""

    def decisions(self) -> Iterator[Decision]:
        ops = self.scenario.ops
        for number, op in enumerate(ops):
            yield from self._before(number, op)
            if op.state is not None:
                self.state = op.state
            follows = ops[number + 1] if number + 1 < len(ops) else None
            if self.reports and not isinstance(follows, hived.Add | hived.AllHealthy):
                yield self._recovery(number)
                self.reports.clear()

    def _before(self, number: int, op: hived.Op) -> Iterator[Decision]:
        match op:
            case hived.Init():
                yield self._start(number, op)
            case hived.AllHealthy():
                self.memory.bad.clear()
            case hived.Healthy():
                self.memory.bad.discard(self.memory.node(op.node))
            case hived.Bad():
                self.memory.bad.add(self.memory.node(op.node))
            case hived.Schedule():
                yield self._schedule(number, op)
            case hived.Add():
                if self.starts > 1 and op.pod_uid not in self.live:
                    self.reports[self.memory.group_of[op.pod_uid]] = None
            case hived.Delete() | hived.Forget():
                pass

    def _start(self, number: int, op: hived.Init) -> Open:
        self.memory.cluster = cluster_of(op.config)
        self.memory.bad = {node.id for node in self.memory.cluster.nodes}
        self.starts += 1
        self.live.clear()
        refused = op.outcome.message if isinstance(op.outcome, hived.Panic) else ""
        return Open(self.scenario.name, number, self.memory.cluster, refused)

    # ── asking ──────────────────────────────────────────────────────────────────────────

    def _schedule(self, number: int, op: hived.Schedule) -> Decision:
        name, spec = self.scenario.name, op.pod.spec
        group = spec.affinity_group.name if spec.affinity_group else f"test/{op.pod.name}"
        wrong = malformed(spec)
        book = book_of(self.memory, self.state)
        known = self.state.groups.get(group) if self.state else None
        if known is None and not wrong:
            self.memory.specs[group] = spec
        answer = self._answer(group, op)
        if isinstance(op.outcome, hived.Bind):
            self.memory.group_of[op.pod.uid] = group
            self.live.add(op.pod.uid)
            self.memory.bound[group] = op.outcome
        if not wrong and known is not None and known.state != "Preempting":
            return Again(name, number, self.memory.cluster, book, group, answer)
        ask = self._ask(group, op)
        return Place(name, number, self.memory.cluster, book, ask, answer, wrong)

    def _ask(self, group: str, op: hived.Schedule) -> Ask:
        spec = op.pod.spec
        if spec.affinity_group is None:
            sizes = [spec.leaf_cell_number]
        else:
            sizes = [
                member.leaf_cell_number
                for member in spec.affinity_group.members
                for _ in range(member.pod_number)
            ]
        nodes = None
        if not spec.ignore_k8s_suggested_nodes and op.suggested_nodes is not None:
            nodes = frozenset(self.memory.node(name) for name in op.suggested_nodes)
        return Ask(
            gang=group,
            tenant=spec.virtual_cluster or "",
            priority=spec.priority,
            sizes=tuple(sorted(sizes)),
            types=(spec.leaf_cell_type,) if spec.leaf_cell_type else (),
            pin=spec.pinned_cell_id,
            nodes=nodes,
            lazy=spec.lazy_preemption_enable,
            reserve=op.phase == "Preempting",
        )

    def _answer(self, group: str, op: hived.Schedule) -> Answer:
        match op.outcome:
            case hived.Bind() as bind:
                return Placed(
                    tasks_of(self.memory, bind.group_bind_info), demoted=self._demoted(op)
                )
            case hived.Preempt() as preempt:
                members = [member.pods for member in preempt.group_physical_placement]
                tasks = tasks_of(self.memory, members, preempt.virtual_placement)
                pods = [pod for pods in preempt.victims_by_node.values() for pod in pods]
                victims = tuple(sorted({self.memory.group_of[pod] for pod in pods}))
                return Placed(tasks, victims, self._demoted(op))
            case hived.Wait(reason):
                return Waits(reason)
            case hived.UserError(_, message):
                return Refused(message)
            case hived.Panic(message):
                return Broke(message)
            case hived.Done():
                raise AssertionError(f"{group}: scheduled without an answer")

    def _demoted(self, op: hived.Schedule) -> tuple[str, ...]:
        """Name the groups that lost their guarantee by this operation."""
        if self.state is None or op.state is None:
            return ()
        before = self.state.groups
        return tuple(
            name
            for name, group in op.state.groups.items()
            if name in before
            and before[name].has_virtual_placement
            and not group.has_virtual_placement
        )

    # ── restart ─────────────────────────────────────────────────────────────────────────

    def _recovery(self, number: int) -> Recover:
        assert self.state is not None
        reported = tuple(report_of(self.memory, name) for name in self.reports)
        groups = self.state.groups
        kept = frozenset(
            held.gang
            for held in reported
            if held.tasks and groups[held.gang].has_virtual_placement
        )
        name, bad = self.scenario.name, frozenset(self.memory.bad)
        return Recover(name, number, self.memory.cluster, reported, bad, kept)

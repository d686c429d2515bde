"""HiveD's recorded scenarios as pods of a real Kubernetes: the same nodes for the same pods.

The nodes of a scenario are registered with a real API server, its pods are made with HiveD's
own annotation and scheduler name, and the service binds them. There are no kubelets: what they
would do, the test does. A scenario is followed from its start to its end, so each decision
rests on all before it; `tests/golden/hived` puts the same decisions one by one to the core.

    ALLOT_VECTORS=ut_01 pytest -s tests/integration/kubernetes/test_hived_vectors.py
"""

import json
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError

import msgspec
import pytest

from allotment.model.errors import BadInput
from allotment.wire.config_text import config_text
from allotment.wire.hived_config import read_hived
from tests.conftest import SHARED
from tests.golden.hived import recording as hived
from tests.golden.hived.cluster import cluster_of
from tests.golden.hived.door import Both, Likeness, Spot, whole_nodes
from tests.golden.hived.replay import UNSOUND
from tests.support.cluster import RealCluster, until
from tests.support.kubernetes import IMAGE, MARKS, Kubernetes, skip_without

VECTORS = "hived-vectors/scenarios.tar.zst"
pytestmark = [*MARKS, pytest.mark.needs_shared(VECTORS)]

PART = os.environ.get("ALLOT_VECTORS", "ft_0")
"""Of the names of the scenarios to follow; `make nightly` follows all of them: `_`."""
HERE = "test"
"""The namespace of the recorded pods."""
PODS = f"/api/v1/namespaces/{HERE}/pods"
HIVED = "hivedscheduler.microsoft.com/pod-scheduling-spec"
REFUSALS = frozenset(
    {"HiveDSpec", "NotAllowed", "NeverFits", "BadName", "BadSpec", "GangComplete"}
)
"""What the condition of a pod says that is never placed as it is."""
LIVE = frozenset({"queued", "starting", "running", "stopping"})
STABLE_S = 0.4
"""For so long a gang waits for the same reason before that is the answer."""
MERGE = "application/strategic-merge-patch+json"
Tree = dict[str, Any]


class Verdict(NamedTuple):
    """What came of one decision."""

    scenario: str
    op: int
    kind: str
    """What HiveD did."""
    outcome: str
    detail: str = ""


SAME, ALIKE, GOOD, BETTER, DIFFERENT, UNSAID, AFTER = (
    "same", "same but for nodes that are alike", "others that are as good", "better",
    "different", "cannot be said", "not reached",
)  # fmt: skip


CANNOT_BE_SAID = ("which nodes another scheduler suggests", "a preemption that is not wanted")
STARTS = "what was reserved starts once its victims are gone: HiveD waits to be asked"
KNOWN = {
    ("ed_07_filter_bind_over_reserved_cells", 9): STARTS,
    ("ed_08_preempting_phase_over_reserved_cells", 9): STARTS,
    ("ut_04_stateful_preemption", 10): STARTS,
    (
        "ft_11_reconfig_delete_node",
        12,
    ): "the configuration took a node from under the gang that "
    "HiveD preempts: here it is over by then, and its share is free",
    ("ed_14_user_errors", 18): "a group of one pod is no gang: each pod that names it is alone",
}
"""Where ours goes another way, and why."""


class Apart(Exception):
    """Ours went another way: what follows rests on another past."""


class Bound(NamedTuple):
    spots: tuple[Spot, ...]


class Waiting(NamedTuple):
    reason: str


class Preempting(NamedTuple):
    victims: frozenset[str]


class Refused(NamedTuple):
    why: str


Answer = Bound | Waiting | Preempting | Refused


class Group(msgspec.Struct):
    """Pods that were made for one group of HiveD's."""

    job: str
    """What the service calls it."""
    pods: list[str]
    asked: set[str] = msgspec.field(default_factory=set[str])
    """Uids of the recorded pods that wait for a preemption."""
    added: set[str] = msgspec.field(default_factory=set[str])
    """Uids of the recorded pods that HiveD bound, and that are there."""
    is_bound: bool = False
    spots: Both = ((), ())


class Service(RealCluster):
    """A service that places the recorded pods."""

    def __init__(self, state: Path) -> None:
        state.mkdir()
        super().__init__(state, "")

    def newest(self, name: str) -> Tree:
        """Return the newest job of a name; {} for none."""
        rows = [row for row in self.get("/v1/jobs?limit=200")["items"] if row["name"] == name]
        return max(rows, key=lambda row: row["id"], default={})


class Follower:
    """Plays one scenario on a cluster, and compares each decision."""

    def __init__(
        self, kubernetes: Kubernetes, folder: Path, name: str, ops: list[hived.Op],
        written: list[Tree],
    ) -> None:  # fmt: skip
        self.kubernetes, self.service = kubernetes, Service(folder / "state")
        self.name, self.ops, self.written = name, ops, written
        self.verdicts: list[Verdict] = []
        self.groups: dict[str, Group] = {}
        self.group_of: dict[str, str] = {}
        """By the uid of a recorded pod."""
        self.starts = 0
        self.rounded: tuple[str, ...] = ()
        self.left_before = frozenset[str]()
        """The groups that were told to go before the last question."""
        self.likeness: Likeness
        self.healthy: dict[str, bool] = {}
        """By node of ours."""
        self.broken: dict[str, str] = {}
        """Nodes of ours by those of HiveD's for which they are broken."""

    # ── following ───────────────────────────────────────────────────────────────────────

    def follow(self) -> list[Verdict]:
        """Play all of it; where ours went another way, what is left is counted as such."""
        for at, op in enumerate(self.ops):
            try:
                self._do(at, op)
            except Apart:
                self._rest(at + 1)
                break
        return self.verdicts

    def _rest(self, first: int) -> None:
        for at, op in enumerate(self.ops[first:], first):
            if isinstance(op, hived.Schedule):
                self._note(at, _kind_of(op), AFTER)

    def _note(self, at: int, kind: str, outcome: str, detail: str = "") -> None:
        self.verdicts.append(Verdict(self.name, at, kind, outcome, detail))

    def _do(self, at: int, op: hived.Op) -> None:
        match op:
            case hived.Init():
                self._start(at, op)
            case hived.AllHealthy():
                for node in self.healthy:
                    self._set_healthy(node, healthy=True)
                self._until_nodes()
            case hived.Healthy() | hived.Bad():
                self._break_or_heal(op)
            case hived.Schedule():
                self._schedule(at, op)
            case hived.Add():
                self._add(at, op)
            case hived.Delete() | hived.Forget():
                self._delete(op.pod_uid)

    # ── the cluster ─────────────────────────────────────────────────────────────────────

    def _start(self, at: int, op: hived.Init) -> None:
        """Register the nodes, and start the service, or start it again."""
        raw = self.written[at]["config"]
        rounded = whole_nodes(raw)
        try:
            read_hived(json.dumps(raw).encode(), source="hivedscheduler.yaml")
            found = read_hived(json.dumps(rounded.config).encode(), source="rounded")
        except BadInput as error:
            refuses = self.name in UNSOUND
            self._note(at, "start", SAME if refuses else DIFFERENT, str(error))
            raise Apart from error
        self.starts += 1
        self.rounded = rounded.changes
        self.likeness = Likeness(cluster_of(op.config))
        self.broken.clear()
        if self.starts > 1:
            self.service.kill()
        is_healthy = any(isinstance(each, hived.AllHealthy) for each in self.ops[at + 1 :][:1])
        there = {node.name: node for node in found.config.nodes}
        for name in [name for name in self.healthy if name not in there]:
            self.kubernetes.ask("DELETE", f"/api/v1/nodes/{name}")
            del self.healthy[name]
            self._collect(name)
        for name, node in there.items():
            if name not in self.healthy:
                kind = node.devices[0].type
                document = a_node(name, kind, len(node.devices))
                self.kubernetes.ask("POST", "/api/v1/nodes", document)
            self._set_healthy(name, healthy=is_healthy)
        self.service.config.write_text(self._config(found.written))
        self.service.up()
        if {node["name"] for node in self.service.get("/v1/nodes")} != {*there}:
            self._end_what_stays()
        self._until_nodes()
        self._note(at, "start", SAME)

    def _end_what_stays(self) -> None:
        """End the gangs whose nodes are to go: until then the old configuration stays."""
        for group in list(self.groups.values()):
            if not {node for node, _ in group.spots[1]} <= {*self.healthy}:
                self._remove(group)
        self.service.kill()
        self.service.up()

    def _collect(self, node: str) -> None:
        """Take away pods whose node is gone, as Kubernetes' own collector does."""
        for name, pod in self._there().items():
            if pod["spec"].get("nodeName") == node:
                self.kubernetes.ask("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")

    def _config(self, written: dict[str, Any]) -> str:
        """Return our configuration: HiveD's, and the engine that an administrator adds."""
        tenants: Tree = written["tenants"]
        for name, tenant in tenants.items():
            if self._is_lazy(name):
                tenant["preempt"] = "demote"
        engine = {
            "type": "kubernetes", "kubeconfig": str(self.kubernetes.kubeconfig),
            "image": IMAGE, "schedulers": ["hivedscheduler"],
            "namespaces": {HERE: [*tenants]},
        }  # fmt: skip
        return config_text({"engines": {"k8s": engine}, **written}, "from HiveD")

    def _is_lazy(self, tenant: str) -> bool:
        """Whether guaranteed pods of a tenant agree to lose their guarantee: that is said for
        a whole tenant."""
        lazy = [
            op.pod.spec.lazy_preemption_enable
            for op in self.ops
            if isinstance(op, hived.Schedule)
            and op.pod.spec.virtual_cluster == tenant
            and op.pod.spec.priority >= 0
        ]
        return any(lazy)

    def _break_or_heal(self, op: hived.Healthy | hived.Bad) -> None:
        if isinstance(op, hived.Healthy):
            node = self.broken.pop(op.node, None) or self.likeness.ours(op.node, self._held())
        elif op.node in self.broken:
            return
        else:
            node = self.broken[op.node] = self.likeness.ours(op.node, self._held())
        self._set_healthy(node, healthy=isinstance(op, hived.Healthy))
        self._until_nodes()

    def _held(self) -> list[Both]:
        """Return what cannot be taken for another: nodes with gangs, and broken ones."""
        gangs = {id(each): each.spots for each in self.groups.values()}
        broken: list[Both] = [([(a, 0)], [(b, 0)]) for a, b in sorted(self.broken.items())]
        return [*gangs.values(), *broken]

    def _set_healthy(self, node: str, *, healthy: bool) -> None:
        if self.healthy.get(node) is healthy:
            return
        self.healthy[node] = healthy
        ready = {"type": "Ready", "status": "True" if healthy else "False", "reason": "Test",
                 "message": "as recorded", "lastHeartbeatTime": now(),
                 "lastTransitionTime": now()}  # fmt: skip
        document = {"status": {"conditions": [ready]}}
        self.kubernetes.ask("PATCH", f"/api/v1/nodes/{node}/status", document, MERGE)

    def _until_nodes(self) -> None:
        def is_so() -> bool:
            told = {node["name"]: node["state"] for node in self.service.get("/v1/nodes")}
            return all(
                (told.get(name) == "ready") is well for name, well in self.healthy.items()
            )

        until(is_so, "the nodes to be as they are")

    # ── pods ────────────────────────────────────────────────────────────────────────────

    def _make(self, name: str, at: int) -> Group:
        """Make all pods of a group: those that were recorded as they were, and the others of
        which their annotations tell."""
        spec: Tree = self.written[at]["pod"]["spec"]
        group: Tree = spec.get("affinityGroup") or {}
        members: list[Tree] = group.get("members", [])
        sizes = [each["leafCellNumber"] for each in members for _ in range(each["podNumber"])]
        pods: list[str] = []
        for place in self._asking(name)[: max(1, len(sizes))]:
            pod: Tree = self.written[place]["pod"]
            size = pod["spec"]["leafCellNumber"]
            self._post(pod["name"], pod["spec"], size)
            pods.append(pod["name"])
            if size in sizes:
                sizes.remove(size)
            else:
                sizes = sizes[1:]
        for number, size in enumerate(sizes):
            other = f"{pods[0]}-more-{number}"
            self._post(other, {**spec, "leafCellNumber": size}, size)
            pods.append(other)
        job = group["name"] if len(pods) > 1 else pods[0]
        return Group(f"{HERE}/{job}", pods)

    def _asking(self, group: str) -> list[int]:
        """Return where it is first asked for each recorded pod of a group."""
        found = {
            op.pod.name: at
            for at, op in reversed([*enumerate(self.ops)])
            if isinstance(op, hived.Schedule) and _group_of(op) == group
        }
        return sorted(found.values())

    def _post(self, name: str, spec: Tree, gpus: int) -> None:
        amounts = {"nvidia.com/gpu": str(max(gpus, 0)), "cpu": "10m", "memory": "1Mi"}
        container = {"name": "main", "image": IMAGE, "resources": {"limits": amounts}}
        document = {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": {HIVED: json.dumps(spec)}},
            "spec": {"schedulerName": "hivedscheduler", "containers": [container],
                     "automountServiceAccountToken": False},
        }  # fmt: skip
        self.kubernetes.ask("POST", PODS, document)

    def _remove(self, group: Group) -> None:
        """Take pods away as kubelets do once all has ended, and wait until it is known."""
        for name in group.pods:
            with suppress(HTTPError):  # it may be gone by itself
                for grace_s in (1, 0):
                    self.kubernetes.ask("DELETE", f"{PODS}/{name}?gracePeriodSeconds={grace_s}")
        for other in [name for name, each in self.groups.items() if each is group]:
            del self.groups[other]

        def is_over() -> bool:
            return self.service.newest(group.job).get("state", "") not in LIVE

        until(is_over, f"{group.job} to be over")

    def _there(self) -> dict[str, Tree]:
        found = self.kubernetes.ask("GET", PODS)["items"]
        return {pod["metadata"]["name"]: pod for pod in found}

    def _answer(self, group: Group) -> Answer:
        """Wait until it is settled what becomes of a group."""
        since, before = time.monotonic(), ""
        end = since + 60
        while True:
            there = self._there()
            mine = [there[name] for name in group.pods if name in there]
            nodes = [pod["spec"].get("nodeName", "") for pod in mine]
            if all(nodes) and len(nodes) == len(group.pods):
                self._run(group)
                return Bound(tuple((n, _gpus(p)) for n, p in zip(nodes, mine, strict=True)))
            reasons = {_reason(pod) for pod in mine} & REFUSALS
            if reasons:
                return Refused(", ".join(sorted(reasons)))
            row = self.service.newest(group.job)
            reason = row.get("reason", "") if row.get("state") == "queued" else ""
            if reason in ("", "pending") or reason != before:
                since, before = time.monotonic(), reason
            elif time.monotonic() - since >= STABLE_S:
                if reason != "waiting_for_victims":
                    return Waiting(reason)
                return Preempting(self._leaving())
            assert time.monotonic() < end, (group, row, [_reason(pod) for pod in mine])
            time.sleep(0.03)

    def _leaving(self) -> frozenset[str]:
        """Return the groups of which pods are told to go."""
        there = self._there()
        return frozenset(
            name
            for name, group in self.groups.items()
            for pod in group.pods
            if pod in there and "deletionTimestamp" in there[pod]["metadata"]
        )

    def _run(self, group: Group) -> None:
        """Let the pods of a group run, as their kubelets would."""
        for name in group.pods:
            document = {"status": {"phase": "Running"}}
            self.kubernetes.ask("PATCH", f"{PODS}/{name}/status", document, MERGE)

        def runs() -> bool:
            return self.service.newest(group.job).get("state") == "running"

        until(runs, f"{group.job} to be known to run")

    # ── deciding ────────────────────────────────────────────────────────────────────────

    def _schedule(self, at: int, op: hived.Schedule) -> None:
        kind, name = _kind_of(op), _group_of(op)
        self.group_of[op.pod.uid] = name
        group = self.groups.get(name)
        if group is not None and group.is_bound:
            self._again(at, op, group)
            return
        if group is None and (why := self._unsaid(at, op)):
            self._note(at, kind, UNSAID, why)
            if self._counts_later(at, name):
                raise Apart
            return
        is_new = group is None
        if group is None:
            group = self._make(name, at)
        group.asked.add(op.pod.uid)
        self.left_before = self._leaving()
        answer = self._answer(group)
        self.groups[name] = group
        try:
            outcome, detail = self._compare(op, answer)
            self._note(at, kind, outcome, detail)
            if outcome in (DIFFERENT, GOOD):
                raise Apart
            if isinstance(answer, Bound) and isinstance(op.outcome, hived.Bind):
                group.spots = (spots_of(op.outcome), answer.spots)
        finally:
            follows = self.ops[at + 1] if at + 1 < len(self.ops) else None
            group.is_bound = isinstance(answer, Bound)
            is_added = isinstance(follows, hived.Add) and follows.pod_uid == op.pod.uid
            stays = is_added or isinstance(op.outcome, hived.Preempt)
            if not stays and (is_new or not self._counts_later(at, name)):
                self._remove(group)

    def _unsaid(self, at: int, op: hived.Schedule) -> str:
        """Return what a question asks for that a pod cannot say; '' for nothing."""
        some = None if op.pod.spec.ignore_k8s_suggested_nodes else op.suggested_nodes
        if some is not None and len({*some} - {*self.broken}) < sum(self.healthy.values()):
            return CANNOT_BE_SAID[0]
        is_preempting = isinstance(op.outcome, hived.Preempt) and op.phase == "Filtering"
        if is_preempting and not self._counts_later(at, _group_of(op)):
            return CANNOT_BE_SAID[1]
        return ""

    def _counts_later(self, at: int, group: str) -> bool:
        """Whether a group comes to hold or reserve anything later."""
        later = self.ops[at + 1 :]
        for each in later:
            match each:
                case hived.Add():
                    counts = self.group_of.get(each.pod_uid) == group
                case hived.Schedule():
                    reserves = each.phase == "Preempting"
                    reserves = reserves and isinstance(each.outcome, hived.Preempt)
                    counts = reserves and _group_of(each) == group
                case _:
                    counts = False
            if counts:
                return True
        return False

    def _again(self, at: int, op: hived.Schedule, group: Group) -> None:
        """A further pod of a group that has its place: it came with the others."""
        if not isinstance(op.outcome, hived.UserError):
            self._note(at, "again", SAME)
            return
        spec: Tree = self.written[at]["pod"]["spec"]
        self._post(op.pod.name, spec, spec["leafCellNumber"])
        answer = self._answer(Group(group.job, [op.pod.name]))
        is_so = isinstance(answer, Refused)
        self._note(at, "again", SAME if is_so else DIFFERENT, str(answer))
        self.kubernetes.ask("DELETE", f"{PODS}/{op.pod.name}?gracePeriodSeconds=0")

    def _compare(self, op: hived.Schedule, ours: Answer) -> tuple[str, str]:
        theirs, told = op.outcome, f"ours {ours}"
        match theirs, ours:
            case hived.Bind(), Bound(spots):
                return self._compare_nodes(theirs, spots)
            case hived.Preempt(), Preempting():
                victims = self._victims(theirs)
                if ours.victims == victims:
                    return SAME, ""
                is_good = len(ours.victims) <= len(victims)
                return (GOOD if is_good else DIFFERENT), f"HiveD {sorted(victims)}, {told}"
            case (hived.Wait(), Waiting() | Refused()) | (hived.UserError(), Refused()):
                return SAME, ""
            case (hived.Wait(), Bound()) | (hived.Panic(), _):
                return BETTER, told
            case hived.Wait(), Preempting(victims) if victims <= self.left_before:
                return BETTER, told  # promised what others leave anyway
            case _:
                return DIFFERENT, f"HiveD {theirs}, {told}"

    def _compare_nodes(self, theirs: hived.Bind, ours: tuple[Spot, ...]) -> tuple[str, str]:
        wanted = spots_of(theirs)
        told = f"HiveD {wanted}, ours {ours}"
        if self.likeness.agree([*self._held(), (wanted, ours)]):
            return (SAME if sorted(wanted) == sorted(ours) else ALIKE), ""
        mine = self.likeness.spread([node for node, _ in ours])
        is_good = mine <= self.likeness.spread([node for node, _ in wanted])
        return (GOOD if is_good else DIFFERENT), told

    def _victims(self, theirs: hived.Preempt) -> frozenset[str]:
        pods = [pod for pods in theirs.victims_by_node.values() for pod in pods]
        return frozenset(self.group_of[pod] for pod in pods)

    def _add(self, at: int, op: hived.Add) -> None:
        group = self.groups.get(self.group_of[op.pod_uid])
        if group is not None:
            group.added.add(op.pod_uid)
        follows = self.ops[at + 1] if at + 1 < len(self.ops) else None
        is_last = not isinstance(follows, hived.Add | hived.AllHealthy)
        if self.starts > 1 and is_last and not isinstance(self.ops[at - 1], hived.Schedule):
            self._take_up(at, op)

    def _take_up(self, at: int, op: hived.Add) -> None:
        """Compare which gangs keep their guarantee after a start."""
        assert op.state is not None
        lost: list[str] = []
        leaving = self._leaving()  # What is preempted stays so.
        for name, theirs in op.state.groups.items():
            group = self.groups.get(name)
            if group is None or name in leaving or not theirs.has_virtual_placement:
                continue
            row = self.service.newest(group.job)
            is_there = {node for node, _ in group.spots[1]} <= {*self.healthy}
            if is_there and row.get("entitlement") != "guaranteed":
                lost.append(f"{name}: {row.get('state')}, {row.get('entitlement')}")
        self._note(at, "take up", DIFFERENT if lost else SAME, "; ".join(lost))

    def _delete(self, uid: str) -> None:
        group = self.groups.get(self.group_of[uid])
        if group is not None:
            group.added.discard(uid)
            group.asked.discard(uid)
            if not group.added and (not group.asked or group.is_bound):
                self._remove(group)


def spots_of(bind: hived.Bind) -> list[Spot]:
    return [(pod.node, len(pod.leaf_cells)) for pods in bind.group_bind_info for pod in pods]


def _group_of(op: hived.Schedule) -> str:
    group = op.pod.spec.affinity_group
    return group.name if group else f"{HERE}/{op.pod.name}"


def _kind_of(op: hived.Schedule) -> str:
    return {
        hived.Bind: "bind", hived.Wait: "wait", hived.Preempt: "preempt",
        hived.UserError: "refuse", hived.Panic: "crash", hived.Done: "start",
    }[type(op.outcome)]  # fmt: skip


def _gpus(pod: Tree) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])


def _reason(pod: Tree) -> str:
    """Return why a pod waits, as its condition says."""
    found = pod.get("status", {}).get("conditions", [])
    waits = (each for each in found if each["type"] == "PodScheduled")
    return next((each["reason"] for each in waits if each["status"] == "False"), "")


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def a_node(name: str, kind: str, gpus: int) -> Tree:
    """Return a node with devices of a type."""
    amounts = {"cpu": str(4 * gpus), "memory": f"{8 * gpus}Gi", "ephemeral-storage": "1Gi",
               "pods": "110", "nvidia.com/gpu": str(gpus)}  # fmt: skip
    labels = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
              "nvidia.com/gpu.product": kind}  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts},
    }  # fmt: skip


# ── the test ────────────────────────────────────────────────────────────────────────────


@cache
def recorded() -> dict[str, tuple[list[hived.Op], list[Tree]]]:
    """Return the operations of each scenario, read and as they were written."""
    archive = SHARED / VECTORS
    ops = {each.name: each.ops for each in hived.scenarios(archive)}
    return {each.name: (ops[each.name], each.ops) for each in hived.written(archive)}


@pytest.fixture(scope="module")
def control_plane() -> Iterator[Kubernetes]:
    """An API server that takes nodes as they are said to be: nothing looks after them."""
    skip_without()
    folder = Path(tempfile.mkdtemp(prefix="allot-k8s-", dir="/var/tmp"))
    kubernetes = Kubernetes(folder, ())
    try:
        kubernetes.start_all()
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HERE}}
        kubernetes.apply(space)
        kubernetes.kubectl(
            "create", "rolebinding", "allotment", "-n", HERE,
            "--clusterrole=allotment-foreign-pods", "--serviceaccount=allotment:allotment",
        )  # fmt: skip
        account = f"/api/v1/namespaces/{HERE}/serviceaccounts"
        kubernetes.until(
            lambda: kubernetes.ask("GET", account)["items"], "the account of pods to be there"
        )
        kubernetes.kill("controllers")
        yield kubernetes
    finally:
        kubernetes.stop_all()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def a_follower(kubernetes: Kubernetes, name: str) -> Iterator[Follower]:
    """Follow a scenario with a service of its own, and leave the cluster empty."""
    folder = Path(tempfile.mkdtemp(prefix="allot-test-", dir="/var/tmp"))
    follower = Follower(kubernetes, folder, name, *recorded()[name])
    try:
        yield follower
    finally:
        if (follower.service.state / "address.json").exists():
            follower.service.kill()  # nobody is there to end its jobs
        kubernetes.ask("DELETE", f"{PODS}?gracePeriodSeconds=0")
        kubernetes.ask("DELETE", "/api/v1/nodes")
        shutil.rmtree(folder, ignore_errors=True)


def test_the_same_pods_get_the_same_nodes(control_plane: Kubernetes) -> None:
    verdicts: list[Verdict] = []
    for name in sorted(recorded()):
        if PART in name:
            with a_follower(control_plane, name) as follower:
                verdicts += (mine := follower.follow())
            show(name, mine, follower.rounded)
    print()
    for (kind, outcome), count in sorted(
        Counter((v.kind, v.outcome) for v in verdicts).items()
    ):
        print(f"{kind:10}{outcome:36}{count:5}")
    wrong = {(v.scenario, v.op): v.detail for v in verdicts if v.outcome == DIFFERENT}
    assert {at: why for at, why in wrong.items() if at not in KNOWN} == {}
    unsaid = Counter(v.detail for v in verdicts if v.outcome == UNSAID)
    assert {*unsaid} <= {*CANNOT_BE_SAID}
    assert any(v.outcome == SAME for v in verdicts)


def show(name: str, verdicts: list[Verdict], rounded: tuple[str, ...]) -> None:
    """Print what came of a scenario, and each decision that is not the same."""
    print(name, dict(Counter(verdict.outcome for verdict in verdicts)))
    for change in rounded:
        print("  rounded:", change)
    for verdict in verdicts:
        if verdict.outcome not in (SAME, ALIKE):
            print("   ", verdict.op, verdict.kind, verdict.outcome, verdict.detail)

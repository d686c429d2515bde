"""Looks at all pods of a cluster all the time, and notes what must never be.

It asks the API server alone: what the service believes is no matter here.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from http.client import HTTPException
from typing import Any

import msgspec

from tests.support.kubernetes import Kubernetes

LOOK_S = 0.25
BLIND_S = 2.0
"""Looks that are farther apart do not tell what was between them: the API server was away."""
DEVICE = "nvidia.com/gpu"
GANG = "allotment.io/gang"
PAIR = 2
"""Pods of others that are a gang are two, whatever is made of their words later."""
TASK, SERVICE = "allotment.io/task", "allotment.io/service"
Tree = dict[str, Any]


class Sighting(msgspec.Struct, frozen=True):
    """One pod, as it was in one look."""

    name: str
    """NAMESPACE/NAME."""
    uid: str
    gang: str = ""
    """All tasks of one attempt, or what its maker says; '' for a pod that is alone."""
    size: int = 1
    node: str = ""
    gpus: int = 0
    is_running: bool = False
    is_over: bool = False
    is_going: bool = False
    """It was told to end."""
    excuse: str = ""
    """Why it need not end well: its node refused it, or it made way for another."""


def sighting_of(pod: Tree) -> Sighting:
    """Return what counts of a pod, read of the object alone."""
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    states = [each.get("state", {}) for each in status.get("containerStatuses", ())]
    reason = status.get("reason", "")
    gang, size = _gang_of(meta)
    return Sighting(
        f"{meta['namespace']}/{meta['name']}",
        meta["uid"],
        gang,
        size,
        spec.get("nodeName", ""),
        sum(
            int(each.get("resources", {}).get("limits", {}).get(DEVICE, 0))
            for each in spec["containers"]
        ),
        is_running=any("running" in state for state in states),
        is_over=status.get("phase") in ("Succeeded", "Failed"),
        is_going="deletionTimestamp" in meta,
        excuse=reason if reason.startswith(("OutOf", "Unexpected")) else _preempted(status),
    )


def _preempted(status: Tree) -> str:
    """Return whether a pod was told to make way, in the word of its condition."""
    types = [each["type"] for each in status.get("conditions", ())]
    return next((each for each in types if each == "DisruptionTarget"), "")


def _gang_of(meta: Tree) -> tuple[str, int]:
    """Return of which gang a pod is, and of how many: a task of ours is called `ofN.INDEX`."""
    words, labels = meta.get("annotations", {}), meta.get("labels", {})
    if GANG in words:
        return f"{meta['namespace']}/{words[GANG]}", PAIR
    if TASK in labels:
        role = labels[TASK].partition(".")[0]
        return f"{meta['namespace']}/{meta['name'].rpartition('-')[0]}", int(role[2:])
    return "", 1


class Findings:
    """What was seen so far. Pure: it is told of each look."""

    def __init__(self, gpus: int, half_s: float) -> None:
        """`gpus` has each node; `half_s` is how long a gang may be bound in part."""
        self._gpus, self._half_s = gpus, half_s
        self.wrong: list[str] = []
        self.excused: set[str] = set()
        self.looks = 0
        self.longest_half_s = 0.0
        self._ran: dict[str, set[str]] = defaultdict(set)
        """By name: the uids of pods that ran something."""
        self._bound: dict[str, set[str]] = defaultdict(set)
        """By gang: all uids that ever had a node."""
        self._half: dict[str, float] = {}
        """By gang: for how long it has been bound in part."""
        self._last = 0.0

    def take(self, now: float, pods: Iterable[Sighting]) -> None:
        """Take note of one look."""
        passed, self._last = now - self._last, now
        passed = passed if self.looks and passed <= BLIND_S else 0.0
        self.looks += 1
        there = list(pods)
        self._count_devices(there)
        for pod in there:
            if pod.excuse:
                self.excused.add(pod.name)
            if pod.is_running:
                self._ran[pod.name].add(pod.uid)
            if pod.node and pod.gang:
                self._bound[pod.gang].add(pod.uid)
        self._weigh_gangs(there, passed)
        twice = [name for name, uids in self._ran.items() if len(uids) > 1]
        self._note(f"{name} ran twice" for name in twice)

    def _count_devices(self, there: list[Sighting]) -> None:
        used: Counter[str] = Counter()
        for pod in there:
            if pod.is_running:
                used[pod.node] += pod.gpus
        for node, count in used.items():
            if count > self._gpus:
                mine = sorted(pod.name for pod in there if pod.is_running and pod.node == node)
                self._note([f"{count} GPUs of {node} are used by {', '.join(mine)}"])

    def _weigh_gangs(self, there: list[Sighting], passed: float) -> None:
        alive = {pod.gang: pod for pod in there if pod.node and _holds(pod)}
        half = {
            gang for gang, pod in alive.items() if gang and len(self._bound[gang]) < pod.size
        }
        self._half = {gang: self._half.get(gang, -passed) + passed for gang in half}
        for gang, seconds in self._half.items():
            self.longest_half_s = max(self.longest_half_s, seconds)
            if seconds > self._half_s:
                self._note([f"gang {gang} is bound in part for too long"])

    def _note(self, found: Iterable[str]) -> None:
        self.wrong += [each for each in found if each not in self.wrong]


def _holds(pod: Sighting) -> bool:
    return not pod.is_over and not pod.is_going


class Witness(threading.Thread):
    """Looks again and again, whatever becomes of the API server meanwhile."""

    def __init__(self, kubernetes: Kubernetes, findings: Findings) -> None:
        super().__init__()
        self._kubernetes, self.findings = kubernetes, findings
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(LOOK_S):
            try:
                found = self._kubernetes.ask("GET", "/api/v1/pods")["items"]
            except (OSError, HTTPException, ValueError):  # it is away
                continue
            self.findings.take(time.monotonic(), map(sighting_of, found))

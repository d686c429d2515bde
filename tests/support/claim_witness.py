"""Looks at all claims of devices all the time, and notes what must never be.

It asks the API server alone: what the service believes is no matter here.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from http.client import HTTPException
from typing import Any

import msgspec

from tests.support.kube_devices import ALL_CLAIMS
from tests.support.kubernetes import Kubernetes
from tests.support.pod_witness import BLIND_S, LOOK_S

Tree = dict[str, Any]


class Claim(msgspec.Struct, frozen=True):
    """What counts of a claim that has devices."""

    name: str
    """NAMESPACE/NAME."""
    uid: str
    devices: tuple[str, ...]
    """POOL/DEVICE."""
    pods: tuple[str, ...] = ()
    """The uids of those that it is for."""


class Consumer(msgspec.Struct, frozen=True):
    """What counts of a pod."""

    is_over: bool = False
    is_bound: bool = False


def claims_of(items: Iterable[Tree]) -> list[Claim]:
    """Return the claims that have devices, read of the objects alone."""
    return [
        Claim(
            f"{each['metadata']['namespace']}/{each['metadata']['name']}",
            each["metadata"]["uid"],
            tuple(f"{one['pool']}/{one['device']}" for one in given["devices"]["results"]),
            tuple(user["uid"] for user in each["status"].get("reservedFor", ())),
        )
        for each in items
        if (given := each.get("status", {}).get("allocation"))
    ]


def pods_of(items: Iterable[Tree]) -> dict[str, Consumer]:
    """Return pods by their uids."""
    return {
        each["metadata"]["uid"]: Consumer(
            each.get("status", {}).get("phase") in ("Succeeded", "Failed"),
            bool(each["spec"].get("nodeName")),
        )
        for each in items
    }


class ClaimFindings:
    """What was seen so far. Pure: it is told of each look."""

    def __init__(self, idle_s: float) -> None:
        """`idle_s` is how long a claim may have devices that no pod can use."""
        self._idle_s = idle_s
        self.wrong: list[str] = []
        self.looks = 0
        self.seen: set[str] = set()
        """The uids of claims that had devices."""
        self.longest_idle_s = 0.0
        self._idle: dict[Claim, float] = {}
        self._last = 0.0

    def take(self, now: float, claims: list[Claim], pods: Mapping[str, Consumer]) -> None:
        """Take note of one look: pods are those that were there just after the claims. So a
        pod that is not over had, and was to have, what its claim had."""
        passed, self._last = now - self._last, now
        passed = passed if self.looks and passed <= BLIND_S else 0.0
        self.looks += 1
        self.seen |= {claim.uid for claim in claims}
        live = {uid: pod for uid, pod in pods.items() if not pod.is_over}
        holders: dict[str, list[Claim]] = defaultdict(list)
        for claim in claims:
            if any(uid in live for uid in claim.pods):
                for device in claim.devices:
                    holders[device].append(claim)
        for device, held in holders.items():
            if len(held) > 1:
                names = " and ".join(sorted(claim.name for claim in held))
                self._note(f"{device} was given to {names}")
        idle = [c for c in claims if not any(u in live and live[u].is_bound for u in c.pods)]
        self._idle = {claim: self._idle.get(claim, -passed) + passed for claim in idle}
        for claim, seconds in self._idle.items():
            self.longest_idle_s = max(self.longest_idle_s, seconds)
            if seconds > self._idle_s:
                self._note(f"{claim.name} has {claim.devices} for no pod on a node")

    def _note(self, found: str) -> None:
        if found not in self.wrong:
            self.wrong.append(found)


class ClaimWitness(threading.Thread):
    """Looks again and again, whatever becomes of the API server meanwhile."""

    def __init__(self, kubernetes: Kubernetes, findings: ClaimFindings) -> None:
        super().__init__()
        self._kubernetes, self.findings = kubernetes, findings
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(LOOK_S):
            try:
                claims = self._kubernetes.ask("GET", ALL_CLAIMS)["items"]
                pods = self._kubernetes.ask("GET", "/api/v1/pods")["items"]
            except (OSError, HTTPException, ValueError):  # it is away
                continue
            self.findings.take(time.monotonic(), claims_of(claims), pods_of(pods))

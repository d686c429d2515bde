"""What may break where devices have names, broken under load: no device given twice.

A service gives devices to tasks of its own and to pods of others, by claims. It is killed just
after it has given some, drivers end and come back, their slices vanish, devices are tainted;
and API server, etcd and controllers end, too. What has a device is told by the kernel: a pod
locks each that it finds in its container. A witness asks the API server alone.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from http.client import HTTPException
from typing import Any

import pytest

from tests.support.chaos import DRAINED_S
from tests.support.claim_witness import Claim, ClaimFindings, ClaimWitness, Consumer
from tests.support.cluster import gone, until
from tests.support.dra_driver import Driver, drivers_on
from tests.support.kube_chaos import (
    ENGINE,
    FAULTS,
    HALF_S,
    OF_JOBS,
    TEAMS,
    Chaos,
    Makers,
    OnCluster,
    a_folder,
    make_room,
    nothing_is_left,
    play,
    shuffled,
)
from tests.support.kube_devices import ALL_CLAIMS, API, a_request
from tests.support.kube_judge import HERE, judge
from tests.support.kubernetes import MARKS, NAMESPACE, Kubernetes, a_kubernetes, needs_newer
from tests.support.line import Line, a_line

pytestmark = MARKS
KINDS = (
    "service", "given", "given", "slice", "driver", "taint", "apiserver", "etcd", "cut",
    "compacted", "controllers", "delete",
)  # fmt: skip
"""No second service, and nobody else who puts pods on nodes: devices of a node are one
scheduler's to give, as the API server does not see whether two give the same one."""
CONFIG = ENGINE + TEAMS
NAMED = """\
set -- $(env | sed -n 's/^HAS_\\([0-9]*\\)=\\(.*\\)/\\2.\\1/p')
[ $# = 1 ] || echo twice $me has $# devices >> {marks}
exec 9>> {folder}/locks/$1
flock -n 9 || echo twice $me has $1 as another has >> {marks}
"""
"""A pod takes the device that it finds in its container."""
TEMPLATE = "one"
GIVEN_S = 30
Tree = dict[str, Any]


class DeviceChaos(Chaos):
    """Breaks what gives devices, too."""

    def __init__(
        self,
        service: OnCluster,
        kubernetes: Kubernetes,
        line: Line,
        rng: Any,
        drivers: dict[str, Driver],
    ) -> None:
        super().__init__([service], kubernetes, line, rng)
        self._drivers = drivers

    @property
    def faults(self) -> dict[str, Callable[[], None]]:
        more = {
            "given": self._given,
            "slice": self._slice,
            "driver": self._driver,
            "taint": self._taint,
        }
        return {**super().faults, **more}

    def _given(self) -> None:
        """Kill the service between giving devices to a pod and putting it on its node."""
        (service,) = self.services
        pid = service.address["pid"]
        pods = self._claimed()
        os.kill(pid, signal.SIGKILL)
        until(lambda: gone(pid), "the service to be gone")
        there = {pod["metadata"]["uid"]: pod for pod in self._pods()}
        self.done["between"] += any(
            uid in there and not there[uid]["spec"].get("nodeName") for uid in pods
        )
        service.up()

    def _claimed(self) -> list[str]:
        """Wait until a claim is given devices, but not for ever; return for which pods."""
        end = time.monotonic() + GIVEN_S
        known: set[str] = set()
        with contextlib.suppress(OSError, HTTPException, ValueError):
            for change in self.kubernetes.watch(ALL_CLAIMS):
                claim = change["object"]
                uid = claim["metadata"]["uid"]
                has_some = bool(claim.get("status", {}).get("allocation"))
                if has_some and uid not in known and change["type"] == "MODIFIED":
                    return [user["uid"] for user in claim["status"].get("reservedFor", ())]
                if has_some:
                    known.add(uid)
                if time.monotonic() > end:
                    break
        return []

    def _one_driver(self) -> Driver:
        return self._drivers[self.rng.choice(self.kubernetes.nodes)]

    def _slice(self) -> None:
        """Have the devices of a node vanish for a while."""
        driver = self._one_driver()
        self._surely(driver.withdraw)
        time.sleep(self.rng.uniform(0, 3))
        self._surely(driver.publish)

    def _driver(self) -> None:
        driver = self._one_driver()
        driver.leave()
        time.sleep(self.rng.uniform(0, 3))
        driver.serve()

    def _taint(self) -> None:
        """Have a device of a node be called broken for a while."""
        driver = self._one_driver()
        taint = {"key": "example.com/broken", "effect": self.rng.choice(EFFECTS)}
        name = self.rng.choice(driver.names).replace("-", "_")
        self._surely(lambda: driver.publish(**{name: {"taints": [taint]}}))
        time.sleep(self.rng.uniform(0, 3))
        self._surely(driver.publish)

    def _surely(self, act: Callable[[], None]) -> None:
        """Do something, again where the API server was away."""

        def is_done() -> bool:
            self.kubernetes.revive()
            with contextlib.suppress(RuntimeError):
                act()
                return True
            return False

        until(is_done, "the API server to take it", DRAINED_S)


EFFECTS = ("NoSchedule", "NoExecute")


def by_claim(spec: Tree) -> Tree:
    """Have a pod ask for a device by a claim."""
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}]
    spec["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return spec


@contextlib.contextmanager
def looked_at(kubernetes: Kubernetes) -> Iterator[ClaimFindings]:
    """Look at claims all the time."""
    witness = ClaimWitness(kubernetes, ClaimFindings(HALF_S))
    witness.start()
    try:
        yield witness.findings
    finally:
        witness.over.set()
        witness.join()


@pytest.mark.timeout(3 * DRAINED_S + 20 * FAULTS)
def test_no_device_is_given_twice_and_no_claim_is_left() -> None:
    needs_newer()
    order, rng = shuffled(KINDS)
    with a_kubernetes() as kubernetes, a_folder() as folder, a_line(kubernetes.port) as line:
        make_room(kubernetes)
        with drivers_on(kubernetes) as drivers, looked_at(kubernetes) as findings:
            template = {"spec": {"devices": {"requests": [a_request()]}}}
            meta = {"name": TEMPLATE, "namespace": HERE}
            head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
            kubernetes.apply({**head, "metadata": meta, "spec": template})
            service = OnCluster(folder, "first", kubernetes, line.port, f"{HERE}: c", CONFIG)
            try:
                service.up()
                chaos = DeviceChaos(service, kubernetes, line, rng, drivers)
                makers = Makers(kubernetes, folder, NAMED, by_claim)
                played = play(chaos, order, makers, NAMED)
                claims = f"{API}/namespaces/{NAMESPACE}/resourceclaims"
                nothing_is_left(chaos, (*OF_JOBS, claims))
                until(lambda: not held_by(kubernetes, drivers), "devices to be given back")
            finally:
                service.down()
            refused = [each for driver in drivers.values() for each in driver.refused]
    print(
        f"{findings.looks} looks, {len(findings.seen)} claims with devices, one for no pod on "
        f"a node for {findings.longest_idle_s:.1f} s at most; {len(refused)} refused: {refused}"
    )
    assert not findings.wrong, findings.wrong
    assert chaos.done["between"] or order.count("given") < 4, "it was never killed in between"
    judge(played)


def held_by(kubernetes: Kubernetes, drivers: dict[str, Driver]) -> list[str]:
    """Return which claims have devices, or are prepared on a node."""
    found = kubernetes.ask("GET", ALL_CLAIMS)["items"]
    given = [each["metadata"]["name"] for each in found if each["status"].get("allocation")]
    return given + [uid for driver in drivers.values() for uid in driver.prepared]


# ── the witness watched ─────────────────────────────────────────────────────────────────

RUNS = {"p1": Consumer(is_bound=True), "p2": Consumer(is_bound=True)}


def both(second: str = "n1/gpu-0") -> list[Claim]:
    return [Claim("x/1", "u1", ("n1/gpu-0",), ("p1",)), Claim("x/2", "u2", (second,), ("p2",))]


@pytest.mark.parametrize(
    ("claims", "pods"),
    [
        (both(), RUNS),
        (both()[:1], {}),
        (both()[:1], {"p1": Consumer()}),
        (both()[:1], {"p1": Consumer(is_over=True, is_bound=True)}),
    ],
)
def test_the_witness_sees_what_is_wrong(claims: list[Claim], pods: dict[str, Consumer]) -> None:
    findings = ClaimFindings(HALF_S)
    for second in range(HALF_S + 3):
        findings.take(float(second), claims, pods)
    assert findings.wrong


def test_the_witness_sees_nothing_where_nothing_is_wrong() -> None:
    findings = ClaimFindings(HALF_S)
    for second in range(2 * HALF_S):
        findings.take(float(second), both("n1/gpu-1"), RUNS)
    over = {**RUNS, "p1": Consumer(is_over=True, is_bound=True)}
    findings.take(2.0 * HALF_S, both(), over)  # the first is about to go
    assert not findings.wrong

"""Devices with names on a real control plane.

A newer one has resource.k8s.io/v1, and a driver on each node, which prepares what a task was
given. One that is older has neither: the kinds of that are defined here, as objects in which
anything may stand, no driver writes the slices, and pods run without their devices.
"""

import urllib.error
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import RealCluster, until
from tests.support.dra_driver import Driver, drivers_on
from tests.support.kube_devices import API, NVIDIA, a_device, a_request, a_slice
from tests.support.kubernetes import (
    IMAGE,
    IS_NEWER,
    MARKS,
    NAMED,
    NAMESPACE,
    WHY,
    Kubernetes,
    needs_newer,
)
from tests.support.on_slurm import shell

pytestmark = MARKS
Tree = dict[str, Any]
KINDS = {"ResourceSlice": "Cluster", "DeviceClass": "Cluster", "ResourceClaim": "Namespaced"}
PLURALS = {"DeviceClass": "deviceclasses"}
HEAD = {"apiVersion": "resource.k8s.io/v1"}


def a_kind(kind: str, scope: str) -> Tree:
    plural = PLURALS.get(kind, f"{kind.lower()}s")
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1", "served": True, "storage": True,
        "schema": {"openAPIV3Schema": anything}, "subresources": {"status": {}},
    }  # fmt: skip
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.resource.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": "resource.k8s.io", "scope": scope, "versions": [version],
            "names": {"plural": plural, "kind": kind, "singular": kind.lower()},
        },
    }  # fmt: skip


@pytest.fixture
def drivers(kubernetes: Kubernetes) -> Iterator[dict[str, Driver]]:
    """Four devices by name on each node, and the driver that has them, where there is one."""
    if NAMED:
        pytest.skip(f"{WHY}: the cluster that is named may have drivers of its own")
    if IS_NEWER:
        with drivers_on(kubernetes) as found:
            yield found
        return
    kinds = [a_kind(*each) for each in KINDS.items()]
    try:
        for each in kinds:
            kubernetes.apply(each)
        kubernetes.until(lambda: is_there(kubernetes), "the kinds of objects to be there")
        kubernetes.apply({**HEAD, "kind": "DeviceClass", **bare(NVIDIA)})
        offer(kubernetes)
        yield {}
    finally:
        for each in kinds:
            kubernetes.kubectl("delete", "crd", each["metadata"]["name"], "--ignore-not-found")


def offer(kubernetes: Kubernetes) -> None:
    """Publish the devices of each node, as its driver does."""
    for node in kubernetes.nodes:
        devices = (a_device(f"gpu-{number}") for number in range(4))
        kubernetes.apply({**HEAD, "kind": "ResourceSlice", **bare(a_slice(node, *devices))})


def is_there(kubernetes: Kubernetes) -> bool:
    with suppress(urllib.error.HTTPError):
        for plural in ("resourceslices", "deviceclasses", "resourceclaims"):
            kubernetes.ask("GET", f"{API}/{plural}")
        return True
    return False


def bare(found: Tree) -> Tree:
    """Return an object as its maker writes it."""
    return {**found, "metadata": {"name": found["metadata"]["name"]}}


def claims(kubernetes: Kubernetes) -> list[Tree]:
    return kubernetes.ask("GET", f"{API}/namespaces/{NAMESPACE}/resourceclaims")["items"]


def given(claim: Tree) -> set[tuple[str, str]]:
    """Return what a claim was given: pool, which is the node here, and device."""
    results = claim["status"]["allocation"]["devices"]["results"]
    return {(each["pool"], each["device"]) for each in results}


def give_to_others(kubernetes: Kubernetes, node: str, device: str) -> None:
    """Let another scheduler give a device away."""
    where = f"{API}/namespaces/default/resourceclaims"
    spec = {"devices": {"requests": [a_request("r")]}}
    made = {**HEAD, "kind": "ResourceClaim", "metadata": {"name": "theirs"}, "spec": spec}
    found = kubernetes.ask("POST", where, made)
    result = {"request": "r", "driver": "gpu.nvidia.com", "pool": node, "device": device}
    status = {"allocation": {"devices": {"results": [result]}}}
    kubernetes.ask("PUT", f"{where}/theirs/status", {**found, "status": status})


def test_a_gang_has_its_very_devices_through_a_crash_and_leaves_nothing_behind(
    kubernetes: Kubernetes, drivers: dict[str, Driver], folder: Path
) -> None:
    first, _ = kubernetes.nodes
    give_to_others(kubernetes, first, "gpu-1")
    (folder / "state").mkdir()
    cluster = RealCluster(folder / "state", "")
    try:
        done = cluster.allot("up", "--kubernetes", str(kubernetes.kubeconfig))
        assert done.returncode == 0, done.stderr
        assert "DRA, each by its name" in cluster.allot("doctor").stdout
        script = "env | grep HAS_; sleep 1000"
        gang = shell(script, image=IMAGE, count=2, resources={"gpu": 2})
        alone = shell(script, image=IMAGE, resources={"gpu": 1})
        jobs = [cluster.submit(gang), cluster.submit(alone)]
        for job in jobs:
            cluster.wait_for(job, "running")
        pods = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in kubernetes.pods()}
        held = {
            claim["status"]["reservedFor"][0]["uid"]: given(claim)
            for claim in claims(kubernetes)
        }
        assert held.keys() == pods.keys()
        assert sorted(map(len, held.values())) == [1, 2, 2]
        assert all({pods[uid]} == {pool for pool, _ in held[uid]} for uid in held)
        both = [device for devices in held.values() for device in devices]
        assert len(both) == len(set(both)) == 5
        assert (first, "gpu-1") not in both
        cluster.kill()
        again = cluster.allot("up")
        assert again.returncode == 0, again.stderr
        late = cluster.submit(alone)
        cluster.wait_for(late, "running")
        now = [device for claim in claims(kubernetes) for device in given(claim)]
        assert set(both) < set(now)
        assert len(now) == len(set(now)) == 6
        jobs.append(late)
        if drivers:
            assert prepared(drivers) == set(now)
            assert not any(driver.refused for driver in drivers.values())
            seen = [each for job, n in zip(jobs, (4, 1, 1), strict=True)
                    for each in seen_by(cluster, job, n)]  # fmt: skip
            assert sorted(seen) == sorted(now)
        for job in jobs:
            cluster.allot("cancel", str(job))
            cluster.wait_for(job, "cancelled")
        kubernetes.until(lambda: not claims(kubernetes), "the claims to be gone")
        kubernetes.until(lambda: not prepared(drivers), "nothing to be prepared")
    finally:
        cluster.down()
        kubernetes.clear()
        kubernetes.kubectl(
            "delete", "resourceclaims.resource.k8s.io", "theirs", "--ignore-not-found"
        )


def prepared(drivers: dict[str, Driver]) -> set[tuple[str, str]]:
    """Return which devices kubelets have asked for, and not given back."""
    return {
        (node, device)
        for node, driver in drivers.items()
        for devices in driver.prepared.values()
        for device in devices
    }


def seen_by(cluster: RealCluster, job: int, count: int) -> list[tuple[str, str]]:
    """Return the devices that the tasks of a job found in their containers, so many in all."""
    found: list[tuple[str, str]] = []

    def is_told() -> bool:
        words = cluster.allot("logs", str(job)).stdout.split()
        pairs = [
            word.removeprefix("HAS_").split("=") for word in words if word.startswith("HAS_")
        ]
        found[:] = [(node, f"gpu-{number}") for number, node in pairs]
        return len(found) >= count

    until(is_told, f"job {job} to say which devices it has")
    return found


HERE = "team-d"
PODS = """\
engines:
  k8s:
    type: kubernetes
    kubeconfig: {kubeconfig}
    image: "{image}"
    namespaces: {{team-d: lab}}
tenants: {{lab: {{}}}}
"""


def a_template(name: str, *requests: Tree) -> Tree:
    spec = {"devices": {"requests": list(requests)}}
    meta = {"name": name, "namespace": HERE}
    return {**HEAD, "kind": "ResourceClaimTemplate", "metadata": meta, "spec": {"spec": spec}}


def a_pod(name: str, template: str, **words: str) -> Tree:
    """Return a pod of others with a claim by a template."""
    claim = {"name": "gpus", "resourceClaimTemplateName": template}
    container = {
        "name": "main", "image": IMAGE, "command": ["sh", "-c", "env | grep HAS_; sleep 1000"],
        "resources": {"limits": {"cpu": "50m", "memory": "16Mi"}, "claims": [{"name": "gpus"}]},
    }  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": HERE, "annotations": words},
        "spec": {
            "schedulerName": "allotment", "restartPolicy": "Never", "hostNetwork": True,
            "terminationGracePeriodSeconds": 1, "containers": [container],
            "resourceClaims": [claim],
        },
    }  # fmt: skip


@pytest.fixture
def guests(kubernetes: Kubernetes) -> Iterator[str]:
    """A namespace whose pods are placed."""
    needs_newer()
    kubernetes.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HERE}})
    kubernetes.kubectl(
        "create", "rolebinding", "allotment", "-n", HERE,
        "--clusterrole=allotment-foreign-pods", "--serviceaccount=allotment:allotment",
    )  # fmt: skip
    try:
        yield HERE
    finally:
        kubernetes.kubectl("delete", "namespace", HERE)


def test_a_gang_of_others_has_the_devices_that_its_claims_ask_for(
    kubernetes: Kubernetes, guests: str, drivers: dict[str, Driver], folder: Path
) -> None:
    first, _ = kubernetes.nodes
    taint = {"key": "example.com/broken", "effect": "NoSchedule"}
    drivers[first].publish(gpu_3={"taints": [taint]})
    (folder / "state").mkdir()
    text = PODS.format(kubeconfig=kubernetes.kubeconfig, image=IMAGE)
    cluster = RealCluster(folder / "state", text)
    try:
        cluster.up()
        own = cluster.submit(shell("env | grep HAS_; sleep 1000", resources={"gpu": 2}))
        cluster.wait_for(own, "running")
        kubernetes.apply(a_template("two", a_request("some", 2)))
        words = {"allotment.io/gang": "duo", "allotment.io/gang-size": "2"}
        kubernetes.apply(a_pod("duo-0", "two", **words))
        kubernetes.apply(a_pod("duo-1", "two", **words))

        def phase(name: str) -> str:
            return kubernetes.get("pod", name, "-n", guests)["status"]["phase"]

        until(
            lambda: phase("duo-0") == phase("duo-1") == "Running",
            "the gang to run",
        )
        theirs = kubernetes.ask("GET", f"{API}/namespaces/{guests}/resourceclaims")["items"]
        everything = [each for claim in (*theirs, *claims(kubernetes)) for each in given(claim)]
        assert len(everything) == len(set(everything)) == 6
        assert (first, "gpu-3") not in everything
        assert prepared(drivers) == set(everything)
        for name in ("duo-0", "duo-1"):
            said = kubernetes.kubectl("logs", name, "-n", guests)
            assert said.count("HAS_") == 2
        late = cluster.submit(shell("sleep 1000", resources={"gpu": 2}))
        cluster.wait_for(late, "queued")
        cluster.kill()
        cluster.up()
        kubernetes.kubectl("delete", "pod", "duo-0", "-n", guests)
        cluster.wait_for(late, "running")
        assert not any(driver.refused for driver in drivers.values())
    finally:
        cluster.down()
        kubernetes.kubectl("delete", "pods", "--all", "-n", guests, "--grace-period=1")
        kubernetes.clear()


def test_a_driver_that_goes_and_comes_back_and_a_claim_that_is_taken_away(
    kubernetes: Kubernetes, drivers: dict[str, Driver], folder: Path
) -> None:
    """What runs, runs on; nothing new starts meanwhile, and no device is given out twice."""
    if drivers:
        pytest.skip(f"{WHY} 1.20: a driver that runs writes its slices anew")
    (folder / "state").mkdir()
    cluster = RealCluster(folder / "state", "")
    alone = shell("sleep 1000", image=IMAGE, resources={"gpu": 3})
    try:
        done = cluster.allot("up", "--kubernetes", str(kubernetes.kubeconfig))
        assert done.returncode == 0, done.stderr
        runs = cluster.submit(alone)
        cluster.wait_for(runs, "running")
        (held,) = map(given, claims(kubernetes))
        kubernetes.kubectl("delete", "resourceslices.resource.k8s.io", "--all")
        until(lambda: free_on(cluster) == 0, "the devices to be gone")
        waits = cluster.submit(alone)
        until(lambda: is_waiting(cluster, waits), "it to say why it waits")
        # Whoever takes the claim of a pod away that runs: the pod has its devices all the same.
        for claim in claims(kubernetes):
            name = claim["metadata"]["name"]
            kubernetes.ask("DELETE", f"{API}/namespaces/{NAMESPACE}/resourceclaims/{name}")
        cluster.kill()
        offer(kubernetes)
        again = cluster.allot("up")
        assert again.returncode == 0, again.stderr
        cluster.wait_for(waits, "running")
        assert cluster.state_of(runs) == "running"
        (now,) = map(given, claims(kubernetes))
        assert not held & now
        for job in (runs, waits):
            cluster.allot("cancel", str(job))
            cluster.wait_for(job, "cancelled")
        kubernetes.until(lambda: not claims(kubernetes), "the claims to be gone")
        until(lambda: free_on(cluster) == 8, "all devices to be free")
    finally:
        cluster.down()
        kubernetes.clear()


def free_on(cluster: RealCluster) -> int:
    """Return how many devices tasks can have."""
    return sum(node["free"].get("gpu_milli", 0) for node in cluster.get("/v1/nodes")) // 1000


def is_waiting(cluster: RealCluster, job: int) -> bool:
    """Whether a job waits, and says why."""
    return bool((cluster.get(f"/v1/jobs/{job}/why") or {}).get("reason"))

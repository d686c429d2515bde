"""Devices with names on a real control plane, from slices that no driver writes.

It is older than resource.k8s.io/v1, so the kinds of that are defined here, as objects in which
anything may stand. It knows neither claims in pods nor drivers: pods run without their devices.
"""

import urllib.error
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import RealCluster
from tests.support.kube_devices import API, NVIDIA, a_device, a_slice
from tests.support.kubernetes import IMAGE, MARKS, NAMED, NAMESPACE, WHY, Kubernetes
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
def named(kubernetes: Kubernetes) -> Iterator[Kubernetes]:
    """The cluster with four devices by name on each node."""
    if NAMED:
        pytest.skip(f"{WHY}: the cluster that is named may have drivers of its own")
    kinds = [a_kind(*each) for each in KINDS.items()]
    try:
        for each in kinds:
            kubernetes.apply(each)
        kubernetes.until(lambda: is_there(kubernetes), "the kinds of objects to be there")
        kubernetes.apply({**HEAD, "kind": "DeviceClass", **bare(NVIDIA)})
        for node in kubernetes.nodes:
            devices = (a_device(f"gpu-{number}") for number in range(4))
            kubernetes.apply({**HEAD, "kind": "ResourceSlice", **bare(a_slice(node, *devices))})
        yield kubernetes
    finally:
        for each in kinds:
            kubernetes.kubectl("delete", "crd", each["metadata"]["name"], "--ignore-not-found")


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
    made = {**HEAD, "kind": "ResourceClaim", "metadata": {"name": "theirs"}, "spec": {}}
    found = kubernetes.ask("POST", where, made)
    result = {"request": "r", "driver": "gpu.nvidia.com", "pool": node, "device": device}
    status = {"allocation": {"devices": {"results": [result]}}}
    kubernetes.ask("PUT", f"{where}/theirs/status", {**found, "status": status})


def test_a_gang_has_its_very_devices_through_a_crash_and_leaves_nothing_behind(
    named: Kubernetes, folder: Path
) -> None:
    first, _ = named.nodes
    give_to_others(named, first, "gpu-1")
    (folder / "state").mkdir()
    cluster = RealCluster(folder / "state", "")
    try:
        done = cluster.allot("up", "--kubernetes", str(named.kubeconfig))
        assert done.returncode == 0, done.stderr
        assert "DRA, each by its name" in cluster.allot("doctor").stdout
        need = {"gpu": 2}
        gang = shell("sleep 1000", image=IMAGE, count=2, resources=need)
        alone = shell("sleep 1000", image=IMAGE, resources={"gpu": 1})
        jobs = [cluster.submit(gang), cluster.submit(alone)]
        for job in jobs:
            cluster.wait_for(job, "running")
        pods = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in named.pods()}
        held = {
            claim["status"]["reservedFor"][0]["uid"]: given(claim) for claim in claims(named)
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
        now = [device for claim in claims(named) for device in given(claim)]
        assert set(both) < set(now)
        assert len(now) == len(set(now)) == 6
        jobs.append(late)
        for job in jobs:
            cluster.allot("cancel", str(job))
            cluster.wait_for(job, "cancelled")
        named.until(lambda: not claims(named), "the claims to be gone")
    finally:
        cluster.down()
        named.clear()

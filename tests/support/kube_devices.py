"""resource.k8s.io/v1 of an API server in memory: what it takes, and what it refuses.

Fields and rules are those of the published types. Whatever is written with a field that they do
not have is refused, as a real server only does where it is asked to.
"""

import json
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

API = "/apis/resource.k8s.io/v1"
SLICES, CLASSES, ALL_CLAIMS = (
    f"{API}/{each}" for each in ("resourceslices", "deviceclasses", "resourceclaims")
)
CLAIMS = f"{API}/namespaces/ns/resourceclaims"
MOST_RESULTS = 32
Tree = dict[str, Any]
Said = tuple[int, Tree]

META = {"name", "namespace", "labels", "ownerReferences", "uid", "resourceVersion"}
OWNER = {"apiVersion", "kind", "name", "uid", "controller"}
REQUEST = {"name", "exactly"}
EXACTLY = {"deviceClassName", "allocationMode", "count"}
RESULT = {"request", "driver", "pool", "device", "skipNodeOperations"}
CONFIG = {"source", "requests", "opaque"}
CONSUMER = {"apiGroup", "resource", "name", "uid"}


def a_device(name: str, product: str = "NVIDIA A100-SXM4-80GB", **more: Any) -> Tree:
    """Return a GPU as NVIDIA's driver publishes it."""
    return {
        "name": name,
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": f"GPU-{name}"},
            "productName": {"string": product},
            "driverVersion": {"version": "580.65.6"},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
        },
        "capacity": {"memory": {"value": "80Gi"}},
        **more,
    }


def a_slice(node: str, *devices: Tree, name: str = "", **pool: Any) -> Tree:
    """Return a slice of a node's pool, which is the only one unless said otherwise."""
    spec = {
        "driver": pool.pop("driver", "gpu.nvidia.com"),
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1, **pool},
        "devices": list(devices),
    }
    return {
        "metadata": {"name": name or f"{node}-slice", "uid": f"u-{name or node}"},
        "spec": spec,
    }


NVIDIA: Tree = {
    "metadata": {"name": "gpu.nvidia.com", "uid": "c1"},
    "spec": {
        "selectors": [
            {
                "cel": {
                    "expression": "device.driver == 'gpu.nvidia.com' && "
                    "device.attributes['gpu.nvidia.com'].type == 'gpu'"
                }
            }
        ],
        "extendedResourceName": "nvidia.com/gpu",
    },
}
"""The class that NVIDIA's driver comes with."""


def a_request(name: str = "gpu", count: int = 1, **more: Any) -> Tree:
    """Return a request for so many GPUs of NVIDIA."""
    exactly = {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount"}
    return {"name": name, "exactly": {**exactly, "count": count, **more}}


class DeviceApi:
    """Slices, classes and claims. `tell` is told of each that changes, by its list's path."""

    def __init__(self, tell: Callable[[str, str, Tree], None]) -> None:
        self._tell = tell
        self.is_there = False
        self.slices: dict[str, Tree] = {}
        self.classes: dict[str, Tree] = {}
        self.claims: dict[str, Tree] = {}
        """By namespace/name."""
        self.pods: Mapping[str, Tree] = {}
        self._numbers = count(1)

    # ── what others do ──────────────────────────────────────────────────────────────────

    def publish(self, found: Tree) -> None:
        """Write a slice, as a driver does."""
        self._keep(SLICES, self.slices, found["metadata"]["name"], found)

    def withdraw(self, name: str) -> None:
        """Take a slice away."""
        self._tell("DELETED", SLICES, self.slices.pop(name))

    def define(self, found: Tree) -> None:
        """Write a class."""
        self._keep(CLASSES, self.classes, found["metadata"]["name"], found)

    def give(self, at: str, *devices: str, **labels: str) -> None:
        """Let another scheduler give devices to a claim."""
        namespace, _, name = at.partition("/")
        results = [
            dict(zip(("driver", "pool", "device"), device.split("/"), strict=True))
            | {"request": "r"}
            for device in devices
        ]
        meta = {"name": name, "namespace": namespace, "uid": f"claim-{name}", "labels": labels}
        status = {"allocation": {"devices": {"results": results}}}
        self._keep(ALL_CLAIMS, self.claims, at, {"metadata": meta, "status": status})

    def ask_for(self, at: str, *requests: Tree, **more: Any) -> None:
        """Make a claim of others; `more` is of its metadata and its `devices`."""
        namespace, _, name = at.partition("/")
        meta = {"name": name, "namespace": namespace, "uid": f"claim-{name}"}
        spec = {"devices": {"requests": list(requests), **more.pop("devices", {})}}
        found = {"metadata": {**meta, **more}, "spec": spec}
        self._keep(ALL_CLAIMS, self.claims, at, found)

    def take_away(self, at: str) -> None:
        """Take a claim away."""
        self._tell("DELETED", ALL_CLAIMS, self.claims.pop(at))

    def collect(self) -> None:
        """Take claims away whose pods are gone, as the garbage collector does."""
        there = {pod["metadata"]["uid"] for pod in self.pods.values()}
        for at, claim in list(self.claims.items()):
            owners = claim["metadata"].get("ownerReferences", [])
            if owners and not any(owner["uid"] in there for owner in owners):
                self.take_away(at)

    def _keep(self, path: str, known: dict[str, Tree], at: str, found: Tree) -> None:
        kind = "MODIFIED" if at in known else "ADDED"
        found = json.loads(json.dumps(found))
        found["metadata"]["resourceVersion"] = str(next(self._numbers))
        known[at] = found
        self._tell(kind, path, found)

    # ── what is asked ───────────────────────────────────────────────────────────────────

    def lists(self, path: str) -> list[Tree] | None:
        """Return what a list has; None where this is no list."""
        kinds = {SLICES: self.slices, CLASSES: self.classes, ALL_CLAIMS: self.claims}
        return list(kinds[path].values()) if path in kinds else None

    def done(self, method: str, path: str, document: Tree) -> Said:
        """Answer what is asked of one claim, or of the group."""
        if path == API:
            return 200, {"kind": "APIResourceList", "groupVersion": "resource.k8s.io/v1"}
        namespace, _, rest = path.removeprefix(f"{API}/namespaces/").partition("/")
        name, _, part = rest.removeprefix("resourceclaims").removeprefix("/").partition("/")
        at = f"{namespace}/{name}"
        match method:
            case "POST" if namespace == "ns":
                return self._made(document)
            case "GET" if at in self.claims:
                return 200, self.claims[at]
            case "PATCH" if at in self.claims:
                return self._changed(at, part, document)
            case "DELETE" if at in self.claims:
                uid = document.get("preconditions", {}).get("uid", "")
                if uid not in ("", self.claims[at]["metadata"]["uid"]):
                    return 409, {"message": "the uid is another"}
                self.take_away(at)
                return 200, {}
            case _:
                return 404, {"message": f"no claim {name}"}

    def _changed(self, at: str, part: str, document: Tree) -> Said:
        meta, only = self.claims[at]["metadata"], document["metadata"]
        if any(only[key] != meta[key] for key in ("uid", "resourceVersion")):
            return 409, {"message": "it has been modified"}
        if part == "status":
            return self._allocated(at, document)
        now = {**self.claims[at], "metadata": {**meta, "finalizers": only["finalizers"]}}
        self._keep(ALL_CLAIMS, self.claims, at, now)
        return 200, self.claims[at]

    def _made(self, document: Tree) -> Said:
        meta, requests = document["metadata"], document["spec"]["devices"]["requests"]
        at = f"ns/{meta['name']}"
        if at in self.claims:
            return 409, {"message": "it is there"}
        _only(meta, META)
        for each in requests:
            _only(each, REQUEST)
            _only(each["exactly"], EXACTLY)
        for each in meta.get("ownerReferences", []):
            _only(each, OWNER)
        found = {**document, "metadata": {**meta, "namespace": "ns"}}
        found["metadata"]["uid"] = f"claim-{next(self._numbers)}"
        found.pop("status", None)  # a status is written by itself
        self._keep(ALL_CLAIMS, self.claims, at, found)
        return 201, self.claims[at]

    def _allocated(self, at: str, document: Tree) -> Said:
        claim, status = self.claims[at], document["status"]
        given = status["allocation"]
        if given is None:
            assert status["reservedFor"] is None, "who has nothing is nobody"
            self._keep(ALL_CLAIMS, self.claims, at, {**claim, "status": {}})
            return 200, self.claims[at]
        if claim.get("status", {}).get("allocation", given) != given:
            return 422, {"message": "status.allocation: field is immutable"}
        names = {each["name"] for each in claim["spec"]["devices"]["requests"]}
        results = given["devices"]["results"]
        if len(results) > MOST_RESULTS or {each["request"] for each in results} != names:
            return 422, {"message": "status.allocation.devices.results"}
        for each in results:
            _only(each, RESULT)
        for each in given["devices"].get("config", []):
            _only(each, CONFIG)
        for each in status["reservedFor"]:
            _only(each, CONSUMER)
        (term,) = given["nodeSelector"]["nodeSelectorTerms"]
        assert set(term) == {"matchFields"}
        self._keep(ALL_CLAIMS, self.claims, at, {**claim, "status": status})
        return 200, self.claims[at]


def _only(found: Tree, fields: set[str]) -> None:
    """Fail where something is written that the published type does not have."""
    assert set(found) <= fields, f"unknown fields: {sorted(set(found) - fields)}"

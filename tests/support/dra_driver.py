"""A driver of devices with names (DRA) for tests: it publishes the devices of a node, and its
kubelet asks it to prepare claims, by gRPC over sockets, as it asks a vendor's driver.

A device is a variable that a container has, which the container runtime sets by CDI. A device
that two claims have is refused, as a vendor's driver refuses it.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support.kube_devices import API, NVIDIA, a_device, a_slice
from tests.support.kubelet_rpc import field, fields, message, served, skip_without_grpc
from tests.support.kubernetes import START_S, Kubernetes

NAME = "gpu.nvidia.com"
PREPARES = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
REGISTERS = "pluginregistration.Registration"
Tree = dict[str, Any]


@contextlib.contextmanager
def drivers_on(kubernetes: Kubernetes, devices: int = 4) -> Iterator[dict[str, "Driver"]]:
    """Run a driver on each node, which has so many devices of the class that NVIDIA's has."""
    skip_without_grpc()
    drivers = {node: Driver(kubernetes, node, devices) for node in kubernetes.nodes}
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}
    try:
        kubernetes.apply({**head, **NVIDIA, "metadata": {"name": NAME}})
        for driver in drivers.values():
            driver.start()
        yield drivers
    finally:
        for driver in drivers.values():
            driver.stop()
        kubernetes.kubectl("delete", "deviceclass", NAME, "--ignore-not-found")


class Driver:
    """The driver of one node."""

    def __init__(self, kubernetes: Kubernetes, node: str, devices: int = 4) -> None:
        self._kubernetes, self._node = kubernetes, node
        self._folder = kubernetes.folder / node
        self._servers: list[Any] = []
        self._lock = threading.Lock()
        self.names = tuple(f"gpu-{number}" for number in range(devices))
        self.prepared: dict[str, tuple[str, ...]] = {}
        """The devices of each claim that is prepared, by its uid."""
        self.refused: list[str] = []
        self.is_registered = threading.Event()

    def start(self) -> None:
        """Publish the devices, and wait until the kubelet knows the driver."""
        self.publish()
        (self._folder / "cdi" / "test.json").write_text(json.dumps(self._cdi()))
        self.serve()

    def serve(self) -> None:
        """Answer the kubelet, and wait until it knows the driver."""
        self.is_registered.clear()
        prepares = {
            "NodePrepareResources": self._prepare,
            "NodeUnprepareResources": self._unprepare,
        }
        registers = {"GetInfo": self._info, "NotifyRegistrationStatus": self._notified}
        self._servers += [
            served(self._endpoint, PREPARES, prepares, {}),
            served(self._registry, REGISTERS, registers, {}),
        ]
        self._kubernetes.until(
            self.is_registered.is_set, f"the driver of {self._node}", START_S
        )

    def publish(self, **of_devices: Tree) -> None:
        """Write which devices the node has; `of_devices` is what else is said of each."""
        devices = [a_device(name, **of_devices.get(name.replace("-", "_"), {}))
                   for name in self.names]  # fmt: skip
        found = a_slice(self._node, *devices)
        name = found["metadata"]["name"]
        head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
        self._kubernetes.apply({**head, **found, "metadata": {"name": name}})

    def stop(self) -> None:
        """Leave the kubelet, and take the devices back."""
        self.leave()
        self.withdraw()

    def leave(self) -> None:
        """Answer the kubelet no more. What is prepared is known later, as a driver keeps it on
        the disk."""
        for server in self._servers:
            server.stop(None).wait()
        self._servers.clear()
        for each in (self._endpoint, self._registry):
            each.unlink(missing_ok=True)

    def withdraw(self) -> None:
        """Take the slice of the node away."""
        name = a_slice(self._node)["metadata"]["name"]
        self._kubernetes.kubectl("delete", "resourceslice", name, "--ignore-not-found")

    @property
    def _endpoint(self) -> Path:
        return self._folder / "dra.sock"

    @property
    def _registry(self) -> Path:
        return self._folder / "kubelet" / "plugins_registry" / f"{NAME}-reg.sock"

    def _cdi(self) -> Tree:
        """Return what the container runtime does for each device."""
        devices = [
            {"name": name, "containerEdits": {"env": [f"HAS_{name[4:]}={self._node}"]}}
            for name in self.names
        ]
        return {"cdiVersion": "0.5.0", "kind": "allotment.io/gpu", "devices": devices}

    # ── what a kubelet asks ─────────────────────────────────────────────────────────────

    def _info(self, _: bytes) -> bytes:
        return message("DRAPlugin", NAME, str(self._endpoint), "v1.DRAPlugin")

    def _notified(self, asked: bytes) -> bytes:
        said = dict(fields(asked))
        if said.get(1):
            self.is_registered.set()
        else:
            self.refused.append(str(said.get(2, b"")))
        return b""

    def _prepare(self, asked: bytes) -> bytes:
        return _answers(asked, self._prepared)

    def _unprepare(self, asked: bytes) -> bytes:
        return _answers(asked, self._unprepared)

    def _prepared(self, namespace: str, uid: str, name: str) -> bytes:
        """Return the devices of a claim, as the API server tells them; in field 2, why not."""
        path = f"{API}/namespaces/{namespace}/resourceclaims/{name}"
        claim = self._kubernetes.ask("GET", path)
        results = claim["status"]["allocation"]["devices"]["results"]
        own = (NAME, self._node)
        mine = [each for each in results if (each["driver"], each["pool"]) == own]
        devices = tuple(each["device"] for each in mine)
        with self._lock:
            taken = {
                each for other, had in self.prepared.items() if other != uid for each in had
            }
            if claim["metadata"]["uid"] != uid or set(devices) & taken or not devices:
                self.refused.append(f"{namespace}/{name}: {devices}, taken: {sorted(taken)}")
                return field(2, self.refused[-1])
            self.prepared[uid] = devices
        return b"".join(
            field(1, _told(each["request"], self._node, each["device"])) for each in mine
        )

    def _unprepared(self, namespace: str, uid: str, name: str) -> bytes:  # noqa: ARG002
        with self._lock:
            self.prepared.pop(uid, None)
        return b""


def _answers(asked: bytes, answer: Callable[[str, str, str], bytes]) -> bytes:
    """Return what is answered for each claim that is asked about, by its uid."""
    said = b""
    for _, claim in fields(asked):
        words = {number: word.decode() for number, word in fields(claim)}
        said += field(1, field(1, words[2]) + field(2, answer(words[1], words[2], words[3])))
    return said


def _told(request: str, node: str, device: str) -> bytes:
    """Return a device of a claim, and how the container runtime knows it."""
    return message(request, node, device, f"allotment.io/gpu={device}")

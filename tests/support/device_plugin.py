"""A device plugin for tests: a kubelet asks it by gRPC which devices its node has, as it asks a
vendor's, and of which health they are."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.kubelet_rpc import fields, grpc, message, served, skip_without_grpc
from tests.support.kubernetes import GPUS, START_S, Kubernetes

RESOURCE = "amd.com/gpu"
"""Not what the nodes of tests offer else: a kubelet remembers a plugin for minutes."""
PLUGIN = "v1beta1.DevicePlugin"
REGISTER = "/v1beta1.Registration/Register"
SOCKET = "test.sock"


class Plugin:
    """The plugin of one node, which has GPUS devices."""

    def __init__(self, kubernetes: Kubernetes, node: str) -> None:
        self._kubernetes, self._node = kubernetes, node
        self._folder: Path = kubernetes.folder / node / "kubelet" / "device-plugins"
        self._news = threading.Condition()
        self._unhealthy = 0
        self._is_over = False
        self.given: list[str] = []
        """The devices that the kubelet gave to containers."""

    def say(self, unhealthy: int) -> None:
        """Have the kubelet know how many devices are not healthy now."""
        with self._news:
            self._unhealthy = unhealthy
            self._news.notify_all()

    def start(self) -> Any:
        """Answer the kubelet, and have it know; return the server."""
        calls = {"GetDevicePluginOptions": lambda _: b"", "Allocate": self._allocate}
        streams = {"ListAndWatch": lambda _: self._devices()}
        server = served(self._folder / SOCKET, PLUGIN, calls, streams)
        with grpc().insecure_channel(f"unix://{self._folder / 'kubelet.sock'}") as channel:
            channel.unary_unary(REGISTER)(message("v1beta1", SOCKET, RESOURCE))
        self._kubernetes.until(
            lambda: self._offered() == str(GPUS), f"{RESOURCE} on {self._node}", START_S
        )
        return server

    def stop(self, server: Any) -> None:
        with self._news:
            self._is_over = True
            self._news.notify_all()
        server.stop(None).wait()
        (self._folder / SOCKET).unlink(missing_ok=True)

    def _offered(self) -> str:
        found = self._kubernetes.get("node", self._node)
        return found["status"]["allocatable"].get(RESOURCE, "0")

    def _devices(self) -> Iterator[bytes]:
        """Yield all devices with their health, whenever that changes."""
        with self._news:
            while not self._is_over:
                healths = [
                    "Unhealthy" if at < self._unhealthy else "Healthy" for at in range(GPUS)
                ]
                yield b"".join(
                    message(message(f"d{at}", health)) for at, health in enumerate(healths)
                )
                self._news.wait()

    def _allocate(self, asked: bytes) -> bytes:
        """Return for each container what the kubelet chose."""
        said = b""
        for _, container in fields(asked):
            self.given += [name.decode() for _, name in fields(container)]
            said += message(b"")
        return said


@contextlib.contextmanager
def a_plugin(kubernetes: Kubernetes, node: str) -> Iterator[Plugin]:
    """Run a device plugin on a node; skip where it cannot speak with a kubelet."""
    skip_without_grpc()
    plugin = Plugin(kubernetes, node)
    server = plugin.start()
    try:
        yield plugin
    finally:
        plugin.stop(server)

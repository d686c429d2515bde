"""The demo on a Kubernetes cluster that is there: its nodes, an image, perhaps a volume."""

import asyncio
import secrets
from collections.abc import Sequence
from itertools import cycle

import msgspec

from allotment.backends.contact import Contact
from allotment.backends.kubernetes.client import Client
from allotment.backends.kubernetes.discover import joined
from allotment.backends.kubernetes.inventory import looked_at
from allotment.backends.kubernetes.kubeconfig import access_of, found_file
from allotment.demo.own_service import Engine
from allotment.demo.setting import PLACES, Pods, Setting, TooSmall, setting_on_cluster
from allotment.model.cluster import Device, Node
from allotment.model.engines import EngineSetup, EngineType
from allotment.model.errors import BackendError, EngineAway
from allotment.model.ids import DeviceIndex

NAME = "kubernetes"
PATIENCE_S, UP_S = 30.0, 60.0


class OnKubernetes(msgspec.Struct, frozen=True):
    """What a person wants of the demo on Kubernetes."""

    image: str
    """With `python3` and numpy."""
    kubeconfig: str = ""
    """'' for the one that `kubectl` would read."""
    namespace: str = ""
    """'' for that of the kubeconfig."""
    volume: tuple[str, str] = ("", "")
    """A path in pods, and the claim of what is there, or `host`."""


def on_kubernetes(wanted: OnKubernetes) -> tuple[Setting, Engine]:
    """Find nodes that hold the demo, and what a service on them is started with.

    Raises BackendError where the cluster does not answer, and TooSmall.
    """
    file = found_file(wanted.kubeconfig)
    access = access_of(file)
    path, claim = wanted.volume
    setup = EngineSetup(
        NAME, EngineType.KUBERNETES, kubeconfig=file, image=wanted.image,
        namespace=wanted.namespace or access.namespace,
        volumes=((path, claim),) if path else (),
    )  # fmt: skip
    found = asyncio.run(_nodes(Client(access, setup.namespace, Contact("Kubernetes", "pods"))))
    if not any(node.devices for node in found):
        # No kubelet counts them, so pods are told theirs.
        found, setup = _with_virtual(found), msgspec.structs.replace(setup, visible=("*",))
    setting = setting_on_cluster(found, access.server, divides=False)
    kept = f"{path.rstrip('/')}/allot-demo-{secrets.token_hex(4)}" if path else ""
    return (
        msgspec.structs.replace(
            setting,
            nodes=tuple(msgspec.structs.replace(node, engine=NAME) for node in setting.nodes),
            pods=Pods(setup, kept),
        ),
        Engine(up_s=UP_S),
    )


async def _nodes(client: Client) -> tuple[Node, ...]:
    """Return the nodes that take pods now."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            named = await looked_at(client)
            found = joined((), await client.nodes(), named.on)
    except (TimeoutError, EngineAway) as error:
        trouble = str(error) or "no answer in time"
        raise BackendError(
            f"Kubernetes does not answer: {trouble}. Try `kubectl get nodes` with the same "
            "kubeconfig."
        ) from error
    finally:
        client.close()
    if not found:
        raise TooSmall("No node of the cluster takes pods: `kubectl get nodes` says why.")
    return found


def _with_virtual(found: Sequence[Node]) -> tuple[Node, ...]:
    """Deal virtual devices out, in turn one to each node."""
    counts = dict.fromkeys((node.id for node in found), 0)
    for _, node in zip(range(PLACES), cycle(found), strict=False):
        counts[node.id] += 1
    return tuple(
        msgspec.structs.replace(
            node,
            devices=tuple(Device(DeviceIndex(i), "virtual") for i in range(counts[node.id])),
        )
        for node in found
    )

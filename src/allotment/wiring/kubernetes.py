"""A Kubernetes cluster: its nodes, and how a service comes to know of it."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from allotment.model.cells import CellType, Topology
from allotment.model.cells_by_label import settled
from allotment.model.cluster import Node
from allotment.model.engines import EngineSetup, EngineType
from allotment.model.errors import BackendError, BadInput, EngineAway, NoNodes, Problem
from allotment.model.spec import JobSpec

SYSTEM = "Kubernetes"
NAME = "kubernetes"
"""Of an engine that the command line gave."""
USUAL = "default"
"""On the command line: the kubeconfig that `kubectl` would read."""
FIRST_S, AGAIN_S = 30.0, 3.0
"""How long a start waits for the cluster: where it can go on without, not for long."""


def setup_of(kubeconfig: str, *, is_first: bool = True) -> EngineSetup:
    """Return the engine that the command line names. Raises BadInput, BackendError.

    It is for the first configuration of a service, which then names it.
    """
    from allotment.backends.kubernetes.kubeconfig import access_of, found_file  # noqa: PLC0415

    if not is_first:
        raise BadInput((
            Problem(
                "--kubernetes is for a service without a configuration yet",
                "engines",
                hint="name it there: engines: {k8s: {type: kubernetes, kubeconfig: …}}",
            ),
        ))  # fmt: skip
    file = found_file("" if kubeconfig == USUAL else kubeconfig)
    namespace = access_of(file).namespace
    return EngineSetup(NAME, EngineType.KUBERNETES, kubeconfig=file, namespace=namespace)


def is_among(setups: Sequence[EngineSetup], kubeconfig: str) -> bool:
    """Whether the configuration has the engine that the command line names."""
    from allotment.backends.kubernetes.kubeconfig import found_file  # noqa: PLC0415

    file = found_file("" if kubeconfig == USUAL else kubeconfig)
    return any(
        setup.type is EngineType.KUBERNETES and found_file(setup.kubeconfig) == file
        for setup in setups
    )


def unanswered(error: EngineAway) -> BackendError:
    """Return the error that the cluster does not answer, and what to try."""
    return BackendError(
        f"Kubernetes does not answer: {error}. Try `kubectl get nodes` on this machine with "
        "the same kubeconfig."
    )


def discovered(setup: EngineSetup, *, is_first: bool) -> tuple[Node, ...]:
    """Return the nodes of a cluster. Raises BadInput, BackendError, EngineAway.

    Only the first time does it wait long: a later start can go on without an answer. Raises
    NoNodes where there are none.
    """
    with ThreadPoolExecutor(1) as pool:  # where we are, a loop runs already
        nodes = pool.submit(lambda: asyncio.run(_found(setup, is_first=is_first))).result()
    if not nodes:
        raise NoNodes((
            Problem(
                "Kubernetes has no node that may run pods",
                "engines",
                hint="`kubectl get nodes` lists them; those of the control plane do not count",
            ),
        ))  # fmt: skip
    return nodes


async def _found(setup: EngineSetup, *, is_first: bool) -> tuple[Node, ...]:
    from allotment.backends.contact import Contact  # noqa: PLC0415
    from allotment.backends.kubernetes.client import Client  # noqa: PLC0415
    from allotment.backends.kubernetes.discover import nodes_of  # noqa: PLC0415
    from allotment.backends.kubernetes.inventory import looked_at  # noqa: PLC0415
    from allotment.backends.kubernetes.kubeconfig import access_of, found_file  # noqa: PLC0415
    from allotment.backends.kubernetes.visible import visible_in  # noqa: PLC0415

    access = access_of(found_file(setup.kubeconfig), setup.context)
    client = Client(access, setup.namespace or access.namespace, Contact("Kubernetes", "pods"))
    try:
        async with asyncio.timeout(FIRST_S if is_first else AGAIN_S):
            named = await looked_at(client)
            return nodes_of(
                await client.nodes(), named.on, visible_in(setup.visible), setup.labels
            )
    except TimeoutError:
        raise EngineAway("no answer in time") from None
    finally:
        client.close()


def as_known(
    found: Sequence[Node], before: Sequence[Node], types: Sequence[CellType]
) -> tuple[Node, ...]:
    """Return nodes that were found, with their devices in the places that they had before, and
    in the cells where they were while their labels contradict these."""
    from allotment.backends.kubernetes.discover import as_known as placed  # noqa: PLC0415

    return settled(types, before, placed(found, before)).nodes


def pins_on(setup: EngineSetup) -> Callable[[Node], bool]:
    """Return of which nodes tasks get the very devices that were chosen: those whose devices
    have names, and those where pods are told."""
    from allotment.backends.kubernetes.named import has_names  # noqa: PLC0415
    from allotment.backends.kubernetes.visible import visible_in  # noqa: PLC0415

    is_visible = visible_in(setup.visible)
    return lambda node: has_names(node) or is_visible(node.name)


def counted(setup: EngineSetup, nodes: Sequence[Node]) -> list[Node]:
    """Return nodes as Kubernetes may know them: of devices that pods are told it need not know
    any."""
    from allotment.backends.kubernetes.visible import visible_in  # noqa: PLC0415

    is_visible = visible_in(setup.visible)
    return [
        msgspec.structs.replace(node, devices=()) if is_visible(node.name) else node
        for node in nodes
    ]


def described(kubeconfig: str) -> tuple[tuple[Node, ...], Topology]:
    """Return the nodes of a cluster as a configuration lists them. Raises as `discovered`."""
    try:
        return discovered(setup_of(kubeconfig), is_first=True), Topology()
    except EngineAway as error:
        raise unanswered(error) from error


def read_hived(data: bytes, name: str) -> tuple[JobSpec, int]:
    """Return what HiveD's annotation of a pod says: its group as a job, and the pod's own leaf
    cells. Raises BadInput."""
    from allotment.wire.hived_job import read_pod_spec  # noqa: PLC0415

    found = read_pod_spec(data, source="", name=name, command="")
    return found.spec, found.leaves

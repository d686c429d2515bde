"""Of thousands of nodes that report all the time, only what changed is looked at."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from allotment.backends.contact import Contact
from allotment.backends.http import CONNECTIONS
from allotment.backends.kubernetes.client import Client
from allotment.backends.kubernetes.cluster import is_news
from allotment.backends.kubernetes.discover import PLACES, TYPES
from allotment.backends.kubernetes.kubeconfig import Access
from allotment.backends.kubernetes.objects import KubeNode, Pod, Taint, milli, read, whole
from tests.support.patience import PATIENCE_S

NODE = {
    "metadata": {
        "name": "n1",
        "resourceVersion": "7",
        "labels": {"topology.kubernetes.io/zone": "a", "team": "x"},
    },
    "spec": {},
    "status": {
        "allocatable": {"cpu": "8", "nvidia.com/gpu": "4"},
        "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "1"}],
    },
}


def a_node() -> KubeNode:
    node = read(msgspec.json.encode(NODE), KubeNode)
    assert node is not None
    return node


def test_a_report_of_a_kubelet_is_no_news() -> None:
    before = a_node()
    labels = {"topology.kubernetes.io/zone": "a", "beta.kubernetes.io/os": "linux"}
    meta = msgspec.structs.replace(
        before.metadata, resource_version="8", annotations={"ttl": "15"}, labels=labels
    )
    assert not is_news(before, msgspec.structs.replace(before, metadata=meta))


def test_whatever_bears_on_tasks_is_news() -> None:
    node, replace = a_node(), msgspec.structs.replace
    for changed in (
        replace(node, spec=replace(node.spec, unschedulable=True)),
        replace(node, spec=replace(node.spec, taints=(Taint("k", "", "NoSchedule"),))),
        replace(node, status=replace(node.status, allocatable={"cpu": "8"})),
        replace(node, status=replace(node.status, conditions=())),
        replace(node, metadata=replace(node.metadata, labels={f"{PLACES[0]}zone": "b"})),
        replace(node, metadata=replace(node.metadata, labels={TYPES[0]: "H100"})),
    ):
        assert is_news(node, changed)


@pytest.mark.parametrize(
    ("amount", "thousandths", "number"),
    [("1500m", 1500, 1), ("2", 2000, 2), (2, 2000, 2), (0.5, 500, 0), ("x", 0, 0),
     ("1" * 40, 2**53, 2**53), ("16Gi", 16 * 2**30 * 1000, 16 * 2**30)],
)  # fmt: skip
def test_amounts_are_the_same_when_read_again(
    amount: str | float, thousandths: int, number: int
) -> None:
    for _ in range(2):
        assert (milli(amount), whole(amount)) == (thousandths, number)


LIST = b'{"items": [{"metadata": {"name": "n1"}}]}'


def test_what_is_listed_does_not_wait_for_all_that_is_asked_of_pods(tmp_path: Path) -> None:
    asyncio.run(_listed_beside_much(tmp_path / "api"))


async def _listed_beside_much(path: Path) -> None:
    """List from a server that answers nothing else, while very much is asked."""
    answering: list[asyncio.Task[None] | None] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering.append(asyncio.current_task())
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET /api/v1/nodes?"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(LIST) + LIST)
        await reader.read()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_unix_server(answer, path):
        client = Client(Access(f"unix:{path}"), "ns", Contact("Kubernetes", "pods"))
        much = [asyncio.create_task(client.pod(f"p{n}")) for n in range(CONNECTIONS + 1)]
        async with asyncio.timeout(PATIENCE_S):
            assert [node.metadata.name for node in await client.nodes()] == ["n1"]
        for each in much:
            each.cancel()
        await asyncio.gather(*much, return_exceptions=True)
        client.close()
        await asyncio.gather(*filter(None, answering))


def test_very_many_pods_are_no_work_for_the_garbage_collector() -> None:
    assert not Pod.__struct_config__.gc

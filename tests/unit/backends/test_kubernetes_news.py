"""Of thousands of nodes that report all the time, only what changed is looked at."""

import msgspec
import pytest

from allotment.backends.kubernetes.cluster import is_news
from allotment.backends.kubernetes.objects import KubeNode, Taint, milli, read, whole

NODE = {
    "metadata": {"name": "n1", "resourceVersion": "7", "labels": {"zone": "a"}},
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
    meta = msgspec.structs.replace(
        before.metadata, resource_version="8", annotations={"ttl": "15"}
    )
    assert not is_news(before, msgspec.structs.replace(before, metadata=meta))


def test_whatever_bears_on_tasks_is_news() -> None:
    node, replace = a_node(), msgspec.structs.replace
    for changed in (
        replace(node, spec=replace(node.spec, unschedulable=True)),
        replace(node, spec=replace(node.spec, taints=(Taint("k", "", "NoSchedule"),))),
        replace(node, status=replace(node.status, allocatable={"cpu": "8"})),
        replace(node, status=replace(node.status, conditions=())),
        replace(node, metadata=replace(node.metadata, labels={"zone": "b"})),
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

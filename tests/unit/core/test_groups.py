"""Groups of tasks within one region each, where devices are counted: against trying all."""

from collections.abc import Sequence
from itertools import product

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from allotment.core.cluster import Cluster
from allotment.core.commit import _misfit  # pyright: ignore[reportPrivateUsage]
from allotment.core.guarantee import guarantee_of
from allotment.core.ledger import Ledger
from allotment.core.request import Request, needs_of
from allotment.model.cluster import Device, Node
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.ledger import Slot
from allotment.model.quantity import DEVICE, Resources
from allotment.policies.placing.pack import Pack
from allotment.policies.placing.spread import Spread
from tests.unit.core.books import POLICIES

PLACINGS = st.sampled_from([Pack(), Spread()])
NODES = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from("ab"), st.sampled_from("xy")),
    min_size=1,
    max_size=4,
)
"""Nodes by their devices, rack and row: rows do not nest in racks."""
LEVELS = st.sampled_from(["node", "rack"])


def nodes_of(plan: Sequence[tuple[int, str, str]]) -> tuple[Node, ...]:
    return tuple(
        Node(
            NodeId(number),
            f"n{number}",
            cpu_milli=8_000,
            memory=1 << 40,
            disk=1 << 40,
            devices=tuple(Device(DeviceIndex(d), "A", 0) for d in range(devices)),
            labels=(("rack", rack), ("row", row)),
        )
        for number, (devices, rack, row) in enumerate(plan)
    )


def a_request(size: int, groups: int, each: int, cpu: int, level: str, outer: str) -> Request:
    need = Resources(gpu_milli=each * DEVICE, cpu_milli=cpu)
    return Request(size * groups, need, within=outer, group=size, group_within=level)


def region(node: Node, level: str) -> str:
    return node.name if level == "node" else dict(node.labels).get(level, "")


def fits_somehow(nodes: tuple[Node, ...], request: Request) -> bool:
    """Try every node for every task."""
    for chosen in product(nodes, repeat=request.count):
        together = [chosen[i : i + request.group] for i in range(0, len(chosen), request.group)]
        if any(len({region(n, request.group_within) for n in part}) > 1 for part in together):
            continue
        if request.within and len({region(n, request.within) for n in chosen}) > 1:
            continue
        if all(
            chosen.count(node) * request.need.gpu_milli <= len(node.devices) * DEVICE
            and chosen.count(node) * request.need.cpu_milli <= node.cpu_milli
            for node in nodes
        ):
            return True
    return False


@given(
    NODES,
    PLACINGS,
    st.builds(
        a_request,
        st.integers(1, 3),
        st.integers(1, 2),
        st.integers(0, 3),
        st.sampled_from([0, 3_000]),
        LEVELS,
        st.sampled_from(["", "rack", "row"]),
    ),
)
def test_groups_are_placed_just_where_they_can_be(
    plan: list[tuple[int, str, str]], placing: Pack | Spread, request: Request
) -> None:
    nodes = nodes_of(plan)
    cluster = Cluster(nodes, (), POLICIES, guarantee_of)
    ledger = cluster.ledger
    before = pages(ledger)
    slots = ledger.find((request,), placing)
    assert pages(ledger) == before
    assert (slots is not None) is fits_somehow(nodes, request)
    if slots is not None:
        assert not _misfit(cluster, (request,), slots)
        ledger.take(slots, needs_of((request,)))
        assert ledger.settled(slots)


@given(
    NODES,
    st.lists(
        st.builds(
            a_request,
            st.integers(1, 2),
            st.integers(1, 2),
            st.integers(0, 2),
            st.just(0),
            LEVELS,
            st.just(""),
        ),
        min_size=2,
        max_size=2,
    ),
)
def test_every_role_keeps_its_groups_together(
    plan: list[tuple[int, str, str]], requests: list[Request]
) -> None:
    cluster = Cluster(nodes_of(plan), (), POLICIES, guarantee_of)
    gang = tuple(requests)
    slots = cluster.ledger.find(gang, Pack())
    if slots is not None:
        assert not _misfit(cluster, gang, slots)
        cluster.ledger.take(slots, needs_of(gang))
        assert cluster.ledger.settled(slots)


def test_a_group_that_is_parted_is_not_committed() -> None:
    cluster = Cluster(nodes_of([(2, "a", "x"), (2, "b", "x")]), (), POLICIES, guarantee_of)
    request = a_request(2, 1, 1, 0, "node", "")
    here, there = Slot(NodeId(0), (0,), DEVICE), Slot(NodeId(1), (0,), DEVICE)
    assert _misfit(cluster, (request,), (here, there)) == (
        "a group of 2 tasks is not within one node"
    )
    beside = msgspec.structs.replace(here, devices=(1,))
    assert not _misfit(cluster, (request,), (here, beside))


def pages(ledger: Ledger) -> list[object]:
    books = [(b.cpu, b.memory, b.disk, b.device_milli, b.whole) for b in ledger.books.values()]
    return [msgspec.json.encode(books), ledger.whole_free, ledger.awaited, ledger.version]

"""The accounts of one node: what fits exactly, and what is reserved too often."""

import pytest

from allotment.core.ledger import Ledger, NodeBook
from allotment.model.ids import NodeId
from allotment.model.ledger import Slot
from allotment.model.quantity import DEVICE, GIB, Resources
from tests.support.builders import a_node

SLOT = Slot(NodeId(0), (0,))
DEVICE_OF_A = Resources(gpu_milli=DEVICE, gpu_memory=80 * GIB)
HOST = Resources(cpu_milli=64_000, memory=512 * GIB, disk=1000 * GIB)


@pytest.fixture
def book() -> NodeBook:
    return NodeBook(a_node(devices=2), by_type=False)


def test_a_task_has_room_that_needs_just_what_is_free(book: NodeBook) -> None:
    assert book.has(SLOT, DEVICE_OF_A + HOST)
    book.change((0,), Resources(gpu_milli=DEVICE // 2, gpu_memory=40 * GIB), 1, -1)
    half = Resources(gpu_milli=DEVICE // 2, gpu_memory=40 * GIB)
    assert book.has(SLOT, half)
    assert not book.has(SLOT, Resources(gpu_milli=DEVICE // 2 + 1))
    assert not book.has(SLOT, Resources(gpu_milli=1, gpu_memory=40 * GIB + 1))


@pytest.mark.parametrize(
    "part",
    [Resources(gpu_milli=DEVICE), Resources(gpu_memory=80 * GIB)],
    ids=["device", "memory"],
)
def test_a_device_is_short_of_what_is_reserved_wanted_and_held(
    book: NodeBook, part: Resources
) -> None:
    other = DEVICE_OF_A - part
    assert not book.device_short(0, part, part), "nothing is reserved yet"
    book.change((0,), part, 1, -1)
    assert not book.device_short(0, part, part), "just what there is"
    book.change((0,), part, 1, -1)
    assert book.device_short(0, part, part)
    assert not book.device_short(0, other, part), "it is not wanted"
    assert not book.device_short(0, part, other), "the other does not hold it"
    assert not book.device_short(1, part, part)


@pytest.mark.parametrize("key", ["cpu_milli", "memory", "disk"])
def test_a_host_is_short_of_what_is_reserved_wanted_and_held(book: NodeBook, key: str) -> None:
    part = Resources(**{key: getattr(HOST, key)})
    other = HOST - part
    assert not book.host_short(part, part), "nothing is reserved yet"
    book.change((), part, 1, -1)
    assert not book.host_short(part, part), "just what there is"
    book.change((), part, 1, -1)
    assert book.host_short(part, part)
    assert not book.host_short(other, part), "it is not wanted"
    assert not book.host_short(part, other), "the other does not hold it"


def test_of_a_broken_device_nothing_is_free_and_what_is_reserved_counts() -> None:
    ledger = Ledger((a_node(devices=2),))
    ledger.set_bad(NodeId(0), frozenset({1}))
    assert [ledger.free_milli(NodeId(0), index) for index in (0, 1)] == [DEVICE, 0]
    ledger.books[NodeId(0)].change((0, 1), Resources(gpu_milli=4 * DEVICE), 1, -1)
    assert [ledger.free_milli(NodeId(0), index) for index in (0, 1)] == [-DEVICE, -DEVICE]


def test_whole_free_devices_are_counted_by_type() -> None:
    alike = Ledger((a_node(0, 2, "A100"), a_node(1, 3, "A100")))
    assert [alike.whole_free_of(kind) for kind in ("A100", "T4")] == [5, 0]
    mixed = Ledger((a_node(0, 2, "A100"), a_node(1, 3, "T4")))
    assert [mixed.whole_free_of(kind) for kind in ("A100", "T4", "V100")] == [2, 3, 0]
    mixed.set_open(NodeId(1), False)
    assert mixed.whole_free_of("T4") == 0

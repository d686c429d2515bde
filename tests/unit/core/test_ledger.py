"""The ledger's search and sums, against looking everywhere."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from allotment.core.ledger import Ledger, Placing
from allotment.core.request import Request, needs_of
from allotment.model.ids import NodeId
from allotment.model.ledger import Slot
from allotment.model.quantity import DEVICE, GIB, Resources
from allotment.policies.placing.fgd import LeastFragmentation
from allotment.policies.placing.pack import Pack
from allotment.policies.placing.spread import Spread
from allotment.sim.cluster import cluster_of
from tests.support.builders import a_node

CLUSTERS = st.sampled_from(["1x1", "3x4", "2x2+2x3", "2x4xA+2x2xB", "1x4xA+1x4xB+1x2xA"])
PLACINGS: st.SearchStrategy[Placing] = st.sampled_from(
    [Pack(), Spread(), LeastFragmentation({1: 3, 2: 2, 4: 1})]
)
WHOLE = st.integers(0, 4).map(lambda devices: devices * DEVICE)
TYPES = st.sampled_from([(), ("A",), ("B", "A"), ("C",)])


def a_request(count: int, milli: int, types: tuple[str, ...] = (), cpu: int = 0) -> Request:
    return Request(count, Resources(gpu_milli=milli, cpu_milli=cpu), types)


REQUESTS = st.builds(
    a_request,
    st.integers(1, 5),
    WHOLE | st.sampled_from([250, 500, 750]),
    TYPES,
    st.sampled_from([0, 0, 8_000, 40_000]),
)


class Room:
    """What is free, in plain lists: the books a child would keep."""

    def __init__(self, text: str) -> None:
        self.nodes = cluster_of(text)
        self.milli = [[DEVICE] * len(node.devices) for node in self.nodes]
        self.cpu = [node.cpu_milli for node in self.nodes]

    def change(self, slots: Sequence[Slot], needs: Sequence[Resources], sign: int) -> None:
        for slot, need in zip(slots, needs, strict=True):
            self.cpu[slot.node] += sign * need.cpu_milli
            for index in slot.devices:
                self.milli[slot.node][index] += sign * min(need.gpu_milli, DEVICE)

    def free(self, node: int, kind: str) -> int:
        """Count whole free devices of a type; of any if it is empty."""
        return sum(
            milli == DEVICE and kind in ("", device.type)
            for milli, device in zip(self.milli[node], self.nodes[node].devices, strict=True)
        )

    def holds(self, node: int, request: Request, kind: str) -> int:
        """Count how many tasks of a request fit on a node.

        Who names a type goes to a node that has it, even without asking for a device.
        """
        need = request.need
        most = request.count
        if kind and kind not in {device.type for device in self.nodes[node].devices}:
            return 0
        if need.cpu_milli:
            most = min(most, max(0, self.cpu[node]) // need.cpu_milli)
        if need.gpu_milli >= DEVICE:
            most = min(most, self.free(node, kind) // (need.gpu_milli // DEVICE))
        elif need.gpu_milli:
            parts = [
                max(0, milli) // need.gpu_milli
                for milli, device in zip(
                    self.milli[node], self.nodes[node].devices, strict=True
                )
                if kind in ("", device.type)
            ]
            most = min(most, sum(parts))
        return most

    def fits(self, request: Request) -> bool:
        """Whether all tasks fit somewhere, on devices of one accepted type."""
        return any(
            sum(self.holds(place, request, kind) for place in range(len(self.nodes)))
            >= request.count
            for kind in request.types or ("",)
        )

    def check(self, ledger: Ledger) -> None:
        """Compare everything that the ledger keeps count of."""
        for place in range(len(self.nodes)):
            book = ledger.books[NodeId(place)]
            assert book.device_milli == self.milli[place]
            assert book.cpu == self.cpu[place]
        every = [milli for node in self.milli for milli in node]
        assert ledger.whole_free == every.count(DEVICE)
        assert ledger.awaited == sum(milli < 0 for milli in every)


def check_slots(
    room: Room, requests: tuple[Request, ...], slots: tuple[Slot, ...], text: str
) -> None:
    """Check one slot for each task in order: right devices, one type for each role."""
    tasks = [request for request in requests for _ in range(request.count)]
    assert len(slots) == len(tasks)
    for request, slot in zip(tasks, slots, strict=True):
        assert len(set(slot.devices)) == len(slot.devices) == request.devices
        assert slot.gpu_milli == request.need.gpu_milli
    start = 0
    for request in requests:
        mine = slots[start : start + request.count]
        start += request.count
        kinds = {room.nodes[slot.node].devices[i].type for slot in mine for i in slot.devices}
        if request.types and kinds:
            assert len(kinds) == 1, text
            assert kinds <= set(request.types)


@given(text=CLUSTERS, placing=PLACINGS, data=st.data())
def test_one_role_is_found_room_whenever_there_is_any(
    text: str, placing: Placing, data: st.DataObject
) -> None:
    """After each of many takes and gives, also of places that are not free yet."""
    ledger, room = Ledger(cluster_of(text)), Room(text)
    held: list[tuple[tuple[Slot, ...], tuple[Resources, ...]]] = []
    for _ in range(data.draw(st.integers(1, 12))):
        request = data.draw(REQUESTS)
        slots = ledger.find((request,), placing)
        room.check(ledger)
        assert (slots is not None) == room.fits(request)
        act = data.draw(st.sampled_from(["take", "take", "give", "promise"]))
        if act == "take" and slots is not None:
            check_slots(room, (request,), slots, text)
            needs = needs_of((request,))
            ledger.take(slots, needs)
            room.change(slots, needs, -1)
            # A node whose CPU is promised twice settles nothing, whatever a task needs.
            awaited = any(room.cpu[slot.node] < 0 for slot in slots)
            assert ledger.settled(slots) is not awaited
            held.append((slots, needs))
        elif act == "give" and held:
            slots, needs = held.pop(data.draw(st.integers(0, len(held) - 1)))
            version = ledger.version
            ledger.give(slots, needs)
            room.change(slots, needs, +1)
            assert ledger.version > version
        elif act == "promise" and held:
            slots, needs = data.draw(st.sampled_from(held))
            ledger.take(slots, needs)
            room.change(slots, needs, -1)
            held.append((slots, needs))
        room.check(ledger)
    for slots, needs in held:
        ledger.give(slots, needs)
    Room(text).check(ledger)


@given(
    text=CLUSTERS,
    placing=PLACINGS,
    requests=st.lists(REQUESTS, min_size=1, max_size=3).map(tuple),
    before=st.lists(REQUESTS, max_size=6),
)
def test_several_roles_get_places_that_do_not_overlap(
    text: str, placing: Placing, requests: tuple[Request, ...], before: list[Request]
) -> None:
    """Greedy, and so not always; but never too much, and the same as with fresh books."""
    ledger, room = Ledger(cluster_of(text)), Room(text)
    for request in before:
        slots = ledger.find((request,), placing)
        if slots is not None:
            ledger.take(slots, needs_of((request,)))
            room.change(slots, needs_of((request,)), -1)
    slots = ledger.find(requests, placing)
    room.check(ledger)
    assert slots == greedy(room, requests, placing)
    if slots is not None:
        check_slots(room, requests, slots, text)
        ledger.take(slots, needs_of(requests))
        assert ledger.settled(slots)


def greedy(
    room: Room, requests: tuple[Request, ...], placing: Placing
) -> tuple[Slot, ...] | None:
    """Let roles choose one by one, most devices first, as the ledger says it does."""
    order = sorted(range(len(requests)), key=lambda i: -requests[i].need.gpu_milli)
    chosen: dict[int, list[Slot]] = {}
    # As if books had been kept from the start: no index that could be wrong.
    books = Ledger(room.nodes)
    for place, devices in enumerate(room.milli):
        for index, milli in enumerate(devices):
            if milli < DEVICE:
                slot = Slot(NodeId(place), (index,), DEVICE - milli)
                books.take([slot], [Resources(gpu_milli=DEVICE - milli)])
        used = room.nodes[place].cpu_milli - room.cpu[place]
        books.take([Slot(NodeId(place))], [Resources(cpu_milli=used)])
    if sum(r.count * (r.need.gpu_milli // DEVICE) for r in requests) > books.whole_free:
        return None
    for i in order:
        slots = books.find((requests[i],), placing)
        if slots is None:
            return None
        books.take(slots, needs_of((requests[i],)))
        chosen[i] = list(slots)
    return tuple(slot for i in range(len(requests)) for slot in chosen[i])


@given(text=CLUSTERS, closed=st.sets(st.integers(0, 3)), request=REQUESTS)
def test_a_closed_node_takes_nothing(text: str, closed: set[int], request: Request) -> None:
    ledger, room = Ledger(cluster_of(text)), Room(text)
    for node in closed & set(range(len(room.nodes))):
        ledger.set_open(NodeId(node), False)
        room.milli[node] = [0] * len(room.milli[node])
        room.cpu[node] = 0
    slots = ledger.find((request,), Pack())
    if request.need.gpu_milli or request.need.cpu_milli:
        assert (slots is not None) == room.fits(request)
    assert not closed & {slot.node for slot in slots or ()}


def test_packing_fills_a_node_and_spreading_takes_the_emptiest() -> None:
    ledger = Ledger(cluster_of("2x4"))
    one = (a_request(1, DEVICE),)
    ledger.take([Slot(NodeId(1), (0,), DEVICE)], needs_of(one))
    assert ledger.find(one, Pack()) == (Slot(NodeId(1), (1,), DEVICE),)
    assert ledger.find(one, Spread()) == (Slot(NodeId(0), (0,), DEVICE),)


def test_the_first_type_of_the_list_with_room_for_all_is_taken() -> None:
    ledger = Ledger(cluster_of("1x2xA+2x2xB"))
    assert {
        slot.node for slot in ledger.find((a_request(2, DEVICE, ("A", "B")),), Pack()) or ()
    } == {0}
    assert {
        slot.node for slot in ledger.find((a_request(3, DEVICE, ("A", "B")),), Pack()) or ()
    } == {1, 2}
    assert ledger.find((a_request(5, DEVICE, ("A", "B")),), Pack()) is None


def test_a_place_is_settled_once_its_holder_is_gone() -> None:
    ledger = Ledger(cluster_of("1x2"))
    place, needs = [Slot(NodeId(0), (0,), DEVICE)], [Resources(gpu_milli=DEVICE)]
    ledger.take(place, needs)
    ledger.take(place, needs)
    assert not ledger.settled(place)
    assert (ledger.awaited, ledger.whole_free) == (1, 1)
    ledger.give(place, needs)
    assert ledger.settled(place)
    assert (ledger.awaited, ledger.whole_free) == (0, 1)


def test_what_is_reserved_already_matters_only_to_what_needs_some_of_it() -> None:
    ledger = Ledger([a_node(0, devices=2)])
    slot = Slot(NodeId(0), (0,), DEVICE)
    for _ in range(2):
        ledger.take([slot], [Resources(cpu_milli=1000, disk=900 * GIB)])
    free, wanting = Resources(DEVICE, 1000), Resources(DEVICE, 1000, disk=GIB)
    assert ledger.host_fits(NodeId(0), free)
    assert not ledger.host_fits(NodeId(0), wanting)
    for need, place in ((free, (Slot(NodeId(0), (0,), DEVICE),)), (wanting, None)):
        assert ledger.find((Request(1, need),), Pack()) == place

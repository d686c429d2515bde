"""Which nodes have what jobs bring, and jobs placed there where it costs nothing.

Rule: where a job was given a place, a node of it is exchanged for one that lacks less of what
the job brings, if the two are alike: in all that any other decision looks at they differ in
their ids. So it is asked after all else was decided, and nothing else is decided otherwise by
it: what starts, and which gangs leave, is as without.

A node lacks less if fewer bytes are missing there, or as many and fewer contents.

Alike are machines of one make and labels with the same left free on the same devices, under
the same reservations. Where gangs may be told to leave, which of them are on a node matters:
then only nodes are exchanged on which there is none. In cells these lie beside each other
too, in one cell of the next level.

Bad at: clusters in which no two nodes are alike, and small jobs beside borrowers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from allotment.core.cells.book import Cells
from allotment.core.cluster import Cluster
from allotment.core.commit import refusal
from allotment.core.ledger import ANY_TYPE, NodeBook
from allotment.core.plan import Place
from allotment.engine.state import State
from allotment.model import events as e
from allotment.model.cluster import Node
from allotment.model.content import ContentKind, Held, brought_by
from allotment.model.ids import NodeId
from allotment.model.ledger import Placement, Slot
from allotment.model.node_runs import NodeRuns, is_in, nodes_from
from allotment.model.quantity import DEVICE, NOTHING, Instant
from allotment.model.reports import ContentReport

MOST_LOOKED_AT = 512
"""Nodes that are compared for one job: the first with what it brings from its place on."""
SIGNIFICANT_BITS = 6
"""So exactly the amounts of hosts are compared, to some 3 %: machines of one make differ."""

NOBODY = Held()

Look = tuple[object, ...]
"""All of a node that a decision goes by, but for its id."""
Lack = tuple[int, int]
"""What a node lacks of what a job brings: bytes, and how many contents."""


def content_heard(state: State, report: ContentReport) -> Iterator[e.AnyEvent]:
    """Note which nodes have a content, where that is news and a job brings it."""
    book, content = state.content, report.content
    if book.is_asked(content) and book.held.get(content, NOBODY).nodes != report.nodes:
        yield e.ContentSeen(content.name, report.nodes, content.kind, report.bytes)


def nodes_with_all(state: State, placement: Placement) -> list[int]:
    """Count the nodes of a place that are known to have all that its job brings, by kind."""
    held, counts = state.content.held, dict.fromkeys(ContentKind, 0)
    by_kind: dict[ContentKind, list[NodeRuns]] = {}
    for each in brought_by(state.jobs[placement.job].spec):
        by_kind.setdefault(each.kind, []).append(held.get(each, NOBODY).nodes)
    nodes = {slot.node for slot in placement.slots}
    for kind, brought in by_kind.items():
        counts[kind] = sum(all(is_in(runs, node) for runs in brought) for node in nodes)
    return list(counts.values())


def where_its_content_is(state: State, place: Place, now: Instant) -> Place:
    """Return the same start on nodes that lack less, as far as nodes alike do.

    O(nodes looked at), and O(1) where the place lacks nothing, or no node is known to have it.
    """
    placement, cluster, held = place.placement, state.cluster, state.content.held
    brought = [
        held[each] for each in brought_by(state.jobs[placement.job].spec) if each in held
    ]
    if place.reserved or not brought:
        return place
    brought.sort(key=lambda each: -each.bytes)

    def lack(node: NodeId) -> Lack:
        missing = [each.bytes for each in brought if not is_in(each.nodes, node)]
        return sum(missing), len(missing)

    here = {node: lack(node) for node in dict.fromkeys(slot.node for slot in placement.slots)}
    if not any(missing for _, missing in here.values()):
        return place
    moves = _exchanged(cluster, here, brought, lack)
    if not moves:
        return place
    better = replace(place, placement=_moved(placement, moves))
    return place if refusal(cluster, better, now) else better


def _moved(placement: Placement, moves: dict[NodeId, NodeId]) -> Placement:
    def on_its_node(slot: Slot) -> Slot:
        return replace(slot, node=moves[slot.node]) if slot.node in moves else slot

    return replace(placement, slots=tuple(map(on_its_node, placement.slots)))


def _exchanged(
    cluster: Cluster,
    here: dict[NodeId, Lack],
    brought: Sequence[Held],
    lack: Callable[[NodeId], Lack],
) -> dict[NodeId, NodeId]:
    """Return which of the nodes of a place are exchanged, and for which."""
    looks = _Looks(cluster)
    some = (node for node, (_, missing) in here.items() if missing)
    lacking = sorted(some, key=here.__getitem__, reverse=True)
    wanted: dict[Look, list[NodeId]] = {}
    for node in lacking:
        if (look := looks.of(node)) is not None:
            wanted.setdefault(look, []).append(node)
    moves: dict[NodeId, NodeId] = {}
    books = cluster.ledger.books
    counts = {books[node].whole[ANY_TYPE] for node in lacking}
    for node in _with_some(cluster, lacking, brought, lack) if wanted else ():
        if node in here or node not in books or books[node].whole[ANY_TYPE] not in counts:
            continue  # To see that is cheap.
        look = looks.of(node)
        if look in wanted and lack(node) < here[wanted[look][0]]:
            alike = wanted[look]
            moves[alike.pop(0)] = node
            if not alike:
                del wanted[look]
                if not wanted:
                    break
    return moves


def _with_some(
    cluster: Cluster,
    lacking: list[NodeId],
    brought: Sequence[Held],
    lack: Callable[[NodeId], Lack],
) -> Iterable[NodeId]:
    """Return nodes that have something and may be alike: in cells, those beside the place.

    Those that lack least come first.
    """
    cells = cluster.cells
    if cells is None:
        found = (node for each in brought for node in nodes_from(each.nodes, lacking[0]))
    else:
        around = dict.fromkeys(
            (at, parent) for node in lacking for at, _, parent in _cells_of(cells, node)
        )
        beside = (node for at, parent in around for node in _in_cell(cells, at, parent))
        found = (node for node in beside if any(is_in(each.nodes, node) for each in brought))
    first = islice(found, MOST_LOOKED_AT)
    return first if len(brought) == 1 else sorted(dict.fromkeys(first), key=lack)


def _cells_of(cells: Cells, node: NodeId) -> Iterator[tuple[int, int, int]]:
    """Yield the chains of a node, its number in each, and that of the cell around it."""
    for at, number in cells.at(node):
        chain = cells.chains[at]
        over = chain.node_level + 1
        yield at, number, number // chain.per[over] if over <= chain.top else 0


def _in_cell(cells: Cells, at: int, parent: int) -> Sequence[NodeId]:
    """Return the nodes of a cell of the level above nodes; of the whole chain where none is."""
    chain = cells.chains[at]
    over = chain.node_level + 1
    if over > chain.top:
        return chain.nodes
    per = chain.per[over]
    return chain.nodes[parent * per : (parent + 1) * per]


class _Looks:
    """How nodes look to a decision."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._frozen = {
            slot.node for gang in cluster.placed.frozen.values() for slot in gang.slots
        }
        """Nodes to which suspended gangs come back, though they may hold nothing of them."""
        self._none_leaves = (
            cluster.cells is None and cluster.rescheduler is None and cluster.is_settled()
        )
        """Whether it does not matter which gangs are on a node."""
        reserved = cluster.reservations.all
        self._reserved = [frozenset(reservation.nodes) for reservation in reserved]

    def of(self, node: NodeId) -> Look | None:
        """Return how a node looks; None where it is exchanged for no other."""
        book = self._cluster.ledger.books.get(node)
        if book is None or not book.open:
            return None
        machine = self._cluster.nodes[node]
        if not self._none_leaves and (node in self._frozen or not _is_empty(book, machine)):
            return None
        if book.awaited or book.leaving != NOTHING or book.reserved != NOTHING:
            return None
        cells = self._cluster.cells
        in_cells = None if cells is None else _cells_around(cells, node)
        reserved = tuple(node in nodes for nodes in self._reserved)
        return (*_make(machine), *_left(book), in_cells, reserved)


def _make(machine: Node) -> Look:
    devices = tuple((device.type, device.memory) for device in machine.devices)
    host = (_coarse(machine.cpu_milli), _coarse(machine.memory), _coarse(machine.disk))
    engine = machine.engine, machine.lacks
    return machine.arch, engine, machine.labels, machine.nics, devices, host


def _left(book: NodeBook) -> Look:
    host = _coarse(book.cpu), _coarse(book.memory), _coarse(book.disk)
    return host, tuple(book.device_milli), tuple(book.device_memory), book.bad


def _is_empty(book: NodeBook, machine: Node) -> bool:
    """Whether no gang holds anything of a node."""
    host = book.cpu + book.others.cpu_milli, book.memory + book.others.memory, book.disk
    return (
        host == (machine.cpu_milli, machine.memory, machine.disk)
        and book.device_milli.count(DEVICE) == len(machine.devices)
        and book.device_memory == [device.memory for device in machine.devices]
    )


def _cells_around(cells: Cells, node: NodeId) -> Look:
    """Return where an empty node lies: in which cells of the next level, and in whose."""
    found: list[object] = []
    for at, number, parent in _cells_of(cells, node):
        chain, space = cells.chains[at], cells.spaces[at]
        mine = tuple(
            (owner, level, leaves[number])
            for owner, holdings in cells.holdings.items()
            if space.held[number] and at in holdings
            for level, leaves in holdings[at].mine.items()
            if leaves.get(number)
        )
        found.append((
            at, parent, chain.devices[number],
            space.held[number], space.shut[number], space.lent[number], mine,
        ))  # fmt: skip
    return tuple(found)


def _coarse(amount: int) -> tuple[int, int]:
    """Round an amount down to some significant bits."""
    shift = max(0, amount.bit_length() - SIGNIFICANT_BITS)
    return amount >> shift, shift

"""What others use of nodes: reports in, events out, and which devices are theirs.

Most engines say how many devices of a type others have, not which. So of those of a node some
are set aside that no gang of ours holds; where an engine says which, these. They are like
broken ones: not free, in no free cell, and a task that has one stays. Where nodes lie in cells,
a cell is only free with its share of the host: as many smallest cells are taken as others' CPU
and memory are worth.
"""

from collections.abc import Iterator

from allotment.core.cells.chain import Chain
from allotment.engine.state import State
from allotment.model import events as e
from allotment.model.health import WHOLE
from allotment.model.ids import NodeId
from allotment.model.others import NOBODY, Others
from allotment.model.quantity import DEVICE
from allotment.model.reports import OthersReport


def others_heard(state: State, report: OthersReport) -> Iterator[e.AnyEvent]:
    """Note what others use of a node, where that is news."""
    if report.node not in state.cluster.nodes:
        return
    if state.others.get(report.node, NOBODY) != report.use:
        yield e.OthersSeen(report.node, report.use)


def set_others(state: State, node: NodeId, use: Others) -> None:
    """Count what others use of a node from now on."""
    if use == NOBODY:
        state.others.pop(node, None)
        state.taken.pop(node, None)
    else:
        state.others[node] = use
        state.taken[node] = _devices_of(state, node, use)
    state.mark(node)


def choose_anew(state: State) -> None:
    """Choose again which devices are theirs: the configuration has changed."""
    for node, use in list(state.others.items()):
        set_others(state, node, use)


def _devices_of(state: State, node: NodeId, use: Others) -> frozenset[int]:
    """Choose devices for what others use; `WHOLE` where they take a machine without any."""
    book, before = state.cluster.ledger.books[node], state.taken.get(node, frozenset[int]())
    order = sorted(
        range(len(book.types)),
        key=lambda index: (
            book.device_milli[index] != DEVICE,
            (node, index) in state.health,
            index not in before,
            index,
        ),
    )
    taken = [index for index in use.indexes if index < len(book.types)]
    for kind, count in use.devices:
        alike = [i for i in order if kind in ("", book.types[i]) or kind not in book.types]
        taken += [index for index in alike if index not in taken][:count]
    cells = state.cluster.cells
    for at, number in cells.at(node) if cells is not None else ():
        assert cells is not None
        chain = cells.chains[at]
        if not chain.devices[number]:
            return frozenset({WHOLE})
        leaves = [index for index in order if index in chain.leaf[number]]
        more = _leaves_worth(chain, use) - sum(index in chain.leaf[number] for index in taken)
        taken += [index for index in leaves if index not in taken][: max(0, more)]
    return frozenset(taken)


def _leaves_worth(chain: Chain, use: Others) -> int:
    """Return the shares of how many leaves others use of the host, rounded up."""
    pairs = ((use.cpu_milli, chain.share.cpu_milli), (use.memory, chain.share.memory))
    return max(-(-used // share) if share else 0 for used, share in pairs)

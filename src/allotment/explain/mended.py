"""What would be free if hardware were back, or if others left it: tried, and undone."""

from allotment.core.trial import Trial
from allotment.model.health import WHOLE
from allotment.model.quantity import NOTHING


def mend_all(trial: Trial) -> None:
    """Open closed nodes and repair broken devices, except what others use beside Allotment."""
    books = trial.cluster.ledger.books
    for node in [node for node, book in books.items() if not book.open]:
        if WHOLE not in books[node].taken:
            trial.open(node)
    for node in [node for node, book in books.items() if book.bad - book.taken]:
        trial.set_bad(node, books[node].bad & books[node].taken)


def let_others_go(trial: Trial) -> None:
    """Let what others use beside Allotment be free."""
    ledger = trial.cluster.ledger
    for node in sorted(ledger.shared):
        book = ledger.books[node]
        if WHOLE in book.taken and not book.open:
            trial.open(node)
        trial.set_bad(node, book.bad - book.taken)
        trial.set_others(node, NOTHING, frozenset())

"""What a replay does not play is counted and told."""

from allotment.model import events as e
from allotment.model.ids import AttemptNo, JobId, NodeId
from allotment.model.ledger import Entitlement
from allotment.model.others import NOBODY, Others
from allotment.sim.unplayed import Unplayed


def test_nodes_of_which_others_used_a_part_are_counted_once_each() -> None:
    found = Unplayed()
    for at, (node, use) in enumerate([(0, Others(cpu_milli=1000)), (0, NOBODY), (1, NOBODY)]):
        found.feed(at, e.OthersSeen(NodeId(node), use))
    assert list(found.words()) == [
        "Nodes of which others used a part, beside Allotment: 1. In the replay all of them is "
        "free."
    ]
    assert not list(Unplayed().words())


def test_starts_that_went_by_what_nodes_had_are_counted() -> None:
    found, lent = Unplayed(), Entitlement.OPPORTUNISTIC
    for counts in ((0, 0, 0), (1, 0, 0), (0, 2, 0), (2, 1, 3)):
        found.feed(0, e.AttemptPlaced(JobId(1), AttemptNo(1), (), lent, 0, (), *counts))
    (said,) = found.words()
    assert said.startswith("Starts on nodes that had the job's image, environment or data: 3.")

"""Events in words."""

import msgspec
import pytest

from allotment.engine.state import State
from allotment.model import events as e
from allotment.model.content import ContentKind
from allotment.model.ids import AttemptNo, JobId, NodeId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import HOUR, MINUTE, Instant
from allotment.model.tenancy import Queue
from allotment.service.words import in_words
from tests.contract.stores.shapes import EVENTS, examples
from tests.support.builders import NOW, POLICIES, a_config, a_job, a_tenant
from tests.support.world import World


def test_an_estimate_is_told_as_of_when_it_was_given() -> None:
    state = State(POLICIES)
    state.at = Instant(NOW + 5 * HOUR)
    start = Instant(NOW + 2 * MINUTE)
    said = in_words(e.StartEstimated(JobId(1), start, start, start), NOW, state)
    assert said == "estimated to start in 2 min 0 s"
    unknown = in_words(e.StartEstimated(JobId(1), None, None, None), NOW, state)
    assert unknown == "its start was estimated: at no known time"


def test_who_loses_the_guarantee_is_told_by_what_right() -> None:
    queues = (Queue("default"), Queue("guaranteed"))
    tenant = msgspec.structs.replace(a_tenant("vision", 8), queues=queues)
    world = World(a_config(tenant))
    mine = world.submit(a_job())
    urgent = world.submit(a_job().priority(900))
    guaranteed = world.submit(a_job().of("vision", "guaranteed"))

    def told(other: int) -> str:
        event = e.AttemptDemoted(mine, AttemptNo(1), JobId(other))
        return in_words(event, NOW, world.state)

    assert told(urgent) == f"borrows now: job {urgent} of its tenant is more urgent"
    assert told(guaranteed) == (
        "borrows now: its guarantee goes to another job of its tenant: "
        f"job {guaranteed} of queue guaranteed"
    )
    assert told(99) == "borrows now: its guarantee goes to job 99 of its tenant"


def test_what_is_there_already_is_told() -> None:
    world = World(a_config(a_tenant("vision", 16), nodes=2))
    slots = (Slot(NodeId(0)), Slot(NodeId(1)))

    def told(*counts: int) -> str:
        right = Entitlement.GUARANTEED
        event = e.AttemptPlaced(JobId(1), AttemptNo(1), slots, right, 0, (), *counts)
        return in_words(event, NOW, world.state)

    assert told(0) == "attempt 1 placed on n0, n1 (guaranteed)"
    assert told(1).endswith("(guaranteed); 1 of 2 nodes have its image already")
    assert told(2).endswith("(guaranteed), where its image is already")
    assert told(2, 0, 2).endswith("(guaranteed), where its image and data are already")
    assert told(1, 2, 0).endswith(
        "(guaranteed), where its environment is already; 1 of 2 nodes have its image already"
    )
    seen = e.ContentSeen("torch:1", ((NodeId(0), NodeId(2)), (NodeId(5), NodeId(5))))
    assert in_words(seen, NOW, world.state) == "image torch:1 is on 4 node(s)"
    words = e.ContentSeen("vision/words@3", (), ContentKind.DATA)
    assert in_words(words, NOW, world.state) == "data vision/words@3 is on 0 node(s)"


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_has_words(event: type[e.AnyEvent]) -> None:
    for example in examples(event):
        said = in_words(example, NOW, State(POLICIES))
        assert said
        assert "{" not in said

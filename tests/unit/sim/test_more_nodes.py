"""What more nodes would let start, on states small enough to work the answer out by hand."""

from collections.abc import Sequence

import msgspec
import pytest

from allotment.core.request import shape_of
from allotment.engine.pools import fits_when_grown, growable, price_in
from allotment.model.cluster import Node
from allotment.model.errors import Rejected
from allotment.model.pools import (
    POOL,
    PRICE,
    UNKNOWN,
    Added,
    Helped,
    MoreAnswer,
    MoreQuestion,
    Pool,
    Way,
)
from allotment.model.quantity import Millis
from allotment.model.reasons import Reason
from allotment.model.tenancy import Config, QueueOrder, Tenant
from allotment.sim.more_nodes import more_nodes
from tests.support.builders import POLICIES, a_config, a_job, a_node, a_tenant
from tests.support.world import World


def of_pool(number: int, pool: str, price: str = "", kind: str = "A100") -> Node:
    """A node with two devices."""
    labels = ((POOL, pool), *(((PRICE, price),) if price else ()))
    return msgspec.structs.replace(a_node(number, devices=2, kind=kind), labels=labels)


def world(nodes: Sequence[Node], *tenants: Tenant, pools: Sequence[Pool] = ()) -> World:
    config = a_config(*(tenants or (a_tenant("vision", 2),)))
    return World(msgspec.structs.replace(config, nodes=tuple(nodes), pools=tuple(pools)))


def ask(world: World) -> MoreAnswer:
    before = msgspec.msgpack.encode(world.state.image())
    pools = growable(world.state.config)
    question = MoreQuestion(world.now, before, pools, Millis(0))
    found = more_nodes(question, POLICIES, lambda: False)
    assert msgspec.msgpack.encode(world.state.image()) == before
    return found


def test_the_least_number_of_nodes_is_found_for_each_job_in_turn() -> None:
    there = world([of_pool(0, "big", "32.77")], pools=[Pool("big", most=20)])
    there.submit(a_job().gpus(2))
    there.cycle()
    first = there.submit(a_job().tasks(3).gpus(1))
    second = there.submit(a_job().tasks(2).gpus(2))
    third = there.submit(a_job().gpus(1))
    there.cycle()
    assert ask(there) == MoreAnswer(
        (
            Helped(first, (Way((Added("big", 2),), 65_540),)),
            Helped(second, (Way((Added("big", 2),), 65_540),)),
            Helped(third, ()),  # in what the first leaves of its second node
        ),
        looked_at=3,
        waiting=3,
    )


def test_of_several_pools_the_cheapest_way_is_the_first() -> None:
    nodes = [of_pool(0, "dear", "40"), of_pool(1, "cheap", "19.5"), of_pool(2, "odd", "free")]
    there = world(nodes, a_tenant("vision", 100))
    there.submit(a_job().tasks(3).gpus(2))
    there.cycle()
    waits = there.submit(a_job().gpus(2))
    there.cycle()
    (helped,) = ask(there).helped
    assert helped == Helped(
        waits,
        (
            Way((Added("cheap", 1),), 19_500),
            Way((Added("dear", 1),), 40_000),
            Way((Added("odd", 1),), UNKNOWN),
        ),
    )


def test_a_job_that_waits_for_its_quota_needs_no_nodes() -> None:
    there = world([of_pool(0, "big"), of_pool(1, "big")], a_tenant("vision", 2, borrow=False))
    there.submit(a_job().gpus(2))
    there.cycle()
    waits = there.submit(a_job().gpus(2))
    there.cycle()
    blocked = there.why(waits)
    assert blocked is not None
    assert blocked.reason is Reason.QUOTA
    assert ask(there) == MoreAnswer((), looked_at=1, waiting=1)


def test_a_job_for_which_others_make_room_needs_no_nodes() -> None:
    there = world([of_pool(0, "big")], a_tenant("vision", 2), a_tenant("nlp", 0))
    there.submit(a_job().of("nlp").gpus(2))
    there.cycle()
    there.submit(a_job().gpus(2))  # the borrower is told to go
    assert ask(there).helped == ()


@pytest.mark.parametrize("order", [QueueOrder.SKIP, QueueOrder.STRICT])
def test_a_pool_has_no_more_nodes_than_it_may_have(order: QueueOrder) -> None:
    pools = [Pool("big", 1_000, most=2)]
    there = world([of_pool(0, "big")], a_tenant("vision", 100, order=order), pools=pools)
    there.submit(a_job().gpus(2))
    there.cycle()
    there.submit(a_job().tasks(2).gpus(2))
    small = there.submit(a_job().gpus(2))
    there.cycle()
    may_pass = order is QueueOrder.SKIP
    assert [each.job for each in ask(there).helped] == ([small] if may_pass else [])


def test_nodes_of_two_pools_are_joined_where_neither_is_enough() -> None:
    pools = [Pool("dear", 9_000, most=2), Pool("cheap", 1_000, most=2)]
    there = world([of_pool(0, "dear"), of_pool(1, "cheap")], pools=pools)
    there.submit(a_job().tasks(2).gpus(2))
    there.cycle()
    there.submit(a_job().tasks(2).gpus(2))
    there.cycle()
    (helped,) = ask(there).helped
    assert helped.ways == (Way((Added("cheap", 1), Added("dear", 1)), 10_000),)


def test_a_job_larger_than_the_cluster_waits_where_a_pool_may_grow() -> None:
    there = world([of_pool(0, "big")], pools=[Pool("big", most=4)])
    waits = there.submit(a_job().tasks(4).gpus(2))
    there.cycle()
    (helped,) = ask(there).helped
    assert helped == Helped(waits, (Way((Added("big", 3),)),))
    blocked = there.why(waits)
    assert blocked is not None
    assert "waits for more nodes" in blocked.message
    with pytest.raises(Rejected, match="can never start here"):
        there.submit(a_job().tasks(5).gpus(2))


def test_without_a_bound_a_pool_is_taken_to_stay_as_it_is() -> None:
    there = world([of_pool(0, "big")])
    assert not fits_when_grown(there.state, shape_of(a_job().tasks(2).gpus(2).spec()))
    with pytest.raises(Rejected, match="can never start here"):
        there.submit(a_job().tasks(2).gpus(2))


def test_a_pool_without_nodes_is_as_the_configuration_describes_it() -> None:
    like = of_pool(0, "new", kind="H100")
    there = world([of_pool(0, "old")], pools=[Pool("new", 5_000, 3, like)])
    waits = there.submit(a_job().gpus(2).types("H100"))
    there.cycle()
    assert ask(there).helped == (Helped(waits, (Way((Added("new", 1),), 5_000),)),)


def test_a_pool_of_which_nothing_is_known_is_left_out() -> None:
    there = world([of_pool(0, "old")], pools=[Pool("new", 5_000, 3)])
    assert [pool.name for pool in growable(there.state.config)] == ["old"]


def test_a_search_that_takes_too_long_says_how_far_it_came() -> None:
    there = world([of_pool(0, "big")])
    there.submit(a_job().gpus(2))
    there.submit(a_job().gpus(2))
    there.submit(a_job().gpus(2))
    there.cycle()
    image = msgspec.msgpack.encode(there.state.image())
    question = MoreQuestion(there.now, image, growable(there.state.config), Millis(0))
    looks = iter((False, True))
    found = more_nodes(question, POLICIES, lambda: next(looks))
    assert (len(found.helped), found.looked_at, found.waiting) == (1, 1, 2)


@pytest.mark.parametrize(
    ("text", "milli"),
    [("32.77", 32_770), ("5", 5_000), (".5", 500), ("0.125", 125), ("0", 0), ("", UNKNOWN),
     ("$5", UNKNOWN), ("1.2345", UNKNOWN), ("1.2.3", UNKNOWN), ("-1", UNKNOWN), (".", UNKNOWN),
     ("9" * 40, UNKNOWN)],
)  # fmt: skip
def test_a_price_on_a_label_is_in_thousandths(text: str, milli: int) -> None:
    assert price_in(text) == milli


def test_config_without_pools_has_none() -> None:
    config: Config = a_config(a_tenant("vision", 1))
    assert growable(config) == ()

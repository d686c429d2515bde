"""What one place in the tree of quotas holds, against what bounds it."""

import pytest
from msgspec.structs import replace

from allotment.core.quota import Account, asked, limit_of, parted
from allotment.core.request import Request
from allotment.model.amounts import amounts
from allotment.model.quantity import Resources
from allotment.model.tenancy import Queue, Terms


def an_account(
    *,
    limit: dict[str, int] | None = None,
    guaranteed: dict[str, int] | None = None,
    use: dict[str, int] | None = None,
) -> Account:
    account = Account("t", "q", limit or {})
    account.guaranteed = guaranteed or {}
    account.count(use or {}, +1)
    return account


def test_what_is_given_back_is_no_part_of_it_any_more() -> None:
    account = an_account(use={"gpu": 2, "cpu": 0})
    assert account.use == {"gpu": 2}
    account.count({"gpu": 2, "cpu": 3}, -1)
    assert account.use == {"cpu": -3}
    account.count({"cpu": 3}, +1)
    assert account.use == {}


@pytest.mark.parametrize(
    ("use", "more", "part"),
    [
        (2, {"gpu": 2}, ""),
        (2, {"gpu": 3}, "gpu"),
        (5, {"cpu": 1}, ""),
        (5, {"gpu": 0}, ""),
        (4, {"gpu": 1}, "gpu"),
        (0, {"gpu": 1, "cpu": 9}, "cpu"),
    ],
)
def test_a_limit_matters_to_who_wants_more_of_it(
    use: int, more: dict[str, int], part: str
) -> None:
    account = an_account(limit={"gpu": 4, "cpu": 8}, use={"gpu": use})
    assert account.exceeded(more) == part


def test_a_limit_that_was_cut_is_overdrawn_and_too_much_is_so_by_itself() -> None:
    account = an_account(limit={"gpu": 4}, use={"gpu": 4})
    assert account.overdrawn() == ""
    account.count({"gpu": 1}, +1)
    assert account.overdrawn() == "gpu"
    assert (account.too_much({"gpu": 4}), account.too_much({"gpu": 5})) == ("", "gpu")


def test_what_it_does_not_use_of_its_guarantee_is_spare() -> None:
    account = an_account(guaranteed={"gpu": 4, "cpu": 2}, use={"gpu": 1, "cpu": 2})
    assert account.spare() == {"gpu": 3}
    by_type = an_account(guaranteed={"gpu": 2, "gpu:A100": 3, "gpu:T4": 1}, use={"gpu": 1})
    assert by_type.spare() == {"gpu": 4, "gpu:A100": 3, "gpu:T4": 1}
    more = an_account(guaranteed={"gpu": 9, "gpu:A100": 3})
    assert more.spare()["gpu"] == 9


@pytest.mark.parametrize(
    ("use", "held", "within"),
    [(4, {"gpu": 1}, True), (5, {"gpu": 1}, False), (4, {"cpu": 1}, False), (4, {}, False)],
)
def test_what_is_held_lies_within_a_guarantee_of_which_it_holds_any(
    use: int, held: dict[str, int], within: bool
) -> None:
    account = an_account(guaranteed={"gpu": 4}, use={"gpu": use})
    assert account.holds_within(held) is within


@pytest.mark.parametrize(("more", "covered"), [({"gpu": 2}, True), ({"gpu": 3}, False)])
def test_a_guarantee_covers_what_it_has_left(more: dict[str, int], covered: bool) -> None:
    account = an_account(guaranteed={"gpu": 4}, use={"gpu": 2})
    assert account.covers(more) is covered


def test_two_queues_part_below_what_is_around_both() -> None:
    train, tune, research, default = (Account("t", name, {}) for name in "abcd")
    assert parted((train, research), (tune, research)) == (1, 1)
    assert parted((train, research), (default,)) == (2, 1)
    assert parted((train, research), (train, research)) == (0, 0)
    assert parted((train, research), (research,)) == (1, 0)


@pytest.mark.parametrize(
    ("types", "there", "parts"),
    [
        ((), (), {"gpu": 4000}),
        ((), ("A100",), {"gpu": 4000, "gpu:A100": 4000}),
        ((), ("A100", "T4"), {"gpu": 4000}),
        (("T4",), ("A100", "T4"), {"gpu": 4000, "gpu:T4": 4000}),
        (("T4", "A100"), ("A100", "T4"), {"gpu": 4000}),
    ],
)
def test_devices_count_by_type_where_only_one_type_will_do(
    types: tuple[str, ...], there: tuple[str, ...], parts: dict[str, int]
) -> None:
    requests = (Request(2, Resources(gpu_milli=2000), types),)
    more = asked(requests, there)
    devices = {part: n for part, n in more.items() if part == "gpu" or part.startswith("gpu:")}
    assert devices == parts
    assert more["jobs"] == 1
    without = (Request(2, Resources(cpu_milli=2000), types),)
    assert not any(part.startswith("gpu:") for part in asked(without, there))


def test_a_queue_that_may_not_borrow_is_limited_to_what_is_its_own() -> None:
    own = amounts({"gpu": 4, "cpu": 8})
    queue = Queue("q", limit=amounts({"gpu": 6, "memory": 1}), terms=Terms(own), max_jobs=3)
    assert limit_of(queue) == {"gpu": 6, "memory": 1, "jobs": 3}
    alone = replace(queue, terms=Terms(own, borrow=False), max_jobs=None)
    assert limit_of(alone) == {"gpu": 4, "memory": 1, "cpu": 8}

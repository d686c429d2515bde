"""Budgets in the configuration, and what does not add up."""

from datetime import UTC, datetime

import pytest

from allotment.model.budget import FOREVER, GPU_HOUR, Budget, Every
from allotment.model.errors import BadInput
from allotment.model.quantity import SECOND, WallTime
from allotment.wire.config import config_to_wire, read_config
from allotment.wire.config_budgets import write_date, write_hours
from allotment.wire.tree import Plain

NODE = "nodes: [{name: n, cpu: 8, memory: 8GiB, gpu: {type: A, count: 8}}]\n"


def text_of(budgets: str) -> bytes:
    return (
        f"{NODE}tenants: {{t: {{queues: {{default: , night: }}, budgets: [{budgets}]}}}}"
    ).encode()


def budgets(text: str) -> tuple[Budget, ...]:
    config, warnings = read_config(text_of(text), source="c.yaml", machine=None)
    assert not warnings
    return config.tenants[0].budgets


def written(text: str) -> Plain:
    config, _ = read_config(text_of(text), source="c.yaml", machine=None)
    tenants = config_to_wire(config)["tenants"]
    assert isinstance(tenants, dict)
    tenant = tenants["t"]
    assert isinstance(tenant, dict)
    return tenant.get("budgets")


def day(*date: int) -> WallTime:
    return WallTime(int(datetime(*date, tzinfo=UTC).timestamp()) * SECOND)  # pyright: ignore


def test_every_key_gets_to_its_place() -> None:
    found = budgets(
        "{every: month, soft: 12.5, hard: 5000}, {every: week, hard: 1, queue: night}, "
        "{every: day, soft: 1, user: bob}, {every: day, hard: 1, each_user: true}, "
        "{until: 2027-01-01, from: '2026-10-01T12:00+02:00', hard: 0.001}, "
        "{until: 2028-01-01, hard: 1}"
    )
    assert found == (
        Budget(Every.MONTH, soft=GPU_HOUR * 25 // 2, hard=5000 * GPU_HOUR),
        Budget(Every.WEEK, hard=GPU_HOUR, queue="night"),
        Budget(Every.DAY, soft=GPU_HOUR, user="bob"),
        Budget(Every.DAY, hard=GPU_HOUR, each_user=True),
        Budget(
            Every.NEVER, hard=GPU_HOUR // 1000, begin=day(2026, 10, 1, 10), end=day(2027, 1, 1)
        ),
        Budget(Every.NEVER, hard=GPU_HOUR, end=day(2028, 1, 1)),
    )
    assert found[0].end == FOREVER


def test_they_are_written_as_they_are_read() -> None:
    assert written(
        "{every: month, soft: 12.5, hard: 5000, queue: night, user: bob}, "
        "{hard: 1, from: '2026-10-01T12:30', until: 2027-01-01, each_user: true}"
    ) == [
        {"soft": 12.5, "hard": 5000, "every": "month", "queue": "night", "user": "bob"},
        {"hard": 1, "from": "2026-10-01T12:30:00Z", "until": "2027-01-01", "each_user": True},
    ]
    assert written("") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{every: month}", "budgets[0].hard: is missing"),
        ("{hard: 5}", "budgets[0].every: is missing"),
        ("{every: year, hard: 5}", "must be day, week or month, not 'year'"),
        ("{every: day, hard: 5, soft: 6}", "budgets[0].soft: is more than `hard`"),
        ("{every: day, hard: 0}", "must be more than 0"),
        ("{every: day, hard: -1}", "must be more than 0"),
        ("{every: day, hard: lots}", "must be a number of GPU-hours"),
        ("{every: day, hard: 0.0001}", "finer than a thousandth"),
        ("{every: day, hard: 1e12}", "more than 1,000,000,000 GPU-hours"),
        ("{every: day, hard: .inf}", "must be a number of GPU-hours"),
        ("{every: day, hard: 1, until: 2027-01-01}", "budgets[0].until: is given beside"),
        ("{every: day, hard: 1, from: 2027-01-01}", "budgets[0].from: is given beside"),
        ("{hard: 1, from: 2027-01-02, until: 2027-01-01}", "from: is not before `until`"),
        ("{hard: 1, until: tomorrow}", "must be a date, not 'tomorrow'"),
        ("{hard: 1, until: 0001-01-01}", "too far away"),
        ("{every: day, hard: 1, queue: nihgt}", "tenant t has no queue nihgt"),
        ("{every: day, hard: 1, user: bob, each_user: true}", "is given beside `user`"),
        (
            "{every: day, hard: 1}, {every: day, soft: 2}",
            "of the same jobs and time as budgets",
        ),
        ("{every: day, hard: 1, colour: red}", "there is no key `colour`"),
    ],
)
def test_what_does_not_add_up(text: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        budgets(text)
    assert len(caught.value.problems) == 1
    assert said in str(caught.value.problems[0])


def test_amounts_and_dates_read_back() -> None:
    for milli in (1, 10, 999, 1000, 12_500, 10**9):
        amount = GPU_HOUR * milli // 1000
        (budget,) = budgets(f"{{every: day, hard: {write_hours(amount)}}}")
        assert budget.hard == amount
    for at in (day(2026, 1, 1), day(2026, 1, 1, 3, 4, 5)):
        (budget,) = budgets(f"{{hard: 1, until: '{write_date(at)}'}}")
        assert budget.end == at

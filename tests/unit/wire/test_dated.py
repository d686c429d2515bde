"""Changes by date in the configuration: read, written, and what does not add up."""

from datetime import UTC, datetime

import pytest

from allotment.model.budget import FOREVER
from allotment.model.cells import CellShare
from allotment.model.dated import as_written, in_force, moments
from allotment.model.errors import BadInput
from allotment.model.quantity import GIB, SECOND, Resources, WallTime
from allotment.model.tenancy import Config, Tenant
from allotment.service.dated import coming, dated, over
from allotment.wire.config import config_to_wire, read_config
from allotment.wire.dated_read import MOST_CHANGES
from allotment.wire.text import text_of

NODE = "nodes: [{name: n, cpu: 8, memory: 8GiB, gpu: {type: A, count: 8}}]\n"
CELLS = 'hardware: ["2 x 8xV100 in racks of 2"]\n'


def day(*date: int) -> WallTime:
    return WallTime(int(datetime(*date, tzinfo=UTC).timestamp()) * SECOND)  # pyright: ignore


def read(tenants: str, machines: str = NODE) -> Config:
    config, warnings = read_config(
        f"{machines}tenants:\n{tenants}".encode(), source="c.yaml", machine=None
    )
    assert not warnings
    return config


def tenant(config: Config, name: str, at: WallTime) -> Tenant:
    return next(each for each in in_force(config, at).tenants if each.name == name)


DEADLINE = """
  vision:
    guaranteed: {gpu: 4}
    changes:
      - {from: 2026-12-01, until: '2026-12-15T18:00', guaranteed: {gpu: 6}, weight: 2}
      - {from: '2027-01-01T00:00+02:00', borrow: false}
    queues:
      train:
        limit: {gpu: 3}
        queues:
          big: {changes: [{until: 2026-11-30, limit: {gpu: 1}}]}
        changes:
          - {from: 2026-12-05, until: 2026-12-08, limit: {}, guaranteed: {gpu: 2}, lend: false}
  speech: {guaranteed: {gpu: 2}}
"""


CAPS = """
  vision:
    guaranteed: {gpu: 4}
    per_user: {gpu: 4}
    changes:
      - {from: 2026-12-01, until: 2026-12-15, per_user: {gpu: 2, cpu: 3}}
      - {from: 2026-12-15, until: 2026-12-20, per_user: {}}
      - {from: 2026-12-20, until: 2026-12-25, weight: 2}
    queues:
      train:
        max_jobs: 4
        changes:
          - {from: 2026-12-01, until: 2026-12-15, max_jobs: 2, per_user: {gpu: 1}}
          - {from: 2026-12-15, until: 2026-12-20, max_jobs: none, per_group: {gpu: 2}}
"""


def test_each_key_stands_in_place_of_the_usual_one_while_it_holds() -> None:
    config = read(DEADLINE)
    usual, then = tenant(config, "vision", day(2026, 11, 30)), day(2026, 12, 1)
    assert usual.guaranteed == Resources(4000, 4000, 4 * GIB)
    larger = tenant(config, "vision", then)
    assert larger.guaranteed.gpu_milli == 6000
    assert larger.weight_milli == 2000
    assert tenant(config, "vision", WallTime(then - 1)) == usual
    assert tenant(config, "vision", day(2026, 12, 15, 18)) == usual
    assert not tenant(config, "vision", day(2026, 12, 31, 22)).borrow, "two hours before UTC"
    assert tenant(config, "speech", then) == tenant(config, "speech", WallTime(0))


def test_a_queue_changes_beside_its_tenant() -> None:
    config = read(DEADLINE)
    train = tenant(config, "vision", day(2026, 12, 6)).queue("train")
    assert train is not None
    assert not train.limit
    assert not train.terms.lend
    assert train.guaranteed.get("gpu") == 2000
    assert tenant(config, "vision", day(2026, 12, 6)).guaranteed.gpu_milli == 6000
    big = tenant(config, "vision", WallTime(0)).queue("train.big")
    assert big is not None
    assert big.limit.get("gpu") == 1000


def test_what_is_written_stays_what_it_was() -> None:
    config = read(DEADLINE)
    assert len(moments(config)) == 7, "and the beginning, for `big`"
    changed = in_force(config, day(2026, 12, 6))
    assert changed != config
    assert as_written(changed) == config
    assert in_force(changed, day(2026, 12, 20)) == config
    assert config_to_wire(changed) == config_to_wire(config)


@pytest.mark.parametrize("text", [NODE + "tenants:" + each for each in (DEADLINE, CAPS)])
def test_it_reads_back_as_it_is_written(text: str) -> None:
    import msgspec  # noqa: PLC0415 - only to write

    config, _ = read_config(text.encode(), source="c.yaml", machine=None)
    again, _ = read_config(
        msgspec.json.encode(config_to_wire(config)), source="again", machine=None
    )
    assert again == config
    assert text_of(text.encode(), "c.yaml") == text


def test_caps_and_the_most_jobs_change_too() -> None:
    config = read(CAPS)
    usual, *then = (tenant(config, "vision", day(2026, 12, at)) for at in (30, 2, 16, 21))
    assert [each.per_user.gpu_milli for each in (usual, *then)] == [4000, 2000, 0, 4000]
    assert then[0].per_user.cpu_milli == 3000
    queues = [queue for each in (usual, *then) if (queue := each.queue("train"))]
    assert [queue.max_jobs for queue in queues] == [4, 2, None, 4]
    assert [queue.per_user.get("gpu") for queue in queues] == [None, 1000, None, None]
    assert [queue.per_group.get("gpu") for queue in queues] == [None, None, 2000, None]
    assert [change.detail for change in coming(config, WallTime(0))] == [
        "per_user 4 GPUs → 3 CPUs + 2 GPUs",
        "max_jobs 4 → 2, per_user none → 1 GPU",
        "per_user 4 GPUs → none",
        "max_jobs 4 → none, per_group none → 2 GPUs",
        "weight 1 → 2",
    ]


def test_cells_change_and_what_they_hold_follows() -> None:
    config = read(
        "  a: {cells: {8xV100-node: 1}, guaranteed: {gpu: 8}, "
        "changes: [{from: 2027-01-01, cells: {8xV100-node: 2}}]}\n  b: {}\n",
        CELLS,
    )
    then = tenant(config, "a", day(2027, 1, 1))
    assert then.cells == (CellShare("8xV100-node", 2),)
    assert then.guaranteed.gpu_milli == 16_000
    written = config_to_wire(config)["tenants"]
    assert isinstance(written, dict)
    assert isinstance(written["a"], dict)
    assert written["a"]["changes"] == [{"from": "2027-01-01", "cells": {"8xV100-node": 2}}]


def wrong(tenants: str, machines: str = NODE) -> str:
    with pytest.raises(BadInput) as caught:
        read(tenants, machines)
    return str(caught.value)


def a_tenant(changes: str, usual: str = "guaranteed: {gpu: 4}") -> str:
    return (
        f"  t:\n    {usual}\n    changes:\n      {changes}\n"
        "  other: {guaranteed: {gpu: 3}}\n"
    )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ("[{guaranteed: {gpu: 1}}]", "changes[0].from: is missing (add from: 2026-12-01"),
        ("[{from: 2026-12-02, until: 2026-12-01, weight: 2}]", "from: is not before `until`"),
        ("[{from: 2026-12-01, until: 2026-12-01, weight: 2}]", "from: is not before `until`"),
        ("[{from: 2026-12-01}]", "changes[0]: changes nothing"),
        ("[{from: Monday, weight: 2}]", "must be a date"),
        (
            "[{from: 2026-12-01, limit: {gpu: 1}}]",
            "changes[0].limit: there is no key `limit` here",
        ),
        ("[{from: 2026-12-01, pins: [p]}]", "changes[0].pins: there is no key `pins` here"),
        ("[{from: 2026-12-01, weight: -1}]", "changes[0].weight"),
        ("{from: 2026-12-01, weight: 2}", "changes: must be a list"),
    ],
)
def test_bad_changes_are_refused(changes: str, told: str) -> None:
    found = wrong(a_tenant(changes))
    assert found.startswith(("c.yaml: line 5: tenants.t", "c.yaml: line 6: tenants.t"))
    assert told in found


def test_changes_of_one_owner_do_not_overlap() -> None:
    several = """
      - {from: 2026-12-01, until: 2027-01-01, weight: 2}
      - {from: 2027-01-01, until: 2027-02-01, weight: 3}
      - {from: 2026-12-31, until: 2027-01-01, borrow: false}"""
    found = wrong(a_tenant(several.lstrip()))
    assert (
        "line 8: tenants.t.changes[2]: overlaps changes[0], which holds until 2027-01-01"
        in (found)
    )
    for_ever = "[{from: 2026-12-01, weight: 2}, {from: 2030-01-01, weight: 3}]"
    assert "changes[1]: overlaps changes[0], which holds for ever" in wrong(a_tenant(for_ever))


def test_a_guarantee_that_cannot_be_met_then_is_refused_with_its_date() -> None:
    found = wrong(a_tenant("[{from: 2026-12-01, until: 2027-01-01, guaranteed: {gpu: 6}}]"))
    assert (
        "line 6: tenants.t.changes[0].guaranteed.gpu: from 2026-12-01 on: all guarantees"
        in (found)
    )
    assert "9 GPU, which is 1 GPU more than there is" in found


def test_two_changes_that_meet_are_looked_at_together() -> None:
    # Each could be met alone; from the fifth to the tenth they hold both.
    found = wrong(
        "  a: {changes: [{from: 2026-12-01, until: 2026-12-10, guaranteed: {gpu: 5}}]}\n"
        "  b: {changes: [{from: 2026-12-05, until: 2026-12-20, guaranteed: {gpu: 5}}]}\n"
    )
    assert "from 2026-12-05 on: all guarantees of gpu add up to 10 GPU" in found
    assert "2026-12-10" not in found
    assert read(
        "  a: {changes: [{from: 2026-12-01, until: 2026-12-05, guaranteed: {gpu: 5}}]}\n"
        "  b: {changes: [{from: 2026-12-05, until: 2026-12-20, guaranteed: {gpu: 5}}]}\n"
    )


def test_queues_that_have_more_than_their_tenant_then_are_refused() -> None:
    found = wrong(
        "  t:\n"
        "    guaranteed: {gpu: 4}\n"
        "    changes: [{from: 2026-12-01, guaranteed: {gpu: 2}}]\n"
        "    queues: {q: {guaranteed: {gpu: 3}}}\n"
    )
    assert "line 5: tenants.t.changes[0]: from 2026-12-01 on: the queues inside" in found


def test_cells_that_cannot_be_had_then_are_refused() -> None:
    found = wrong(
        "  a: {cells: {8xV100-node: 1}}\n"
        "  b: {changes: [{from: 2027-01-01, cells: {8xV100-rack: 1}}]}\n",
        CELLS,
    )
    assert "line 4: tenants.b.changes[0]" in found
    assert "from 2027-01-01 on:" in found


def test_too_many_changes() -> None:
    many = ", ".join(
        f"{{from: 20{y:02}-01-01, until: 20{y:02}-06-01, weight: 2}}" for y in range(10, 90)
    )
    queues = ", ".join(f"q{n}: {{changes: [{many}]}}" for n in range(3))
    assert f"{MOST_CHANGES} are accepted" in wrong(f"  t: {{queues: {{{queues}}}}}\n")


def test_a_change_that_changes_nothing_is_left_out_and_told() -> None:
    text = NODE + "tenants: {t: {weight: 2, changes: [{from: 2026-12-01, weight: 2}]}}"
    config, warnings = read_config(text.encode(), source="c.yaml", machine=None)
    assert config.changes == ()
    assert "changes nothing" in str(warnings[0])


def test_what_is_over_is_told_and_what_is_to_come_is_listed() -> None:
    config = read(DEADLINE)
    now = day(2026, 12, 10)
    assert list(over(config, now)) == [
        "queue vision/train.big: the change until 2026-11-30 is over; remove it",
        "queue vision/train: the change from 2026-12-05 until 2026-12-08 is over; remove it",
    ]
    first, second = coming(config, now)
    assert (first.when, first.what) == (
        "from 2026-12-01 until 2026-12-15 18:00 UTC",
        "tenant vision",
    )
    assert first.detail.startswith("guaranteed 4 GPU")
    assert (second.when, second.until) == ("from 2026-12-31 22:00 UTC", None)
    assert second.detail == "borrow true → false"
    assert config.changes[-1].end == FOREVER


def test_changes_that_come_and_go_with_a_file_are_differences() -> None:
    old = read(DEADLINE)
    new = read(DEADLINE.replace("until: 2026-12-08", "until: 2026-12-09"))
    assert [(each.sign, each.what) for each in dated(old, new)] == [
        ("-", "queue vision/train from 2026-12-05 until 2026-12-08"),
        ("+", "queue vision/train from 2026-12-05 until 2026-12-09"),
    ]
    assert list(dated(old, old)) == []

"""What stands idle while a tenant's first job waits: for its shape, or for its number."""

from collections.abc import Sequence

from allotment.model.quantity import DEVICE, Resources
from allotment.sim.trace import Trace, TraceJob
from bench.anomaly.arms import Arm, Kind
from bench.anomaly.measure import Result, play
from bench.anomaly.waiting import Idle
from bench.anomaly.workload import Workload, as_tasks


def played(rows: Sequence[tuple[int, int, int]], kind: Kind, scheduler: str = "FIFO") -> Result:
    """Play jobs given as (at, devices, run) on a tenant's two nodes beside an idle one."""
    need = Resources(gpu_milli=DEVICE)
    jobs = tuple(
        as_tasks(TraceJob(f"{place}", at, run, 1, need, "a"), devices)
        for place, (at, devices, run) in enumerate(rows)
    )
    workload = Workload(Trace("drawn", "simple", "", jobs), {"a": 2, "b": 1})
    return play(Arm(kind, scheduler), workload, 0)


APART = [(0, 6, 1000), (1, 6, 1000), (2, 4, 10), (3, 1, 10)]
"""Two leave two devices on each node; a task of four comes, and one of one behind it."""


def test_what_is_left_lies_apart_on_own_nodes() -> None:
    for kind in ("private", "cells"):
        # From 2 on four are idle; at 1000 the first node comes free.
        assert played(APART, kind).idle["a"] == Idle(shape_ms=4 * 998)


def test_on_one_machine_and_beside_an_idle_node_it_does_not() -> None:
    for kind in ("loose", "quota"):
        result = played(APART, kind)
        # The job of one waits until the four end at 12.
        assert result.idle["a"] == Idle()
        assert result.delays["a"].mean == 9 / 4


def test_too_few_are_left_wherever_they_lie() -> None:
    rows = [(0, 10, 100), (1, 8, 10), (2, 1, 10)]
    for kind in ("private", "loose", "quota", "cells"):
        assert played(rows, kind).idle["a"].few_ms == 99 * 6


def test_whoever_passes_is_counted() -> None:
    rows = [(0, 16, 100), (1, 16, 100), (2, 1, 10), (50, 1, 10)]
    assert played(rows, "cells").idle["a"].overtakers == 0
    assert played([(0, 8, 100), *rows[1:]], "cells", "packing").idle["a"].overtakers == 2


def test_where_shares_are_only_counted_nobody_is_passed_either() -> None:
    rows = [(0, 10, 100), (1, 8, 10), (2, 1, 10)]
    assert played(rows, "counted").idle["a"].overtakers == 0
    assert played(rows, "quota").idle["a"].overtakers == 0

"""What may break on a Kubernetes cluster, broken under load: nothing lost, nothing run twice.

Two services run jobs on one cluster, and the first places pods of others as well. What they say
is checked against marks that all pods leave on the disk, against locks of the kernel's, one a
device and one a task, that are held for as long as a process of a pod lives, and against a
witness that asks the API server alone.
"""

from typing import Any

import pytest

from tests.support.chaos import DRAINED_S
from tests.support.kube_chaos import (
    FAULTS,
    HALF_S,
    HERE,
    Chaos,
    Makers,
    OnCluster,
    a_folder,
    make_room,
    nothing_is_left,
    play,
    shuffled,
)
from tests.support.kube_judge import Play, judge, judge_others
from tests.support.kubernetes import GPUS, MARKS, a_kubernetes
from tests.support.line import a_line
from tests.support.pod_witness import Findings, Sighting

KINDS = (
    "service", "apiserver", "etcd", "cut", "compacted", "controllers", "bind", "delete",
    "edit", "rival",
)  # fmt: skip

pytestmark = MARKS


@pytest.mark.timeout(3 * DRAINED_S + 20 * FAULTS)
def test_nothing_is_lost_and_nothing_runs_twice() -> None:
    order, rng = shuffled(KINDS)
    with a_kubernetes() as kubernetes, a_folder() as folder, a_line(kubernetes.port) as line:
        make_room(kubernetes)
        services = [
            OnCluster(folder, "first", kubernetes, line.port, f"{HERE}: c"),
            OnCluster(folder, "second", kubernetes, kubernetes.port, ""),
        ]
        try:
            for service in services:
                service.up()
            chaos = Chaos(services, kubernetes, line, rng)
            played = play(chaos, order, Makers(kubernetes, folder))
            nothing_is_left(chaos)
        finally:
            for service in services:
                service.down()
    judge(played)


# ── the checker checked ─────────────────────────────────────────────────────────────────


def gang(index: int, **more: Any) -> Sighting:
    """Return a pod of a gang of two."""
    return Sighting(f"x/g-{index}", f"uid-{index}", "x/g", 2, gpus=1, **more)


@pytest.mark.parametrize(
    "looks",
    [
        [[Sighting(f"x/{n}", f"u{n}", node="n1", gpus=1, is_running=True) for n in range(5)]],
        [
            [Sighting("x/1", "u1", node="n1", is_running=True)],
            [Sighting("x/1", "u2", node="n1", is_running=True)],
        ],
        [[gang(0, node="n1"), gang(1)]] * (HALF_S + 3),
        [[gang(0, node="n1", is_running=True)]] * (HALF_S + 3),
    ],
)
def test_the_witness_sees_what_is_wrong(looks: list[list[Sighting]]) -> None:
    findings = Findings(GPUS, HALF_S)
    for second, look in enumerate(looks):
        findings.take(float(second), look)
    assert findings.wrong


def test_the_witness_sees_nothing_where_nothing_is_wrong() -> None:
    both = [gang(0, node="n1", is_running=True), gang(1, node="n2", is_running=True)]
    findings = Findings(GPUS, HALF_S)
    for second in range(2 * HALF_S):
        look = both if second % 2 else both[:1]
        findings.take(float(second), look if second > 1 else [gang(0, node="n1"), gang(1)])
    for second in range(5):  # it was away for a minute at a time: nobody knows
        findings.take(1000.0 + 60 * second, [gang(5, node="n1")])
    assert not findings.wrong


def others(marks: str, *struck: str) -> Play:
    """Return what came of one gang and one Job of others."""
    found = Findings(GPUS, HALF_S)
    return Play({}, {}, {*struck}, {}, found, ["gang-1"], ["job-0"], marks)


WELL = (
    "begin gang-1-0\nend gang-1-0\nbegin gang-1-1\nend gang-1-1\nbegin job-0-x\nend job-0-x\n"
)


@pytest.mark.parametrize(
    ("marks", "struck"),
    [
        (WELL.replace("end gang-1-1\n", ""), ()),
        (WELL + "begin gang-1-1\n", ("team-a/gang-1-1",)),
        (WELL.replace("end job-0-x\n", ""), ("team-a/job-0-x",)),
        (WELL + "begin job-0-y\nend job-0-y\n", ()),
        (WELL + "twice job-0-x is there already\n", ()),
    ],
)
def test_the_checker_sees_what_others_lost(marks: str, struck: tuple[str, ...]) -> None:
    judge_others(others(WELL))
    judge_others(others(WELL.replace("end gang-1-1\n", ""), "team-a/gang-1-0"))
    judge_others(others(WELL + "begin job-0-y\nend job-0-y\n", "team-a/job-0-x"))
    with pytest.raises(AssertionError):
        judge_others(others(marks, *struck))

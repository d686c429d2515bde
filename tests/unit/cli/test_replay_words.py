"""How far a replay is off is told, where the policy of then was replayed."""

from types import SimpleNamespace
from typing import cast

import pytest

from allotment.cli.sim_replay_words import trusted
from allotment.sim.outcome import Run
from allotment.sim.replayed import Course, SideBySide


def a_course(jct: float) -> Course:
    return Course(0.0, 0.0, 0.0, jct, jct, jct, 0)


@pytest.mark.parametrize(
    ("policy", "was", "would", "changed", "said"),
    [
        ("own", 100.0, 95.3, False, "it is 4.7% off in mean completion"),
        ("own", 100.0, 104.7, False, "it is 4.7% off in mean completion"),
        ("own", 100.0, 100.4, False, "replays can be trusted"),
        ("own", 100.0, 95.3, True, "allot sim replay --policy own"),
        ("fifo", 100.0, 95.3, False, "allot sim replay --policy own"),
    ],
)
def test_how_far_it_is_off(
    policy: str, was: float, would: float, changed: bool, said: str
) -> None:
    run = cast("Run", SimpleNamespace(policy=policy))
    compared = SideBySide(3, 1, 1, a_course(was), a_course(would))
    assert said in trusted(run, compared, changed=changed)

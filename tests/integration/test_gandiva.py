"""The experiments after Gandiva, each in a small form: what their pages say stays true."""

import pytest

from allotment.model.quantity import MINUTE
from allotment.model.sweeps import Halving
from bench import automl, early_feedback, nine_days


def test_turns_give_early_results_and_packing_uses_devices_more() -> None:
    jobs, first_ms = early_feedback.workload(0, 90)
    found = {
        arm.name: early_feedback.play(jobs, first_ms, arm, nodes=4)
        for arm in early_feedback.ARMS
    }
    average = {
        name: sum(seen.after_ms.values()) / len(jobs) for name, (seen, _) in found.items()
    }
    used = {name: part for name, (_, part) in found.items()}
    ended = {name: seen.ended for name, (seen, _) in found.items()}
    assert all(len(seen.after_ms) == len(jobs) for seen, _ in found.values())
    assert average["round_robin"] < average["fifo"] * 0.1
    assert average["gandiva"] < average["fifo"] * 0.1
    assert ended["gandiva"] < ended["round_robin"], "suspended jobs go where it is idle"
    assert used["rounds, packing"] > used["fifo"] * 1.08
    assert used["rounds, packing"] < early_feedback.most_use(2)
    assert early_feedback.most_use(1) < early_feedback.most_use(2) < early_feedback.most_use(3)
    assert ended["rounds, packing"] < ended["rounds"]


def test_over_days_turns_shorten_completion() -> None:
    jobs = nine_days.workload(0, 300)
    took = {
        arm.name: nine_days.play(jobs, arm)
        for arm in nine_days.ARMS
        if arm.name in ("fifo", "turns", "gandiva")
    }
    assert {len(course.took_ms) for course in took.values()} == {len(jobs)}
    average = {name: sum(course.took_ms) / len(jobs) for name, course in took.items()}
    assert average["gandiva"] < average["fifo"] * 0.8
    assert took["gandiva"].ended < took["turns"].ended
    assert all(c.ended - nine_days.DAY >= nine_days.soonest(jobs) for c in took.values())


@pytest.mark.parametrize("devices", [4, 8])
def test_halving_finds_the_good_configuration_many_times_sooner(devices: int) -> None:
    made = automl.curves(0, trials=60, good=55)
    plain = automl.Trials(devices, made, None, 0.01).search()
    halved = automl.Trials(devices, made, Halving(automl.RUNGS), 0.01).search()
    assert plain.after_ms is not None
    assert halved.after_ms is not None
    assert plain.begun >= 55
    assert plain.after_ms > 2 * halved.after_ms
    assert halved.after_ms > 5 * MINUTE, "the good one has to be trained"

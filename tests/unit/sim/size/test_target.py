"""Targets as people write them."""

import msgspec
import pytest

from allotment.metrics.summarise import summarise
from allotment.metrics.usage import Totals
from allotment.sim.size_target import BadTarget, Condition, read_target, shown


def test_conditions_are_joined_by_commas_or_and() -> None:
    conditions = read_target("p90_queue_delay <= 30min and utilization>=50%, avg_jct_s<2h")
    assert [(c.metric, c.sign, c.bound) for c in conditions] == [
        ("p90_queue_delay_s", "<=", 1800.0),
        ("utilization", ">=", 0.5),
        ("avg_jct_s", "<", 7200.0),
    ]
    assert conditions[0].text == "p90_queue_delay <= 30min"
    assert conditions[0].limit == "<= 30min"


@pytest.mark.parametrize(
    ("text", "eased"),
    [
        ("avg_jct<=1h", True),
        ("utilization>=0.5", False),
        ("utilization<=0.7", True),
        ("throughput_jobs_per_h>=5", True),
        ("fairness.jain>0.9", True),
        ("fairness.worst_rho<3", True),
        ("avg_queue_delay>=1h", False),
        ("wait_causes.capacity<=1d", True),
        ("sla.both>=90%", True),
    ],
)
def test_what_more_nodes_are_good_for(text: str, *, eased: bool) -> None:
    (condition,) = read_target(text)
    assert condition.eased_by_size is eased


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("p90_queue_delay", "is not a condition"),
        ("p90_queue_delay==3", "is not a condition"),
        ("avg_jct<=1h and", "is not a condition"),
        ("p90_queue_dely<=1h", "Near: p90_queue_delay,"),
        ("zzzz<=1", "There are: avg_jct,"),
        ("sla.target_rho<=1", "no metric"),
        ("tenants<=1", "no metric"),
        ("avg_jct<=soon", "not a length of time"),
        ("avg_jct<=nan", "not a length of time"),
        ("utilization>=half", "neither a number"),
        ("utilization>=nan", "not a finite number"),
        ("utilization>=inf", "not a finite number"),
    ],
)
def test_what_cannot_be_read(text: str, said: str) -> None:
    with pytest.raises(BadTarget, match=said):
        read_target(text)


def test_what_is_of_completed_jobs_has_no_value_without_any() -> None:
    none = summarise([], Totals(), 1)
    one = msgspec.structs.replace(none, completed=1)
    text = "avg_jct<=1h, fairness.jain>0, sla.both>=0, wait_causes.quota<=1h, p99_response<=1s"
    for condition in read_target(text):
        assert condition.value(none) is None
        assert not condition.met(none)
        assert "no job completes" in condition.missed(none)
        assert condition.value(one) is not None
    for condition in read_target("makespan<=1h, failed<=0, utilization<=1, completed<=0"):
        assert condition.met(none)


def test_values_are_shown_with_their_units() -> None:
    assert shown("avg_jct_s", 90.0) == "1 min 30 s"
    assert shown("utilization", 0.512) == "51.2%"
    assert shown("preemptions", 1200) == "1,200"
    assert shown("avg_jct_s", None) == "–"
    assert Condition("avg_jct_s", "<=", 1.0, "avg_jct<=1").limit == "<=1"

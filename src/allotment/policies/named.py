"""The policies that a configuration names: how claimants are compared, how queues rank jobs."""

from collections.abc import Mapping

from allotment.core.ports import Estimates, Fairness, Ordering
from allotment.model.tenancy import RankBy, ShareBy
from allotment.policies.fairness.dominant import Dominant
from allotment.policies.fairness.max_min import MaxMin
from allotment.policies.fairness.over_time import OverTime
from allotment.policies.ordering.deadline import EarliestDeadline
from allotment.policies.ordering.las import LeastAttained
from allotment.policies.ordering.round_robin import RoundRobin
from allotment.policies.ordering.sjf import ShortestFirst

FAIRNESS: Mapping[ShareBy, Fairness] = {
    ShareBy.MAX_MIN: MaxMin(),
    ShareBy.DRF: Dominant(),
    ShareBy.FAIR_SHARE: OverTime(),
}


def ranking(estimates: Estimates) -> Mapping[RankBy, Ordering]:
    """Return the orderings of queues; a queue that names none goes by submission."""
    return {
        RankBy.SHORTEST: ShortestFirst(estimates),
        RankBy.LEAST_ATTAINED: LeastAttained(),
        RankBy.DEADLINE: EarliestDeadline(),
        RankBy.ROUND_ROBIN: RoundRobin(),
    }

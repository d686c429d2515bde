"""The policies of a service, and of the forecasts of what it will do."""

from allotment.core.policies import Policies
from allotment.policies.estimates.time_limit import TimeLimit
from allotment.policies.named import FAIRNESS, ranking
from allotment.policies.ordering.fifo import Fifo
from allotment.policies.placing.pack import Pack
from allotment.policies.rescheduling.growing import growing
from allotment.policies.sharing.borrow_and_return import BorrowAndReturn
from allotment.policies.victims.least_lost import LeastLost


def policies() -> Policies:
    """Return the policies of a service, one of each kind."""
    limits = TimeLimit()
    return Policies(
        Fifo(),
        BorrowAndReturn(),
        Pack(),
        LeastLost(),
        estimates=limits,
        rescheduler=growing,
        predicts=True,
        fairness=FAIRNESS,
        ranking=ranking(limits),
    )

"""The policies of a service, and of the forecasts of what it will do."""

from allotment.core.policies import Policies
from allotment.policies.estimates.promised import Promised
from allotment.policies.named import FAIRNESS, ranking
from allotment.policies.ordering.fifo import Fifo
from allotment.policies.placing.pack import Pack
from allotment.policies.rescheduling.growing import growing
from allotment.policies.sharing.borrow_and_return import BorrowAndReturn
from allotment.policies.victims.least_lost import LeastLost


def policies() -> Policies:
    """Return the policies of a service, one of each kind."""
    promised = Promised()
    return Policies(
        Fifo(),
        BorrowAndReturn(),
        Pack(),
        LeastLost(),
        estimates=promised,
        rescheduler=growing,
        predicts=True,
        fairness=FAIRNESS,
        ranking=ranking(promised),
    )

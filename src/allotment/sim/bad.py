"""What is wrong with a scenario, in words for its author."""

from allotment.model.errors import AllotmentError


class BadScenario(AllotmentError):
    """A trace, cluster, policy or setting that cannot be used: what, where, what to do next."""

"""Small traces made by hand."""

from collections.abc import Callable, Iterable

import pytest

from allotment.sim.trace import Trace, TraceJob

TraceOf = Callable[[Iterable[TraceJob]], Trace]


@pytest.fixture
def trace_of() -> TraceOf:
    """Make a trace of these jobs."""
    return lambda jobs: Trace("by-hand.csv", "simple", "0123456789abcdef", tuple(jobs))

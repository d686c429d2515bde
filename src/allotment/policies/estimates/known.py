"""Run times that are known beforehand: for simulations, from the trace."""

from collections.abc import Callable

from allotment.core.gang import Standing
from allotment.model.ids import JobId


class Known:
    """Ask a function of the job's id."""

    def __init__(self, run_ms: Callable[[JobId], int | None]) -> None:
        self._run_ms = run_ms

    def run_ms(self, job: Standing) -> int | None:
        return self._run_ms(job.id)

"""Jobs of ours in Slurm that no task stands behind any more. Pure.

A task may say that it ended and run on, since what it says lies in its user's folder; and an
answer of `sbatch` may be lost whose task is not wanted any more. Slurm has to end such jobs.
"""

from collections.abc import Container

from allotment.backends.slurm.status import RUNS, WAITS, Rows

STRAY_S = 10.0
"""How long a job may go on after its task: to come to its end takes it a moment."""
HERE = (RUNS | WAITS) - {"COMPLETING"}


class Strays:
    """What was seen without a task, and since when."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._since)

    def overdue(
        self, rows: Rows, prefix: str, wanted: Container[tuple[str, int]], now: float
    ) -> list[str]:
        """Return the numbers of the Slurm jobs to end. `wanted` are those with a task."""
        strays = {
            row.id
            for name, row in rows.items()
            if row.name.startswith(f"{prefix}-") and row.state in HERE and name not in wanted
        }
        self._since = {id_: self._since.get(id_, now) for id_ in strays}
        return sorted(id_ for id_, since in self._since.items() if now - since >= STRAY_S)

"""A grid of shares: what a map of the cluster is drawn from."""

import msgspec

from allotment.sim.report.scales import Ticks

Cells = list[list[float | None]]
"""The share in use by row and column; None where there is nothing to say."""


class Map(msgspec.Struct, frozen=True):
    """A grid of shares with the names of some rows."""

    cells: Cells
    rows: Ticks
    """Row numbers and their names."""
    row_name: str
    from_ms: int
    column_ms: int
    to_ms: int
    """Where the axis ends."""


def row_means(map_: Map) -> list[float]:
    """Average every row over what is known of it."""
    means: list[float] = []
    for row in map_.cells:
        known = [share for share in row if share is not None]
        means.append(sum(known) / len(known) if known else 0.0)
    return means

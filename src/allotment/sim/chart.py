"""What a picture of nodes, devices and single jobs needs: bounded, however long the run."""

import msgspec

COLUMNS = 128
"""The most columns of the map of the nodes; at least half of them are used."""

ROWS = 64
"""The most rows: of more nodes, neighbours share one."""

DEVICES, JOBS, SPANS = 64, 300, 800
"""Up to so many devices, jobs and stretches, every device and job is kept."""

LARGEST = 24
"""Of more, so many jobs are kept: those that ask for the most device-time."""

STRETCHES = 64
"""The most stretches of one such job: the shortest pauses are left out."""


class Span(msgspec.Struct, frozen=True, gc=False):
    """A stretch of time for which a job held its devices. Instants in ms."""

    job: int
    """Its place in `Run.jobs`."""
    from_ms: int
    to_ms: int
    sent_away: bool = False
    """It ended because the devices were taken from the job."""
    devices: tuple[tuple[int, int], ...] = ()
    """Places in `Chart.devices`, and how much of each in thousandths; empty if not kept."""


class Row(msgspec.Struct, frozen=True):
    """A node, or some neighbours, over time."""

    name: str
    """Of the first of them."""
    kind: str
    """The types of their devices."""
    capacity_milli: int
    busy: tuple[int, ...]
    """For each column: devices in use, in thousandths × milliseconds."""


class Chart(msgspec.Struct, frozen=True):
    """The cluster and its jobs over time."""

    from_ms: int
    column_ms: int
    rows: tuple[Row, ...]
    nodes_a_row: int
    jobs: tuple[int, ...]
    """Places in `Run.jobs` of those whose spans are kept, in order of submission."""
    spans: tuple[Span, ...]
    """Of one job in the order of time."""
    devices: tuple[tuple[str, str], ...] = ()
    """Node and name of each device, if every one is kept: then every job is, too."""
    pause_ms: int = 0
    """The longest pause that was left out."""

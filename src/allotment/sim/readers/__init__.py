"""Readers of traces: every known format, plain or compressed, into one form.

A reader goes through a text once and gives, for each row, a job or the reason why there is
none. Finding the format, decompressing, ordering and doubting are the same for all.
"""

from allotment.sim.readers.catalogue import FORMATS
from allotment.sim.readers.read import read_trace

__all__ = ["FORMATS", "read_trace"]

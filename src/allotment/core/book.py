"""What every book of the cluster does: it follows what gangs hold and what is reserved.

Each book answers other questions. All are told the same four things, in the same order, by
`Cluster` alone; to take them back, it tells the opposite.
"""

from typing import NamedTuple, Protocol

from allotment.core.gang import Gang, ReservedPlace
from allotment.core.request import Shape


class Holder(NamedTuple):
    """The job that a place is reserved for."""

    shape: Shape
    user: str
    is_placed: bool
    """Whether it has another place, which it leaves."""


class Book(Protocol):
    """One view of what is held."""

    def enter(self, gang: Gang) -> None:
        """Count a gang, or the surplus that a shrinking one gives up: it holds its slots."""

    def leave(self, gang: Gang) -> None:
        """Undo `enter`. The gang is as it was then."""

    def reserve(self, place: ReservedPlace, holder: Holder) -> None:
        """Count a place that a job gets once others have left it."""

    def release(self, place: ReservedPlace) -> None:
        """Undo `reserve`."""

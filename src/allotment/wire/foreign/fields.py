"""What becomes of each field of a foreign object: none is dropped silently."""

from collections.abc import Mapping
from typing import Final

import msgspec

from allotment.wire.problems import Finding, nearest
from allotment.wire.text import shown
from allotment.wire.tree import Place, Plain

MOST = 1_000_000


class Unused(msgspec.Struct, frozen=True):
    """A field that has no use here; it is warned of."""

    why: str


class Refused(msgspec.Struct, frozen=True):
    """A field without which the job would be another one."""

    why: str
    hint: str = ""


READ: Final = None
Fields = Mapping[str, Unused | Refused | None]
"""By name; READ is read by who asks."""
Map = dict[str, Plain]


class Remarks:
    """What was found wrong, and what to warn of."""

    def __init__(self) -> None:
        self.problems: list[Finding] = []
        self.warnings: list[Finding] = []

    def refuse(self, place: Place, why: str, hint: str = "") -> None:
        """Note a problem."""
        self.problems.append((place, why, hint))

    def warn(self, place: Place, why: str, hint: str = "") -> None:
        """Note something that is other than its author may think."""
        self.warnings.append((place, why, hint))

    def map(self, value: Plain, place: Place, fields: Fields | None = None) -> Map:
        """Return a map whose fields all are in a table, as far as they are to be read."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.refuse(place, f"must be a map, not {shown(value)}")
            return {}
        if fields is None:
            return value
        return {key: each for key, each in value.items() if self._is_read(key, place, fields)}

    def _is_read(self, key: str, place: Place, fields: Fields) -> bool:
        at = (*place, key)
        if key not in fields:
            self.refuse(at, "is not known", nearest(key, list(fields)))
            return False
        what = fields[key]
        if isinstance(what, Unused):
            self.warn(at, f"is not used: {what.why}")
        elif isinstance(what, Refused):
            self.refuse(at, what.why, what.hint)
        return what is READ

    def items(self, value: Plain, place: Place) -> list[Plain]:
        """Return a list."""
        if value is None:
            return []
        if not isinstance(value, list):
            self.refuse(place, f"must be a list, not {shown(value)}")
            return []
        return value

    def text(self, value: Plain, place: Place, usual: str = "") -> str:
        """Return a text."""
        if value is None:
            return usual
        if not isinstance(value, str):
            self.refuse(place, f"must be a text, not {shown(value)}", "put it in quotes")
            return usual
        return value

    def number(self, value: Plain, place: Place, usual: int, least: int = 0) -> int:
        """Return a whole number."""
        if value is None:
            return usual
        if type(value) is not int or not least <= value <= MOST:
            self.refuse(
                place, f"must be a whole number from {least} to {MOST:,}, not {shown(value)}"
            )
            return usual
        return value

    def truth(self, value: Plain, place: Place) -> bool:
        """Return whether it is true."""
        if value is not None and not isinstance(value, bool):
            self.refuse(place, f"must be true or false, not {shown(value)}")
        return value is True

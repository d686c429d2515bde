"""How far something is that takes long."""

from collections.abc import Callable

import msgspec


class Step(msgspec.Struct, frozen=True):
    """One step that is under way; as text it is a line for people."""

    what: str
    done: int = 0
    """Bytes."""
    total: int = 0
    """0 where nobody knows."""
    more: str = ""

    def __str__(self) -> str:
        """Write it as a line."""
        figures = ", ".join(filter(None, (self.part, self.more)))
        return ": ".join(filter(None, (self.what, figures)))

    @property
    def part(self) -> str:
        """How much of it is done, in words."""
        from allotment.model.quantity import show_bytes  # noqa: PLC0415 - only for much

        return f"{show_bytes(self.done)} of {show_bytes(self.total)}" if self.total else ""


Tell = Callable[[Step], None]

"""A value that cannot be what it was given for, before anybody knows where it stands."""

from allotment.wire.text import shown
from allotment.wire.tree import Place


class Amiss(ValueError):
    """A value that is wrong: `message` completes "KEY: …", `hint` says what to write instead.

    `at` leads from the value to the part of it that is meant.
    """

    def __init__(self, message: str, hint: str = "", at: Place = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.at = at


def not_a(what: str, value: object, hint: str = "") -> Amiss:
    """Return the finding that a value is of the wrong kind."""
    return Amiss(f"must be {what}, not {shown(value)}", hint)


PLACEHOLDERS = ("...", "…")


def check_placeholder(text: str) -> None:
    """Refuse the `...` of an example that was copied as it stands."""
    if text in PLACEHOLDERS:
        raise Amiss(f"`{text}` is a placeholder from the documentation", "write what you mean")

"""From bytes to text that is safe to parse: bounded, UTF-8, without control characters."""

import re

from allotment.model.errors import BadInput, Problem
from allotment.model.quantity import KIB, show_bytes

MOST_BYTES = 256 * KIB
"""A larger job or configuration file is refused before anything looks into it."""

CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
"""Characters that YAML does not allow, nor a line of text."""

NEVER_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
"""Those that JSON does not allow either."""

SHOWN = 40
"""Longest piece of the input that a message repeats."""


def text_of(data: bytes, source: str) -> str:
    """Decode input, without a byte order mark.

    Raises BadInput when it is too large, empty or not text; O(length).
    """
    if len(data) > MOST_BYTES:
        raise bad(
            source,
            f"is {show_bytes(len(data))}, and at most {show_bytes(MOST_BYTES)} are read",
            hint="keep data in files that the job reads, and write their paths here",
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise bad(
            source,
            f"byte {error.start + 1} is not UTF-8 text",
            line,
            "save the file as UTF-8; is it really a YAML or JSON file?",
        ) from error
    refuse_control(text, NEVER_TEXT, source)
    if not text.strip():
        raise bad(source, "is empty", hint="write a job or configuration into it")
    return text


def refuse_control(text: str, which: re.Pattern[str], source: str) -> None:
    """Raise BadInput at the first of these characters."""
    if control := which.search(text):
        raise bad(
            source,
            f"has the control character U+{ord(control[0]):04X}, as binary files do",
            text.count("\n", 0, control.start()) + 1,
            "give a YAML or JSON file; in quotes such a character can be written as an escape",
        )


def bad(source: str, message: str, line: int = 0, hint: str = "") -> BadInput:
    """Return the error for one problem with the input as a whole."""
    return BadInput((Problem(message, line=line, hint=hint),), source)


def shown(value: object) -> str:
    """Return a value as a message shows it: short, on one line, without control characters."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, int) and value.bit_length() > 128:
        return "a number of more than 38 digits"
    if isinstance(value, str) and len(value) > SHOWN:
        value = value[: SHOWN - 1] + "…"
    return repr(value)


def plain_word(text: str) -> str:
    """Return a key as a message shows it: unchanged if harmless, else escaped and cut."""
    if len(text) <= SHOWN and text.isprintable():
        return text
    return shown(text)[1:-1]


HALF_LETTER = (
    r"has half of a \u escape pair, which is not a letter",
    r"write both halves, such as \ud83d\ude00, or the letter itself",
)
"""Message and hint for a text that `joined` cannot read."""


def joined(text: str) -> str | None:
    r"""Return the letters of pairs of `\u` escapes; None where a half stands alone."""
    if text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text):
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        return None


def given_before(key: str, line: int, first: int) -> Problem:
    """Return the problem that a key was given twice."""
    message = f"`{plain_word(key)}` was given before, on line {first}"
    return Problem(message, line=line, hint="keep one of the two")

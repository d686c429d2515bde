"""The two ways out: data to stdout, talk to stderr; and JSON for programs.

Colours are used on a terminal only, and not with NO_COLOR.
"""

import os
import sys
from typing import TextIO

import msgspec

from allotment.cli.steering import words_shown
from allotment.client.errors import ApiError, Refused
from allotment.model.errors import BadInput, Problem

RESET = "\033[0m"
CODES = {
    "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34",
    "magenta": "35", "cyan": "36",
}  # fmt: skip


def has_colours(stream: TextIO) -> bool:
    """Whether a stream is a terminal that shows colours, and may."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def paint(text: str, style: str, stream: TextIO | None = None) -> str:
    """Colour text for a stream (stdout when none is given): `bold red`."""
    if not style or not text or not has_colours(stream or sys.stdout):
        return text
    codes = ";".join(CODES[word] for word in style.split())
    return f"\033[{codes}m{text}{RESET}"


def say(text: str = "") -> None:
    """Print data; on a terminal, control characters are written out."""
    sys.stdout.write(f"{_shown(text, sys.stdout)}\n")


def talk(text: str) -> None:
    """Print for the person at the terminal something that is not data."""
    sys.stdout.flush()
    sys.stderr.write(f"{_shown(text, sys.stderr)}\n")
    sys.stderr.flush()


def _shown(text: str, stream: TextIO) -> str:
    return words_shown(text) if stream.isatty() else text


def warn(text: str) -> None:
    """Report something that is likely not meant as it is."""
    talk(f"{paint('warning:', 'bold yellow', sys.stderr)} {text}")


def say_json(value: object) -> None:
    """Print one value for a program."""
    say(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def say_json_line(value: object) -> None:
    """Print one of many values for a program, a line each, at once."""
    say(msgspec.json.encode(value).decode())
    sys.stdout.flush()


# ── what went wrong ─────────────────────────────────────────────────────────────────────


class Failed(ApiError):
    """A verb could not do its work, for a reason of its own on this machine."""

    exit_code = 1


class BadFile(BadInput):
    """A file that was named in a call cannot be used: the call was wrong."""

    exit_code = 2


def tell(error: ApiError) -> None:
    """Print what happened, why, and what to do next."""
    head = paint("error:", "bold red", sys.stderr)
    talk(f"{head} {error.message}")
    if isinstance(error, Refused):
        for problem in error.problems:
            if str(problem) not in error.message:
                talk(f"       {problem}")
    if error.hint and f"({error.hint})" not in error.message:
        talk(f"{paint(' next:', 'bold', sys.stderr)} {error.hint}")


def tell_bad_input(error: BadInput) -> None:
    """Print what is wrong in a file, one problem a line."""
    for problem in error.problems:
        talk(at_line(error.source, problem))


def at_line(source: str, problem: Problem) -> str:
    """Write a problem with its place in a file."""
    return problem.in_file(source)


def error_as_json(error: ApiError | BadInput) -> None:
    """Print for a program what went wrong: one line on stderr."""
    body: dict[str, object]
    if isinstance(error, BadInput):
        body = {"code": "bad_spec", "message": str(error), "problems": error.problems}
    else:
        body = {"code": "error", "message": error.message, "hint": error.hint}
    if isinstance(error, Refused):
        body |= {"code": error.code, "problems": error.problems}
    talk(msgspec.json.encode({"error": body}).decode())

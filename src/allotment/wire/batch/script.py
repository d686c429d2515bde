"""The directives of a script as words with their lines, and those that come too late."""

import re
from collections.abc import Iterator

import msgspec

from allotment.model.errors import Problem


class Word(msgspec.Struct, frozen=True, gc=False):
    """One word of a directive, quotes taken off. `line` is 0 where it is of no file."""

    text: str
    line: int = 0


class Directives(msgspec.Struct, frozen=True):
    """The directives of a script to its batch system."""

    words: tuple[Word, ...]
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


OTHERS = re.compile(r"#(SBATCH|BSUB|PBS|\$|COBALT|OAR|PJM|LSF)(?=\s)")
"""Directives of other systems; `#$` is Grid Engine's."""

DOS = "ends its lines as DOS does (\\r\\n), and its interpreter would not be found"
NO_SCRIPT = "is not a script: the first line must be #! and the path of an interpreter"


def directives(text: str, marks: tuple[str, ...], *, anywhere: bool = False) -> Directives:
    """Return the words that follow one of the marks. O(length).

    Up to the first command; with `anywhere` also after it, and without `#!`.
    """
    words: list[Word] = []
    problems = list(_not_a_script(text, any_shell=anywhere))
    warnings: list[Problem] = []
    first_command = 0
    for number, line in enumerate(text.split("\n"), 1):
        mark = next((mark for mark in marks if line.startswith(mark)), "")
        if mark and first_command and not anywhere:
            warnings.append(_too_late(mark, number, first_command))
        elif mark:
            found, problem = split(line[len(mark) :], number)
            words += found
            problems += [problem] if problem else []
        else:
            warnings += _almost(line, number, marks)
        if line.strip() and not line.lstrip().startswith("#"):
            first_command = first_command or number
    return Directives(tuple(words), tuple(problems), tuple(warnings))


def _not_a_script(text: str, *, any_shell: bool) -> Iterator[Problem]:
    if not text.startswith("#!") and not any_shell:
        yield Problem(NO_SCRIPT, line=1, hint="begin with #!/bin/bash")
    if "\r\n" in text:
        yield Problem(DOS, line=1, hint="convert it: dos2unix FILE")


def _too_late(mark: str, line: int, first: int) -> Problem:
    message = f"this {mark} line is not read: the first command is before it, on line {first}"
    return Problem(message, line=line, hint="move it up, if it is meant")


def _almost(line: str, number: int, marks: tuple[str, ...]) -> Iterator[Problem]:
    """Warn of a line that may be meant as a directive."""
    bare = line.lstrip()
    mark = next((mark for mark in marks if bare.startswith(mark)), "")
    if mark and bare != line:
        message = f"this {mark} line is not read: it does not start at the first column"
        yield Problem(
            message, line=number, hint="take the blanks before it out, if it is meant"
        )
    elif (other := OTHERS.match(line)) and other[0] not in marks:
        message = f"this {other[0]} line is for another batch system, and is not read"
        yield Problem(message, line=number)


def split(text: str, line: int) -> tuple[list[Word], Problem | None]:
    """Split the rest of a directive as sbatch does: quotes, `\\`, and `#` for a comment."""
    words: list[Word] = []
    word: list[str] | None = None
    quote = ""
    letters = iter(text)
    for letter in letters:
        if letter == "\\":
            word = [*(word or []), next(letters, "")]
        elif quote:
            quote = "" if letter == quote else quote
            word = [*(word or []), *([letter] if quote else [])]
        elif letter in "\"'":
            quote = letter
            word = word or []
        elif letter == "#":
            break
        elif letter.isspace():
            words += [Word("".join(word), line)] if word is not None else []
            word = None
        else:
            word = [*(word or []), letter]
    if word is not None:
        words.append(Word("".join(word), line))
    if quote:
        return [], Problem(f"a quote {quote} is not closed", line=line, hint="close it")
    return words, None

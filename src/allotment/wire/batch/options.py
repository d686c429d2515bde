"""Options of a command line by a table: which there are, and which of them were given."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum

import msgspec

from allotment.model.errors import Problem
from allotment.wire.amiss import Amiss
from allotment.wire.batch.draft import Draft
from allotment.wire.batch.script import Word
from allotment.wire.problems import nearest
from allotment.wire.text import plain_word, shown

Read = Callable[[Draft, str], str | None]
"""Writes a value into the draft. Returns what to warn of. Raises Amiss."""


class Takes(Enum):
    """Whether an option has a value."""

    VALUE = "value"
    NOTHING = "nothing"
    PERHAPS = "perhaps"
    """Only one that is attached to it: `--exclusive=user`."""


class Option(msgspec.Struct, frozen=True):
    """One row of a dialect's table. `says` is its description in the documentation."""

    name: str
    read: Read
    says: str
    short: str = ""
    takes: Takes = Takes.VALUE


class Given(msgspec.Struct, frozen=True):
    """An option that was given: which, with what, and where."""

    option: Option
    value: str
    line: int


def refused(why: str, hint: str = "") -> Read:
    """Return a reader that refuses an option. Its user may have it ignored."""

    def read(draft: Draft, value: str) -> None:
        raise Amiss(why, hint)

    return read


def without_effect(why: str) -> Read:
    """Return a reader that warns of an option that changes nothing here."""

    def read(draft: Draft, value: str) -> str:
        return f"has no effect: {why}"

    return read


def silently(draft: Draft, value: str) -> None:
    """Accept an option that asks for what is done anyway."""


class OptionTable:
    """The options of one dialect, by name and by letter."""

    def __init__(self, options: Sequence[Option], *, dashes: str) -> None:
        self.options = options
        self.dashes = dashes
        self.by_name: Mapping[str, Option] = {option.name: option for option in options}
        self._by_letter = {option.short: option for option in options if option.short}

    def find(self, name: str) -> Option | None:
        """Return an option by its name, or by the beginning of just one; None if none."""
        if name in self.by_name:
            return self.by_name[name]
        begun = [option for option in self.options if option.name.startswith(name)]
        return begun[0] if len(begun) == 1 and name else None

    def shown(self, option: Option) -> str:
        """Return the name of an option as users write it."""
        return f"{self.dashes}{option.name}"

    # ── words into options ──────────────────────────────────────────────────────────────

    def given(self, words: Iterable[Word]) -> Iterator[Given | Problem]:
        """Read words as options, long (`--nodes=2`) or short (`-N2`), as getopt does.

        A value stands on the line of its option.
        """
        rest = deque(words)
        while rest:
            word = rest.popleft()
            if word.text.startswith("--") and len(word.text) > 2:
                yield self._long(word, rest)
            elif word.text.startswith("-") and len(word.text) > 1 and word.text != "--":
                yield from self._short(word, rest)
            else:
                yield self.no_option(word)

    def _long(self, word: Word, rest: deque[Word]) -> Given | Problem:
        name, equals, value = word.text[2:].partition("=")
        option = self.find(name)
        if option is None:
            return self.unknown(f"--{name}", name, word.line)
        if option.takes is Takes.NOTHING and equals:
            return Problem("takes no value", self.shown(option), word.line, f"write --{name}")
        if option.takes is Takes.VALUE and not equals:
            return self.with_next(option, word, rest)
        return Given(option, value, word.line)

    def _short(self, word: Word, rest: deque[Word]) -> Iterator[Given | Problem]:
        letters = word.text[1:]
        while letters:
            option, letters = self._by_letter.get(letters[0]), letters[1:]
            if option is None:
                yield self.unknown(word.text, word.text.strip("-"), word.line)
                return
            if option.takes is Takes.NOTHING:
                yield Given(option, "", word.line)
            elif letters or option.takes is Takes.PERHAPS:
                yield Given(option, letters, word.line)
                return
            else:
                yield self.with_next(option, word, rest)

    def with_next(self, option: Option, word: Word, rest: deque[Word]) -> Given | Problem:
        if not rest or rest[0].line != word.line:
            return Problem("needs a value", self.shown(option), word.line, option.says)
        return Given(option, rest.popleft().text, word.line)

    def unknown(self, written: str, name: str, line: int) -> Problem:
        near = nearest(name, list(self.by_name)) if len(name) > 1 else ""
        hint = near.replace("`", f"`{self.dashes}", 1) if near.startswith("did you") else ""
        return Problem("there is no such option", plain_word(written), line, hint)

    def no_option(self, word: Word) -> Problem:
        message = f"{shown(word.text)} is not an option"
        return Problem(
            message, line=word.line, hint="an option begins with -; was a blank meant?"
        )


def with_words(
    table: OptionTable, given: Iterable[Given | Problem], words: Iterable[Word]
) -> list[Given | Problem]:
    """Return the options of a script, replaced and completed by those given elsewhere."""
    more = list(table.given(words))
    names = {each.option.name for each in more if isinstance(each, Given)}
    kept = [
        each for each in given if isinstance(each, Problem) or each.option.name not in names
    ]
    return [*kept, *more]


def read_options(
    table: OptionTable,
    given: Iterable[Given | Problem],
    draft: Draft,
    ignored: Iterable[str] = (),
) -> tuple[list[Problem], list[Problem]]:
    """Write options into a draft, in order: a later one wins. Return problems and warnings.

    Those that are `ignored` only warn that they are.
    """
    problems: list[Problem] = []
    warnings: list[Problem] = []
    passed_over = {option.name for name in ignored if (option := table.find(name.lstrip("-")))}
    for each in given:
        if isinstance(each, Problem):
            problems.append(each)
            continue
        name = table.shown(each.option)
        if each.option.name in passed_over:
            warnings.append(Problem("is ignored, as you asked", name, each.line))
            continue
        draft.lines[each.option.name] = each.line
        try:
            said = each.option.read(draft, each.value)
        except Amiss as amiss:
            problems.append(Problem(amiss.message, name, each.line, amiss.hint))
        else:
            warnings += [Problem(said, name, each.line)] if said else []
    return problems, warnings

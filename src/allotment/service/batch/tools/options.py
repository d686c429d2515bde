"""Options of a command line as getopt reads them, by a table."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Misused(Exception):
    """An option that cannot be carried out as it is; the text says why."""


class Option(NamedTuple):
    """One row: its letter ('' for none), whether it has a value, and what it does.

    `takes` is `value`, `nothing` or `perhaps`: only one attached to it.
    """

    name: str
    short: str
    takes: str
    read: Callable[[Any, str], None]


def read_options(table: tuple[Option, ...], words: list[str], wish: object) -> list[str]:
    """Write options into what a step asks for; return the words after them. Raises Misused."""
    by_name = {option.name: option for option in table}
    by_letter = {option.short: option for option in table if option.short}
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            option = by_name.get(name) or _begun(table, name)
            if option.takes == "value" and not equals:
                value = _next(rest, f"--{name}")
            _read(option, wish, value)
        else:
            _letters(by_letter, word[1:], rest, wish)
    return rest


def _letters(by_letter: dict[str, Option], letters: str, rest: list[str], wish: object) -> None:
    while letters:
        letter, letters = letters[0], letters[1:]
        option = by_letter.get(letter)
        if option is None:
            raise Misused(f"-{letter}: there is no such option")
        if option.takes == "nothing":
            _read(option, wish, "")
            continue
        value = letters if letters or option.takes == "perhaps" else _next(rest, f"-{letter}")
        _read(option, wish, value)
        return


def _begun(table: tuple[Option, ...], name: str) -> Option:
    found = [option for option in table if name and option.name.startswith(name)]
    if len(found) != 1:
        raise Misused(f"--{name}: there is no such option")
    return found[0]


def _next(rest: list[str], name: str) -> str:
    if not rest:
        raise Misused(f"{name}: needs a value")
    return rest.pop(0)


def _read(option: Option, wish: object, value: str) -> None:
    try:
        option.read(wish, value)
    except Misused as error:
        raise Misused(f"--{option.name}: {error}") from None
    except ValueError:
        raise Misused(f"--{option.name}: cannot be {value!r}") from None

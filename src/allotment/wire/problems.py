"""What pydantic found wrong, in our words: with line, path, and what to do next."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from allotment.model.errors import BadInput, Problem
from allotment.wire.amiss import Amiss
from allotment.wire.text import plain_word, shown
from allotment.wire.tree import Place, Tree, line_of, path_of

MOST_PROBLEMS = 50
"""More are counted, not shown."""

LONGEST_KEY = 64
"""Longer keys are not compared with known ones."""

Step = str | int

Finding = tuple[Place, str, str]
"""Place, message and hint: a problem whose line is not known yet."""

MAP_FORM, LIST_FORM, WORD_FORM = "@map", "@list", "@word"
"""Tags of values that may be written in more than one form."""

OUR_STEPS = frozenset({"[key]", MAP_FORM, LIST_FORM, WORD_FORM})
"""What stands in pydantic's locations and not in the file."""

KINDS = {
    "model_type": "a map of keys",
    "model_attributes_type": "a map of keys",
    "dict_type": "a map of keys",
    "list_type": "a list",
    "tuple_type": "a list",
}


def problem_at(
    tree: Tree | None, place: Sequence[Step], message: str, hint: str = ""
) -> Problem:
    """Return a problem with the value at a place."""
    return Problem(message, path_of(place), line_of(tree, place), hint)


def in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return problems by line; those without a line come last."""
    return tuple(sorted(problems, key=lambda problem: problem.line or sys.maxsize))


def raise_all(problems: Iterable[Problem], source: str) -> None:
    """Raise BadInput with all problems, in the order of the file; do nothing without any."""
    ordered = in_order(_without_echoes(problems))
    if len(ordered) > MOST_PROBLEMS:
        rest = Problem(f"and {len(ordered) - MOST_PROBLEMS} more like these")
        ordered = (*ordered[:MOST_PROBLEMS], rest)
    if ordered:
        raise BadInput(ordered, source)


def _without_echoes(problems: Iterable[Problem]) -> Iterable[Problem]:
    """Keep the first of several about the same place: a placeholder is not also missing."""
    first: dict[object, Problem] = {}
    for problem in problems:
        first.setdefault((problem.line, problem.path) if problem.path else problem, problem)
    return first.values()


def problems_of(
    error: ValidationError, shape: type[BaseModel], tree: Tree | None
) -> Iterator[Problem]:
    """Return pydantic's errors as problems. Only those shown get a hint, which is costly."""
    for at, details in enumerate(error.errors(include_url=False)):
        place = _place(details)
        message, hint = _words(details, place, shape if at < MOST_PROBLEMS else BaseModel)
        cause = _cause(details)
        yield problem_at(tree, (*place, *cause.at) if cause else place, message, hint)


def _words(details: ErrorDetails, place: Place, shape: type[BaseModel]) -> tuple[str, str]:
    """Return message and hint for one error."""
    kind = details["type"]
    if cause := _cause(details):
        return cause.message, cause.hint
    if kind == "extra_forbidden":
        return f"there is no key `{plain_word(str(place[-1]))}` here", _known(shape, place)
    if kind == "missing":
        return "is missing", hint_for(shape, place, f"add {plain_word(str(place[-1]))}: ")
    if kind in KINDS:
        message = f"must be {KINDS[kind]}, not {_input(details, place)}"
        return message, hint_for(shape, place)
    if kind.startswith("union_tag"):
        message = f"must be a map or a list, not {_input(details, place)}"
        return message, hint_for(shape, place)
    return details["msg"], ""


def _input(details: ErrorDetails, place: Place) -> str:
    """Show what was given, unless it may be a secret."""
    return "that" if "secrets" in place[:1] else shown(details["input"])


def _cause(details: ErrorDetails) -> Amiss | None:
    cause = details.get("ctx", {}).get("error")
    return cause if isinstance(cause, Amiss) else None


def _place(details: ErrorDetails) -> Place:
    """Drop the steps that pydantic adds; an unknown key is the user's, whatever it is."""
    steps = details["loc"]
    kept = [step for step in steps[:-1] if step not in OUR_STEPS]
    if steps and (details["type"] == "extra_forbidden" or steps[-1] not in OUR_STEPS):
        kept.append(steps[-1])
    return tuple(kept)


def _known(shape: type[BaseModel], place: Place) -> str:
    """Return where an unknown key belongs, or what it may have been meant to be."""
    key, known = str(place[-1]), known_keys(shape, place[:-1])
    for parent in known:
        if key in known_keys(shape, (*place[:-1], parent)):
            return f"it belongs under `{parent}`"
    return nearest(key, known)


def nearest(word: str, known: Sequence[str], what: str = "known keys") -> str:
    """Return the known word that is most like this one, or all of them."""
    near: list[str] = []
    if len(word) <= LONGEST_KEY:
        by_fold = {key.lower(): key for key in known}
        found = get_close_matches(word.lower(), by_fold, n=1, cutoff=0.6)
        near = [by_fold[key] for key in found]
    if near:
        return f"did you mean `{near[0]}`?"
    return f"{what}: {', '.join(known)}" if known else ""


def known_keys(shape: type[BaseModel], place: Sequence[Step]) -> list[str]:
    """Return the keys that may stand at a place, as they are written."""
    keys: dict[str, None] = {}
    for model in _models(_type_at(shape, place)):
        fields = sorted(model.model_fields, key=lambda name: name not in model.__annotations__)
        for name in fields:  # its own before those it shares with other models
            keys.setdefault(model.model_fields[name].alias or name)
    return list(keys)


def hint_for(shape: type[BaseModel], place: Sequence[Step], lead: str = "such as ") -> str:
    """Return the example in the description of a field, if there is one."""
    *before, last = place or ("",)
    for model in _models(_type_at(shape, before)):
        for name, field in model.model_fields.items():
            if last in (field.alias or name, name) and field.examples:
                return f"{lead}{field.examples[0]}"
    return ""


def _type_at(shape: object, place: Sequence[Step]) -> object:
    """Follow a place through the annotations; None where they do not go on."""
    for step in place:
        shape = _step_into(shape, step)
    return shape


def _step_into(shape: object, step: Step) -> object:
    if isinstance(shape, type) and issubclass(shape, BaseModel):
        for name, field in shape.model_fields.items():
            if step in (field.alias or name, name):
                return field.annotation
        return None
    origin = get_origin(shape)
    inner = get_args(shape)
    if origin is Annotated:
        return _step_into(inner[0], step)
    if origin in (Union, UnionType):
        inside = [_step_into(part, step) for part in inner]
        return next((part for part in inside if part is not None), None)
    if origin in (dict, Mapping):
        return inner[1] if isinstance(step, str) else None
    if origin in (list, tuple):
        return inner[0] if isinstance(step, int) else None
    return None


def _models(shape: object) -> Iterator[type[BaseModel]]:
    """List the models that a value of this type may be."""
    if isinstance(shape, type) and issubclass(shape, BaseModel):
        yield shape
    elif get_origin(shape) is Annotated:
        yield from _models(get_args(shape)[0])
    elif get_origin(shape) in (Union, UnionType):
        for part in get_args(shape):
            yield from _models(part)

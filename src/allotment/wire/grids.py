"""Grids of parameters as they are written: lists of values, and ranges such as `1..5`."""

import re
from collections.abc import Sequence
from typing import Annotated, cast

from pydantic import PlainValidator

from allotment.wire.amiss import Amiss, not_a
from allotment.wire.amounts import MOST_TASKS
from allotment.wire.words import read_env_value

RANGE = re.compile(r"(-?\d{1,9})\.\.(-?\d{1,9})(?:\.\.(\d{1,9}))?")
LONGEST_VALUE = 1024


def read_values(value: object) -> tuple[str, ...]:
    """Read the values of a parameter: a list, or `1..5`, or `0..100..10`."""
    if isinstance(value, str) and (found := RANGE.fullmatch(value.strip())):
        return _range(int(found[1]), int(found[2]), int(found[3] or 1))
    if not isinstance(value, (list, tuple)):
        raise not_a("a list of values, or a range", value, "write it like [0.1, 0.01] or 1..5")
    values = tuple(_value(item, at) for at, item in enumerate(cast("Sequence[object]", value)))
    if not values:
        raise Amiss("has no value", "give one at least")
    if len(set(values)) < len(values):
        raise Amiss("has a value twice", "name each once")
    return values


def _value(value: object, at: int) -> str:
    try:
        text = read_env_value(value)
    except Amiss as amiss:
        amiss.at = (at,)
        raise
    if len(text) > LONGEST_VALUE:
        message = f"has {len(text)} characters, and {LONGEST_VALUE} are accepted"
        raise Amiss(message, at=(at,))
    return text


def _range(first: int, last: int, step: int) -> tuple[str, ...]:
    if last < first or not step:
        raise Amiss("is a range without a value", "write it like 1..5 or 0..100..10")
    if (last - first) // step >= MOST_TASKS:
        raise Amiss(f"has more than {MOST_TASKS:,} values", "take fewer")
    return tuple(str(number) for number in range(first, last + 1, step))


GridValues = Annotated[
    tuple[str, ...],
    PlainValidator(read_values, json_schema_input_type=list[str | float | bool] | str),
]

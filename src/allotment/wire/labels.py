"""Labels: words that people put on jobs to find them by, such as `team: vision`."""

import re
from typing import Annotated

from pydantic import PlainValidator

from allotment.wire.amiss import Amiss, not_a
from allotment.wire.text import CONTROL, shown

MOST_LABELS = 32
LONGEST_VALUE = 128
KEY = re.compile(r"[A-Za-z][A-Za-z0-9_/-]{0,62}")
KEY_RULE = "use letters, digits, `_`, `-` and `/`, at most 63, starting with a letter"


def read_key(value: object) -> str:
    """Read the key of a label."""
    if not isinstance(value, str) or not KEY.fullmatch(value):
        raise Amiss(f"{shown(value)} cannot be the key of a label", KEY_RULE)
    return value


def read_value(value: object) -> str:
    """Read the value of a label: a short text, a number or boolean as it was written."""
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int:
        value = str(value)
    if not isinstance(value, str):
        raise not_a("a text", value, "put it in quotes")
    if len(value) > LONGEST_VALUE:
        raise Amiss(
            f"has {len(value)} characters, and {LONGEST_VALUE} are accepted", "shorten it"
        )
    if CONTROL.search(value) or not value.isprintable() or value != value.strip():
        raise Amiss(
            f"{shown(value)} has a control character, or a blank at an end", "take it out"
        )
    return value


def not_too_many(labels: dict[str, str]) -> dict[str, str]:
    """Refuse more labels than a job may have."""
    if len(labels) > MOST_LABELS:
        raise Amiss(
            f"has {len(labels)} labels, and {MOST_LABELS} are accepted", "take some out"
        )
    return labels


LabelKey = Annotated[str, PlainValidator(read_key, json_schema_input_type=str)]
LabelValue = Annotated[str, PlainValidator(read_value, json_schema_input_type=str | int | bool)]

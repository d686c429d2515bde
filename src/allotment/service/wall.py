"""The engine's time and the wall clock's: views are shown by the one, made by the other.

Which numbers are instants is said by their types (`Instant`, in views `Moment`), so nothing is
forgotten where a view gets a new one. Dates that people wrote are `WallTime`, and stay as they
are.
"""

from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from allotment.model.quantity import Instant, Moment

T = TypeVar("T")


def moved(value: T, ms: int) -> T:
    """Return a value with every instant in it moved by so much. Times that are 0 stay 0."""
    return cast("T", _any(value, ms)) if ms else value


def _any(value: object, ms: int) -> object:
    """Move what a value of ours, or a collection of such, says of itself."""
    if isinstance(value, msgspec.Struct):
        hints = _hints(type(value))
        changes = {name: _told(getattr(value, name), hint, ms) for name, hint in hints.items()}
        return msgspec.structs.replace(value, **changes) if changes else value
    if isinstance(value, list | tuple):
        items = cast("list[object] | tuple[object, ...]", value)
        return type(items)(_any(item, ms) for item in items)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value)
        return {key: _any(item, ms) for key, item in pairs.items()}
    return value


def _told(value: object, hint: object, ms: int) -> object:
    """Move a value of which is said what it is."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value + ms if value > 0 and _is_instant(hint) else value
    return _any(value, ms)


def _is_instant(hint: object) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return any(_is_instant(each) for each in get_args(hint))
    return hint is Instant or hint == Moment


@cache
def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the fields of a type that may have instants in them."""
    hints = get_type_hints(kind, include_extras=True)
    plain = (str, bool, int, float, bytes)
    return {name: hints[name] for name in kind.__struct_fields__ if hints[name] not in plain}

"""What the log has on disk: the shapes of its values, and bytes of an example of each.

`shipped.json` keeps both as they were first written. After adding an event, a field with a
default, or a member of an enumeration:

    python -m tests.contract.stores.shapes

adds what is new to the file, and refuses anything else: that needs a new codec.VERSION with
an upcaster, and the old bytes stay in the file to be read for ever.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import inspect as mi

from allotment.engine.records import JobRecord
from allotment.engine.state import Image
from allotment.model.events import AnyEvent
from allotment.store import codec

SHIPPED = Path(__file__).with_name("shipped.json")
EVENTS: tuple[type[msgspec.Struct], ...] = get_args(AnyEvent)
DOCUMENTS: tuple[type[msgspec.Struct], ...] = (JobRecord, Image)
"""What the archive and the snapshots keep."""

VARIANTS = 2
"""Each example is made so often, with other members of unions and enumerations."""


class Shipped(msgspec.Struct):
    """The golden file. `shapes` says type and default of each field, `bytes` is in hex."""

    version: int
    shapes: dict[str, dict[str, str]]
    enums: dict[str, list[str]]
    bytes: dict[str, list[str]]


def shipped() -> Shipped:
    return msgspec.json.decode(SHIPPED.read_bytes(), type=Shipped)


def present() -> Shipped:
    """Describe what the code of today writes."""
    found = Shipped(codec.VERSION, {}, {}, {})
    for root in (*EVENTS, *DOCUMENTS):
        _describe(mi.type_info(root), found)
        values = [msgspec.msgpack.encode(value).hex() for value in examples(root)]
        found.bytes[root.__name__] = list(dict.fromkeys(values))
    return found


# ── examples ────────────────────────────────────────────────────────────────────────────


def examples(root: type[msgspec.Struct]) -> Iterator[Any]:
    """Make one value with only what must be given, and some with everything given."""
    info = mi.type_info(root)
    yield msgspec.convert(_fill(info, 0, bare=True), root)
    for variant in range(VARIANTS):
        yield msgspec.convert(_fill(info, variant), root)


def _fill(info: mi.Type, variant: int, *, bare: bool = False) -> Any:
    match info:
        case mi.StructType():
            return _fill_struct(info, variant, bare=bare)
        case mi.EnumType(cls=cls):
            return list(cls)[-1 - variant].value
        case mi.UnionType(types=types):
            given = [one for one in types if not isinstance(one, mi.NoneType)]
            return _fill(given[variant % len(given)], variant, bare=bare)
        case mi.VarTupleType(item_type=item) | mi.ListType(item_type=item):
            return [_fill(item, (variant + n) % VARIANTS, bare=bare) for n in range(2)]
        case mi.TupleType(item_types=items):
            return [_fill(item, variant, bare=bare) for item in items]
        case mi.DictType(key_type=key, value_type=value):
            return {_fill(key, variant): _fill(value, variant, bare=bare)}
        case _:
            return _PLAIN[type(info)][variant]


_PLAIN: dict[type[mi.Type], tuple[object, object]] = {
    mi.BoolType: (False, True),
    mi.IntType: (7, 8),
    mi.FloatType: (0.5, 1.5),
    mi.StrType: ("wörd", "wörds"),
}
"""Both variants of values without parts."""


def _fill_struct(info: mi.StructType, variant: int, *, bare: bool) -> dict[str, Any]:
    filled = {
        field.encode_name: _other_bool(field, _fill(field.type, variant, bare=bare))
        for field in info.fields
        if field.required or not bare
    }
    if info.tag_field:
        filled[info.tag_field] = info.tag
    return filled


def _other_bool(field: mi.Field, value: Any) -> Any:
    """Keep clear of the default, which would not be written."""
    return not field.default if isinstance(field.default, bool) else value


# ── shapes ──────────────────────────────────────────────────────────────────────────────


def _describe(info: mi.Type, found: Shipped) -> None:
    if isinstance(info, mi.StructType):
        name = info.cls.__name__
        if name in found.shapes:
            return
        found.shapes[name] = {
            field.encode_name: _type(field.type) + _default(field) for field in info.fields
        }
        for field in info.fields:
            _describe(field.type, found)
    elif isinstance(info, mi.EnumType):
        found.enums[info.cls.__name__] = [member.value for member in info.cls]
    for part in _parts(info):
        _describe(part, found)


def _parts(info: mi.Type) -> tuple[mi.Type, ...]:
    match info:
        case mi.UnionType(types=types):
            return types
        case mi.VarTupleType(item_type=item) | mi.ListType(item_type=item):
            return (item,)
        case mi.TupleType(item_types=items):
            return items
        case mi.DictType(key_type=key, value_type=value):
            return key, value
        case _:
            return ()


def _type(info: mi.Type) -> str:
    match info:
        case mi.StructType(cls=cls) | mi.EnumType(cls=cls):
            return cls.__name__
        case mi.UnionType(types=types):
            return " | ".join(_type(part) for part in types)
        case _:
            name = type(info).__name__.removesuffix("Type").lower()
            inside = ", ".join(_type(part) for part in _parts(info))
            return f"{name}[{inside}]" if inside else name


def _default(field: mi.Field) -> str:
    if field.required:
        return ""
    made = field.default
    if made is msgspec.NODEFAULT:
        made = field.default_factory()
    return f" = {msgspec.json.encode(made).decode()}"


# ── changes ─────────────────────────────────────────────────────────────────────────────


def broken(before: Shipped, now: Shipped) -> list[str]:
    """Return what of the shipped shapes is not there any more as it was."""
    told: list[str] = []
    for name, fields in before.shapes.items():
        there = now.shapes.get(name, {})
        told += [f"{name}.{f} is gone" for f in fields if f not in there]
        told += [
            f"{name}.{f}: was {fields[f]}, is {there[f]}"
            for f in fields
            if f in there and there[f] != fields[f]
        ]
        told += [
            f"{name}.{f}: is new and has no default"
            for f in there
            if f not in fields and " = " not in there[f]
        ]
    for name, members in before.enums.items():
        told += [f"{name}: {m} is gone" for m in members if m not in now.enums.get(name, [])]
    return told


def merged(before: Shipped, now: Shipped) -> Shipped:
    """Add what is new; keep every example there ever was."""
    examples_of = {
        name: list(dict.fromkeys([*before.bytes.get(name, []), *now.bytes.get(name, [])]))
        for name in {**before.bytes, **now.bytes}
    }
    return Shipped(now.version, now.shapes, now.enums, examples_of)


def main() -> int:
    now = present()
    before = shipped() if SHIPPED.exists() else now
    told = broken(before, now)
    if told:
        print("Shipped shapes changed; see the head of this file.", *told, sep="\n  ")
        return 1
    text = msgspec.json.format(msgspec.json.encode(merged(before, now)), indent=1)
    SHIPPED.write_bytes(text + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

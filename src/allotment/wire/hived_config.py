"""HiveD's configuration into ours: machines, cells, pinned cells, virtual clusters.

What HiveD leaves to others (CPU, memory) comes from its SKU types or is assumed; what has
no counterpart is told. A configuration that HiveD would refuse is refused, and those that
it only crashes on (a chain without quota) are read.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import msgspec
from pydantic import BaseModel, ValidationError

from allotment.model.errors import Problem
from allotment.model.tenancy import Config
from allotment.wire.config_read import assembled
from allotment.wire.config_shape import ConfigShape
from allotment.wire.hived_nodes import Share
from allotment.wire.hived_shape import UNUSED, HivedConfig
from allotment.wire.hived_writer import Writer
from allotment.wire.parse import tree_of
from allotment.wire.problems import Finding, in_order, problem_at, problems_of, raise_all
from allotment.wire.text import text_of
from allotment.wire.tree import Place, Plain, Tree, plain_of

AS_WRITTEN = "env"
"""A key under which everything is text as it was written."""
Written = dict[str, Plain]


class Imported(msgspec.Struct, frozen=True):
    """What reading gives: our configuration as written, and as a value."""

    written: Written
    config: Config
    warnings: tuple[Problem, ...]


def read_hived(data: bytes, *, source: str, share: Share | None = None) -> Imported:
    """Read `hivedscheduler.yaml`, or the same as JSON. `share` is assumed of each device.

    Raises BadInput with everything that is wrong, each with its line in that file.
    """
    tree, problems = tree_of(text_of(data, source), source)
    try:
        shape = HivedConfig.model_validate(plain_of(tree, AS_WRITTEN))
    except ValidationError as error:
        raise_all([*problems, *problems_of(error, HivedConfig, tree)], source)
        raise
    writer = Writer(shape, share or Share())
    _raise(writer.errors, problems, tree, source)
    written = writer.write()
    _raise(writer.errors, problems, tree, source)
    try:
        ours = ConfigShape.model_validate(written)
    except ValidationError as error:
        found = [
            msgspec.structs.replace(p, line=0) for p in problems_of(error, ConfigShape, None)
        ]
        raise_all([*problems, *found], source)
        raise
    config, errors, doubtful = assembled(ours, None)
    _raise(_theirs(writer, errors), problems, tree, source)
    told = _theirs(writer, doubtful)
    warnings = in_order(
        problem_at(tree, *finding) for finding in (*writer.warnings, *told, *_ignored(shape))
    )
    return Imported(written, config, warnings)


def _theirs(writer: Writer, found: Sequence[Finding]) -> list[Finding]:
    return [(writer.place_of(place), message, hint) for place, message, hint in found]


def _raise(
    found: list[Finding], problems: tuple[Problem, ...], tree: Tree, source: str
) -> None:
    raise_all([*problems, *(problem_at(tree, *finding) for finding in found)], source)


def _ignored(shape: HivedConfig) -> Iterator[Finding]:
    """Return what has no effect here, and why."""
    given = {field.alias or name: name for name, field in HivedConfig.model_fields.items()}
    for key, why in UNUSED.items():
        if getattr(shape, given[key]):
            yield (key,), f"is ignored: {why}", ""
    if shape.block_ms not in ("", "0"):
        message = "is ignored: in a strict queue no job overtakes, even without blocking"
        yield ("waitingPodSchedulingBlockMilliSec",), message, ""
    yield from _unknown(shape, ())


def _unknown(shape: BaseModel, place: Place) -> Iterator[Finding]:
    """Find keys that HiveD does not know either."""
    for key in shape.model_extra or {}:
        yield (*place, key), "is ignored: HiveD has no such key", ""
    for name, field in type(shape).model_fields.items():
        value: object = getattr(shape, name)
        inner: list[tuple[Place, object]] = [((field.alias or name,), value)]
        if isinstance(value, list):
            items = cast("Sequence[object]", value)
            inner = [((field.alias or name, at), item) for at, item in enumerate(items)]
        elif isinstance(value, dict):
            by_key = cast("Mapping[str, object]", value)
            inner = [((field.alias or name, key), item) for key, item in by_key.items()]
        for step, item in inner:
            if isinstance(item, BaseModel):
                yield from _unknown(item, (*place, *step))

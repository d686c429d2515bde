"""`gavel`: traces of Gavel's simulator; tab-separated, without a header.

Fields: model, command, folder, steps argument, needs data, total steps, devices, weight,
SLO, arrival (seconds). They count steps: run times need a table of rates, and are those on
the device type that the rates are for. No ids: a job is called by its row's number.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from sys import intern

import msgspec

from allotment.model.quantity import SECOND
from allotment.sim.readers.fields import Unreadable, checked_span, number, point_ms, whole
from allotment.sim.readers.formats import Format, Options
from allotment.sim.readers.shape import Shapes
from allotment.sim.readers.source import Text, open_stored, open_text
from allotment.sim.readers.table import TOO_SHORT, Row
from allotment.sim.trace import BadTrace, TraceJob

FIELDS = 10
NO_RATE = "no rate is known for its model on so many devices"
_MODEL, _STEPS, _DEVICES, _ARRIVAL = 0, 5, 6, 9


Key = tuple[str, int]
"""A model, and on how many devices."""

Rates = dict[Key, float]
Pairs = dict[tuple[Key, Key], float]
Table = dict[str, dict[str, float | tuple[float, float]]]
"""Rates of one type as they are stored: alone under `null`, packed under the other's name."""


def read_all_rates(path: Path) -> dict[str, Rates]:
    """Read the rates of every type. Raises BadTrace for a file of another shape."""
    return {kind: _rates(table) for kind, table in _tables(path).items()}


def read_pairs(path: Path) -> dict[str, Pairs]:
    """Read, by type, the rate of a (model, devices) packed with each other one."""
    return {kind: _pairs(table) for kind, table in _tables(path).items()}


def _tables(path: Path) -> dict[str, Table]:
    with open_stored(path) as handle:
        stored = "".join(open_text(handle, path.name))
    try:
        return msgspec.json.decode(stored, type=dict[str, Table])
    except msgspec.MsgspecError as problem:
        raise BadTrace(f"{path.name}: not a table of throughputs: {problem}") from None


def _rates(table: Table) -> Rates:
    rates: Rates = {}
    for text, beside in table.items():
        key, alone = _key(text), beside.get("null")
        if key is not None and isinstance(alone, float) and alone > 0:
            rates[key] = alone
    return rates


def _pairs(table: Table) -> Pairs:
    pairs: Pairs = {}
    for text, beside in table.items():
        mine = _key(text)
        for other, packed in beside.items():
            theirs = _key(other)
            if mine is not None and theirs is not None and isinstance(packed, tuple):
                pairs[mine, theirs] = packed[0]
    return pairs


def _key(text: str) -> Key | None:
    model, _, devices = text.strip("()").rpartition(", ")
    return (model.strip("'"), int(devices)) if devices.isdigit() else None


def _tells(head: str) -> bool:
    fields = head.partition("\n")[0].split("\t")
    return len(fields) == FIELDS and fields[_STEPS].isdigit() and fields[_DEVICES].isdigit()


def _read(text: Text, options: Options) -> Iterable[Row]:
    if options.rates is None:
        raise BadTrace(
            f"{text.name}: counts steps, not time: give the table of throughputs too "
            "(steps a second by model; on the command line, --throughputs FILE)"
        )
    shapes = Shapes("devices", whole_nodes=options.whole_nodes)
    row = 0
    for block in text.blocks():
        for line in block:
            if not line.strip():
                continue
            row += 1
            try:
                yield _job(row, line.split("\t"), shapes, options.rates)
            except Unreadable as reason:
                yield str(reason)


def _job(
    row: int, fields: list[str], shapes: Shapes, rates: Mapping[tuple[str, int], float]
) -> TraceJob:
    if len(fields) < FIELDS:
        raise Unreadable(TOO_SHORT)
    tasks, need = shapes[fields[_DEVICES]]
    model = intern(fields[_MODEL])
    steps = number(fields[_STEPS], "total steps")
    rate = rates.get((model, whole(fields[_DEVICES], "devices")))
    if not rate:
        raise Unreadable(NO_RATE)
    return TraceJob(
        str(row),
        point_ms(fields[_ARRIVAL], "arrival"),
        checked_span(round(steps / rate * SECOND), "total steps"),
        tasks,
        need,
        model=model,
    )


FORMAT = Format("gavel", (), _tells, _read)

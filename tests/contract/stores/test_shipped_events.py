"""History stays readable: nobody changes what is on disk by accident."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from allotment.model.events import AnyEvent, NodeLost, Record
from allotment.model.ids import SYSTEM, NodeId, Seq
from allotment.model.quantity import Instant
from allotment.store import codec
from allotment.store.sqlite import SqliteStore
from tests.contract.stores.shapes import DOCUMENTS, EVENTS, broken, present, shipped

WHAT_TO_DO = "see the head of tests/contract/stores/shapes.py"


def test_shapes_on_disk_are_as_they_were_shipped() -> None:
    assert not broken(shipped(), present()), WHAT_TO_DO


def test_every_shape_and_event_of_today_is_in_the_golden_file() -> None:
    before, now = shipped(), present()
    assert before.shapes == now.shapes, WHAT_TO_DO
    assert before.enums == now.enums, WHAT_TO_DO
    for name, examples in now.bytes.items():
        assert set(examples) <= set(before.bytes.get(name, [])), f"{name}: {WHAT_TO_DO}"


@pytest.mark.parametrize("name", [event.__name__ for event in EVENTS])
def test_shipped_bytes_of_an_event_still_say_the_same(name: str) -> None:
    for example in shipped().bytes[name]:
        event = codec.decode(bytes.fromhex(example), codec.VERSION)
        assert type(event).__name__ == name
        assert content(msgspec.msgpack.encode(event)) == as_read(
            content(bytes.fromhex(example))
        )


@pytest.mark.parametrize("document", DOCUMENTS)
def test_shipped_documents_still_say_the_same(document: type[msgspec.Struct]) -> None:
    for example in shipped().bytes[document.__name__]:
        value = msgspec.msgpack.decode(bytes.fromhex(example), type=document)
        assert content(msgspec.msgpack.encode(value)) == content(bytes.fromhex(example))


def content(data: bytes) -> object:
    """Return all that bytes say, by key: a map of 16 fields and more has a longer header."""
    return msgspec.msgpack.decode(data)


RENAMED = {("reason", "window"): "reservation"}
"""Values of fields that are written otherwise now, and read for ever."""


def as_read(written: object) -> object:
    """Put new values in place of renamed ones."""
    assert isinstance(written, dict)
    return {
        name: RENAMED.get((name, value), value) if isinstance(value, str) else value
        for name, value in written.items()
    }


def test_changes_that_break_history_are_seen() -> None:
    before, now = shipped(), shipped()
    now.shapes["NodeLost"] = {"nodes": "int", "reason": 'str = "?"'}
    now.shapes["Slot"]["weight"] = "int = 1"
    now.enums["Outcome"].remove("evicted")
    assert broken(before, now) == [
        "NodeLost.node is gone",
        'NodeLost.reason: was str = "", is str = "?"',
        "NodeLost.nodes: is new and has no default",
        "Outcome: evicted is gone",
    ]


# ── versions ────────────────────────────────────────────────────────────────────────────


def test_an_event_of_an_older_format_is_read_through_its_upcasters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = Record(Seq(1), Instant(5), SYSTEM, NodeLost(NodeId(0), "cable"))
    store = SqliteStore.open(tmp_path)
    store.append([lost])
    store.close()

    monkeypatch.setattr(codec, "VERSION", 3)
    monkeypatch.setattr(codec, "UPCASTERS", {1: replace(b"cable", b"table"), 2: bytes.upper})
    monkeypatch.setattr(codec, "_decoder", msgspec.msgpack.Decoder(Loud))
    store = SqliteStore.open(tmp_path)
    (record,) = store.records()
    store.close()
    assert record.event == Loud(0, "TABLE")


class Loud(msgspec.Struct, rename="upper", tag_field="EVENT", tag="NODELOST"):
    """The newer form that the upcasters of the test above lead to."""

    node: int
    reason: str


def replace(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda body: body.replace(old, new)


@pytest.mark.parametrize("version", [codec.VERSION + 1, 0, -3])
def test_a_format_that_this_version_does_not_know_is_refused(version: int) -> None:
    body = msgspec.msgpack.encode(NodeLost(NodeId(0)))
    with pytest.raises(msgspec.DecodeError, match=f"format {version}"):
        codec.decode(body, version)


def test_every_event_round_trips_through_a_row() -> None:
    for root in EVENTS:
        for example in shipped().bytes[root.__name__]:
            event: AnyEvent = codec.decode(bytes.fromhex(example), codec.VERSION)
            record = Record(Seq(1), Instant(2), SYSTEM, event)
            rows = codec.rows_of([record], 0)
            assert list(codec.records_of(rows)) == [record]
            assert (rows[0][6], rows[0][5]) == (root.__name__, record.job)

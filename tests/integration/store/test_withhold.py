"""A backup without secrets has none anywhere in its file, and is whole."""

from pathlib import Path

import msgspec

from allotment.engine.records import JobRecord
from allotment.model.events import JobEdited, JobSubmitted, Record
from allotment.model.ids import JobId, Seq
from allotment.model.lifecycle import JobState
from allotment.model.quantity import Instant
from allotment.model.spec import WITHHELD, JobSpec, TaskRole
from allotment.service.ports import Snapshot
from allotment.store.examine import everything_wrong, reading
from allotment.store.sqlite import SqliteStore, restore
from tests.contract.stores.stores import ALICE, an_archived, some_events

SECRET = "correct-horse-battery-staple" * 20
SPEC = JobSpec(
    "train",
    "vision",
    (TaskRole("main", 1, "true"),),
    env=(("SAID", "secrets"),),
    secrets=(("TOKEN", SECRET), ("OTHER", SECRET)),
)


def test_a_copy_without_secrets(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    store = SqliteStore.open(tmp_path / "home")
    store.append(some_events(1, *range(1, 1200)))
    job = JobRecord(JobId(1), SPEC, ALICE, Instant(1), JobState.SUCCEEDED, Instant(1))
    document = msgspec.msgpack.encode(job)
    events = (JobSubmitted(JobId(1), SPEC), JobEdited(JobId(1), SPEC))
    archived = msgspec.structs.replace(an_archived(1), document=document)
    at = Instant(9999)
    store.append(
        [Record(Seq(1200 + n), at, ALICE, event) for n, event in enumerate(events)], [archived]
    )
    image = msgspec.msgpack.encode({"jobs": [job], "keys": [[["a", "k"], 1]]})
    store.save_snapshot(Snapshot(Seq(1201), image))
    before = list(store.records())
    store.backup(str(tmp_path / "clear.db"))
    store.backup(str(tmp_path / "without.db"), without_secrets=True)
    store.close()
    assert SECRET.encode() in (tmp_path / "clear.db").read_bytes()
    assert SECRET.encode()[:40] not in (tmp_path / "without.db").read_bytes()
    assert not list(tmp_path.glob("without.db-*"))

    assert restore(tmp_path / "without.db", tmp_path / "new") == 1201
    copy = SqliteStore.open(tmp_path / "new")
    after = list(copy.records())
    assert after[:1199] == before[:1199]
    for record in after[1199:]:
        assert isinstance(record.event, (JobSubmitted, JobEdited))
        assert record.event.spec.secrets == (("TOKEN", WITHHELD), ("OTHER", WITHHELD))
        assert record.event.spec.env == SPEC.env
    kept = copy.archived(JobId(1))
    assert kept is not None
    assert msgspec.msgpack.decode(kept.document, type=JobRecord).spec.withheld
    copy.close()
    with reading(tmp_path / "new" / "allot.db") as connection:
        assert list(everything_wrong(connection)) == []

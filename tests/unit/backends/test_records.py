"""What a backend keeps of its tasks is on the disk when it says so, many in one flush."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allotment.backends.kubernetes.record import Launched, Records
from allotment.backends.records import TaskRecords
from allotment.model.errors import BackendError
from allotment.model.ids import AttemptNo, JobId, TaskIndex, TaskKey


def key_of(job: int, index: int = 0) -> TaskKey:
    return TaskKey(JobId(job), AttemptNo(1), TaskIndex(index))


def a_record(name: str) -> Launched:
    return Launched(name, "n1", "token")


@pytest.fixture
def records(tmp_path: Path) -> TaskRecords[Launched]:
    made = TaskRecords(tmp_path / "records.db", Launched)
    made.make()
    return made


def test_what_comes_while_the_disk_is_busy_is_written_together(
    records: TaskRecords[Launched], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, groups = TaskRecords._commit, list[int]()

    def counted(self: TaskRecords[Launched], group: list[Any]) -> None:
        groups.append(len(group))
        commit(self, group)

    async def story() -> None:
        await asyncio.gather(*(records.keep(key_of(1, n), a_record("a")) for n in range(100)))
        await asyncio.gather(*(records.keep(key_of(1, n), a_record("b")) for n in range(100)))
        await records.keep(key_of(2), a_record("c"))
        await records.close()

    monkeypatch.setattr(TaskRecords, "_commit", counted)
    asyncio.run(story())
    assert groups == [100, 100, 1]
    again = TaskRecords(tmp_path / "records.db", Launched)
    assert [again.read(key_of(1, n)) for n in range(100)] == [a_record("b")] * 100
    assert sorted(again.jobs()) == [1, 2]
    assert again.read(key_of(3)) is None


def test_of_one_task_the_last_that_was_told_stays(records: TaskRecords[Launched]) -> None:
    async def story() -> None:
        tells = [records.keep(key_of(1), a_record(str(n))) for n in range(20)]
        await asyncio.gather(*tells)
        assert records.read(key_of(1)) == a_record("19")
        forgetting = [records.keep(key_of(1), a_record("20")), records.forget(1)]
        await asyncio.gather(*forgetting)
        assert records.read(key_of(1)) is None
        assert records.jobs() == []
        await records.close()

    asyncio.run(story())


def test_a_disk_that_is_full_for_a_while_is_told_to_all_and_then_works(
    records: TaskRecords[Launched], monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, is_full = TaskRecords._commit, [True]

    def full(self: TaskRecords[Launched], group: list[Any]) -> None:
        if is_full.pop():
            raise sqlite3.OperationalError("database or disk is full")
        commit(self, group)

    async def story() -> None:
        tells = [records.keep(key_of(n), a_record("a")) for n in range(3)]
        found = await asyncio.gather(*tells, return_exceptions=True)
        for each in found:
            with pytest.raises(BackendError, match=r"cannot be kept: .*full"):
                raise each if each is not None else AssertionError("it was kept")
        is_full.append(False)
        await records.keep(key_of(1), a_record("b"))
        assert records.jobs() == [1]
        await records.close()

    monkeypatch.setattr(TaskRecords, "_commit", full)
    asyncio.run(story())


def test_who_asked_may_leave_and_it_is_kept_all_the_same(
    records: TaskRecords[Launched],
) -> None:
    async def story() -> None:
        asking = asyncio.create_task(records.keep(key_of(1), a_record("a")))
        await asyncio.sleep(0)
        asking.cancel()
        await records.close()
        assert records.read(key_of(1)) == a_record("a")

    asyncio.run(story())


def test_what_comes_after_the_end_is_told_so_and_waits_for_nothing(
    records: TaskRecords[Launched],
) -> None:
    async def story() -> None:
        await records.close()
        async with asyncio.timeout(10):
            with pytest.raises(BackendError, match=r"cannot be kept: .*closed"):
                await records.keep(key_of(1), a_record("a"))

    asyncio.run(story())


def test_what_is_no_such_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(BackendError, match=r"records\.db: file is not a database"):
        TaskRecords(path, Launched).jobs()


def test_records_of_earlier_versions_are_taken_over_once(tmp_path: Path) -> None:
    folder = tmp_path / "tasks/7/1"
    for index, data in enumerate((msgspec.json.encode(a_record("old")), b"")):
        (folder / str(index)).mkdir(parents=True)
        (folder / str(index) / "record.json").write_bytes(data)
    before = Records(tmp_path)
    assert before.jobs() == [7]
    before.prepare()
    assert before.read(key_of(7)) == a_record("old")
    with pytest.raises(BackendError, match=r"task 7\.1\.1"):  # cut off by a crash
        before.read(key_of(7, 1))
    assert list(tmp_path.glob("**/record.json")) == []

    async def story() -> None:
        await before.keep(key_of(7), a_record("new"))
        await before.close()

    asyncio.run(story())
    after = Records(tmp_path)
    after.prepare()
    assert after.read(key_of(7)) == a_record("new")
    assert after.jobs() == [7]

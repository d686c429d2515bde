"""Puts to one dataset in an object store that meet each other, or a sweep."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allotment.model.errors import Rejected
from allotment.service.data.objects import objects, putting
from allotment.service.data.objects.bucket import Bucket
from allotment.service.data.objects.lanes import LANES
from allotment.service.data.objects.listing import COMPLETE
from allotment.service.data.store import PRESSED_S
from allotment.service.data.view import DataNote, ObjectsNote
from tests.integration.service.test_object_cache import run
from tests.support.builders import ALICE
from tests.support.object_stores import BUCKET, KEY, Moto
from tests.unit.service.data.test_datasets import Stage, a_list

FILES = [str(number).encode() for number in range(LANES + 2)]


@pytest.fixture
def stage(tmp_path: Path, moto: Moto, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Make a dataset, `words`, for which files have come that are in no version yet."""
    monkeypatch.setattr(objects, "key_of", lambda *_: KEY)  # In a home that no user has.
    made = Stage(tmp_path)

    async def begin() -> None:
        place = ObjectsNote(f"s3://{BUCKET}/{os.urandom(4).hex()}", moto.endpoint)
        await made.datasets.create(DataNote("words", objects=place), "vision", ALICE)
        await made.send(*FILES)

    run(begin)
    return made


def on_put(monkeypatch: pytest.MonkeyPatch, tell: Callable[[str], object]) -> None:
    """Have it told which objects are put, before they are."""
    put = Bucket.put

    def told(bucket: Bucket, key: str, *more: Any) -> None:
        tell(key)
        put(bucket, key, *more)

    monkeypatch.setattr(Bucket, "put", told)


def test_the_same_files_put_twice_at_once_are_sent_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    on_put(monkeypatch, sent.append)

    async def work() -> None:
        puts = [stage.datasets.put("words", a_list(*FILES), ALICE) for _ in range(2)]
        assert [each.missing for each in await asyncio.gather(*puts)] == [(), ()]

    run(work)
    assert [each.number for each in stage.words.versions] == [1]
    assert len(sent) == len(set(sent)) == len(FILES) + 1


def test_what_is_being_put_is_not_swept(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def wait(_: str) -> None:
        begun.set()
        goes_on.wait()

    on_put(monkeypatch, wait)

    async def work() -> None:
        put = asyncio.create_task(stage.datasets.put("words", a_list(*FILES), ALICE))
        await asyncio.to_thread(begun.wait)
        for path in stage.datasets.store.seen(stage.words.id).files():
            os.utime(path, (0, 0))
        await stage.datasets.objects.sweep_one(stage.words, PRESSED_S)
        goes_on.set()
        assert (await put).missing == ()

    run(work)


def test_a_put_that_takes_too_long_has_ended_when_that_is_told(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on, now = threading.Event(), threading.Event(), [0.0]
    monkeypatch.setattr(putting, "monotonic", lambda: now[0])
    sent: list[str] = []

    def wait(key: str) -> None:
        sent.append(key)
        begun.set()
        goes_on.wait()

    on_put(monkeypatch, wait)

    async def work() -> None:
        objects = stage.datasets.objects
        put = asyncio.create_task(stage.datasets.put("words", a_list(*FILES), ALICE))
        await asyncio.to_thread(begun.wait)
        now[0] = putting.PUTTING_S + 1
        staged = list(stage.datasets.store.seen(stage.words.id).files())
        for path in staged:
            os.utime(path, (0, 0))
        await objects.sweep_one(stage.words, PRESSED_S)
        assert all(path.exists() for path in staged)
        goes_on.set()
        with pytest.raises(Rejected, match=r"was not put to s3://.* in 4 h"):
            await put
        assert not any(key.endswith(COMPLETE) for key in sent)
        assert objects.putting[stage.words.id] == 0
        now[0] = 0.0
        assert (await stage.datasets.put("words", a_list(*FILES), ALICE)).missing == ()

    run(work)
    assert [each.number for each in stage.words.versions] == [1]

"""Who waits for whose fetch of an image: with one user's password nobody else's job fails."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from allotment.backends.local.images import images as ours
from allotment.backends.local.images.images import MOST_WARMED, Images, Ready
from allotment.backends.local.images.store import Image, Store
from allotment.backends.local.images.trouble import ImageTrouble, Kind
from allotment.model.errors import Code, Rejected
from allotment.model.image_names import Reference
from allotment.service.ports import Identity, ImageWish
from tests.support.patience import PATIENCE_S

DIGEST = "sha256:" + "a" * 64
ANN, BEN = 1001, 1002


def wish(uid: int, name: str = "a") -> ImageWish:
    return ImageWish(f"h.org/{name}@{DIGEST}", str(uid), "/", identity=Identity(uid, uid))


class Fetches:
    """Takes the place of real ones: `script` says what each user's does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[tuple[int, str]] = []
        self.go = threading.Event()
        self.script: dict[int, Callable[[], None]] = {}
        monkeypatch.setattr(ours, "ANSWERED_S", 0.0)
        monkeypatch.setattr(Images, "inspect", _nothing)
        monkeypatch.setattr(ours, "_digest", lambda *_: DIGEST)
        monkeypatch.setattr(ours, "_looked", lambda exact, _: exact)
        monkeypatch.setattr(ours, "_registry", lambda _, wish: wish.identity.uid)
        monkeypatch.setattr(ours, "Fetch", partial(_Fetch, self))


async def _nothing(*_: object) -> None:
    """Take the place of what is said of an image."""


class _Fetch:
    def __init__(self, told: Fetches, store: Store, uid: int, exact: Reference, _: int) -> None:
        self._told, self._store, self._uid, self._exact = told, store, uid, exact
        self.stop = threading.Event()
        self.last_byte_at = 0.0

    def run(self) -> None:
        self._told.begun.append((self._uid, self._exact.repository))
        self._told.script.get(self._uid, lambda: None)()
        place, digest = self._exact.place, self._exact.digest
        self._store.keep(self._exact, Image(str(self._exact), place, digest, ()))


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> Fetches:
    return Fetches(monkeypatch)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not true():
            await asyncio.sleep(0.001)


def played(folder: Path, play: Callable[[Images], Any]) -> Any:
    async def run() -> Any:
        images = Images(folder, lambda: 1 << 30)
        await images.start()
        async with asyncio.timeout(PATIENCE_S):
            return await play(images)

    return asyncio.run(run())


def waits_for(go: threading.Event) -> Callable[[], None]:
    def wait() -> None:
        assert go.wait(PATIENCE_S)

    return wait


def test_a_fetch_that_waits_for_its_turn_holds_up_nobody_else(
    tmp_path: Path, fetches: Fetches
) -> None:
    fetches.script[ANN] = waits_for(fetches.go)

    async def play(images: Images) -> Ready:
        slow = asyncio.ensure_future(images.ready(wish(ANN, "slow")))
        await until(lambda: (ANN, "slow") in fetches.begun)
        queued = asyncio.ensure_future(images.ready(wish(ANN)))
        await until(lambda: len(images._own) == 2)
        found = await images.ready(wish(BEN))
        assert not slow.done()
        fetches.go.set()
        await asyncio.gather(slow, queued)
        return found

    assert played(tmp_path, play).image.digest == DIGEST
    assert (BEN, "a") in fetches.begun


def test_a_fetch_that_is_under_way_is_joined(tmp_path: Path, fetches: Fetches) -> None:
    fetches.script[ANN] = waits_for(fetches.go)

    async def play(images: Images) -> None:
        first = asyncio.ensure_future(images.ready(wish(ANN)))
        await until(lambda: len(images._coming) == 1)
        second = asyncio.ensure_future(images.ready(wish(BEN)))
        await until(lambda: next(iter(images._coming.values())).waiting == 2)
        fetches.go.set()
        await asyncio.gather(first, second)

    played(tmp_path, play)
    assert fetches.begun == [(ANN, "a")]


def test_what_fails_with_the_password_of_another_is_tried_with_the_own(
    tmp_path: Path, fetches: Fetches
) -> None:
    def fails() -> None:
        assert fetches.go.wait(PATIENCE_S)
        raise ImageTrouble(Kind.DENIED, "The password is refused.")

    fetches.script[ANN] = fails

    async def play(images: Images) -> Any:
        first = asyncio.ensure_future(images.ready(wish(ANN)))
        await until(lambda: len(images._coming) == 1)
        second = asyncio.ensure_future(images.ready(wish(BEN)))
        await until(lambda: next(iter(images._coming.values())).waiting == 2)
        fetches.go.set()
        return await asyncio.gather(first, second, return_exceptions=True)

    first, second = played(tmp_path, play)
    assert isinstance(first, ImageTrouble)
    assert isinstance(second, Ready)
    assert fetches.begun == [(ANN, "a"), (BEN, "a")]


def test_what_is_fetched_ahead_is_let_go_of_when_nobody_waits_any_more(
    tmp_path: Path, fetches: Fetches
) -> None:
    fetches.script[ANN] = waits_for(fetches.go)

    async def play(images: Images) -> None:
        await images.warm(wish(ANN))
        await until(lambda: len(images._coming) == 1)
        fetches.go.set()
        await until(lambda: not images._warming)

    played(tmp_path, play)
    store = Store(tmp_path)
    [(image, _)] = store.images()
    assert not store.is_in_use(image)


def test_a_user_fetches_so_many_ahead_and_others_still_may(
    tmp_path: Path, fetches: Fetches
) -> None:
    fetches.script[ANN] = waits_for(fetches.go)

    async def play(images: Images) -> Rejected:
        for number in range(MOST_WARMED):
            await images.warm(wish(ANN, f"a{number}"))
        await images.warm(wish(ANN, "a0"))
        with pytest.raises(Rejected) as refused:
            await images.warm(wish(ANN, "one-more"))
        await images.warm(wish(BEN))
        fetches.go.set()
        await until(lambda: not images._warming)
        await images.warm(wish(ANN, "one-more"))
        await images.close()
        return refused.value

    assert played(tmp_path, play).code is Code.TOO_MANY

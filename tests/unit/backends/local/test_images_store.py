"""The store of images is free while what it no longer needs is deleted."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from allotment.backends.local.images.images import Images
from allotment.backends.local.images.store import Image, Layer, Store
from allotment.model.image_names import Reference
from allotment.rights import clearing
from tests.support.cluster import until
from tests.support.patience import PATIENCE_S

DIGEST = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64
REFERENCE = Reference("h.org", "a", "", DIGEST)


def with_image(folder: Path) -> tuple[Store, Image]:
    store = Store(folder)
    store.prepare()
    store.keep_layer(store.new_folder(), Layer(DIGEST, 10, 1, ()))
    image = Image(str(REFERENCE), REFERENCE.place, DIGEST, (DIGEST,))
    store.keep(REFERENCE, image)
    return store, image


class Slow:
    """Takes the place of the function that deletes: it takes until it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        monkeypatch.setattr(clearing, "remove", self)

    def __call__(self, root: int | None, name: str) -> None:
        self.begun.set()
        assert self.go.wait(PATIENCE_S)
        Path(name).rmdir()


def is_free(store: Store) -> bool:
    """Whether another thread may use the store at once."""
    used: list[int | None] = []
    with store.pinned(()):
        used.append(store.hold(Reference("h.org", "none", "", OTHER)))
    return used == [None]


@pytest.mark.parametrize("way", ["remove", "make_room"])
def test_a_layer_is_deleted_while_the_store_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    store, image = with_image(tmp_path)
    slow = Slow(monkeypatch)
    argument = image if way == "remove" else 0
    deleting = threading.Thread(target=getattr(store, way), args=[argument], daemon=True)
    deleting.start()
    assert slow.begun.wait(PATIENCE_S)
    asking = threading.Thread(target=is_free, args=[store], daemon=True)
    asking.start()
    asking.join(PATIENCE_S / 2)
    was_free = not asking.is_alive()
    slow.go.set()
    deleting.join(PATIENCE_S)
    assert was_free
    assert store.images() == []
    assert list((tmp_path / "images/new").iterdir()) == []


def test_what_a_killed_service_left_is_deleted_while_the_next_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = with_image(tmp_path)
    left = store.new_folder()
    slow = Slow(monkeypatch)
    begun = threading.Thread(target=Store(tmp_path).prepare, daemon=True)
    begun.start()
    begun.join(PATIENCE_S / 2)
    is_ready = not begun.is_alive()
    slow.go.set()
    begun.join(PATIENCE_S)
    assert is_ready
    until(lambda: not left.exists(), "what was left to be gone")


def test_the_service_does_not_stand_still_while_the_store_is_busy(tmp_path: Path) -> None:
    store, _ = with_image(tmp_path)
    images = Images(tmp_path, lambda: 100)
    images._store = store

    async def run() -> int:
        with store._turn:
            waiting = asyncio.ensure_future(images._hold(REFERENCE, 1001))
            await asyncio.sleep(0)
            assert not waiting.done()
        held = await waiting
        assert held is not None
        os.close(held[1])
        with store._turn:
            given_up = asyncio.ensure_future(images._hold(REFERENCE, 1001))
            await asyncio.sleep(0)
            given_up.cancel()
            await asyncio.gather(given_up, return_exceptions=True)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others)
        await asyncio.sleep(0)
        return store.is_in_use(Image(str(REFERENCE), REFERENCE.place, DIGEST, (DIGEST,)))

    assert asyncio.run(run()) is False

"""How long it counts that a user may read an image, when its registry says nothing."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from allotment.backends.local.images import images as ours
from allotment.backends.local.images.images import Images, Ready
from allotment.backends.local.images.store import Image
from allotment.backends.local.images.trouble import ImageTrouble, Kind, Unreachable
from allotment.model.image_names import Reference
from allotment.service.ports import Identity, ImageWish

DIGEST = "sha256:" + "a" * 64
REFERENCE = Reference("h.org", "a", "", DIGEST)
WISH = ImageWish(str(REFERENCE), "ann", "/", identity=Identity(1001, 1001))


class Word:
    """Takes the place of a registry: what it says is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.trouble: ImageTrouble | None = None
        monkeypatch.setattr(ours, "_digest", self)
        monkeypatch.setattr(ours, "BELIEVED_S", 0.0)

    def __call__(self, *_: object) -> str:
        if self.trouble is not None:
            raise self.trouble
        return DIGEST


@pytest.fixture
def word(monkeypatch: pytest.MonkeyPatch) -> Word:
    return Word(monkeypatch)


def runs(folder: Path, word: Word, *then: ImageTrouble) -> bool:
    """Whether an image that is here, and was this user's, runs after all that is said then."""

    async def run() -> Ready:
        images = Images(folder, lambda: 1 << 30)
        await images.start()
        image = Image(str(REFERENCE), REFERENCE.place, DIGEST, ())
        images._store.keep(REFERENCE, image)
        os.close((await images.ready(WISH)).hold)
        for word.trouble in then[:-1]:
            with pytest.raises(ImageTrouble):
                await images.ready(WISH)
        word.trouble = then[-1]
        return await images.ready(WISH)

    try:
        ready = asyncio.run(run())
    except ImageTrouble:
        return False
    os.close(ready.hold)
    return True


AWAY = Unreachable("It does not answer.")


def test_it_runs_while_its_registry_is_down(tmp_path: Path, word: Word) -> None:
    assert runs(tmp_path, word, AWAY)


@pytest.mark.parametrize("kind", [Kind.AWAY, Kind.DENIED, Kind.GONE])
def test_it_does_not_run_for_any_other_reason(tmp_path: Path, word: Word, kind: Kind) -> None:
    assert not runs(tmp_path, word, ImageTrouble(kind, "No turn came, or it is refused."))


def test_it_does_not_run_after_a_no(tmp_path: Path, word: Word) -> None:
    assert not runs(tmp_path, word, ImageTrouble(Kind.DENIED, "It is refused."), AWAY)


def test_it_does_not_run_when_the_yes_is_old(
    tmp_path: Path, word: Word, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ours, "SILENT_S", 0.0)
    assert not runs(tmp_path, word, AWAY)


def test_a_queue_that_is_full_is_no_registry_that_is_down(
    tmp_path: Path, word: Word, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = Images(tmp_path, lambda: 1 << 30)

    def timed_out(*_: object) -> Callable[[], None]:
        raise TimeoutError

    monkeypatch.setattr(images._asking, "run", timed_out)
    with pytest.raises(ImageTrouble) as found:
        asyncio.run(images.ready(WISH))
    assert found.value.kind is Kind.AWAY
    assert not isinstance(found.value, Unreachable)

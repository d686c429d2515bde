"""Which objects of checkpoints go."""

from typing import TYPE_CHECKING, cast

import pytest

from allotment.service.data.objects import checkpoints
from allotment.service.data.objects.checkpoints import clear

if TYPE_CHECKING:
    from allotment.service.data.objects.bucket import Bucket

START = "run/allot-checkpoint-1-aaaaaaaa-"


class Names:
    """The names of a store, all that `clear` asks for."""

    def __init__(self, *names: str) -> None:
        self.names = [f"{START}{name}" for name in names]
        self.removed: list[str] = []

    def starting_with(self, start: str) -> list[str]:
        return [name for name in self.names if name.startswith(start)]

    def remove(self, key: str) -> None:
        self.removed.append(key.removeprefix(START))

    def close(self) -> None:
        pass


def cleared(store: Names, go: set[str], stay: set[str]) -> list[str]:
    def named(folders: set[str]) -> set[str]:
        return {f"{START.removeprefix('run/')}{each}" for each in folders}

    clear(cast("Bucket", store), START, lambda: (named(go), named(stay)))
    return store.removed


def test_what_is_named_and_what_has_no_list_goes_the_list_first() -> None:
    store = Names(
        "1/a", "1/.allot-complete.json", "2/a", "3/a", "3/.allot-complete.json", "4/a"
    )
    found = cleared(store, {"1"}, {"4"})
    assert found[0] == "1/.allot-complete.json"
    assert sorted(found[1:]) == ["1/a", "2/a"]


def test_names_that_lead_elsewhere_are_never_asked_to_be_removed() -> None:
    """Whoever may put objects there could have others deleted, if the store follows dots."""
    assert not cleared(Names("/../../other/a", "1/../../a", "1/./a", "1//a"), set(), set())


def test_a_slow_store_is_wanted_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: now)
    is_wanted = checkpoints.for_seconds(10)
    now = 109.9
    assert is_wanted()
    now = 110.0
    assert not is_wanted()

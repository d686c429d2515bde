"""The store of environments: what goes, and what was asked for meanwhile."""

import os
from pathlib import Path

import pytest

from allotment.service.environments.store import UNBUILT_S, YOUNG_S, EnvironmentStore, Known

NOW = 10_000_000.0
KEY, OTHER = "a" * 32, "b" * 32


@pytest.fixture
def store(tmp_path: Path) -> EnvironmentStore:
    made = EnvironmentStore(tmp_path)
    made.prepare()
    return made


def asked(store: EnvironmentStore, key: str, at: float, *, is_built: bool) -> None:
    store.note(key, Known("3.11.2", ("a",), "a==1", bytes=100), 1)
    if is_built:
        store.made(key).mkdir()
    os.utime(store.root / "known" / f"{key}.json", (at, at))


def test_what_is_asked_for_while_room_is_made_stays(store: EnvironmentStore) -> None:
    for key in (KEY, OTHER):
        asked(store, key, NOW - 2 * YOUNG_S, is_built=True)

    class AskedMeanwhile:
        def __contains__(self, _: object) -> bool:
            os.utime(store.root / "known" / f"{KEY}.json", (NOW, NOW))
            return False

    store.make_room(0, AskedMeanwhile(), NOW)
    assert store.made(KEY).is_dir()
    assert store.known(KEY, 1)
    assert not store.made(OTHER).exists()


def test_what_was_never_built_goes_after_a_day(store: EnvironmentStore) -> None:
    asked(store, KEY, NOW - UNBUILT_S - 1, is_built=False)
    asked(store, OTHER, NOW - UNBUILT_S + 1, is_built=False)
    store.make_room(1 << 30, frozenset({"c" * 32}), NOW)
    assert [path.name for path in (store.root / "known").glob("a*")] == []
    assert store.known(OTHER, 1)


def test_what_is_there_counts_from_the_beginning(store: EnvironmentStore) -> None:
    store.note(KEY, known := Known("3.11.2", ("a",), "a==1"), 1)
    built = store.root / "new" / "env"
    built.mkdir()
    (built / "a.py").write_bytes(b"x" * 9)
    is_there = store.made(KEY).parent
    is_there.rmdir()  # The moment before it gets its name is the last one.
    with pytest.raises(OSError, match="No such file"):
        store.keep(KEY, built, known)
    found = store.known(KEY, 1)
    assert found is not None
    assert found.bytes == 9


def test_one_that_cannot_be_read_hides_no_other(store: EnvironmentStore) -> None:
    for key in (KEY, OTHER):
        asked(store, key, NOW, is_built=True)
    (store.root / "known" / f"{KEY}.json").write_bytes(b"")
    assert [row[0] for row in store.rows(1)] == [OTHER]


def test_what_a_job_needs_stays(store: EnvironmentStore) -> None:
    asked(store, KEY, 0, is_built=False)
    asked(store, OTHER, 0, is_built=True)
    store.make_room(0, frozenset({KEY, OTHER}), NOW)
    assert store.known(KEY, 1)
    assert store.made(OTHER).is_dir()

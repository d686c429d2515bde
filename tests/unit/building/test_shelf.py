"""The folder of a user's layers."""

from pathlib import Path

from allotment.building.shelf import folder_for, held, measure


def test_it_is_its_users_alone(tmp_path: Path) -> None:
    with held(tmp_path / "a/b"):
        assert (tmp_path / "a/b").stat().st_mode & 0o777 == 0o700


def test_who_comes_first_is_alone_and_others_come_when_it_lets_them(tmp_path: Path) -> None:
    with held(tmp_path) as first:
        assert first.is_alone
        first.share()
        with held(tmp_path) as second, held(tmp_path) as third:
            assert (second.is_alone, third.is_alone) == (False, False)
    with held(tmp_path) as last:
        assert last.is_alone


def test_names_count_as_well_as_bytes(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / str(number)).touch()
    (tmp_path / "link").symlink_to("/")
    empty = measure(tmp_path, 1 << 40)
    assert 100 * 512 <= empty < 1 << 20
    (tmp_path / "large").write_bytes(b"x" * (1 << 20))
    assert measure(tmp_path, 1 << 40) - empty >= 1 << 20
    assert measure(tmp_path, 10) < 1 << 40


def test_where_it_is(tmp_path: Path) -> None:
    assert folder_for({"HOME": "/h"}) == Path("/h/.local/share/allotment/images")
    assert folder_for({"HOME": "/h", "XDG_DATA_HOME": "/x"}) == Path("/x/allotment/images")

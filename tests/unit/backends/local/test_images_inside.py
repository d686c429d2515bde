"""Which Pythons an image has, by its files alone."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from allotment.backends.local.images import inside
from allotment.backends.local.images.inside import Files, pythons
from allotment.service.ports import ImagePython
from tests.support.image_python import LOADER, a_program, glibc

FOUND = ImagePython("3.12", "/usr/local/bin/python3.12", "2.36")


def files_of(folder: Path, *layers: dict[str, bytes | str]) -> Files:
    """Write layers, topmost first: a text is where a link leads, `None`-like b'' a whiteout."""
    places: list[Path] = []
    for number, entries in enumerate(layers):
        place = folder / str(number)
        place.mkdir()
        places.append(place)
        for name, data in entries.items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(data, str):
                path.symlink_to(data)
            else:
                path.write_bytes(data)
    return Files(places)


LIBRARY: dict[str, bytes | str] = {
    LOADER[1:]: "/lib/gnu/ld.so",
    "lib/gnu/ld.so": b"x",
    "lib/gnu/libc.so.6": glibc("2.36"),
}
PROGRAM: dict[str, bytes | str] = {
    "usr/local/bin/python3.12": a_program(),
    "usr/local/bin/python3": "python3.12",
}


def test_a_python_is_known_by_its_name_and_its_c_library(tmp_path: Path) -> None:
    assert pythons(files_of(tmp_path, PROGRAM, LIBRARY), "") == [FOUND]


def test_that_of_an_image_for_musl_too(tmp_path: Path) -> None:
    alpine: dict[str, bytes | str] = {
        "usr/bin/python3.12": a_program("/lib/ld-musl-x86_64.so.1")
    }
    found = pythons(files_of(tmp_path, alpine), "/bin:/usr/bin")
    assert found == [ImagePython("3.12", "/usr/bin/python3.12", "musl")]


def test_the_first_on_the_path_comes_first(tmp_path: Path) -> None:
    conda: dict[str, bytes | str] = {
        "opt/conda/bin/python3.10": a_program(), "opt/conda/bin/python": "python3.10"
    }  # fmt: skip
    found = pythons(
        files_of(tmp_path, conda, PROGRAM, LIBRARY), "/opt/conda/bin:/usr/local/bin"
    )
    assert [(each.version, each.program) for each in found] == [
        ("3.10", "/opt/conda/bin/python3.10"),
        ("3.12", "/usr/local/bin/python3.12"),
    ]


@pytest.mark.parametrize(
    ("path", "where"),
    [("a/b", "/x/b"), ("link/../x/b", "/x/b"), ("/up/b", "/x/b"), ("../../x/b", "/x/b")],
)
def test_a_link_leads_to_a_place_of_the_same_image(
    tmp_path: Path, path: str, where: str
) -> None:
    top: dict[str, bytes | str] = {"a": "/x", "link": "x", "up": "../../../x"}
    found = files_of(tmp_path, top, {"x/b": b""}).find(path)
    assert found == (where, str(tmp_path / "1/x/b"))


@pytest.mark.parametrize("path", ["round", "x/b/..", "x/b/c", "x", "no", "etc/hostname", "\0"])
def test_what_leads_nowhere_is_not_there(tmp_path: Path, path: str) -> None:
    top: dict[str, bytes | str] = {
        "round": "round",
        "etc": "/../../../../../../etc",
        "x/b": b"",
    }
    assert files_of(tmp_path, top).find(path) is None


@pytest.mark.needs_root
def test_what_a_layer_above_removed_is_not_there(tmp_path: Path) -> None:
    files = files_of(tmp_path, {"y/other": b""}, {"x/b": b"", "y/b": b""})
    os.mknod(tmp_path / "0/x", 0o020000)
    os.setxattr(tmp_path / "0/y", "trusted.overlay.opaque", b"y")
    assert files.find("x/b") is None
    assert files.find("y/b") is None
    assert files.find("y/other") is not None


@pytest.mark.parametrize(
    "program",
    [b"#!/bin/sh\n", b"", b"\x7fELF", a_program()[:80], a_program("/no/loader"),
     a_program()[:32] + b"\xff" * 8 + a_program()[40:]],
)  # fmt: skip
def test_what_is_no_program_is_no_python(tmp_path: Path, program: bytes) -> None:
    files = files_of(tmp_path, {"bin/python3.12": program}, LIBRARY)
    assert pythons(files, "/bin") == []


@pytest.mark.parametrize(
    "name", ["usr/bin/python3", "with blank/python3.12", "new\nline/python3.12"]
)
def test_a_path_that_says_no_version_or_more_than_a_path_is_passed_over(
    tmp_path: Path, name: str
) -> None:
    files = files_of(tmp_path, {name: a_program()}, LIBRARY)
    assert pythons(files, "/" + name.rpartition("/")[0]) == []


def test_a_path_that_goes_round_and_round_comes_to_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inside, "_MOST_LOOKS", 3000)
    turns = "/".join(["x/.."] * 600)
    names = {f"bin/python3.{minor}": f"/{turns}/bin/python3.{minor}" for minor in range(8, 31)}
    layers: Sequence[dict[str, bytes | str]] = [{**names, "x/y": b""}, {"x/y": b""}]
    files = files_of(tmp_path, *layers)
    assert pythons(files, ":".join(["/bin"] * 50)) == []
    assert files.find("x/y") is None  # there is no more looking


def test_what_is_deep_costs_more_to_look_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inside, "_MOST_LOOKS", 3000)
    deep = "a/" * 300
    files = files_of(tmp_path, {f"{deep}b": b"", "b": b""})
    assert files.find("b") is not None
    assert files.find(f"{deep}b") is None  # the system walks all folders above, each time

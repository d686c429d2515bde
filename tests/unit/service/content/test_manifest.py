"""A list of files that anybody could have written: what it may say, and what not."""

import pytest

from allotment.service.content.manifest import (
    BadManifest,
    FileEntry,
    Kind,
    digest_of,
    folders_of,
    largest,
    needs,
    read,
    written,
)

HELLO = digest_of(b"hello")


def a_file(path: str, kind: Kind = "f", of: str = HELLO, size: int = 5) -> FileEntry:
    return FileEntry(path, kind, size, of)


def test_what_was_written_is_read_again_and_has_one_name_in_any_order() -> None:
    files = [a_file("b/run", "x"), a_file("a"), FileEntry("b/l", "l", 0, "../a")]
    data = written(files)
    assert read(data).files == (a_file("a"), files[2], a_file("b/run", "x"))
    assert written(reversed(files)) == data
    assert needs(files) == {HELLO: 5}
    assert folders_of([a_file("x/y/z"), a_file("x/a")]) == ["x", "x/y"]


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "../up", "a/../../up", "a//b", "a/./b", "a/", ".", "..", "a\0b",
     "n" * 256, "/".join("d" * 100)],
)  # fmt: skip
def test_no_name_leads_out_of_the_folder(path: str) -> None:
    with pytest.raises(BadManifest):
        read(
            written([a_file(path)]) if path != "\ud800" else b'{"files":[["\\ud800","f",5,""]]}'
        )


@pytest.mark.parametrize(
    ("path", "target"),
    [("l", "/etc/shadow"), ("l", ".."), ("l", "../x"), ("d/l", "../../x"), ("l", "a/../../x"),
     ("l", "a/.."), ("l", ""), ("l", "a\0b")],
)  # fmt: skip
def test_no_link_leads_out_of_the_folder(path: str, target: str) -> None:
    with pytest.raises(BadManifest, match="leads out of the folder"):
        read(written([FileEntry(path, "l", 0, target)]))


def test_links_inside_are_kept() -> None:
    read(written([FileEntry("d/e/l", "l", 0, "../../a"), FileEntry("l", "l", 0, "d/e")]))


@pytest.mark.parametrize(
    "files",
    [
        [],
        [a_file("a"), a_file("a")],
        [a_file("a"), a_file("a/b")],
        [FileEntry("a", "l", 0, "b"), a_file("a/b")],
        [a_file("a", of="x")],
        [a_file("a", of=HELLO.upper())],
        [a_file("a", of=f"../{HELLO[3:]}")],
        [a_file("a", size=-1)],
    ],
)
def test_a_list_that_cannot_be_is_refused(files: list[FileEntry]) -> None:
    with pytest.raises(BadManifest):
        read(written(files))


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{", b"\xff", b'{"files":[["a","d",0,""]]}', b'{"files":[["a","s",0,""]]}',
     b'{"files":[],"more":1}', b'{"files":[],"version":2}', b"[" * 100_000],
)  # fmt: skip
def test_devices_sockets_and_nonsense_are_no_files(data: bytes) -> None:
    with pytest.raises(BadManifest):
        read(data)


def test_the_largest_are_named_with_their_folders() -> None:
    told = largest([("data/a", 3 << 20), ("data/b", 1 << 20), ("c", 2 << 20)])
    assert told == (
        "The largest files: data/a (3 MiB), c (2 MiB), data/b (1 MiB). "
        "The largest folders: data/ (2 files, 4 MiB)."
    )


def test_folders_are_bounded_as_files_are() -> None:
    of = digest_of(b"")
    deep = [FileEntry(f"{number}/" + "a/" * 60 + "f", "f", 0, of) for number in range(900)]
    with pytest.raises(BadManifest, match="more than 50,000 folders"):
        read(written(deep))

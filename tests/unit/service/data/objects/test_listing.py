"""What stores say they have, and what files become of it."""

import pytest

from allotment.model.datasets import ObjectPlace
from allotment.service.content.manifest import BadManifest, read
from allotment.service.data.objects.listing import (
    BadPage,
    Object,
    ObjectList,
    error_code,
    files_of,
    listing_of,
    named,
    page_of,
)

PLACE = ObjectPlace("https://s3.example.org", "models", "bert")


def a_page(*objects: tuple[str, str, str], more: str = "") -> bytes:
    contents = "".join(
        f"<Contents><Key>{key}</Key><Size>{size}</Size><ETag>{etag}</ETag></Contents>"
        for key, size, etag in objects
    )
    head = '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    return f"{head}{more}{contents}</ListBucketResult>".encode()


def test_a_page_is_read() -> None:
    goes_on = "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
    found = page_of(a_page(("a/b", "3", "&quot;e1&quot;"), ("c", "0", "e2"), more=goes_on))
    assert found.objects == (Object("a/b", 3, "e1"), Object("c", 0, "e2"))
    assert found.next == "t"


def test_names_can_be_coded() -> None:
    coded = "<EncodingType>url</EncodingType>"
    found = page_of(a_page(("a+b%2B%C3%BC%0A", "1", "e"), more=coded))
    assert found.objects[0].path == "a b+ü\n"
    assert page_of(a_page(("a+b", "1", "e"))).objects[0].path == "a+b"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>hello</html>",
        b"{}",
        a_page(("a", "-1", "e")),
        a_page(("a", "1", "")),
        a_page(("", "1", "e")),
        a_page(("a", "1", 'e" x="y')),
        a_page(("a", "9" * 30, "e")),
        a_page(("%ff", "1", "e"), more="<EncodingType>url</EncodingType>"),
        a_page(more="<IsTruncated>true</IsTruncated>"),
        b'<!DOCTYPE x [<!ENTITY a "b">]><ListBucketResult/>',
        b"<a>" * 100,
        b"<ListBucketResult><Name>" + b"x" * 100_000 + b"</Name></ListBucketResult>",
    ],
)
def test_what_is_no_page_is_refused(data: bytes) -> None:
    with pytest.raises(BadPage):
        page_of(data)


def test_files_are_below_the_prefix() -> None:
    found = [Object("bert/b", 2, "e"), Object("bert/a/", 0, "f"), Object("bert/a/c", 3, "g")]
    listing = listing_of(found, PLACE)
    assert [each.path for each in listing.objects] == ["a/c", "b"]
    assert listing.key_of("a/c", PLACE) == "bert/a/c"
    files = read(files_of(listing)).files
    assert [(file.path, file.size) for file in files] == [("a/c", 3), ("b", 2)]


def test_outputs_count_when_their_last_object_is_there() -> None:
    paths = [
        "allot-job-1-0a1b2c3d/a",
        "allot-job-1-0a1b2c3d/.allot-complete.json",
        "allot-job-2-0a1b2c3d/a",
        "allot-job-2-0a1b2c3d/sub/.allot-complete.json",
        "allot-checkpoint-1-0a1b2c3d-0123456789abcdef/c/a",
        "allot-checkpoint-1-0a1b2c3d-0123456789abcdef/.allot-complete.json",
        "allot-checkpoint-1-0a1b2c3d-fedcba9876543210/c/a",
        "allot-job-x/a",
        "allot-job-3-0a1b2c3d",
        "b",
    ]
    listing = listing_of([Object(f"bert/{path}", 1, "e") for path in paths], PLACE)
    assert [each.path for each in listing.objects] == [
        "allot-checkpoint-1-0a1b2c3d-0123456789abcdef/.allot-complete.json",
        "allot-checkpoint-1-0a1b2c3d-0123456789abcdef/c/a",
        "allot-job-1-0a1b2c3d/.allot-complete.json",
        "allot-job-1-0a1b2c3d/a",
        "allot-job-3-0a1b2c3d",
        "allot-job-x/a",
        "b",
    ]


def test_outputs_by_themselves_count_when_they_are_whole() -> None:
    prefix = "bert/allot-job-1-0a1b2c3d"
    place = ObjectPlace("https://s3.example.org", "models", prefix)
    found = [Object(f"{prefix}/a", 1, "e")]
    assert listing_of(found, place).objects == ()
    found.append(Object(f"{prefix}/.allot-complete.json", 1, "e"))
    assert len(listing_of(found, place).objects) == 2


def test_one_object_is_a_file_by_its_last_name() -> None:
    place = ObjectPlace("https://s3.example.org", "models", "bert/weights.bin")
    listing = listing_of([Object("bert/weights.bin", 5, "e")], place)
    assert [each.path for each in listing.objects] == ["weights.bin"]
    assert listing.key_of("weights.bin", place) == "bert/weights.bin"


@pytest.mark.parametrize(
    "paths",
    [["../a"], ["a/../b"], ["/a"], ["a//b"], ["./a"], ["a", "a/b"], ["a/" * 70], ["a\0"],
     ["x" * 300], ["dir/"]],
)  # fmt: skip
def test_names_that_no_file_can_have_are_refused(paths: list[str]) -> None:
    with pytest.raises(BadManifest):
        files_of(ObjectList(tuple(Object(path, 1, "e") for path in paths)))


def test_an_object_in_another_state_is_another_file() -> None:
    states = [("a", 1, "e"), ("a", 1, "f"), ("a", 2, "e"), ("b", 1, "e"), ("a 1", 1, "e")]
    assert len({named(Object(*state)) for state in states}) == len(states)


def test_of_an_error_its_code_is_taken() -> None:
    assert error_code(b"<Error><Code>NoSuchKey</Code><Key>secret</Key></Error>") == "NoSuchKey"
    assert error_code(b"<Error><Code>a b\x1b[2J</Code></Error>") == ""

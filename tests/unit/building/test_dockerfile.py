"""What is read of a Dockerfile before buildah reads it."""

import pytest

from allotment.building.apt import with_apt
from allotment.building.dockerfile import Dockerfile, read, with_argument


@pytest.mark.parametrize(
    ("text", "steps", "bases"),
    [
        ("FROM a\n", 1, ("a",)),
        ("# a comment\n\nfrom a AS b\nrun x \\\n  # within\n\n  y\nCOPY --from=b /x /y\n", 3,
         ("a",)),
        ("FROM a AS b\nFROM c\nCOPY --from=B / /\nCOPY --from=d:1 / /\nCOPY --from=0 / /\n", 5,
         ("a", "c", "d:1")),
        ("FROM scratch\nADD x /\n", 2, ()),
        ("ARG V=1\nARG W\nFROM --platform=linux/amd64 a:${V}-$W\n", 1, ("a:1-",)),
        ("ARG V\nFROM a:${V:-2}\nARG V=3\nFROM a:$V\n", 3, ("a:2", "a:")),
        ("FROM a\\\n:1\n", 1, ("a",)),
        ("", 0, ()),
        ("FROM", 1, ()),
    ],
)  # fmt: skip
def test_steps_and_bases(text: str, steps: int, bases: tuple[str, ...]) -> None:
    assert read(text, {}) == Dockerfile(steps, bases)


def test_arguments_of_the_build_win() -> None:
    text = "ARG V=1\nFROM a:$V\n"
    assert read(text, {"V": "9", "OTHER": "x"}).bases == ("a:9",)


def test_a_line_stands_first_in_each_stage_and_nowhere_else() -> None:
    text = "ARG V\nFROM a \\\n  AS b\nRUN x \\\n FROM y\nFROM c\n"
    assert with_argument(text, "ARG Z") == (
        "ARG V\nFROM a \\\n  AS b\nARG Z\nRUN x \\\n FROM y\nFROM c\nARG Z\n"
    )


@pytest.mark.parametrize(
    "text", ["FROM a\nRUN pip install aptly\n", "FROM a\nENV APT_CONFIG=x\n"]
)
def test_what_has_nothing_to_do_with_apt_stays_as_it_is(text: str) -> None:
    assert with_apt(text) == text


def test_apt_is_told_that_there_is_one_user_only() -> None:
    text = with_apt("FROM a\nRUN apt-get update\n")
    line = text.splitlines()[1]
    assert text == f"FROM a\n{line}\nRUN apt-get update\n"
    name, path = line.removeprefix("ARG ").split("=")
    assert name == "APT_CONFIG"
    with open(path) as file:  # noqa: PTH123 - as it is written
        assert "Sandbox" in file.read()

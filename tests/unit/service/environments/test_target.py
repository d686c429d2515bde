"""Which Python of an image is chosen, and which wheels fit it."""

import pytest

from allotment.model.errors import Rejected
from allotment.service.environments.target import Target, fits, in_image
from allotment.service.ports import ImagePython

PYTHONS = (
    ImagePython("3.12", "/opt/bin/python3.12", "2.41"),
    ImagePython("3.9", "/usr/bin/python3.9", "2.30"),
)


@pytest.mark.parametrize(
    ("asked", "version"),
    [("", "3.12"), ("3.9", "3.9"), ("<3.12", "3.9"), (">=3.10", "3.12"), ("~=3.9", "3.12"),
     (">=3.9,<3.13", "3.12"), ("!=3.12.*", "3.9"), ("==3.9.*", "3.9")],
)  # fmt: skip
def test_the_first_that_fits_is_taken(asked: str, version: str) -> None:
    assert in_image(PYTHONS, asked, "x86_64").python == version


def test_wheels_fit_its_c_library() -> None:
    assert in_image(PYTHONS, "", "x86_64") == Target(
        "3.12", "/opt/bin/python3.12", "x86_64-manylinux_2_40"
    )
    assert in_image(PYTHONS, "3.9", "aarch64").platform == "aarch64-manylinux_2_28"
    musl = [ImagePython("3.12", "/usr/bin/python3.12", "musl")]
    assert in_image(musl, "", "x86_64").platform == "x86_64-unknown-linux-musl"


@pytest.mark.parametrize(
    ("pythons", "machine", "told"),
    [
        (PYTHONS, "x86_64", "no Python 3.11; it has 3.12 at /opt/bin/python3.12, 3.9 at"),
        ([], "x86_64", "the image has no Python"),
        ([ImagePython("3.11", "/bin/python3.11", "2.12")], "x86_64", "C library, 2.12"),
        ([ImagePython("3.11", "/bin/python3.11", "2.36")], "ppc64le", "2.36 on ppc64le"),
    ],
)
def test_what_cannot_be_is_told(pythons: list[ImagePython], machine: str, told: str) -> None:
    with pytest.raises(Rejected, match="environment: ") as caught:
        in_image(pythons, "3.11", machine)
    assert told in caught.value.message


@pytest.mark.parametrize(
    ("asked", "is_it"),
    [("3.11", True), ("3.1", False), ("3.11.4", False), ("==3.11.4", False), (">3.10", True),
     (">=3.8,!=3.9.*,<3.12", True), (">=3.11.4", True), ("<3.11.4", False), ("<=3.11", False),
     ("~=3.11.4", True), ("<4", True), ("~=3.12.1", False), ("!=3.11.4", True),
     ("!=3.11", False)],
)  # fmt: skip
def test_of_a_version_without_its_last_part(asked: str, is_it: bool) -> None:  # noqa: FBT001
    assert fits(asked, "3.11") is is_it

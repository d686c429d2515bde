"""Requirements: by name and version, and nothing that would run or read files."""

import pytest

from allotment.service.environments.requirements import is_python, lines_of, plain, trouble_of


@pytest.mark.parametrize(
    "line",
    ["six", "Six==1.16.0", "torch == 2.9.*", "a[b,c]>=1,<2", 'x>1; python_version < "3.12"',
     "a==1 --hash=sha256:" + "0" * 64, "a~=1.2", "a!=1.0+cu130", "zope.interface"],
)  # fmt: skip
def test_names_and_versions_are_taken(line: str) -> None:
    assert trouble_of([line]) == ""


@pytest.mark.parametrize(
    "line",
    ["-e .", "--index-url x", "./x", "/x", "x.whl @ file:///etc", "a @ https://x/y.whl",
     "git+ssh://x", "a==1 --config-settings=x", "a==1\n-e .", "", "a;b\\x", "a b",
     "a==1 --hash=md5:00", "$(id)", "a" * 3000, "a;x\n--no-binary a", "a\n==1",
     "a" + " " * 1900 + "@"],
)  # fmt: skip
def test_what_would_run_or_read_files_is_not(line: str) -> None:
    assert trouble_of([line])


def test_a_line_within_a_requirement_is_no_line_of_its_own() -> None:
    assert plain(["a ;  x\n--no-binary a"]) == ("a ; x --no-binary a",)


def test_a_file_is_read_as_pip_reads_it() -> None:
    text = "# all\nsix==1.16.0 \\\n    --hash=sha256:ab  # why\n\n  bottle  \r\n"
    assert lines_of(text) == ("six==1.16.0 --hash=sha256:ab", "bottle")


def test_versions_of_python() -> None:
    assert all(map(is_python, ("3.11", "3.11.2", "3.9")))
    assert not any(map(is_python, ("2.7", "3", ">=3", "/usr/bin/python", "3.11; x")))


def test_too_many_are_refused() -> None:
    assert "more than" in trouble_of(["a"] * 1001)

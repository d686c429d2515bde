"""Requirements: by name and version, and nothing that would run or read files."""

import pytest

from allotment.service.environments.requirements import (
    is_lock,
    is_python,
    lines_of,
    plain,
    trouble_of,
    unlike,
    without_hashes,
)


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
    good = ("3.11", "3.11.2", "3.9", ">=3.10", ">=3.10,<4", "~=3.11.2", "!=3.12.*,>3.8")
    assert all(map(is_python, good))
    bad = ("2.7", "3", ">=3 ", "=3.11", "/usr/bin/python", "3.11; x", ">=3.10,", ">=3.1.1.1.1")
    assert not any(map(is_python, bad))


def test_a_requirement_may_have_as_many_hashes_as_a_package_has_wheels() -> None:
    line = "numpy==2.3.4 ; python_version >= '3.11'" + f" --hash=sha256:{'0' * 64}" * 90
    assert trouble_of([line]) == ""
    assert is_lock(["a", line])
    assert not is_lock(["a==1", "b"])
    offered = (
        f"numpy==2.3.4 \\\n    --hash=sha256:{'1' * 64} \\\n    --hash=sha256:{'0' * 64}\n"
    )
    assert unlike(["Other_one==1 --hash=sha256:2", line], offered) == ""
    assert unlike([line], offered.replace("sha256:0", "sha256:2")) == "numpy==2.3.4"
    assert unlike(["a.B==1 --hash=sha256:2"], "a-b==1 --hash=sha256:3\n") == "a-b==1"
    assert without_hashes(line) == "numpy==2.3.4 ; python_version >= '3.11'"


def test_a_lock_for_several_platforms_has_a_package_several_times() -> None:
    lock = [
        "a==1 ; python_version < '3.11' --hash=sha256:1",
        "a==2 ; python_version >= '3.11' --hash=sha256:2",
        "b==1 ; sys_platform == 'win32' --hash=sha256:3",
    ]
    assert unlike(lock, "a==2 --hash=sha256:2\n") == ""
    assert unlike(lock, "a==2 --hash=sha256:4\n") == "a==2"


def test_too_many_are_refused() -> None:
    assert "more than" in trouble_of(["a"] * 1001)

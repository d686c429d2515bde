"""What `allot image build` refuses before there is a job, and the job that it makes."""

from pathlib import Path

import pytest

from allotment.cli import image_build
from allotment.cli.run import environment
from allotment.client.request import PASSED_ON
from tests.support.invoke import allot

NAME = "registry.example.org/x:1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "Dockerfile").write_text("FROM a\nRUN true\n")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-t", "x"), "names no registry"),
        (("-t", f"{NAME}@sha256:{'0' * 64}"), "has a digest"),
        (("-t", "r.example/UP"), "lower-case letters"),
        (("-t", NAME, "--build-arg", "x"), "is not NAME=VALUE"),
        (("-t", NAME, "--secret", "id=a"), "is id=NAME,src=FILE"),
        (("-t", NAME, "--secret", "id=a,src=/nowhere/x"), "there is no file /nowhere/x"),
        (("-t", NAME, "--disk", "5"), "has no unit"),
        (("-t", NAME, "-f", "nofile"), "cannot be read"),
    ],
)
def test_what_is_wrong_is_told_before_there_is_a_job(
    folder: Path, words: tuple[str, ...], told: str
) -> None:
    done = allot("image", "build", *words, str(folder))
    assert (done.code, told in done.err) == (1, True), done.err


def test_a_folder_needs_a_dockerfile_with_steps(tmp_path: Path) -> None:
    done = allot("image", "build", "-t", NAME, str(tmp_path))
    assert "Dockerfile cannot be read" in done.err
    (tmp_path / "Containerfile").write_text("# nothing\n")
    done = allot("image", "build", "-t", NAME, str(tmp_path))
    assert "has no steps" in done.err


def test_the_job_is_an_ordinary_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, object]] = []
    monkeypatch.setattr(image_build, "see_through", lambda job, **_: made.append(job))
    monkeypatch.setenv("XDG_DATA_HOME", "/data/ada")
    allot(
        "image", "build", "-t", NAME, "--time", "5m", "--no-push", "--tenant", "t", str(folder)
    )
    job = made[0]
    assert (job["name"], job["workdir"], job["tenant"]) == ("build-x-1", str(folder), "t")
    assert (job["max_run_time"], job["resources"]) == ("5m", {"memory": "2GiB"})
    command, env = job["command"], job["env"]
    assert isinstance(command, list)
    assert isinstance(env, dict)
    assert command[1:6] == ["-I", "-m", "allotment.building", "build", "--tag"]
    assert command[-2:] == ["--no-push", "."]
    assert env["XDG_DATA_HOME"] == "/data/ada"


def test_in_an_image_the_callers_variables_are_not_passed_on() -> None:
    here = {"PATH": "/bin", "X": "1"}
    assert environment(here, ["X"], ()) == {"X": "1"}
    assert environment(here, [], PASSED_ON) == {"PATH": "/bin"}

"""Datasets in a task's own view: where they are mounted, and what stays as it was."""

import os
from pathlib import Path

import pytest

from tests.integration.local.conftest import BWRAP, OWN
from tests.integration.local.harness import Runner
from tests.support.exchange import FEW, exchanging, owned

MALLORY = 64002
BOTH = pytest.mark.parametrize("kind", [OWN, BWRAP])


@pytest.fixture
def source(reachable: Path) -> Path:
    """A dataset that nobody but root can come to by its own path."""
    top = reachable / "closed"
    folder = top / "words"
    folder.mkdir(parents=True)
    (folder / "a").write_text("one\n")
    (folder / "a").chmod(0o444)
    top.chmod(0o700)
    return folder


def mount(source: Path, at: str, *, write: bool = False) -> dict[str, object]:
    return {"source": str(source), "at": at, "write": write}


@BOTH
def test_a_folder_that_is_not_there_is_there_for_the_task_alone(
    runner: Runner, kind: str, source: Path
) -> None:
    script = "cat /data/words/a; ls -A /; ls -A /srv; touch /data/words/b || echo refused"
    mounts = [mount(source, "/data/words"), mount(source, "/srv/some/place")]
    task = runner.launch(["sh", "-c", script], mounts=mounts, namespaces=kind)
    assert task.ended()["exit_code"] == 0, task.ended()
    said = task.output().split()
    assert said[0] == "one"
    assert set(said) >= {*os.listdir("/"), *os.listdir("/srv"), "data", "some", "refused"}  # noqa: PTH208
    assert not Path("/data").exists()
    assert not Path("/srv/some").exists()
    assert [path.name for path in source.iterdir()] == ["a"]


@BOTH
def test_what_may_be_written_is_written(runner: Runner, kind: str, source: Path) -> None:
    mounts = [mount(source, "/data/words", write=True)]
    status = runner.run("echo new > /data/words/b", mounts=mounts, namespaces=kind)
    assert status["exit_code"] == 0
    assert (source / "b").read_text() == "new\n"


def test_without_namespaces_it_does_not_run(runner: Runner, source: Path) -> None:
    status = runner.run("true", mounts=[mount(source, "/data/w")], namespaces="none")
    assert "cannot be mounted without namespaces" in status["platform_error"]


@pytest.mark.parametrize("at", ["/etc", "/proc/x", "/usr/bin", "/", "/data/../etc", "relative"])
def test_the_launcher_takes_no_place_of_the_systems(
    runner: Runner, source: Path, at: str
) -> None:
    request = runner.request("true", mounts=[mount(source, at)])
    answer = runner.ask({"op": "launch", "request": request})
    assert not answer["ok"]
    assert "mounts" in answer["error"]


@pytest.mark.needs_root
def test_a_place_exchanged_for_a_link_covers_nothing_of_the_systems(
    runner: Runner, reachable: Path, source: Path
) -> None:
    home = owned(reachable / "mallory", MALLORY)
    owned(home / "place", MALLORY)
    (home / "link").symlink_to("/etc")
    mounts = [mount(source, f"{home}/place")]
    said: list[str] = []
    with exchanging(home / "place", home / "link", MALLORY):
        for _ in range(max(1, FEW // 20)):
            tasks = [
                runner.launch(
                    "head -c 4 /etc/passwd", uid=MALLORY, gid=MALLORY, mounts=mounts,
                    namespaces="own",
                )
                for _ in range(20)
            ]  # fmt: skip
            for task in tasks:
                task.ended()
                said.append(task.output())
    assert set(said) <= {"root", ""}
    assert "root" in said


@pytest.mark.needs_root
def test_a_folder_exchanged_for_a_link_has_nothing_made_where_it_leads(
    runner: Runner, reachable: Path, source: Path
) -> None:
    home = owned(reachable / "mallory", MALLORY)
    (home / "roots").mkdir(mode=0o755)
    system = reachable / "system"
    system.mkdir(mode=0o755)
    (home / "link").symlink_to(system)
    script = f"cat {home}/roots/new/a"
    said: list[str] = []
    with exchanging(home / "roots", home / "link", MALLORY):
        for _ in range(max(2, FEW // 20)):
            tasks = [
                runner.launch(
                    ["sh", "-c", script], uid=MALLORY, gid=MALLORY, namespaces="own",
                    mounts=[mount(source, f"{home}/roots/new")],
                )
                for _ in range(20)
            ]  # fmt: skip
            for task in tasks:
                task.ended()
                said.append(task.output())
    assert "one\n" in said
    assert list(system.iterdir()) == []

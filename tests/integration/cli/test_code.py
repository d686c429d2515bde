"""`--code`: a real folder, a real git, a real service, and what a task finds."""

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from allotment.client import Client
from allotment.client.code import take
from allotment.client.errors import Refused
from allotment.client.step import Step
from tests.support.cluster import ALLOT, RealCluster, a_real_cluster

CONFIG = "tenants: {vision: {}}\ndefault_tenant: vision\nlimits: {code_files: 50}\n"

pytestmark = pytest.mark.needs_tool("git")


@pytest.fixture(scope="module")
def cluster(reachable_once: Path) -> Iterator[RealCluster]:
    with a_real_cluster(reachable_once, CONFIG) as made:
        yield made


@pytest.fixture
def folder(reachable: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A work tree with a commit, a change, a new file, and what git ignores."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(reachable / "cache"))
    made = reachable / "project"
    (made / "pkg").mkdir(parents=True)
    (made / "data").mkdir()
    (made / "pkg/a.py").write_text("print('first')\n")
    (made / "data/__init__.py").write_text("")
    (made / "run.sh").write_text("#!/bin/sh\ncat pkg/a.py\n")
    (made / "run.sh").chmod(0o755)
    (made / "link").symlink_to("pkg/a.py")
    (made / ".gitignore").write_text("/data/*\n!/data/__init__.py\n*.log\n")
    git(made, "init", "-q", "-b", "trunk")
    git(made, "add", "-A")
    git(made, "commit", "-q", "-m", "first")
    (made / "pkg/a.py").write_text("print('second')\n")
    (made / "new.py").write_text("")
    (made / "data/large.bin").write_text("not code")
    (made / "x.log").write_text("not code")
    return made


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    ran = subprocess.run(
        ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return ran.stdout.strip()


def run(cluster: RealCluster, folder: Path, *words: str) -> str:
    ran = cluster.allot("run", "-q", *words, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def newest(cluster: RealCluster) -> str:
    """Return the number of the job submitted last."""
    return str(cluster.get("/v1/jobs")["items"][0]["id"])


FIND = ("--", "find", ".", "-not", "-type", "d")


def test_a_task_finds_just_what_git_would_keep(cluster: RealCluster, folder: Path) -> None:
    found = run(cluster, folder, "--code", ".", *FIND).split()
    assert set(found) == {
        "./.gitignore", "./data/__init__.py", "./link", "./new.py", "./pkg/a.py", "./run.sh"
    }  # fmt: skip
    assert run(cluster, folder, "--code", ".", "--", "./run.sh") == "print('second')\n"
    assert run(cluster, folder / "pkg", "--code", "..", "--", "cat", "a.py").endswith("')\n")
    assert "x.log" in run(cluster, folder, *FIND)  # without, it is the folder itself


def test_the_commit_and_what_was_not_committed_are_kept(
    cluster: RealCluster, folder: Path
) -> None:
    run(cluster, folder, "--code", ".", "--", "true")
    job = newest(cluster)
    shown = cluster.allot("show", job).stdout
    commit = git(folder, "rev-parse", "HEAD")
    assert f"commit {commit[:12]} (trunk) with 2 changed files" in shown
    assert "starting: code " in shown
    said = cluster.allot("code", "diff", job).stdout
    assert said == subprocess.run(
        ["git", "diff", "HEAD"], cwd=folder, capture_output=True, text=True, check=True
    ).stdout  # fmt: skip
    code = cluster.get(f"/v1/jobs/{job}/code")["code"]
    assert (code["files"], code["commit"]) == (6, commit)


def test_new_files_alone_are_no_difference(cluster: RealCluster, folder: Path) -> None:
    git(folder, "checkout", "-q", "--", "pkg/a.py")
    run(cluster, folder, "--code", ".", "--", "true")
    ran = cluster.allot("code", "diff", newest(cluster))
    assert (ran.returncode, ran.stdout) == (0, "")
    assert "no tracked file differed" in ran.stderr


def test_a_file_is_no_folder_of_code(cluster: RealCluster, folder: Path) -> None:
    ran = cluster.allot("run", "--code", "run.sh", "--", "true", cwd=folder)
    assert ran.returncode == 1
    assert f"The code of {folder}/run.sh cannot be taken along: there is no such" in ran.stderr


def test_a_clone_runs_the_same_code_and_takes_it_anew_when_asked(
    cluster: RealCluster, folder: Path
) -> None:
    run(cluster, folder, "--code", ".", "--", "cat", "pkg/a.py")
    first = newest(cluster)
    (folder / "pkg/a.py").write_text("print('third')\n")
    for words, expected in (((), "second"), (("--code", str(folder)), "third")):
        ran = cluster.allot("clone", first, *words)
        assert ran.returncode == 0, ran.stderr
        job = int(ran.stdout)
        cluster.wait_for(job, "succeeded")
        assert cluster.allot("logs", str(job)).stdout == f"print('{expected}')\n"


def test_what_a_task_writes_changes_neither_folder_nor_store(
    cluster: RealCluster, folder: Path
) -> None:
    script = "echo spoilt > pkg/a.py; rm new.py; touch made"
    run(cluster, folder, "--code", ".", "--", "sh", "-c", script)
    assert (folder / "pkg/a.py").read_text() == "print('second')\n"
    assert not (folder / "made").exists()
    assert run(cluster, folder, "--code", ".", "--", "cat", "pkg/a.py") == "print('second')\n"


def test_a_job_file_takes_its_folder_along(cluster: RealCluster, folder: Path) -> None:
    (folder / "job.yaml").write_text(
        "name: j\ncommand: cat a.py\ncode: {take: .}\nworkdir: pkg\n"
    )
    tried = cluster.allot("submit", "--dry-run", "job.yaml", cwd=folder)
    assert "code: 7 files" in tried.stdout, tried.stderr
    assert "would be sent" in tried.stdout
    ran = cluster.allot("submit", "-f", "job.yaml", cwd=folder)
    assert ran.stdout == "print('second')\n", ran.stderr
    tried = cluster.allot("submit", "--dry-run", "job.yaml", cwd=folder)
    assert "it is here" in tried.stdout


def test_the_second_time_nothing_is_sent_but_what_changed(
    cluster: RealCluster, folder: Path
) -> None:
    told: list[Step] = []
    (folder / "pkg/a.py").write_text("print('never sent before')\n")
    with Client(state=str(cluster.state)) as client:
        first = client.take_code(folder, told.append)
        assert first.sent > 0
        assert str(told[0]).startswith("sending code: ")
        told.clear()
        assert client.take_code(folder, told.append).sent == 0
        assert not told
        (folder / "new.py").write_text("now = 1\n")
        assert client.take_code(folder, told.append).sent == len("now = 1\n")
        job = client.submit({"name": "j", "command": "cat new.py", **code_of(client, folder)})
        assert client.wait(job.id).state == "succeeded"
        assert client.code(job.id).files[3].path == "new.py"


def code_of(client: Client, folder: Path) -> dict[str, object]:
    return {"code": client.take_code(folder).code}


def test_a_file_that_only_looks_the_same_is_read_again(
    cluster: RealCluster, folder: Path
) -> None:
    """Same size and time of change: what git calls racy. The inode's own time tells."""
    with Client(state=str(cluster.state)) as client:
        before = client.take_code(folder).code["bundle"]
        state = (folder / "pkg/a.py").stat()
        (folder / "pkg/a.py").write_text("print('SECOND')\n")
        os.utime(folder / "pkg/a.py", ns=(state.st_atime_ns, state.st_mtime_ns))
        assert client.take_code(folder).code["bundle"] != before


def test_allotignore_leaves_out_more_also_outside_of_git(
    cluster: RealCluster, folder: Path, reachable: Path
) -> None:
    (folder / ".allotignore").write_text("/pkg/\n.allotignore\n")
    found = run(cluster, folder, "--code", ".", *FIND).split()
    assert "./pkg/a.py" not in found
    assert "./new.py" in found
    plain = reachable / "plain"
    (plain / "sub").mkdir(parents=True)
    for name in ("a.py", "b.tmp", "sub/c.py", "sub/d.tmp"):
        (plain / name).write_text(name)
    (plain / ".allotignore").write_text("*.tmp\n")
    (folder / ".git").rename(plain / "sub/.git")  # a repository inside
    listed = cluster.allot("code", "ls", str(plain), "--json")
    names = {row["path"] for row in json.loads(listed.stdout)}
    assert names == {".allotignore", "a.py"}
    found = run(cluster, plain, "--code", ".", *FIND).split()
    assert {"./a.py", "./sub/c.py"} <= set(found)
    assert "./b.tmp" not in found


def test_what_cannot_be_taken_is_named_with_what_to_do(
    cluster: RealCluster, folder: Path
) -> None:
    def refused() -> str:
        ran = cluster.allot("run", "--code", ".", "--", "true", cwd=folder)
        assert ran.returncode == 1
        return ran.stderr

    (folder / "out").symlink_to("/etc/passwd")
    assert "the link 'out' leads out of the folder: '/etc/passwd'" in refused()
    (folder / "out").unlink()
    with socket.socket(socket.AF_UNIX) as server:
        (folder / "sub").mkdir()
        server.bind(str(folder / "sub/s"))
        assert run(cluster, folder, "--code", ".", "--", "ls") != ""  # git keeps no sockets
    for number in range(60):
        (folder / f"f{number}").write_text("x" * number)
    told = refused()
    assert "66 files with" in told
    assert "50 files and 256 MiB may be taken along. The largest files: f59" in told
    assert ".allotignore" in told
    assert cluster.get("/v1/jobs")["items"][0]["name"] == "ls"


def test_a_folder_without_git_on_the_machine_is_taken_whole(
    cluster: RealCluster, folder: Path, reachable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(reachable))
    with Client(state=str(cluster.state)) as client:
        taken = client.take_code(folder)
        assert taken.files == 8
        assert "commit" not in taken.code
        (folder / ".allotignore").write_text("*.log\n")
        with pytest.raises(Refused, match="git is not installed here"):
            client.take_code(folder)
        (folder / ".allotignore").unlink()
        os.mkfifo(folder / "pipe")
        with pytest.raises(Refused, match="pipe is a pipe"):
            client.take_code(folder)


@pytest.mark.needs_root
def test_what_its_user_cannot_read_is_named(cluster: RealCluster, folder: Path) -> None:
    (folder / "secret.py").write_text("x")
    (folder / "secret.py").chmod(0)
    (folder / "shut").mkdir(mode=0)
    words = ["code", "ls", "."]
    who = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": folder}
    env = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory",
           "GIT_CONFIG_VALUE_0": "*"}  # fmt: skip
    ran = subprocess.run(
        [*ALLOT, *words], env={**os.environ, **env}, capture_output=True, text=True,
        check=False, **who,
    )  # fmt: skip
    assert "could not open directory 'shut/'" in ran.stderr, ran
    assert "Make it readable" in ran.stderr


def test_a_job_that_was_never_sent_its_code_is_refused(cluster: RealCluster) -> None:
    job = {"name": "j", "command": "true", "code": {"bundle": "0" * 64}}
    status, answer = cluster.ask("POST", "/v1/jobs", job)
    assert (status, answer["code"]) == (409, "code_missing")
    status, answer = cluster.ask("POST", "/v1/jobs", {**job, "code": {"take": "/tmp"}})
    assert status == 422
    assert "does not fetch folders" in answer["detail"]


def test_take_needs_a_folder(cluster: RealCluster, reachable: Path) -> None:
    with Client(state=str(cluster.state)) as client:
        with pytest.raises(Refused, match="there is no such folder"):
            take(client._transport, reachable / "none", lambda _: None)  # noqa: SLF001
        (reachable / "empty").mkdir()
        with pytest.raises(Refused, match="no files"):
            take(client._transport, reachable / "empty", lambda _: None)  # noqa: SLF001


def test_a_folder_can_always_be_taken_along(
    cluster: RealCluster, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ("--", "sh", "-c", "pwd; ls")
    monkeypatch.setenv("ALLOT_CODE", ".")
    taken = run(cluster, folder, *where)
    assert str(folder) not in taken
    assert "new.py" in taken
    assert "x.log" not in taken
    for words in (("--code", ""), ("--code=",)):  # But not this once.
        assert run(cluster, folder, *words, *where).startswith(f"{folder}\n")

    def begins_in(text: str, *words: str) -> str:
        (folder / "job.yaml").write_text(f"name: x\ncommand: pwd\n{text}")
        ran = cluster.allot("submit", "-f", *words, "job.yaml", cwd=folder)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.splitlines()[-1]

    assert "/working/" in begins_in("")
    assert begins_in(f"workdir: {folder}/pkg") == f"{folder}/pkg"
    assert begins_in(f"code: {folder}/data") == f"{folder}/data"
    assert "/working/" not in begins_in("", "--code", "")
    (folder / "old.json").write_text('{"jobName": "x", "taskRoles": [{"command": "true"}]}')
    old = cluster.allot("submit", "--form", "classic", "old.json", cwd=folder)
    assert old.returncode == 0, old.stderr

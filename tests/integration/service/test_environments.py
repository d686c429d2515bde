"""Environments of packages: a real uv, a real service of root's, and an index of our own."""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allotment.client import Client
from allotment.service.environments.uv import BUILDER, program
from tests.support.cluster import ALLOT, until
from tests.support.package_index import Index, a_package_index
from tests.support.registry import CONFIG, USERS, Job, WithUsers, a_service

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


@pytest.fixture
def index(reachable: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    home = reachable / "home"
    monkeypatch.setenv("HOME", str(home))
    with a_package_index(home) as made:
        for version in ("1.0", "2.0"):
            made.wheel("framework", version, f"version = {version!r}\n")
        yield made


@pytest.fixture
def service(reachable: Path, index: Index) -> Iterator[WithUsers]:
    with a_service(reachable) as made:
        yield made


def ask(
    service: WithUsers, user: str, command: str, *requirements: str, **more: Any
) -> tuple[int, Any]:
    job = {
        "name": "x", "tenant": user, "command": command,
        "environment": {"requirements": list(requirements)},
        "resources": {"cpu": 0.1, "memory": "64MiB"}, **more,
    }  # fmt: skip
    return service.ask_as(user, "POST", "/v1/jobs", job)


def submitted(service: WithUsers, user: str, command: str, *requirements: str) -> int:
    status, answer = ask(service, user, command, *requirements)
    assert status == 201, answer
    return answer["id"]


def finished(service: WithUsers, job: int) -> Job:
    service.wait_for(job, "succeeded", "failed")
    return Job(service, job)


VERSION = "python -c 'import framework; print(framework.version, framework.__file__)'"


def test_two_versions_run_at_the_same_time(service: WithUsers, reachable: Path) -> None:
    meet = reachable / "meet"
    meet.mkdir()
    meet.chmod(0o777)
    wait = f"touch {meet}/$0; until [ -e {meet}/ann -a -e {meet}/ben ]; do sleep 0.05; done; "
    jobs = [
        submitted(service, user, f"set -- x; {wait.replace('$0', user)}{VERSION}", wanted)
        for user, wanted in (("ann", "framework==1.0"), ("ben", "framework==2.0"))
    ]
    found = [finished(service, job).output.split() for job in jobs]
    assert [words[0] for words in found] == ["1.0", "2.0"]
    assert found[0][1] != found[1][1]


def test_what_is_asked_twice_is_built_once_and_shared(service: WithUsers, index: Index) -> None:
    first = [submitted(service, user, VERSION, "framework<2") for user in ("ann", "ben", "ann")]
    places = {finished(service, job).output for job in first}
    assert len(places) == 1
    assert sum(path.endswith(".whl") for path in index.asked) == 1
    again = finished(service, submitted(service, "ben", VERSION, "framework<2"))
    assert "environment" in again.phases
    rows = service.ask_as("ann", "GET", "/v1/environments")[1]
    assert [(row["packages"], row["python"][:2]) for row in rows] == [
        (["framework==1.0"], "3.")
    ]


def test_no_task_can_write_it_and_nobody_else_sees_it(service: WithUsers) -> None:
    spoil = "echo x > $VIRTUAL_ENV/x; rm -rf $VIRTUAL_ENV/lib; id -u; "
    job = finished(service, submitted(service, "ann", spoil + VERSION, "framework"))
    assert job.output.split()[1] == "2.0"
    made = list((service.state / "environments/made").iterdir())
    assert len(made) == 1
    for path in made[0].rglob("*"):
        state = path.lstat()
        assert state.st_uid == 0
        assert path.is_symlink() or not state.st_mode & 0o022
    assert not service.ask_as("ben", "GET", "/v1/environments")[1]
    assert (service.state / "environments/made").stat().st_mode & 0o777 == 0o711
    key = made[0].name
    asked = {"requirements": ["framework"], "key": key}
    status, answer = ask(service, "ben", VERSION, environment=asked)
    assert status == 201  # resolved anew: of another's key nothing is believed
    assert service.get(f"/v1/jobs/{answer['id']}")["spec"]["environment"]["key"] == key


def test_a_service_killed_in_the_middle_of_a_build_builds_it_anew(
    service: WithUsers, index: Index
) -> None:
    status, answer = ask(service, "ann", VERSION, "framework==1.0")
    assert status == 201, answer
    finished(service, answer["id"])
    index.go.clear()
    job = submitted(service, "ann", VERSION, "framework==2.0")
    new = service.state / "environments/new"
    until(lambda: any(new.glob("*/env")), "a build to begin")
    # Between two programs of a build there is none; the second waits for the index.
    until(
        lambda: builders_of(service) == {BUILDER}, "it to be built by neither root nor a user"
    )
    service.kill()
    index.go.set()
    service.up()
    assert finished(service, job).output.split()[0] == "2.0"
    until(lambda: not any(new.iterdir()), "what was half to be gone")


def builders_of(service: WithUsers) -> set[int]:
    """Return the users, real and effective, of the programs of uv for a service."""
    mark = b"UV_CACHE_DIR=" + os.fsencode(service.state)
    found: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes():
                status = (entry / "status").read_text()
                line = next(each for each in status.splitlines() if each.startswith("Uid:"))
                found.update(map(int, line.split()[1:]))
    return found


def test_a_job_can_be_cancelled_while_its_environment_is_built(
    service: WithUsers, index: Index
) -> None:
    index.go.clear()
    job = submitted(service, "ann", VERSION, "framework==2.0")
    new = service.state / "environments/new"
    until(lambda: any(new.glob("*/env")), "a build to begin")
    service.ask("POST", f"/v1/jobs/{job}:cancel", {})
    service.wait_for(job, "cancelled")


def test_what_cannot_be_is_told_at_once_in_the_resolvers_words(
    service: WithUsers, index: Index, reachable: Path
) -> None:
    status, answer = ask(service, "ann", VERSION, "framework==3.0")
    assert status == 422
    assert "there is no version of framework==3.0" in answer["detail"]
    status, answer = ask(service, "ann", VERSION, f"framework @ file://{reachable}/x.whl")
    assert "paths and addresses are not taken" in answer["detail"]
    ran = reachable / "ran"
    index.source("sourced", "1.0", f"open({str(ran)!r}, 'w')")
    status, answer = ask(service, "ann", VERSION, "sourced")
    assert status == 422, answer
    assert not ran.exists()
    status, answer = ask(service, "ann", VERSION, environment={"python": "3.99"})
    assert "there is no Python 3.99 on the service's machine, which has " in answer["detail"]
    found = answer["detail"].partition("which has ")[2].rstrip(".").split(", ")
    assert any(each.startswith("3.") for each in found)
    status, answer = ask(service, "ann", VERSION, "framework==1.0", environment={
        "python": found[-1], "requirements": ["framework==1.0"]})  # fmt: skip
    assert status == 201, answer


def test_a_lock_is_all_there_is(service: WithUsers, index: Index) -> None:
    index.wheel("needing", "1.0", "import framework\n", needs="framework")
    index.wheel("framework", "2.1", "version = '2.1'\n")
    one, other = locked(index, "framework", "1.0"), locked(index, "needing", "1.0")
    status, answer = ask(service, "ann", VERSION, other, one)
    assert status == 201, answer
    job = finished(service, answer["id"])
    assert job.output.split()[0] == "1.0"
    kept = job.view["spec"]["environment"]
    assert kept["requirements"] == ["needing==1.0", "framework==1.0"]
    assert kept["lock"].startswith("sha256:")
    again = service.ask_as("ann", "POST", "/v1/jobs", job.view["spec"])
    assert again[0] == 201, again
    assert service.get(f"/v1/jobs/{again[1]['id']}")["spec"]["environment"] == kept
    # Nobody else can have what only its key and its names tell of.
    status, answer = ask(service, "ben", VERSION, environment=kept)
    assert status == 409, answer
    assert "locked to is not kept any more" in answer["detail"]


def test_a_lock_for_several_platforms_is_taken(service: WithUsers, index: Index) -> None:
    index.wheel("framework", "2.1", "version = '2.1'\n")
    old = "framework==1.0 ; python_version < '3.9' --hash=sha256:" + "0" * 64
    digest = index.digest("framework", "2.1")
    new = f"framework==2.1 ; python_version >= '3.9' --hash=sha256:{digest}"
    status, answer = ask(service, "ann", VERSION, old, new)
    assert status == 201, answer
    assert finished(service, answer["id"]).output.split()[0] == "2.1"


def test_a_lock_that_is_not_whole_or_not_true_is_refused(
    service: WithUsers, index: Index
) -> None:
    index.wheel("needing", "1.0", "import framework\n", needs="framework")
    needing = locked(index, "needing", "1.0")
    wrong = "framework==1.0 --hash=sha256:" + "0" * 64
    for told, lines in {
        "no trusted hash was provided for: `framework`": (needing,),
        "must have their versions pinned": (needing, "framework"),
        "the index has framework==1.0 in other bytes": (wrong,),
    }.items():
        status, answer = ask(service, "ann", VERSION, *lines)
        assert (status, told) == (422, told), answer
        assert told in answer["detail"]


def written(path: Path, text: str) -> Path:
    """Write a program."""
    path.write_text(text)
    path.chmod(0o755)
    return path


def locked(index: Index, name: str, version: str) -> str:
    """Write a requirement as a lock does."""
    return f"{name}=={version} --hash=sha256:{index.digest(name, version)}"


PROJECT = """
[project]
name = "mine"
version = "1"
requires-python = ">=3.10"
dependencies = ["needing"]
"""


def test_the_lock_of_a_project_is_read_by_uv(
    service: WithUsers, index: Index, reachable: Path
) -> None:
    index.wheel("needing", "1.0", "import framework\n", needs="framework<2")
    project = reachable / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(PROJECT)
    env = {"UV_DEFAULT_INDEX": index.url, "UV_CACHE_DIR": str(reachable / "cache")}
    words = [program(), "lock", "--project", str(project)]
    subprocess.run(words, env={**os.environ, **env}, check=True, capture_output=True)
    index.wheel("framework", "1.1", "version = '1.1'\n")
    ran_here = reachable / "ran"
    evil = written(project / "evil", f'#!/bin/sh\ntouch {ran_here}\nexec python3 "$@"\n')
    (project / ".python-version").write_text(f"{evil}\n")
    (project / ".venv/bin").mkdir(parents=True)
    (project / ".venv/pyvenv.cfg").write_text("home = /usr/bin\nversion_info = 3.11\n")
    for name in ("python", "python3"):
        (project / ".venv/bin" / name).symlink_to(evil)
    (project / "job.yaml").write_text(
        f"name: j\ntenant: ann\ncommand: {VERSION!r}\n"
        "environment: {requirements: uv.lock}\nresources: {cpu: 0.1, memory: 64MiB}\n"
    )
    ran = service.allot("submit", "-f", str(project / "job.yaml"), env=env)
    assert ran.stdout.startswith("1.0 "), ran.stderr
    assert "locked, framework==1.0, needing==1.0" in service.allot("show", "last").stdout
    assert not ran_here.exists()
    (project / "pyproject.toml").write_text(PROJECT.replace("needing", "framework"))
    ran = service.allot("submit", str(project / "job.yaml"), env=env)
    assert ran.returncode == 1
    assert "needs to be updated" in ran.stderr
    assert not (service.state / "tasks/2").exists()


def test_a_lock_with_sources_of_its_own_is_refused(
    service: WithUsers, index: Index, reachable: Path
) -> None:
    project, package = reachable / "project", reachable / "package"
    for folder, name, rest in (
        (project, "mine", '\n[tool.uv.sources]\nneeding = {path = "../package"}\n'),
        (package, "needing", ""),
    ):
        folder.mkdir()
        text = PROJECT.replace("mine", name)
        needs = '["needing"]' if rest else "[]"
        (folder / "pyproject.toml").write_text(text.replace('["needing"]', needs) + rest)
    env = {"UV_DEFAULT_INDEX": index.url, "UV_CACHE_DIR": str(reachable / "cache")}
    words = [program(), "lock", "--project", str(project)]
    subprocess.run(words, env={**os.environ, **env}, check=True, capture_output=True)
    ran = service.allot(
        "run", "--tenant", "ann", "-r", str(project / "pyproject.toml"), "true", env=env
    )
    assert ran.returncode == 1
    assert "paths and addresses are not taken" in ran.stderr


def test_a_package_that_leads_out_of_its_place_is_refused_or_harmless(
    service: WithUsers, index: Index
) -> None:
    index.wheel("escaping", "1.0", "x = 1\n", more="../../../../../../escaped")
    job = finished(
        service, submitted(service, "ann", "python -c 'import escaping'", "escaping")
    )
    made = service.state / "environments"
    outside = [
        path for path in service.state.parent.rglob("escaped") if made not in path.parents
    ]
    assert not outside
    assert job.state == "succeeded" or "environment" in json.dumps(job.diagnosis)


def test_nothing_of_a_package_runs_while_it_is_built(
    service: WithUsers, index: Index, reachable: Path
) -> None:
    place = reachable / "ran"
    place.mkdir()
    place.chmod(0o777)
    code = f"import os; open({str(place)!r} + '/' + str(os.getuid()), 'w')\n"
    index.wheel("running", "1.0", "x = 1\n", more="running.pth", text=code)
    found = finished(
        service, submitted(service, "ann", "python -c 'import running'", "running")
    )
    assert found.state == "succeeded"
    assert [path.name for path in place.iterdir()] == [str(USERS["ann"])]
    made = next((service.state / "environments/made").iterdir())
    assert list(made.rglob("__pycache__/running.*.pyc"))


def test_an_environment_that_grows_beyond_all_bounds_is_not_built(
    reachable: Path, index: Index
) -> None:
    index.wheel("bomb", "1.0", "x = 1\n", more="bomb.bin", text="\0" * (20 << 20))
    small = CONFIG.replace("limits: {", "limits: {environment_store: 64MiB, ")
    with a_service(reachable, small) as service:
        job = finished(service, submitted(service, "ann", "true", "bomb"))
        assert job.state == "failed"
        assert "a quarter of `limits.environment_store`" in json.dumps(job.diagnosis)
        assert not list((service.state / "environments/made").iterdir())
        assert not list((service.state / "environments/new").iterdir())


def test_a_state_folder_that_the_builder_cannot_enter_is_the_administrators_matter(
    service: WithUsers, reachable: Path
) -> None:
    reachable.chmod(0o700)
    job = {
        "name": "x", "tenant": "ann", "command": "true",
        "environment": {"requirements": ["framework"]},
    }  # fmt: skip
    status, answer = service.ask("POST", "/v1/jobs", job)
    assert (status, answer["code"]) == (503, "unavailable")
    assert f"{reachable} is closed to the user" in answer["detail"]


def test_an_index_that_is_away_is_the_platforms_matter(
    service: WithUsers, reachable: Path
) -> None:
    (reachable / "home/.config/pip/pip.conf").write_text(
        "[global]\nindex-url = http://ann:secret@127.0.0.1:1/simple\n"
    )
    status, answer = ask(service, "ann", "true", "framework")
    assert (status, answer["code"]) == (503, "unavailable"), answer
    assert "secret" not in json.dumps(answer)


def test_a_build_that_takes_long_says_that_it_goes_on(
    service: WithUsers, index: Index, reachable: Path
) -> None:
    file = reachable / "requirements.txt"
    file.write_text("framework==2.0\n")
    index.go.clear()
    words = [*ALLOT, "env", "build", str(file)]
    env = {**os.environ, "ALLOT_STATE": str(service.state)}
    with subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True) as build:
        assert build.stderr is not None
        first = build.stderr.readline()
        index.go.set()
        assert first.startswith("building "), first
        assert ": 1 package, " in first
        assert build.stderr.read().splitlines()[-1].endswith(" is here: 1 package")


def test_by_the_client(service: WithUsers) -> None:
    with Client(state=str(service.state)) as client:
        made = client.build_environment(["framework==1.0"])
        assert [row.key for row in client.environments()] == [made.key]
        client.remove_environment(made.key)
        assert client.environments() == []


def test_by_the_command_line(service: WithUsers, reachable: Path) -> None:
    file = reachable / "requirements.txt"
    file.write_text("framework==1.0  # the old one\n")
    built = service.allot("env", "build", str(file))
    assert built.returncode == 0, built.stderr
    (reachable / "job.yaml").write_text(
        f"name: j\ntenant: ann\ncommand: {VERSION!r}\n"
        "environment: {requirements: requirements.txt}\nresources: {cpu: 0.1, memory: 64MiB}\n"
    )
    ran = service.allot("submit", "-f", str(reachable / "job.yaml"))
    assert ran.stdout.startswith("1.0 "), ran.stderr
    small = ("--cpus", "0.1", "--memory", "64MiB", "--tenant", "ann", "-r", str(file))
    ran = service.allot("run", "-q", *small, "--", "sh", "-c", VERSION, cwd=reachable)
    assert ran.stdout.startswith("1.0 "), ran.stderr
    assert "framework==1.0" in service.allot("show", "last").stdout
    key = json.loads(service.allot("env", "ls", "--json").stdout)[0]["key"]
    assert "framework==1.0" in service.allot("env", "show", key[:8]).stdout
    assert service.allot("env", "rm", key).returncode == 0
    assert service.allot("env", "ls").stdout == ""

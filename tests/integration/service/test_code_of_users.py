"""Code of users that do not trust each other, uploads that end in the middle, and restarts."""

import http.client
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allotment.service.content.manifest import FileEntry, digest_of, written
from tests.support.cluster import UnixConnection, until
from tests.support.registry import USERS, WithUsers, a_service

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tool("git"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


@pytest.fixture
def service(reachable: Path) -> Iterator[WithUsers]:
    with a_service(reachable) as made:
        yield made


def project_of(service: WithUsers, name: str) -> Path:
    folder = service.home(name) / "project"
    folder.mkdir()
    (folder / "a.py").write_text("secret of " + name)
    (folder / "run").write_text("#!/bin/sh\nid -u; stat -c '%u %a' . a.py run; cat a.py\n")
    (folder / "run").chmod(0o755)
    for path in (folder, *folder.iterdir()):
        os.chown(path, USERS[name], USERS[name])
    return folder


def taken(service: WithUsers, name: str, *words: str) -> str:
    small = ("--cpus", "0.1", "--memory", "64MiB", "--tenant", name)
    ran = service.allot(
        "run",
        "-q",
        "--code",
        ".",
        *small,
        *words,
        user=name,
        cwd=service.home(name) / "project",
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_a_task_works_in_a_folder_of_its_users_own(service: WithUsers) -> None:
    project_of(service, "ann")
    uid = USERS["ann"]
    found = taken(service, "ann", "--", "./run").split("\n")
    assert found == [str(uid), f"{uid} 755", f"{uid} 644", f"{uid} 755", "secret of ann"]
    made = service.state / "working/1/attempt-1"
    assert made.stat().st_uid == uid
    assert (service.state / "code").stat().st_mode & 0o777 == 0o700


def test_nobody_else_can_read_list_use_or_guess_it(service: WithUsers) -> None:
    project_of(service, "ann")
    taken(service, "ann", "--", "true")
    code = service.get("/v1/jobs/1/code")["code"]
    bundle = code["bundle"]
    assert service.ask_as("ann", "GET", f"/v1/code/{bundle}")[0] == 200
    assert service.ask_as("ben", "GET", f"/v1/code/{bundle}")[0] == 404
    status, answer = service.ask_as("ben", "GET", "/v1/jobs/1/code")
    assert (status, answer["code"]) == (403, "forbidden")
    assert "code" not in service.ask_as("ben", "GET", "/v1/jobs/1")[1]["spec"]
    job = {"name": "j", "command": "true", "tenant": "ben", "code": {"bundle": bundle}}
    status, answer = service.ask_as("ben", "POST", "/v1/jobs", job)
    assert (status, answer["code"]) == (409, "code_missing")
    secret = b"secret of ann"
    guess = FileEntry("a", "f", len(secret), digest_of(secret))
    body = {"files": [["a", "f", guess.size, guess.of]], "version": 1}
    status, answer = service.ask_as("ben", "POST", "/v1/code", body)
    assert (status, answer["missing"]) == (200, [guess.of])  # as for what nobody has
    assert service.ask_as("ben", "GET", "/v1/code")[1]["used"] == 0
    places = ["code", "working/1/attempt-1", "working"]
    paths = " ".join(str(service.state / place) for place in places)
    project_of(service, "ben")
    said = taken(service, "ben", "--", "sh", "-c", f"ls -d {paths} 2>&1; true")
    assert said.count("No such file") == 2, said  # of `working` only its own is there


def test_a_clone_by_another_does_not_get_the_code(service: WithUsers) -> None:
    project_of(service, "ann")
    taken(service, "ann", "--", "true")
    status, answer = service.ask("POST", "/v1/jobs/1:clone", {"set": []})
    assert (status, answer["code"]) == (409, "code_missing")
    assert "somebody else's" in answer["detail"]


def begin_upload(
    service: WithUsers, data: bytes, said: int, path: str = "/v1/code:send"
) -> http.client.HTTPConnection:
    connection = UnixConnection(service.address["socket"])
    connection.putrequest("POST", path)
    connection.putheader("Content-Length", str(said))
    connection.endheaders()
    connection.send(data)
    return connection


WHOLE = b"whole"
HALF = b"h" * (4 << 20)


def an_upload() -> bytes:
    return b"".join(
        bytes.fromhex(digest_of(data)) + len(data).to_bytes(8, "big") + data
        for data in (WHOLE, HALF)
    )


def wanted(service: WithUsers) -> Any:
    files = [FileEntry("a", "f", len(HALF), digest_of(HALF)),
             FileEntry("b", "f", len(WHOLE), digest_of(WHOLE))]  # fmt: skip
    connection = UnixConnection(service.address["socket"])
    body = written(files)
    connection.request("POST", "/v1/code", body, {"Content-Type": "application/json"})
    found = json.loads(connection.getresponse().read())["missing"]
    connection.close()
    return found


def test_an_upload_that_is_cut_off_leaves_nothing_half(service: WithUsers) -> None:
    data = an_upload()
    new = service.state / "code/new"
    connection = begin_upload(service, data[:-1000], len(data))
    until(lambda: any(new.iterdir()), "a file to come")
    connection.close()
    until(lambda: not any(new.iterdir()), "what was half to be gone")
    assert wanted(service) == [digest_of(HALF)]


def test_a_service_killed_in_the_middle_of_an_upload_begins_clean(service: WithUsers) -> None:
    data = an_upload()
    new = service.state / "code/new"
    connection = begin_upload(service, data[:-1000], len(data))
    until(lambda: any(new.iterdir()), "a file to come")
    service.kill()
    connection.close()
    service.up()
    until(lambda: not any(new.iterdir()), "what was half to be gone")
    assert wanted(service) == [digest_of(HALF)]


def test_a_service_killed_while_code_is_laid_out_lays_it_out_whole(service: WithUsers) -> None:
    folder = project_of(service, "ann")
    for number in range(5000):
        (folder / f"f{number}").write_text(str(number))
    small = ("--cpus", "0.1", "--memory", "64MiB", "--tenant", "ann")
    ran = service.allot(
        "run", "-d", "--code", ".", *small, "--", "sh", "-c", "ls | wc -l",
        user="ann", cwd=folder,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    new = service.state / "code/new"
    until(lambda: any(new.glob("*/f*")) or service.state_of(1) == "succeeded", "a folder")
    service.kill()
    service.up()
    service.wait_for(1, "succeeded")
    log = sorted((service.state / "tasks/1").glob("*/*/stdout.log"))[-1]
    assert log.read_text().strip() == "5002"
    until(lambda: not any(new.iterdir()), "what was half to be gone")

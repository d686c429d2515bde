"""Datasets of users that do not trust each other: put, granted, mounted, and taken back."""

import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allotment.client import Client, content, data
from allotment.client.errors import Refused
from allotment.client.transport import Transport
from tests.integration.service.test_code_of_users import begin_upload
from tests.support.cluster import until
from tests.support.exchange import owned
from tests.support.registry import (
    CONFIG,
    USERS,
    Job,
    WithUsers,
    a_link,
    a_registry,
    a_service,
    busybox,
)

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]

FILES = {"train/a.txt": "one\n", "train/b.txt": "two\n", "same.txt": "one\n", "empty": ""}
ENDED = ("succeeded", "failed", "cancelled")


@pytest.fixture(scope="module")
def shared_service(reachable_once: Path) -> Iterator[WithUsers]:
    with a_service(reachable_once) as made:
        yield made


@pytest.fixture
def service(shared_service: WithUsers) -> Iterator[WithUsers]:
    """The file's service, without jobs and data, and with empty homes."""
    service = shared_service
    yield service
    for job in service.get("/v1/jobs")["items"]:
        if job["state"] not in ENDED:
            service.ask("POST", f"/v1/jobs/{job['id']}:cancel", {})
            service.wait_for(job["id"], *ENDED)
    for dataset in service.get("/v1/data")["datasets"]:
        whole = f"/v1/data/{dataset['tenant']}/{dataset['name']}"
        assert service.ask("POST", f"{whole}:remove", {})[0] in (200, 204)
    assert [path.name for path in (service.state / "data").iterdir()] == ["new"]
    for name, uid in USERS.items():
        shutil.rmtree(service.home(name))
        owned(service.home(name), uid, 0o700)


@pytest.fixture
def own_service(reachable: Path) -> Iterator[WithUsers]:
    """A service that none of the users has asked anything."""
    with a_service(reachable) as made:
        yield made


def a_folder(service: WithUsers, name: str, files: dict[str, str]) -> Path:
    """Make a folder of a user's."""
    service.make_homes()
    folder = service.home(name) / "set"
    if not folder.exists():
        owned(folder, USERS[name], 0o700)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    for path in folder.rglob("*"):
        os.lchown(path, USERS[name], USERS[name])
    return folder


def as_user(service: WithUsers, name: str, *words: str) -> str:
    """Use `allot data` as a user; give what it says."""
    ran = service.allot("data", *words, user=name, cwd=service.home(name))
    assert ran.returncode == 0, ran.stderr
    return ran.stdout + ran.stderr


def refused(service: WithUsers, name: str, *words: str) -> str:
    ran = service.allot("data", *words, user=name, cwd=service.home(name))
    assert ran.returncode != 0, ran.stdout
    return ran.stderr


def put(service: WithUsers, name: str = "ann", files: dict[str, str] = FILES) -> None:
    folder = a_folder(service, name, files)
    as_user(service, name, "create", "words")
    as_user(service, name, "put", "words", str(folder))


def job_of(service: WithUsers, name: str, data: object, command: str) -> Job:
    small = {"cpu": 0.1, "memory": "64MiB"}
    spec = {"name": "j", "command": command, "tenant": name, "data": data, "resources": small}
    status, answer = service.ask_as(name, "POST", "/v1/jobs", spec)
    assert status == 201, answer
    service.wait_for(answer["id"], "succeeded", "failed")
    return Job(service, answer["id"])


def not_accepted(service: WithUsers, name: str, data: object) -> tuple[str, str]:
    spec = {"name": "j", "command": "true", "tenant": name, "data": data}
    status, answer = service.ask_as(name, "POST", "/v1/jobs", spec)
    assert status >= 400, answer
    return answer["code"], json.dumps(answer)


LOOK = (
    "cd /data/words && find . -type f | sort && cat train/b.txt; "
    "touch here 2>&1; echo x 2>&1 >> same.txt; echo $ALLOT_DATA_WORDS; ls -d /data/*"
)


def test_a_job_finds_a_dataset_where_it_wants_it_and_cannot_change_it(
    service: WithUsers,
) -> None:
    put(service)
    job = job_of(service, "ann", {"words": "/data/words"}, LOOK)
    assert job.state == "succeeded", job.diagnosis
    lines = job.output.splitlines()
    assert lines[:5] == ["./empty", "./same.txt", "./train/a.txt", "./train/b.txt", "two"]
    assert "'here': Read-only file system" in job.output
    assert "same.txt: Permission denied" in job.output
    assert lines[-2:] == ["/data/words", "/data/words"]
    assert not Path("/data").exists()
    told = service.allot("show", str(job.id)).stdout
    assert "ann/words@1 at /data/words" in told


def test_a_clone_sees_the_version_that_was_resolved(service: WithUsers) -> None:
    put(service)
    first = job_of(service, "ann", {"words": "/data/w"}, "cat /data/w/same.txt")
    (service.home("ann") / "set/same.txt").write_text("changed\n")
    assert "words@2" in as_user(service, "ann", "put", "words", "set")
    service.ask_as("ann", "POST", f"/v1/jobs/{first.id}:clone", {"set": []})
    service.wait_for(first.id + 1, "succeeded")
    assert Job(service, first.id + 1).output == "one\n"
    newest = job_of(service, "ann", {"words": "/data/w"}, "cat /data/w/same.txt")
    assert newest.output == "changed\n"
    named = job_of(service, "ann", {"words@1": "/data/w"}, "cat /data/w/same.txt")
    assert named.output == "one\n"


def test_what_is_not_granted_is_as_if_it_were_not_there(own_service: WithUsers) -> None:
    service = own_service
    put(service)
    mine, none = {"words": "/data/w"}, {"nothing": "/data/w"}
    assert not_accepted(service, "ben", mine)[0] == "data_missing"
    told = [not_accepted(service, "ben", each)[1] for each in (mine, none)]
    assert told[0] == told[1].replace("nothing", "words")
    for path in ("-/words", "ann/words", "ann/words@1", "ann/words/files", "ann/words/room"):
        status, answer = service.ask_as("ben", "GET", f"/v1/data/{path}")
        other = service.ask_as("ben", "GET", f"/v1/data/{path.replace('words', 'nothing')}")
        assert (status, answer["code"]) == (404, "data_missing")
        assert json.dumps(answer).replace("words", "nothing") == json.dumps(other[1])
    for verb in ("grant", "revoke", "remove", "put", "send"):
        body = {"user": "ben"} if verb in ("grant", "revoke") else {}
        status, answer = service.ask_as("ben", "POST", f"/v1/data/ann/words:{verb}", body)
        assert (status, answer["code"]) == (404, "data_missing"), verb
    assert service.ask_as("ben", "GET", "/v1/data")[1] == {"datasets": []}
    assert "words" not in json.dumps(service.ask_as("ben", "GET", "/v1/events")[1] or "")
    as_user(service, "ben", "create", "words")  # Its name in another tenant is free.
    shown = job_of(service, "ben", None or {}, f"ls {service.state}/data 2>&1; true")
    assert "No such file" in shown.output


def test_a_grant_lets_in_and_is_looked_at_again_at_the_start(service: WithUsers) -> None:
    put(service)
    as_user(service, "ann", "grant", "words", "user:ben")
    use = {"ann/words": "/data/w"}
    assert job_of(service, "ben", use, "cat /data/w/same.txt").output == "one\n"
    assert "ann/words" in as_user(service, "ben", "ls")
    assert "not add to it" in refused(service, "ben", "put", "words", ".")
    assert "belongs to ann" in refused(service, "ben", "grant", "words", "user:ben")
    assert "belongs to ann" in refused(service, "ben", "rm", "words")
    spec = {"name": "j", "command": "true", "tenant": "ben", "data": use}
    status, answer = service.ask_as("ben", "POST", "/v1/jobs?held=true", spec)
    assert status == 201
    as_user(service, "ann", "revoke", "words", "user:ben")
    service.ask_as("ben", "POST", f"/v1/jobs/{answer['id']}:release")
    service.wait_for(answer["id"], "failed")
    job = Job(service, answer["id"])
    assert job.diagnosis["code"] == "data_missing"
    assert job.diagnosis["owner"] == "user"
    assert len(job.view["attempts"]) == 1
    assert service.ask_as("ben", "GET", "/v1/data")[1] == {"datasets": []}


def test_a_writer_adds_versions_and_closed_ones_stay(service: WithUsers) -> None:
    put(service)
    as_user(service, "ann", "grant", "words", "tenant:ben", "--write")
    a_folder(service, "ben", {"new": "from ben\n"})
    assert "words@2" in as_user(service, "ben", "put", "words", "set")
    assert "is closed: versions never change" in refused(
        service, "ben", "put", "words@2", "set"
    )
    assert "words@2" in as_user(service, "ben", "put", "words", "set")  # nothing changed
    assert "has no version 7" in refused(service, "ben", "get", "words@7", "out")
    as_user(service, "ben", "get", "words@1", "out")
    for path, text in FILES.items():
        assert (service.home("ben") / "out" / path).read_text() == text


def test_what_jobs_need_is_not_removed_and_files_are_kept_once(service: WithUsers) -> None:
    put(service)
    use = {"words": "/data/w"}
    spec = {"name": "j", "command": "true", "tenant": "ann", "data": use}
    status, answer = service.ask_as("ann", "POST", "/v1/jobs?held=true", spec)
    assert status == 201
    said = refused(service, "ann", "rm", "words@1")
    assert f"used by jobs that run, or are its owner's own: {answer['id']}." in said
    service.ask_as("ann", "POST", f"/v1/jobs/{answer['id']}:cancel")
    kept = list((service.state / "data").glob("*/files/??/*"))
    assert len(kept) == 3  # of four files two are the same
    (service.home("ann") / "set/more").write_text("more\n")
    as_user(service, "ann", "put", "words", "set")
    assert len(list((service.state / "data").glob("*/files/??/*"))) == 4
    as_user(service, "ann", "rm", "words@1")
    assert len(list((service.state / "data").glob("*/trees/*"))) == 1
    as_user(service, "ann", "rm", "words")
    assert [path.name for path in (service.state / "data").iterdir()] == ["new"]


def test_a_job_of_others_that_waits_keeps_no_owner_from_removing(service: WithUsers) -> None:
    put(service)
    as_user(service, "ann", "grant", "words", "user:ben")
    spec = {
        "name": "j", "command": "true", "tenant": "ben", "data": {"ann/words": "/data/w"},
        "resources": {"cpu": 0.1, "memory": "64MiB"},
    }  # fmt: skip
    status, waits = service.ask_as("ben", "POST", "/v1/jobs?held=true", spec)
    assert status == 201, waits
    runs = {**spec, "command": "while ! test -e $TMPDIR/go; do sleep 0.05; done"}
    status, answer = service.ask_as("ben", "POST", "/v1/jobs", runs)
    assert status == 201, answer
    service.wait_for(answer["id"], "running")
    assert f"are its owner's own: {answer['id']}." in refused(service, "ann", "rm", "words")
    (service.state / "scratch" / f"{answer['id']}.1.task.0" / "go").touch()
    service.wait_for(answer["id"], "succeeded")
    as_user(service, "ann", "rm", "words")
    service.ask_as("ben", "POST", f"/v1/jobs/{waits['id']}:release")
    service.wait_for(waits["id"], "failed")
    assert Job(service, waits["id"]).diagnosis["code"] == "data_missing"


def test_a_registered_folder_is_read_or_written_by_those_who_may(
    service: WithUsers, reachable: Path
) -> None:
    folder = reachable / "closed/shared"
    folder.mkdir(parents=True)
    folder.parent.chmod(0o700)
    folder.chmod(0o777)
    (folder / "x").write_text("shared\n")
    words = ("data", "create", "share", "--folder", str(folder), "--tenant", "ann")
    assert "Only the administrator" in refused(service, "ann", *words[1:])
    assert service.allot(*words).returncode == 0
    read = job_of(service, "ann", {"share": "/data/s"}, "cat /data/s/x; touch /data/s/y")
    assert read.state == "failed"
    assert read.output == "shared\n"
    writing = {"share": {"at": "/data/s", "write": True}}
    assert not_accepted(service, "ann", writing)[0] == "forbidden"
    assert service.allot("data", "grant", "share", "tenant:ann", "--write").returncode == 0
    assert job_of(service, "ann", writing, "touch /data/s/y").state == "succeeded"
    assert (folder / "y").stat().st_uid == USERS["ann"]
    assert "has no versions" in not_accepted(service, "ann", {"share@2": "/data/s"})[1]
    assert "not a store" in refused(service, "ann", "put", "share", ".")
    assert "hands out none" in refused(service, "ann", "get", "share", "out")
    # A link in its place leads nowhere else.
    shutil.move(folder, folder.with_name("away"))
    folder.symlink_to("/root")
    assert job_of(service, "ann", {"share": "/data/s"}, "ls /data/s").state == "failed"


def test_a_registered_folder_that_a_node_lacks_is_the_administrators_matter(
    service: WithUsers, reachable: Path
) -> None:
    folder = reachable / "unmounted"
    folder.mkdir()
    words = ("data", "create", "nfs", "--folder", str(folder), "--tenant", "ann")
    assert service.allot(*words).returncode == 0
    folder.rmdir()
    job = job_of(service, "ann", {"nfs": "/data/s"}, "ls /data/s")
    assert job.state == "failed"
    assert job.diagnosis["code"] == "folder_away"
    assert job.diagnosis["owner"] == "platform"
    found = re.fullmatch(r"(.*) on \S+, which is ann/nfs: (.*)", job.diagnosis["evidence"])
    assert found is not None, job.diagnosis
    assert found.groups() == (str(folder), "no such file or directory")
    tries = service.get(f"/v1/jobs/{job.id}")["attempts"]
    assert len(tries) == 2, "it has no retries of its own, and one by the platform"
    seen = service.ask_as("ben", "GET", f"/v1/jobs/{job.id}")[1]
    assert str(folder) not in json.dumps(seen)


OVER = {
    "/proc/self": "is in /proc",
    "/etc": "is in /etc",
    "/usr/lib/words": "is in /usr",
    "/": "is a folder of the whole machine",
    "/data/../etc": "step up",
    "/data//x": "'//' in it",
    "data": "not an absolute path",
}


def test_it_is_mounted_over_nothing_of_the_system(service: WithUsers) -> None:
    put(service)
    for at, why in OVER.items():
        assert why in not_accepted(service, "ann", {"words": at})[1]


def test_where_it_may_be_mounted_on_the_machine(service: WithUsers) -> None:
    put(service)
    home = service.home("ann")
    for name in ("etc", "own", "missing"):
        if name != "missing":
            owned(home / name, USERS["ann"], 0o755)
    (home / "etc").rmdir()
    (home / "etc").symlink_to("/etc")
    assert "is in /etc" in not_accepted(service, "ann", {"words": f"{home}/etc/x"})[1]
    assert "is in /etc" in not_accepted(service, "ann", {"words": f"{home}/etc"})[1]
    assert "is not there" in not_accepted(service, "ann", {"words": f"{home}/missing"})[1]
    assert "keeps its state" in not_accepted(service, "ann", {"words": f"{service.state}/x"})[1]
    assert (
        "one is inside the other"
        in not_accepted(service, "ann", {"words": "/data/a", "words@1": "/data/a/b"})[1]
    )
    job = job_of(service, "ann", {"words": f"{home}/own"}, f"cat {home}/own/same.txt")
    assert job.output == "one\n"
    two = {"words": "/data/a", "words@1": "/srv/sets/b"}
    job = job_of(service, "ann", two, "cat /data/a/same.txt /srv/sets/b/same.txt; ls -ld /data")
    assert job.output.startswith("one\none\ndrwxr-xr-x"), job.diagnosis
    assert list(Path("/srv").glob("sets")) == []


def test_what_cannot_be_put_is_named(service: WithUsers) -> None:
    folder = a_folder(service, "ann", {"a": "a", "closed": "x"})
    as_user(service, "ann", "create", "odd")
    (folder / "leads").symlink_to("../../etc/passwd")
    assert "leads out of the folder" in refused(service, "ann", "put", "odd", "set")
    (folder / "leads").unlink()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(folder / "sock"))
        assert "sock is a socket" in refused(service, "ann", "put", "odd", "set")
    (folder / "sock").unlink()
    os.chown(folder / "closed", 0, 0)
    (folder / "closed").chmod(0o600)
    assert "closed: permission denied" in refused(service, "ann", "put", "odd", "set")
    (folder / "closed").unlink()
    (folder / "inside").symlink_to("a")
    as_user(service, "ann", "put", "odd", "set")
    assert job_of(service, "ann", {"odd": "/data/o"}, "cat /data/o/inside").output == "a"
    for name in ("../up", "a/b/c", ".x", "a@0", "no one"):
        assert "cannot be the name" in refused(service, "ann", "put", name, "set")
    assert "cannot be the name of a dataset" in refused(service, "ann", "create", "a/b")
    assert "There is no dataset gone" in refused(service, "ann", "put", "gone", "set")
    assert "already" in refused(service, "ann", "create", "odd")


def test_a_tenant_has_so_much_room_and_no_more(reachable: Path) -> None:
    small = CONFIG.replace("limits: {", "limits: {data_store: 1MiB, data_files: 5, ")
    with a_service(reachable, small) as service:
        put(service)
        home = service.home("ann")
        (home / "large").write_bytes(os.urandom(2 << 20))
        assert "large (2 MiB)" in refused(service, "ann", "put", "words", "large")
        (home / "large").write_bytes(os.urandom(600 << 10))
        as_user(service, "ann", "put", "words", "large")
        (home / "large").write_bytes(os.urandom(600 << 10))
        assert "take all the room" in refused(service, "ann", "put", "words", "large")
        many = a_folder(service, "ann", {f"f{number}": "" for number in range(9)})
        assert "5 files" in refused(service, "ann", "put", "words", str(many))
        as_user(service, "ben", "create", "words")  # Another tenant has room of its own.
        folder = a_folder(service, "ben", {"x": "y" * (800 << 10)})
        as_user(service, "ben", "put", "words", str(folder))
        assert not list((service.state / "data/new").iterdir())


def test_a_service_killed_amid_a_put_leaves_nothing_half(service: WithUsers) -> None:
    put(service)
    folder = a_folder(service, "ann", {f"f{number}": str(number) for number in range(3000)})
    (folder / "large").write_bytes(os.urandom(64 << 20))
    data = bytes(32) + (64 << 20).to_bytes(8, "big") + (folder / "large").read_bytes()
    new = service.state / "data/new"
    connection = begin_upload(service, data[: 32 << 20], len(data), "/v1/data/ann/words:send")
    until(lambda: any(new.iterdir()), "a file to come")
    service.kill()
    connection.close()
    service.up()
    until(lambda: not any(new.iterdir()), "what was half to be gone")
    assert service.get("/v1/data/ann/words")["versions"][-1]["number"] == 1
    assert "words@2" in as_user(service, "ann", "put", "words", "set")
    job = job_of(service, "ann", {"words": "/data/w"}, "ls /data/w | wc -l")
    assert job.output.strip() == str(len(list(folder.iterdir())))


@pytest.mark.needs_tool("docker-registry", "htpasswd")
def test_a_task_in_an_image_finds_it_just_so(service: WithUsers, reachable: Path) -> None:
    put(service)
    with a_registry(reachable / "registry") as registry:
        plain = registry.push("plain", [busybox()])
        odd = registry.push("odd", [busybox(a_link("data", "proc"))])
        assert plain != odd
        look = "cat /data/words/same.txt; touch /data/words/x 2>&1; ls -d /proc/1"
        data = {"words": "/data/words"}
        job = service.run(f"{registry.host}/plain:1", look, "ann", data=data)
        assert job.state == "succeeded", job.diagnosis
        assert "one\n" in job.output
        assert "Read-only file system" in job.output
        # A link of the image's leads it over nothing that every task needs.
        job = service.run(f"{registry.host}/odd:1", "ls /proc/1", "ann", data=data)
        assert job.state == "failed"


def test_a_file_that_changes_while_it_is_taken_is_taken_again(
    service: WithUsers, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = a_folder(service, "ann", {"a": "first\n", "b": "other\n"})
    fetch, taken = Transport.fetch, [0]

    def changing(self: Transport, method: str, path: str, *words: Any, **named: Any) -> bytes:
        answer = fetch(self, method, path, *words, **named)
        if path.endswith(":take"):
            taken[0] += 1
            if taken[0] == 1:
                (folder / "b").write_text("again\n")
        return answer

    with Client(state=str(service.state)) as client:
        client.create_dataset("taken", tenant="ann")
        monkeypatch.setattr(Transport, "fetch", changing)
        assert client.put_data("taken", folder).version.files == 2
        client.get_data("taken", folder.parent / "got")
    assert taken[0] >= 2
    found = {path.name: path.read_text() for path in (folder.parent / "got").iterdir()}
    assert found == {"a": "first\n", "b": "again\n"}


def test_a_file_that_changes_while_it_is_sent_is_sent_again(
    service: WithUsers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data._Putting, "_hand_over", lambda _, files, *__: files)  # pyright: ignore[reportPrivateUsage]
    folder = a_folder(service, "ann", {"a": "first\n", "b": "other\n"})
    (folder / "inside").symlink_to("a")
    with Client(state=str(service.state)) as client:
        client.create_dataset("mine", tenant="ann")
        read, times = content.Body._pieces, [0]  # pyright: ignore[reportPrivateUsage]

        def changing(body: content.Body, file: content.Sent) -> Iterator[memoryview]:
            yield from read(body, file)
            times[0] += 1
            if times[0] == 1:
                (folder / file.path).write_text("again\n")
                body.seen.pop(file.path, None)

        monkeypatch.setattr(content.Body, "_pieces", changing)
        assert client.put_data("mine", folder).version.files == 3
        client.get_data("mine", folder.parent / "out")
        monkeypatch.setattr(content.Body, "_pieces", read)
        (folder / "a").unlink()
        (folder / "a").symlink_to("/etc/passwd")
        with pytest.raises(Refused, match="leads out of the folder"):
            client.put_data("mine", folder)
    found = {path.name: path.read_text() for path in (folder.parent / "out").iterdir()}
    assert sorted(found.values()) in (
        sorted(["again\n", "again\n", "other\n"]), sorted(["first\n", "first\n", "again\n"])
    )  # fmt: skip


def test_files_that_the_service_cannot_take_are_sent(service: WithUsers) -> None:
    folder = service.home("ann") / "in-memory"
    folder.mkdir()
    subprocess.run(["mount", "-t", "ramfs", "none", folder], check=True)
    try:
        for name in ("a", "b/c"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(name)
        as_user(service, "ann", "create", "sent")
        assert "sent@1: 2 files" in as_user(service, "ann", "put", "sent", str(folder))
    finally:
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()
    assert (
        job_of(service, "ann", {"sent": "/data/s"}, "cat /data/s/a /data/s/b/c").output
        == "ab/c"
    )
    for fd in os.pipe():  # The processes that ask have them, too.
        asked = {"files": [{"fd": fd, "size": 1}]}
        status, answer = service.ask_as("ann", "POST", "/v1/data/-/sent:take", asked)
        assert (status, answer["code"]) == (501, "not_supported"), answer
        os.close(fd)


def test_a_file_rewritten_while_it_is_read_has_no_wrong_digest(service: WithUsers) -> None:
    path, stop = service.home("ann") / "shifting", threading.Event()
    path.write_bytes(os.urandom(48 << 20))

    def rewrite() -> None:
        with path.open("r+b") as file:
            while not stop.is_set():
                for offset in range(0, 48 << 20, 1 << 20):
                    os.pwrite(file.fileno(), os.urandom(4096), offset)

    rewriting = threading.Thread(target=rewrite)
    rewriting.start()
    try:
        as_user(service, "ann", "create", "shifting")
        told = refused(service, "ann", "put", "shifting", str(path))
    finally:
        stop.set()
        rewriting.join()
    assert "keep changing" in told
    kept = [*(service.state / "data").glob("*/files/*/*")]
    assert kept
    for file in kept:
        assert hashlib.sha256(file.read_bytes()).hexdigest() == file.name.partition(".")[0]

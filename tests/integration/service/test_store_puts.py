"""`allot data put` into object stores: whole or not there, with the owner's key."""

import hashlib
import os
import re
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from allotment.client import Client
from allotment.client.step import Step
from allotment.model.datasets import ObjectPlace
from allotment.service.data.objects.bucket import Bucket
from allotment.service.data.objects.parts import PART
from tests.integration.service.test_data import as_user, job_of, refused
from tests.support.cluster import until
from tests.support.object_stores import BUCKET, KEY, Meddler, Moto, Rclone, Store
from tests.support.registry import USERS, WithUsers

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
MIB = 1 << 20
SETTLED_S = 2.2
"""So long after a change the client remembers a file."""


def create(service: WithUsers, endpoint: str, name: str, *words: str) -> None:
    place = ("--s3", f"s3://{BUCKET}/{name}", "--endpoint", endpoint)
    as_user(service, "ann", "create", name, *place, *words)


def a_folder(service: WithUsers, user: str, name: str, files: dict[str, bytes]) -> Path:
    """Make a user's own folder; a file whose name ends in `.sh` can be run."""
    top = service.home(user) / name
    for path, data in files.items():
        place = top / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        place.chmod(0o755 if path.endswith(".sh") else 0o644)
    for path in (top, *top.rglob("*")):
        os.chown(path, USERS[user], USERS[user])
    return top


def sent(said: str) -> str:
    """Return how much a put said that it sent."""
    found = re.search(r"; (.*) sent", said)
    assert found is not None, said
    return found[1]


def test_versions_are_put_and_never_change(service: WithUsers, store: Store) -> None:
    name = f"words-{store.kind}"
    create(service, store.endpoint, name)
    large = os.urandom(PART + 100_000)  # in parts
    top = a_folder(
        service, "ann", name,
        {"a b": b"one", "sub/run.sh": b"#!/bin/sh\necho ran\n", "large": large, "empty": b""},
    )  # fmt: skip
    (top / "link").symlink_to("sub/run.sh")
    until(lambda: (top / "link").lstat().st_ctime < time.time() - SETTLED_S, "files to rest")
    assert f"{name}@1: 5 files" in as_user(service, "ann", "put", name, str(top))
    look = "cd /data/w; find . -type f -o -type l | sort; cat 'a b'; ./link; sha256sum <large"
    first = job_of(service, "ann", {name: "/data/w"}, look).output.splitlines()
    assert first[:-1] == ["./a b", "./empty", "./large", "./link", "./sub/run.sh", "oneran"]
    again = as_user(service, "ann", "put", name, str(top))
    assert f"{name}@1:" in again, "the same files are no other version"
    assert sent(again) == "0 B"

    (top / "a b").write_bytes(b"two!")
    said = as_user(service, "ann", "put", name, str(top))
    assert f"{name}@2:" in said
    assert sent(said) == "4 B", "what did not change the store copies itself"
    words = "cat '/data/w/a b'; sha256sum </data/w/large"
    newest = job_of(service, "ann", {name: "/data/w"}, words).output
    assert newest.startswith("two!")
    assert newest.removeprefix("two!").split() == first[-1].split()
    assert job_of(service, "ann", {f"{name}@1": "/data/w"}, look).output.splitlines() == first
    assert "closed: versions never change" in refused(
        service, "ann", "put", f"{name}@1", str(top)
    )

    store.put({f"{name}/other": b"by another tool"})
    listed = job_of(service, "ann", {name: "/data/w"}, "ls -A /data/w").output
    assert listed.split() == ["other"], "what came last, and nothing that was put before"
    as_user(service, "ann", "put", name, str(top))
    assert job_of(service, "ann", {name: "/data/w"}, words).output == newest


def test_who_may_write_puts_with_the_owners_key_and_never_sees_it(
    service: WithUsers, rclone: Rclone
) -> None:
    create(service, rclone.endpoint, "lent")
    top = a_folder(service, "ben", "lent", {"a": b"bens"})
    assert "no dataset ann/lent" in refused(service, "ben", "put", "ann/lent", str(top))
    as_user(service, "ann", "grant", "lent", "user:ben")
    assert "not add to it" in refused(service, "ben", "put", "ann/lent", str(top))
    as_user(service, "ann", "grant", "lent", "user:ben", "--write")
    said = as_user(service, "ben", "put", "ann/lent", str(top), "--json")
    assert '"user":"ben"' in said.replace(" ", "")
    assert job_of(service, "ann", {"lent": "/data/w"}, "cat /data/w/a").output == "bens"
    seen = said + as_user(service, "ben", "show", "ann/lent", "--json")
    assert KEY.id not in seen
    assert BUCKET not in seen
    secret = KEY.secret.encode()
    files = (path for path in service.state.rglob("*") if path.is_file())
    assert [path for path in files if secret in path.read_bytes()] == []


def test_a_put_that_a_kill_cuts_goes_on(service: WithUsers, rclone: Rclone) -> None:
    files = {str(number): os.urandom(3 << 20) for number in range(9)}
    top = a_folder(service, "ann", "cut", files)
    above = rclone.folder / "objects" / BUCKET / "cut"
    ended: list[int] = []

    def put() -> None:
        ended.append(service.allot("data", "put", "cut", str(top), user="ann").returncode)

    def objects() -> dict[str, int]:
        found = above.glob("allot-put-*/*")  # What rclone writes just now is no object yet.
        return {path.name: path.stat().st_ino for path in found if ".rclone_" not in path.name}

    with closing(Meddler(rclone, held=b"/0 HTTP/1.1")) as gate:
        create(service, gate.endpoint, "cut")
        putting = threading.Thread(target=put)
        putting.start()
        until(lambda: gate.holds.is_set() and len(objects()) == 8, "all but one of the files")
        service.kill()
        putting.join()
        assert ended != [0]
        before = objects()
        gate.forget()
        service.up()
        assert "@1" not in as_user(service, "ann", "show", "cut")
        as_user(service, "ann", "put", "cut", str(top))
        after = objects()
        assert after.keys() == {*files, ".allot-complete.json"}
        assert {name: after[name] for name in before} == before, "each is sent once"
        look = "cd /data/w; ls | wc -l; cat * | sha256sum"
        told = job_of(service, "ann", {"cut": "/data/w"}, look).output.split()
        assert told[:2] == ["9", hashlib.sha256(b"".join(files.values())).hexdigest()]
        staged = (service.state / "data").glob("*/seen/files/*/*")
        assert list(staged) == [], "nothing of it stays with the service"


def test_how_far_a_put_is_with_the_store_is_shown(
    service: WithUsers, rclone: Rclone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    gate = Meddler(rclone, held=b"/0 HTTP/1.1")
    top = a_folder(service, "ann", "shown", {"0": bytes(32 * MIB), "1": bytes(MIB)})
    steps: list[Step] = []
    with Client(state=str(service.state)) as client:
        putting = threading.Thread(
            target=lambda: client.put_data("ann/shown", top, steps.append)
        )
        try:
            create(service, gate.endpoint, "shown")
            as_user(service, "ann", "grant", "shown", "user:ben")
            putting.start()
            told = re.compile(r"being put   (?!0 B)\S+ MiB of 33 MiB sent to the store, root")
            until(
                lambda: bool(told.search(as_user(service, "ann", "show", "shown"))),
                "some of it to be sent",
            )
            assert "sent to" not in as_user(service, "ben", "show", "ann/shown")

            def is_far(step: Step) -> bool:
                told = step.what == "sending to the object store" and step.total == 33 * MIB
                return told and MIB <= step.done < step.total

            until(lambda: any(map(is_far, steps)), "the client to tell it")
        finally:
            gate.open()
            putting.join()
            gate.close()
    shown = as_user(service, "ann", "show", "shown")
    assert "@1" in shown
    assert "sent to" not in shown


def test_other_bytes_than_were_put_are_not_used(service: WithUsers, rclone: Rclone) -> None:
    with closing(Meddler(rclone, other=(b"the-good-model", b"an-evil-model!"))) as gate:
        create(service, gate.endpoint, "swapped")
        top = a_folder(service, "ann", "swapped", {"model": b"the-good-model"})
        as_user(service, "ann", "put", "swapped", str(top))
        job = job_of(service, "ann", {"swapped": "/data/w"}, "cat /data/w/model")
        assert job.state == "failed"
        assert job.diagnosis["code"] == "data_changed"
        assert "is not what was put there" in job.diagnosis["cause"]
        assert "evil" not in job.output


def test_what_was_lost_in_the_store_comes_back_with_the_same_put(
    service: WithUsers, moto: Moto
) -> None:
    """A copy within the store has another ETag than what was sent in parts."""
    create(service, moto.endpoint, "lost")
    large = os.urandom(PART + 1)
    top = a_folder(service, "ann", "lost", {"large": large, "small": b"1"})
    as_user(service, "ann", "put", "lost", str(top))
    out = service.home("ann") / "got-lost"
    as_user(service, "ann", "get", "lost@1", out.name)
    names = ObjectPlace(moto.endpoint, BUCKET, "lost")
    (folder,) = {each.split("/")[1] for each in Bucket(names, KEY, None).starting_with("lost/")}
    (top / "small").write_bytes(b"22")
    as_user(service, "ann", "put", "lost", str(top))
    moto.drop(f"lost/{folder}/large")
    (top / "small").write_bytes(b"1")
    assert "@3:" in as_user(service, "ann", "put", "lost", str(top))
    for name in ("lost", "lost@1"):
        job = job_of(service, "ann", {name: "/data/w"}, "cat /data/w/* | sha256sum")
        assert job.output.split()[0] == hashlib.sha256(large + b"1").hexdigest()
    (out / "large").unlink()
    for path in (service.state / "data").rglob("files/*/*"):
        path.unlink()  # Else it comes from the disk.
    as_user(service, "ann", "get", "lost@1", out.name)
    assert (out / "large").read_bytes() == large


def test_what_a_store_does_not_copy_is_sent_again(service: WithUsers, moto: Moto) -> None:
    with closing(Meddler(moto, other=(b"CopyObjectResult", b"CopyObjectFailed"))) as gate:
        create(service, gate.endpoint, "uncopied")
        top = a_folder(service, "ann", "uncopied", {"a": b"as before", "b": b"one"})
        as_user(service, "ann", "put", "uncopied", str(top))
        (top / "b").write_bytes(b"two")
        assert "@2:" in as_user(service, "ann", "put", "uncopied", str(top))
        job = job_of(service, "ann", {"uncopied": "/data/w"}, "cat /data/w/*")
        assert job.output == "as beforetwo"


def test_who_lost_the_right_meanwhile_makes_no_version(
    service: WithUsers, rclone: Rclone
) -> None:
    told: list[str] = []
    top = a_folder(service, "ben", "revoked", {"a": b"1"})
    with closing(Meddler(rclone, held=b"/a HTTP/1.1")) as gate:
        create(service, gate.endpoint, "revoked")
        as_user(service, "ann", "grant", "revoked", "user:ben", "--write")
        putting = threading.Thread(
            target=lambda: told.append(refused(service, "ben", "put", "ann/revoked", str(top)))
        )
        putting.start()
        until(gate.holds.is_set, "the file to be sent")
        as_user(service, "ann", "revoke", "revoked", "user:ben")
        gate.open()
        putting.join()
        assert "There is no dataset ann/revoked" in told[0]
        assert "@1" not in as_user(service, "ann", "show", "revoked")


def test_what_cannot_be_put_is_told(service: WithUsers, rclone: Rclone) -> None:
    top = a_folder(service, "ann", "odd", {".allot-complete.json": b"{}"})
    create(service, rclone.endpoint, "odd")
    told = refused(service, "ann", "put", "odd", str(top))
    assert "is what the list of the files is called" in told
    create(service, rclone.endpoint, "wrong")
    path = service.home("ann") / ".aws/credentials"
    whole = path.read_text()
    path.write_text(whole.replace(KEY.secret, "wrong"))
    try:
        (top / ".allot-complete.json").rename(top / "plain")
        told = refused(service, "ann", "put", "wrong", str(top))
    finally:
        path.write_text(whole)
    assert "403 SignatureDoesNotMatch" in told
    assert "allot data login" in told
    rclone.stop()
    try:
        assert "does not answer" in refused(service, "ann", "put", "odd", str(top))
    finally:
        rclone.start()
    assert "@1:" in as_user(service, "ann", "put", "odd", str(top))

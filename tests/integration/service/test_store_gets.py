"""`allot data get` from object stores: whole files, what is cut goes on, the key stays here."""

import contextlib
import fcntl
import os
import re
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from allotment.client import Client
from allotment.client.data_get import LANES
from allotment.client.errors import Refused, Unreadable
from allotment.client.step import Step
from tests.integration.service.test_data import as_user, job_of, refused
from tests.integration.service.test_store_puts import a_folder, create
from tests.support.cluster import until
from tests.support.object_stores import BUCKET, KEY, Gate, Meddler, Moto, Rclone, Store
from tests.support.registry import WithUsers

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
MIB = 1 << 20


@pytest.fixture
def client(
    service: WithUsers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Client]:
    """An administrator, who may read all, and whose memory is this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with Client(state=str(service.state)) as made:
        yield made


def files_in(folder: Path) -> dict[str, bytes]:
    """Return what is in a folder, by path."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_objects_of_others_are_got(service: WithUsers, store: Store) -> None:
    name = f"plain-{store.kind}"
    large = os.urandom(3 * MIB + 1)
    store.put({f"{name}/a": b"one", f"{name}/sub dir/b+c": large, f"{name}/empty": b""})
    create(service, store.endpoint, name)
    home = service.home("ann")
    said = as_user(service, "ann", "get", name, name)
    assert f"ann/{name}@1: 3 files in {name}" in said
    assert files_in(home / name) == {"a": b"one", "sub dir/b+c": large, "empty": b""}
    store.put({f"{name}/a": b"two!"})
    assert f"ann/{name}@2" in as_user(service, "ann", "get", name, name), "what is there now"
    assert (home / name / "a").read_bytes() == b"two!"
    told = refused(service, "ann", "get", f"{name}@1", "before")
    assert "/a is not what it was when this version was made" in told
    assert "Without @1 you get the present objects." in told
    assert "Submit" not in told
    assert "a" not in files_in(home / "before")


def test_a_version_that_was_put_comes_back_as_it_was(service: WithUsers, store: Store) -> None:
    name = f"back-{store.kind}"
    create(service, store.endpoint, name)
    top = a_folder(
        service, "ann", name, {"a b": b"one", "sub/run.sh": b"#!/bin/sh\necho ran\n"}
    )
    (top / "link").symlink_to("sub/run.sh")
    as_user(service, "ann", "put", name, str(top))
    (top / "a b").write_bytes(b"two!")
    (top / "sub/run.sh").chmod(0o644)
    as_user(service, "ann", "put", name, str(top))
    out = service.home("ann") / f"got-{store.kind}"
    as_user(service, "ann", "get", name, out.name)
    assert files_in(out) == files_in(top)
    assert (out / "link").readlink() == Path("sub/run.sh")
    assert stat.S_IMODE((out / "sub/run.sh").stat().st_mode) == 0o644
    assert (out / "a b").stat().st_uid == top.stat().st_uid
    as_user(service, "ann", "get", f"{name}@1", out.name)
    assert (out / "a b").read_bytes() == b"one"
    assert stat.S_IMODE((out / "sub/run.sh").stat().st_mode) == 0o755
    as_user(service, "ann", "get", name, out.name)
    assert stat.S_IMODE((out / "sub/run.sh").stat().st_mode) == 0o644, "it is not fetched"


def test_what_is_private_stays_that_and_a_folder_stays_where_a_link_would_be(
    service: WithUsers, moto: Moto, client: Client, tmp_path: Path
) -> None:
    create(service, moto.endpoint, "private")
    top = a_folder(service, "ann", "private", {"run": b"#!/bin/sh\n"})
    (top / "run").chmod(0o755)
    (top / "link").symlink_to("run")
    as_user(service, "ann", "put", "private", str(top))
    out = tmp_path / "out"
    (out / "link").mkdir(parents=True)
    before = os.umask(0o077)
    try:
        with pytest.raises(Unreadable, match="'link' cannot be written: there is a folder"):
            client.get_data("ann/private", out)
    finally:
        os.umask(before)
    assert stat.S_IMODE((out / "run").stat().st_mode) == 0o700
    assert {each.name for each in out.iterdir()} == {"run", "link"}, "and nothing else"


def test_who_has_a_grant_gets_it_with_the_owners_key_and_never_sees_it(
    service: WithUsers, rclone: Rclone
) -> None:
    rclone.put({"lend/a": b"anns"})
    create(service, rclone.endpoint, "lend")
    there, nowhere = (
        refused(service, "ben", "get", each, "got") for each in ("ann/lend", "ann/none")
    )
    assert there == nowhere.replace("none", "lend")
    as_user(service, "ann", "grant", "lend", "user:ben")
    said = as_user(service, "ben", "get", "ann/lend", "got", "--json")
    assert files_in(service.home("ben") / "got") == {"a": b"anns"}
    for secret in (KEY.id, KEY.secret, BUCKET):
        assert secret not in said
    rclone.put({"lend/a": b"newer"})
    as_user(service, "ben", "get", "ann/lend", "got")
    assert files_in(service.home("ben") / "got") == {"a": b"newer"}, "as a job would see it"
    as_user(service, "ann", "revoke", "lend", "user:ben")
    assert "There is no dataset ann/lend" in refused(service, "ben", "get", "ann/lend", "got")


def getting(service: WithUsers, user: str, name: str) -> tuple[threading.Thread, list[str]]:
    """Have a user get a dataset into its folder `got`, and what that says noted."""
    said: list[str] = []

    def get() -> None:
        ran = service.allot("data", "get", name, "got", user=user, cwd=service.home(user))
        said.append(f"{ran.returncode} {ran.stderr}")

    thread = threading.Thread(target=get)
    thread.start()
    return thread, said


def test_who_loses_the_right_meanwhile_gets_no_more(service: WithUsers, rclone: Rclone) -> None:
    rclone.put({"taken/large": os.urandom(24 * MIB)})
    with closing(Gate(rclone, 8 * MIB)) as gate:
        create(service, gate.endpoint, "taken")
        as_user(service, "ann", "grant", "taken", "user:ben")
        thread, said = getting(service, "ben", "ann/taken")
        until(lambda: gate.passed > 4 * MIB, "some of it to come")
        as_user(service, "ann", "revoke", "taken", "user:ben")
        gate.open()
        thread.join()
        assert "There is no dataset ann/taken" in said[0]
        assert "large" not in files_in(service.home("ben") / "got")


def test_a_service_that_is_killed_meanwhile_is_asked_again(
    service: WithUsers, rclone: Rclone
) -> None:
    large = os.urandom(24 * MIB)
    rclone.put({"killed/large": large})
    with closing(Gate(rclone, 8 * MIB)) as gate:
        create(service, gate.endpoint, "killed")
        thread, said = getting(service, "ann", "killed")
        until(lambda: gate.passed > 4 * MIB, "some of it to come")
        service.kill()
        gate.open()
        service.up()
        thread.join()
        assert said[0].startswith("0 "), said
        assert files_in(service.home("ann") / "got")["large"] == large


class Cut(Exception):
    pass


def cut_after(size: int) -> Callable[[Step], None]:
    """Return what breaks off a get when so much is there."""

    def tell(step: Step) -> None:
        if step.done >= size:
            raise Cut

    return tell


class Heard(Gate):
    """A way to a store that notes which objects are asked for, and from where on."""

    def __init__(self, store: Store) -> None:
        self.asked: list[tuple[str, int]] = []
        self.connections = 0
        super().__init__(store, 1 << 40)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        self.connections += 1
        with contextlib.suppress(OSError), source, target:
            while data := source.recv(1 << 16):
                if named := re.match(rb"GET /models/(\S+) ", data):
                    start = re.search(rb"range: bytes=(\d+)-", data)
                    self.asked.append((named[1].decode(), int(start[1]) if start else 0))
                target.sendall(data)


def test_what_is_cut_goes_on_where_it_was(
    service: WithUsers,
    store: Store,
    client: Client,
    tmp_path: Path,
) -> None:
    name = f"long-{store.kind}"
    small = {f"{name}/small/{number}": os.urandom(1000) for number in range(9)}
    large = os.urandom(24 * MIB)
    store.put({f"{name}/large": large, **small})
    gate, out = Heard(store), tmp_path / "out"
    steps: list[Step] = []
    try:
        create(service, gate.endpoint, name)
        with pytest.raises(Cut):
            client.get_data(f"ann/{name}", out, cut_after(12 * MIB))
        assert "large" not in files_in(out), "half a file has not its name"
        [part] = out.glob(".allot-*.part")
        there = part.stat().st_size
        assert 0 < there < len(large)
        gate.asked.clear()
        client.get_data(f"ann/{name}", out, steps.append)
        assert (f"{name}/large", there) in gate.asked
        assert len(gate.asked) < 1 + len(small), "and small ones that were there are not asked"
        assert files_in(out) == {"large": large} | {
            key.removeprefix(f"{name}/"): data for key, data in small.items()
        }
        total = len(large) + 9000
        assert all(step.total == total for step in steps)
        assert any(there <= step.done < total for step in steps)

        gate.asked.clear()
        client.get_data(f"ann/{name}", out)
        assert gate.asked == [], "what is there is not fetched"
        kept = (path.stat().st_size for path in (service.state / "data").rglob("*"))
        assert max(kept) < MIB, "the service keeps no copy"
    finally:
        gate.close()


def test_small_files_come_over_a_few_connections(
    service: WithUsers, rclone: Rclone, client: Client, tmp_path: Path
) -> None:
    files = {str(number): os.urandom(100) for number in range(40)}
    rclone.put({f"few/{name}": data for name, data in files.items()})
    with closing(Heard(rclone)) as gate:
        create(service, gate.endpoint, "few")
        before = gate.connections
        client.get_data("ann/few@1", tmp_path / "out")
        assert files_in(tmp_path / "out") == files
        assert gate.connections - before <= 2 * LANES


def test_what_the_service_has_for_jobs_comes_from_its_disk(
    service: WithUsers, moto: Moto, client: Client, tmp_path: Path
) -> None:
    moto.put({"here/a": b"both"})
    create(service, moto.endpoint, "here")
    assert job_of(service, "ann", {"here": "/data/w"}, "cat /data/w/a").output == "both"
    moto.drop("here/a")
    client.get_data("ann/here@1", tmp_path / "out")
    assert files_in(tmp_path / "out") == {"a": b"both"}


def test_other_bytes_than_were_put_get_no_name(
    service: WithUsers, rclone: Rclone, client: Client, tmp_path: Path
) -> None:
    with closing(Meddler(rclone, other=(b"the-good-model", b"an-evil-model!"))) as gate:
        create(service, gate.endpoint, "evil")
        top = a_folder(service, "ann", "evil", {"model": b"the-good-model"})
        as_user(service, "ann", "put", "evil", str(top))
        with pytest.raises(Unreadable, match="'model' came with other bytes than were put"):
            client.get_data("ann/evil", tmp_path / "out")
        assert list((tmp_path / "out").iterdir()) == []


def test_a_part_is_gone_on_with_only_if_it_is_one(
    service: WithUsers, moto: Moto, client: Client, tmp_path: Path
) -> None:
    create(service, moto.endpoint, "parts")
    large = os.urandom(6 * MIB)
    top = a_folder(service, "ann", "parts", {"a": large})
    as_user(service, "ann", "put", "parts", str(top))
    out = tmp_path / "out"
    with pytest.raises(Cut):
        client.get_data("ann/parts", out, cut_after(2 * MIB))
    [part] = out.iterdir()
    with part.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Refused, match="Another process is getting 'a'"):
            client.get_data("ann/parts", out)
    part.write_bytes(b"of something else")
    client.get_data("ann/parts", out)
    assert files_in(out) == {"a": large}

    (out / "a").unlink()
    part.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match="cannot be written"):
        client.get_data("ann/parts", out)
    assert not (tmp_path / "elsewhere").exists()


def test_names_that_lead_out_are_refused(service: WithUsers, moto: Moto) -> None:
    moto.put({"outer/../../evil": b"1", "outer/a": b"2"})
    place = ("--s3", f"s3://{BUCKET}/outer", "--endpoint", moto.endpoint)
    assert "is not the path of a file" in refused(service, "ann", "create", "outer", *place)


def test_a_link_in_the_way_is_not_followed(
    service: WithUsers, moto: Moto, client: Client, tmp_path: Path
) -> None:
    moto.put({"way/sub/a": b"1"})
    create(service, moto.endpoint, "way")
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    out.mkdir()
    elsewhere.mkdir()
    (out / "sub").symlink_to(elsewhere)
    with pytest.raises(Unreadable, match="is a link or no folder"):
        client.get_data("ann/way", out)
    assert list(elsewhere.iterdir()) == []


def test_why_it_cannot_be_got_is_told(service: WithUsers, rclone: Rclone) -> None:
    rclone.put({"why/a": b"1"})
    create(service, rclone.endpoint, "why")
    path = service.home("ann") / ".aws/credentials"
    whole = path.read_text()
    path.write_text(whole.replace(KEY.secret, "wrong"))
    try:
        for name in ("why", "why@1"):
            told = refused(service, "ann", "get", name, "out")
            assert "403 SignatureDoesNotMatch" in told
            assert "allot data login" in told
    finally:
        path.write_text(whole)
    rclone.stop()
    try:
        for name in ("why", "why@1"):
            assert "does not answer" in refused(service, "ann", "get", name, "out")
    finally:
        rclone.start()
    rclone.drop("why/a")
    told = refused(service, "ann", "get", "why@1", "out")
    assert f"There is no s3://{BUCKET}/why/a" in told
    assert files_in(service.home("ann") / "out") == {}

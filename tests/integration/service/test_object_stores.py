"""Datasets in object stores: looked at, fetched once, shared by grant, and never half there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.service.test_data import as_user, job_of, refused
from tests.support.object_stores import BUCKET, KEY, Moto, Rclone, Store, a_store
from tests.support.registry import CONFIG, Job, WithUsers, a_service

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def reachable_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all users may pass through."""
    folder = tmp_path_factory.mktemp("stores")
    for path in (folder, folder.parent, folder.parent.parent):
        path.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def service(reachable_once: Path) -> Iterator[WithUsers]:
    with a_service(reachable_once, CONFIG) as made:
        made.allot("ps")  # The users' homes are made.
        log_in(made, "ann")
        yield made


@pytest.fixture(scope="module")
def rclone(reachable_once: Path) -> Iterator[Rclone]:
    with a_store(Rclone, reachable_once / "rclone") as made:
        yield made


@pytest.fixture(scope="module")
def moto(reachable_once: Path) -> Iterator[Moto]:
    with a_store(Moto, reachable_once / "moto") as made:
        yield made


def log_in(service: WithUsers, name: str, secret: str = KEY.secret) -> None:
    """Do what `allot data login` does."""
    ran = service.allot(
        "data", "login", "--key-id", KEY.id, "--secret-stdin", user=name, input=f"{secret}\n"
    )
    assert ran.returncode == 0, ran.stderr


def create(service: WithUsers, store: Store, name: str, *words: str) -> str:
    place = f"s3://{BUCKET}/{name}"
    return as_user(
        service, "ann", "create", name, "--s3", place, "--endpoint", store.endpoint, *words
    )


def test_a_job_reads_what_was_there_when_it_was_submitted(
    service: WithUsers, rclone: Rclone
) -> None:
    rclone.put({"bert/a.txt": "one\n", "bert/sub dir/b+c": "two\n", "bert-old/x": "no"})
    said = create(service, rclone, "bert")
    assert "which has 2 objects, 8 B" in said
    job = job_of(service, "ann", {"bert": "/data/bert"}, "cd /data/bert; cat */* *.txt; ls -A")
    assert job.state == "succeeded", job.diagnosis
    assert job.output == "two\none\na.txt\nsub dir\n"
    assert "data" in job.phases
    assert "ann/bert@1 at /data/bert" in service.allot("show", str(job.id)).stdout


def said_no(service: WithUsers, store: Store, prefix: str, *words: str) -> str:
    place = f"s3://{BUCKET}/{prefix}"
    return refused(
        service, "ann", "create", "other", "--s3", place, "--endpoint", store.endpoint, *words
    )


def a_word(service: WithUsers, name: str, data: object) -> str:
    """Give what a job reads in its dataset's file `a`."""
    job = job_of(service, name, data, "cat /data/w/a")
    assert job.state == "succeeded", job.diagnosis
    return job.output


def test_each_job_sees_what_it_was_submitted_with(service: WithUsers, moto: Moto) -> None:
    moto.put({"words/a": "one"})
    create(service, moto, "words")
    first = job_of(service, "ann", {"words": "/data/w"}, "cat /data/w/a")
    assert first.output == "one"
    again = job_of(service, "ann", {"words": "/data/w"}, "cat /data/w/a")
    assert "data" not in again.phases, "it was here"
    moto.put({"words/a": "two", "words/b": "new"})
    assert a_word(service, "ann", {"words": "/data/w"}) == "two"
    assert a_word(service, "ann", {"words@1": "/data/w"}) == "one"
    status, clone = service.ask_as("ann", "POST", f"/v1/jobs/{first.id}:clone", {})
    assert status == 201, clone
    service.wait_for(clone["id"], "succeeded")
    assert Job(service, clone["id"]).output == "one"
    listed = as_user(service, "ann", "ls", "words@2")
    assert [line.split()[-1] for line in listed.splitlines()] == ["a", "b"]
    shown = as_user(service, "ann", "show", "words")
    assert f"s3://{BUCKET}/words at {moto.endpoint}, profile default" in shown
    assert "no version" not in shown
    folder = str(service.home("ann"))
    assert "hands out none" in refused(service, "ann", "get", "words", folder)
    assert "by its own tools" in refused(service, "ann", "put", "words", folder)


def test_who_has_a_grant_reads_by_the_owners_key(service: WithUsers, rclone: Rclone) -> None:
    rclone.put({"shared/a": "ours"})
    create(service, rclone, "shared")
    wish = {"name": "x", "tenant": "ben", "command": "true", "data": {"ann/shared": "/data/w"}}
    status, answer = service.ask_as("ben", "POST", "/v1/jobs", wish)
    assert (status, answer["code"]) == (404, "data_missing")
    as_user(service, "ann", "grant", "shared", "user:ben")
    assert a_word(service, "ben", {"ann/shared": "/data/w"}) == "ours"
    shown = as_user(service, "ben", "show", "ann/shared")
    assert BUCKET not in shown, "where it is, its owner knows"
    as_user(service, "ann", "revoke", "shared", "user:ben")
    assert service.ask_as("ben", "POST", "/v1/jobs", wish)[0] == 404


def test_a_key_is_nowhere_but_with_its_owner(service: WithUsers, rclone: Rclone) -> None:
    rclone.put({"secret/a": "x"})
    create(service, rclone, "secret")
    a_word(service, "ann", {"secret": "/data/w"})
    secret = KEY.secret.encode()
    kept = [
        path
        for path in service.state.rglob("*")
        if path.is_file() and not path.is_symlink() and secret in path.read_bytes()
    ]
    assert kept == []


def test_a_refusal_says_whose_matter_it_is(service: WithUsers, rclone: Rclone) -> None:
    rclone.put({"bad/x/a": "1"})
    said = said_no(service, rclone, "bad", "--profile", "lab")
    assert "There is no key of profile lab in ~/.aws/credentials of ann." in said
    assert "allot data login" in said
    path = service.home("ann") / ".aws/credentials"
    whole = path.read_text()
    try:
        path.write_text(whole.replace(KEY.secret, "wrong"))
        said = said_no(service, rclone, "bad")
        assert "403 SignatureDoesNotMatch" in said
        assert "with the key of profile default" in said
    finally:
        path.write_text(whole)
    place = ("--s3", "s3://no-such-bucket/x", "--endpoint", rclone.endpoint)
    said = refused(service, "ann", "create", "other", *place)
    assert "404 NoSuchBucket" in said
    assert "is without TLS" in refused(
        service, "ann", "create", "other", "--s3", "s3://b2b", "--endpoint", "http://10.0.0.1"
    )
    assert as_user(service, "ann", "ls").find("other") < 0, "nothing was made"

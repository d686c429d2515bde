"""Datasets in object stores: looked at, fetched once, shared by grant, and never half there."""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from allotment.service.data.objects.bucket import Bucket
from allotment.service.data.objects.listing import listing_of
from tests.integration.service.test_data import as_user, job_of, refused
from tests.support.cluster import until
from tests.support.object_stores import BUCKET, KEY, Gate, Moto, Rclone, Store
from tests.support.registry import Job, WithUsers

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


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
    """Return what a job reads in its dataset's file `a`."""
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


# ── outputs ─────────────────────────────────────────────────────────────────────────────


def saving(service: WithUsers, prefix: str, command: str, user: str = "ann") -> int:
    """Submit a job whose outputs go to a dataset; give its number."""
    small = {"cpu": 0.1, "memory": "64MiB"}
    spec = {"name": "s", "tenant": user, "command": f"cd $ALLOT_OUTPUT_DIR; {command}",
            "resources": small, "save": prefix}  # fmt: skip
    status, answer = service.ask_as(user, "POST", "/v1/jobs", spec)
    assert status == 201, answer
    return answer["id"]


def saved(service: WithUsers, job: int) -> str:
    """Wait until it is known what became of a job's outputs; give that."""

    def told() -> str:
        view = service.get(f"/v1/jobs/{job}")
        return view["saved"] or view["unsaved"]

    until(lambda: bool(told()), "what became of the outputs")
    return told()


def test_outputs_are_put_to_a_store(service: WithUsers, store: Store) -> None:
    name = f"results-{store.kind}"
    store.put({f"{name}/before": "x", f"{name}/allot-job-999-0a1b2c3d/part": "half"})
    create(service, store, name)
    script = "mkdir 'a b'; head -c 3000000 /dev/urandom >'a b/c+d'; : >empty; sha256sum a*/*"
    job = saving(service, name, script)
    assert saved(service, job) == f"ann/{name}@2"
    digest = Job(service, job).output.split()[0]
    show = f"cd /data/r; find . -type f | sort; sha256sum allot-job-{job}-*/a*/*"
    lines = job_of(service, "ann", {name: "/data/r"}, show).output.splitlines()
    folder = lines[0].split("/")[1]
    assert folder.startswith(f"allot-job-{job}-")
    assert lines[:-1] == [
        f"./{folder}/.allot-complete.json",
        f"./{folder}/a b/c+d",
        f"./{folder}/empty",
        "./before",
    ]
    assert lines[-1].split()[0] == digest


def test_outputs_of_which_a_part_is_missing_are_not_there(
    service: WithUsers, rclone: Rclone
) -> None:
    rclone.put({"parts/before": "x"})
    with closing(Gate(rclone, 1 << 40)) as gate:
        place = f"s3://{BUCKET}/parts"
        as_user(service, "ann", "create", "parts", "--s3", place, "--endpoint", gate.endpoint)
        gate.shut()
        job = saving(service, "parts", "echo 1 >a; echo 2 >b")
        above = rclone.folder / "objects" / place.removeprefix("s3://")
        until(lambda: any(above.glob(f"allot-job-{job}-*/a")), "a part of the outputs")
        (folder,) = above.glob(f"allot-job-{job}-*")
        service.kill()
        bucket = Bucket(rclone.place("parts"), KEY, None)
        found = bucket.objects(100, 1 << 30)
        bucket.close()
        assert f"parts/{folder.name}/a" in [each.path for each in found]
        listing = listing_of(found, rclone.place("parts"))
        assert [each.path for each in listing.objects] == ["before"]
        gate.open()
        service.up()
        assert saved(service, job) == "ann/parts@2"
        names = sorted(path.name for path in folder.iterdir())
        assert names == [".allot-complete.json", "a", "b"]


def test_what_would_look_like_the_list_of_outputs_is_not_put(
    service: WithUsers, rclone: Rclone
) -> None:
    rclone.put({"marked/before": "x"})
    create(service, rclone, "marked")
    told = saved(service, saving(service, "marked", "echo 1 >.allot-complete.json; echo 2 >z"))
    assert ".allot-complete.json is what the list of them is called" in told
    assert not list((rclone.folder / "objects" / BUCKET / "marked").glob("allot-job-*"))


def test_who_lost_the_right_meanwhile_puts_nothing_more(
    service: WithUsers, rclone: Rclone
) -> None:
    rclone.put({"lent/before": "x"})
    with closing(Gate(rclone, 1 << 40)) as gate:
        place = f"s3://{BUCKET}/lent"
        as_user(service, "ann", "create", "lent", "--s3", place, "--endpoint", gate.endpoint)
        as_user(service, "ann", "grant", "lent", "user:ben", "--write")
        gate.shut()
        job = saving(service, "ann/lent", "echo 1 >a; echo 2 >b", "ben")
        above = rclone.folder / "objects" / BUCKET / "lent"
        until(lambda: any(above.glob("allot-job-*/a")), "a part of the outputs")
        as_user(service, "ann", "revoke", "lent", "user:ben")
        gate.open()
        assert "There is no dataset ann/lent" in saved(service, job)
        assert [path.name for path in above.glob("allot-job-*/*")] == ["a"]


def test_a_key_that_may_not_write_is_named(service: WithUsers, rclone: Rclone) -> None:
    rclone.put({"closed/a": "x"})
    create(service, rclone, "closed")
    path = service.home("ann") / ".aws/credentials"
    whole = path.read_text()
    path.write_text(whole.replace(KEY.secret, "wrong"))
    try:
        told = saved(service, saving(service, "closed", "head -c 20000000 /dev/zero >a"))
    finally:
        path.write_text(whole)
    assert "may not be written with the key of profile default" in told
    assert "403" in told


# ── faults ──────────────────────────────────────────────────────────────────────────────


def begun(service: WithUsers, name: str, prefix: str, command: str) -> int:
    """Submit a job of ann's; give its number."""
    small = {"cpu": 0.1, "memory": "64MiB"}
    spec = {"name": name, "tenant": "ann", "command": command, "resources": small,
            "data": {f"{prefix}@1": "/data/w"}}  # fmt: skip
    status, answer = service.ask_as("ann", "POST", "/v1/jobs", spec)
    assert status == 201, answer
    return answer["id"]


@contextlib.contextmanager
def held(
    service: WithUsers, store: Store, prefix: str, sizes: tuple[int, ...]
) -> Iterator[tuple[Gate, dict[str, str]]]:
    """Register objects behind a gate that is shut amid the first fetch."""
    files = {str(number): os.urandom(size) for number, size in enumerate(sizes)}
    store.put({f"{prefix}/{name}": data for name, data in files.items()})
    with closing(Gate(store, sum(sizes) // 2)) as gate:
        place = f"s3://{BUCKET}/{prefix}"
        words = ("create", prefix, "--s3", place, "--endpoint", gate.endpoint)
        as_user(service, "ann", *words)
        yield gate, {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def trees(service: WithUsers) -> set[Path]:
    return set((service.state / "data").glob("*/trees/*"))


def test_what_a_killed_service_was_fetching_is_never_seen(
    service: WithUsers, rclone: Rclone
) -> None:
    before = trees(service)
    with held(service, rclone, "killed", (3 << 20, 3 << 20, 1000)) as (gate, digests):
        job = begun(service, "killed", "killed", "cd /data/w; sha256sum *")
        until(lambda: gate.passed > 1 << 20, "a part of the files")
        service.kill()
        assert trees(service) == before
        gate.open()
        service.up()
        service.wait_for(job, "succeeded", "failed")
        found = Job(service, job)
        assert found.state == "succeeded", found.diagnosis
        lines = (line.split() for line in found.output.splitlines())
        assert {name: digest for digest, name in lines} == digests
        assert not list((service.state / "data/new").iterdir())
        assert len(trees(service)) == len(before) + 1


def test_a_job_that_is_cancelled_waits_for_no_file(service: WithUsers, rclone: Rclone) -> None:
    with held(service, rclone, "slow", (3 << 20,)) as (gate, _):
        job = begun(service, "slow", "slow", "true")
        until(lambda: gate.passed > 1 << 20, "a part of the file")
        assert service.ask_as("ann", "POST", f"/v1/jobs/{job}:cancel", {})[0] == 200
        service.wait_for(job, "cancelled")
        assert Job(service, job).output == ""


def test_a_store_that_is_away_is_asked_again(service: WithUsers, rclone: Rclone) -> None:
    rclone.put({"away/a": "here"})
    create(service, rclone, "away")
    rclone.stop()
    try:
        assert "does not answer" in said_no(service, rclone, "away")
        job = begun(service, "away", "away", "cat /data/w/a")

        def is_told() -> bool:
            first = service.get(f"/v1/jobs/{job}")["attempts"][:1]
            return bool(first and first[0]["diagnosis"])

        until(is_told, "the first attempt to end")
    finally:
        rclone.start()
    service.wait_for(job, "succeeded", "failed")
    view = Job(service, job).view
    first = view["attempts"][0]["diagnosis"]
    assert (first["code"], first["owner"]) == ("store_away", "platform")
    assert view["row"]["state"] == "succeeded"


def test_a_key_that_was_taken_away_starts_nothing(service: WithUsers, rclone: Rclone) -> None:
    rclone.put({"taken/a": "x"})
    create(service, rclone, "taken")
    path = service.home("ann") / ".aws/credentials"
    whole = path.read_text()
    path.write_text("")
    try:
        job = begun(service, "taken", "taken", "true")
        service.wait_for(job, "succeeded", "failed")
    finally:
        path.write_text(whole)
    found = Job(service, job)
    assert (found.state, found.diagnosis["code"]) == ("failed", "store_denied")
    assert "There is no key of profile default" in found.diagnosis["cause"]

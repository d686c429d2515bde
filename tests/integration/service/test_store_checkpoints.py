"""Checkpoints in object stores: complete or not there, the newest few, put back when lost."""

import contextlib
import http.client
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from allotment.service.data.objects.bucket import Bucket
from allotment.service.data.objects.parts import PART, uploads_of
from tests.integration.service.test_data import as_user, job_of
from tests.integration.service.test_saving import REPORT, is_kept, wait_for_file
from tests.support.cluster import RealCluster, until
from tests.support.object_stores import BUCKET, KEY, Gate, Meddler, Rclone, Store
from tests.support.registry import Job, WithUsers

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
LIST = ".allot-complete.json"


def create(service: WithUsers, endpoint: str, name: str) -> None:
    place = ("--s3", f"s3://{BUCKET}/{name}", "--endpoint", endpoint)
    as_user(service, "ann", "create", name, *place)


def asked(service: WithUsers, name: str, script: str, **more: Any) -> tuple[int, Any]:
    spec: dict[str, Any] = {
        "name": "t", "tenant": "ann", "command": REPORT + script,
        "resources": {"cpu": 0.1, "memory": "64MiB"},
        "checkpoint": {"save": name, "keep": 2}, **more,
    }  # fmt: skip
    return service.ask_as("ann", "POST", "/v1/jobs", spec)


def training(service: WithUsers, name: str, script: str, **more: Any) -> int:
    status, answer = asked(service, name, script, **more)
    assert status == 201, answer
    return answer["id"]


def wait_kept(service: RealCluster, job: int, version: str) -> None:
    """Wait until the newest checkpoint of a job is a version."""
    until(
        lambda: (
            is_kept(service, job, version) or bool(service.get(f"/v1/jobs/{job}")["unkept"])
        ),
        "what became of the checkpoint",
    )
    view = service.get(f"/v1/jobs/{job}")
    assert view["kept"] == version, view["unkept"]


def kept_in(store: Rclone, name: str) -> list[Path]:
    """List the folders of checkpoints below a prefix, the oldest first."""
    above = store.folder / "objects" / BUCKET / name
    found = [each for each in above.glob("allot-checkpoint-*") if any(each.rglob("*"))]
    return sorted(found, key=lambda each: each.stat().st_mtime)


def test_the_newest_are_kept_in_a_store_and_put_back(service: WithUsers, store: Store) -> None:
    home, name = service.home("ann"), f"weights-{store.kind}"
    steps = "; ".join(
        f"mkdir -p c{n}/deep; echo {n} >c{n}/deep/model; report c{n} {n}; "
        f"{wait_for_file(f'{home}/{store.kind}{n}')}"
        for n in (1, 2, 3)
    )
    script = (
        'if test -n "$ALLOT_RESUME_FROM"; then echo from $ALLOT_RESUME_FROM; '
        "cat $ALLOT_RESUME_FROM/deep/model; ls -A c3; exit 0; fi; "
        f"{steps}; rm -r c1 c2 c3; exit 3"
    )
    create(service, store.endpoint, name)
    job = training(service, name, script, retry=1)
    for n in (1, 2, 3):
        wait_kept(service, job, f"ann/{name}@{n}")
        Path(home, f"{store.kind}{n}").touch()
    service.wait_for(job, "succeeded", "failed")
    done = Job(service, job)
    assert done.state == "succeeded", done.output
    assert done.output.split()[2:] == ["3", "deep"]
    assert "checkpoint" in done.phases
    shown = as_user(service, "ann", "show", name)
    assert f"checkpoint of job {job} at step 3" in shown
    assert "@1 " not in shown
    found = job_of(service, "ann", {name: "/data/w"}, "cd /data/w; find . -type f | sort")
    below = [line.partition("/")[2].partition("/")[2] for line in found.output.splitlines()]
    assert sorted(below) == sorted(path for n in (2, 3) for path in (LIST, f"c{n}/deep/model"))


@contextmanager
def behind_a_gate(
    service: WithUsers, store: Rclone, name: str
) -> Iterator[tuple[Gate, Callable[[], list[Path]]]]:
    with closing(Gate(store, 1 << 40)) as gate:
        create(service, gate.endpoint, name)
        yield gate, lambda: kept_in(store, name)


def test_a_whole_checkpoint_that_the_service_does_not_know_is_never_deleted(
    service: WithUsers, rclone: Rclone
) -> None:
    """As after its books were restored from a backup: then it is the newest one."""
    home, name = service.home("ann"), "restored"
    wait = wait_for_file(f"{home}/forgotten")
    create(service, rclone.endpoint, name)
    script = f"echo 1 >a; report a 1; {wait}; for n in 2 3 4; do echo $n >a$n; report a$n $n; "
    script += f"{wait_for_file(f'{home}/kept$n')}; done"
    job = training(service, name, script)
    wait_kept(service, job, f"ann/{name}@1")
    [first] = kept_in(rclone, name)
    as_user(service, "ann", "rm", f"{name}@1")
    Path(home, "forgotten").touch()
    for n in (2, 3, 4):
        wait_kept(service, job, f"ann/{name}@{n}")
        Path(home, f"kept{n}").touch()
    service.wait_for(job, "succeeded")
    assert sorted(path.name for path in first.iterdir()) == sorted([LIST, "a"])
    found = kept_in(rclone, name)
    assert {each.name for folder in found for each in folder.iterdir()} == {
        LIST, "a", "a3", "a4"
    }  # fmt: skip


def test_old_ones_that_cannot_be_deleted_stay_versions_and_go_with_the_next(
    service: WithUsers, rclone: Rclone
) -> None:
    home, name = service.home("ann"), "kept-away"
    create(service, rclone.endpoint, name)
    script = "for n in 1 2 3 4; do echo $n >a$n; report a$n $n; "
    job = training(service, name, script + f"{wait_for_file(f'{home}/away$n')}; done")
    for n in (1, 2):
        wait_kept(service, job, f"ann/{name}@{n}")
        Path(home, f"away{n}").touch()
        if n == 1:
            [first] = kept_in(rclone, name)
            subprocess.run(["mount", "--bind", "-o", "ro", first, first], check=True)
    try:
        wait_kept(service, job, f"ann/{name}@3")
        assert "@1 " in as_user(service, "ann", "show", name)
    finally:
        subprocess.run(["umount", "-l", first], check=True)
    Path(home, "away3").touch()
    wait_kept(service, job, f"ann/{name}@4")
    Path(home, "away4").touch()
    service.wait_for(job, "succeeded")
    shown = as_user(service, "ann", "show", name)
    assert "@3 " in shown
    assert "@1 " not in shown
    assert "@2 " not in shown
    assert first not in kept_in(rclone, name)


def test_what_a_killed_service_was_putting_is_never_seen_and_goes(
    service: WithUsers, rclone: Rclone
) -> None:
    home = service.home("ann")
    script = (
        f"echo one >a; report a 1; {wait_for_file(f'{home}/more')}; "
        f"mkdir b; echo 1 >b/1; echo 2 >b/2; report b 2; {wait_for_file(f'{home}/end')}"
    )
    with behind_a_gate(service, rclone, "cut") as (gate, found):
        job = training(service, "cut", script)
        wait_kept(service, job, "ann/cut@1")
        gate.shut()
        Path(home, "more").touch()
        until(lambda: len(found()) == 2, "a part of the second")
        service.kill()
        part = found()[-1]
        assert not (part / LIST).exists()
        gate.open()
        service.up()
        wait_kept(service, job, "ann/cut@2")
        until(lambda: part not in found(), "the part to go")
        assert [(each / LIST).exists() for each in found()] == [True, True]
        Path(home, "end").touch()
        service.wait_for(job, "succeeded")


def unfinished(service: WithUsers) -> list[dict[str, Any]]:
    """List what the service has noted as begun in stores."""
    return [
        json.loads(each.read_bytes())
        for each in (service.state / "data-unfinished").glob("[!.]*.json")
    ]


def test_an_upload_in_parts_that_a_killed_service_began_is_ended_at_the_store(
    service: WithUsers, rclone: Rclone
) -> None:
    home = service.home("ann")
    script = (
        f"truncate -s {2 * PART + 99} a; printf end >>a; report a 1; "
        f"{wait_for_file(f'{home}/in-parts')}"
    )
    with closing(Meddler(rclone, held=b"partNumber=2&")) as gate:
        create(service, gate.endpoint, "parts")
        job = training(service, "parts", script)
        until(gate.holds.is_set, "the second part")
        until(lambda: any(each.get("upload") for each in unfinished(service)), "its note")
        [note] = unfinished(service)
        service.kill()
        bucket = Bucket(rclone.place("parts", profile="default"), KEY, None)
        assert uploads_of(bucket, note["key"]) == [note["upload"]]
        gate.open()
        service.up()
        until(lambda: not uploads_of(bucket, note["key"]), "the end of the first upload")
        bucket.close()
        wait_kept(service, job, "ann/parts@1")
        [whole] = kept_in(rclone, "parts")
        assert (whole / "a").stat().st_size == 2 * PART + 102
        until(lambda: not unfinished(service), "nothing that is unfinished")
        Path(home, "in-parts").touch()
        service.wait_for(job, "succeeded")


def test_an_object_by_which_a_store_was_tried_goes_after_a_kill(
    service: WithUsers, rclone: Rclone
) -> None:
    place = rclone.folder / "objects" / BUCKET / "probed"
    with closing(Meddler(rclone, held=f"DELETE /{BUCKET}/probed/".encode())) as gate:
        create(service, gate.endpoint, "probed")
        asking = threading.Thread(target=_asked_in_vain, args=(service, "probed"))
        asking.start()
        until(gate.holds.is_set, "the removal")
        [left] = place.glob(".allot-may-write-*")
        assert [each["key"] for each in unfinished(service)] == [f"probed/{left.name}"]
        service.kill()
        asking.join()
        gate.forget()
        service.up()
        until(lambda: not left.exists(), "it to go")
        until(lambda: not unfinished(service), "the note of it to go")


def _asked_in_vain(service: WithUsers, name: str) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
        asked(service, name, "true")


def test_a_store_that_gives_other_bytes_is_found_out(
    service: WithUsers, rclone: Rclone
) -> None:
    """Its listing and its marks say that nothing changed."""
    home = service.home("ann")
    script = (
        'if test -n "$ALLOT_RESUME_FROM"; then cat $ALLOT_RESUME_FROM; exit 0; fi; '
        f"echo the-good-model >a; report a 1; {wait_for_file(f'{home}/lied')}; rm a; exit 3"
    )
    with closing(Meddler(rclone, other=(b"the-good-model", b"an-evil-model!"))) as gate:
        create(service, gate.endpoint, "lies")
        job = training(service, "lies", script, retry=1)
        wait_kept(service, job, "ann/lies@1")
        Path(home, "lied").touch()
        service.wait_for(job, "succeeded", "failed")
    done = Job(service, job)
    assert done.state == "failed"
    assert "evil" not in done.output
    assert done.diagnosis["code"] == "data_changed"
    assert "ann/lies@1 is not what was put" in done.diagnosis["cause"]
    assert "'a' has other bytes" in done.diagnosis["cause"]


def test_a_full_bucket_holds_no_part_and_takes_the_next_that_fits(
    service: WithUsers, rclone: Rclone
) -> None:
    home = service.home("ann")
    place = rclone.folder / "objects" / BUCKET / "full"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "full", place], check=True)
    try:
        create(service, rclone.endpoint, "full")
        script = (
            "mkdir large; echo 1 >large/a; head -c 3000000 /dev/zero >large/b; "
            f"report large 1; {wait_for_file(f'{home}/tried')}; echo 2 >small; report small 2; "
            f"{wait_for_file(f'{home}/small')}"
        )
        job = training(service, "full", script)
        until(lambda: any(place.rglob("large/a")), "a part of it")
        Path(home, "tried").touch()
        wait_kept(service, job, "ann/full@1")
        names = sorted(each.name for each in place.rglob("*") if each.is_file())
        assert names == [LIST, "small"]
        Path(home, "small").touch()
        service.wait_for(job, "succeeded")
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_store_that_takes_nothing_is_told_at_submission(
    service: WithUsers, rclone: Rclone
) -> None:
    create(service, rclone.endpoint, "told")
    path = service.home("ann") / ".aws/credentials"
    whole = path.read_text()
    path.write_text(whole.replace(KEY.secret, "wrong"))
    try:
        status, answer = asked(service, "told", "true")
    finally:
        path.write_text(whole)
    assert (status, answer["code"]) == (403, "forbidden")
    assert "may not be written with the key of profile default" in answer["detail"]
    bucket = rclone.folder / "objects" / BUCKET
    bucket.rename(bucket.with_name("aside"))
    try:
        status, answer = asked(service, "told", "true")
    finally:
        bucket.with_name("aside").rename(bucket)
    assert (status, answer["code"]) == (404, "data_missing")
    assert "NoSuchBucket" in answer["detail"]
    assert not list((bucket / "told").glob(".allot-*"))


def test_a_store_that_is_away_when_it_is_needed_is_waited_for(
    service: WithUsers, rclone: Rclone
) -> None:
    home = service.home("ann")
    script = (
        'if test -n "$ALLOT_RESUME_FROM"; then cat $ALLOT_RESUME_FROM; exit 0; fi; '
        f"echo one >a; report a 1; {wait_for_file(f'{home}/lost')}; rm a; exit 3"
    )
    with behind_a_gate(service, rclone, "away") as (gate, _):
        job = training(service, "away", script, retry=1)
        wait_kept(service, job, "ann/away@1")
        gate.shut()
        Path(home, "lost").touch()
        until(
            lambda: service.get(f"/v1/jobs/{job}")["row"]["attempt"] == 2, "the second attempt"
        )
        assert Job(service, job).output == ""
        gate.open()
        service.wait_for(job, "succeeded", "failed")
    assert Job(service, job).output.split() == ["one"]

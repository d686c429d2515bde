"""Versions of datasets in jobs of a real Slurm, whose tasks have no rights but their user's.

Each attempt sees links to the store's files, in a folder that its user alone enters.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from pwd import getpwnam
from typing import Any

import pytest

from tests.integration.service.test_saving import wait_for_file
from tests.integration.slurm.test_environments import ANN, BEN, ENDED, TENANTS, OnBoth
from tests.support.cluster import until
from tests.support.object_stores import BUCKET, Gate, Moto, a_store
from tests.support.on_slurm import a_shared_folder, as_user
from tests.support.patience import PATIENCE_S
from tests.support.slurm import TOOLS, Slurm

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tool(*TOOLS, "openssl", "bwrap"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]

CONFIG = """\
engines:
  jobs: {type: slurm, partition: main}
nodes:
- {names: [n1, n2], cpu: 4, memory: 1000MiB, disk: 1TiB, engine: jobs}
tenants:
  ann: {users: [nobody, root]}
  ben: {users: [games, root]}
visibility: private
limits:
  backoff: {first: 100ms, most: 200ms}
  platform_retries: 0
  data_cache: 10MiB
"""
SECRET = "only-for-ann"
SMALL = {"cpu": 0.1, "memory": "64MiB"}


@pytest.fixture(scope="module")
def service(slurm: Slurm) -> Iterator[OnBoth]:
    with a_shared_folder() as folder:
        made = OnBoth(folder / "state", slurm, CONFIG)
        made.up()
        try:
            put(made, "words", {"words": f"{SECRET}\n", "deep/run": "#!/bin/sh\necho ran\n"})
            yield made
        finally:
            made.down()
            slurm.clear()


def put(service: OnBoth, name: str, files: dict[str, str]) -> None:
    """Make a dataset of ann's with some files; those called `run` can be run."""
    said = as_user(ANN, service, "data", "create", name)
    assert said.returncode == 0, said.stderr
    folder = service.state.parent / f"put-{name}"
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
        (folder / path).chmod(0o755 if path.endswith("run") else 0o644)
    said = as_user(ANN, service, "data", "put", name, str(folder))
    assert said.returncode == 0, said.stderr


def links(service: OnBoth) -> Path:
    return service.state / "data-links"


def is_clear(service: OnBoth) -> bool:
    """Whether nothing of attempts is left."""
    places = (links(service), service.state / "data/new")
    return not any(list(place.iterdir()) for place in places)


def started(service: OnBoth, command: str, user: str = ANN, **more: Any) -> int:
    """Submit a job with the dataset, and wait until it runs."""
    spec = {"name": "t", "tenant": TENANTS[user], "command": command, "resources": SMALL,
            "data": {"ann/words": "/w"}, **more}  # fmt: skip
    status, answer = service.ask_as(user, spec)
    assert status == 201, answer
    service.wait_for(answer["id"], "running", *ENDED)
    return answer["id"]


def ended(service: OnBoth, job: int) -> str:
    """Wait for the good end of a job; return what it wrote."""
    service.wait_for(job, *ENDED)
    said = service.output(job)
    assert service.state_of(job) == "succeeded", (str(service.job(job)["diagnosis"]), said)
    return said


@pytest.mark.parametrize("more", [{}, {"mpi": "pmi2"}])
def test_all_tasks_read_a_version_at_its_place_and_none_writes(
    service: OnBoth, more: dict[str, str]
) -> None:
    """Nor is any file or folder of it moved or linked to where it would stay."""
    script = """
    cat /w/words; test $ALLOT_DATA_WORDS = /w; /w/deep/run; id -un
    door=DOOR; test "$(cat $door/0/words)" = "$(cat /w/words)" || exit 1
    for top in /w $door/0; do
        echo x 2>/dev/null >$top/words && exit 2
        touch $top/new 2>/dev/null && exit 3
        chmod u+w $top/words 2>/dev/null && exit 4
        rm -f $top/words 2>/dev/null && exit 5
        ln $top/words $ALLOT_OUTPUT_DIR/kept-$RANK 2>/dev/null && exit 6
        mv -n $top $ALLOT_OUTPUT_DIR/moved-$RANK 2>/dev/null && exit 7
    done
    chmod u+w $door 2>/dev/null
    python3 -c 'import os, sys; os.rename(*sys.argv[1:])' $door/0 $ALLOT_OUTPUT_DIR/m$RANK \\
        2>/dev/null && exit 8
    echo whole
    """.replace("DOOR", f"{links(service)}/$ALLOT_JOB_ID-$ALLOT_ATTEMPT")
    whole = {"count": 2, "resources": {"cpu": 4, "memory": "64MiB"}}
    job = service.ended(ANN, "jobs", script, data={"words": "/w"}, **whole, **more)
    said = service.output(job.id)
    assert job.state == "succeeded", (str(job.diagnosis), said)
    assert [said.count(word) for word in (SECRET, "ran", ANN, "whole")] == [2, 2, 2, 2], said
    tasks = service.job(job.id)["attempts"][-1]["tasks"]
    assert {each["node"] for each in tasks} == {"n1", "n2"}
    assert "data" in job.phases
    assert not Path("/w").exists()
    until(lambda: is_clear(service), "the links to be taken away")


def test_nobody_else_reads_lists_or_guesses_what_a_job_sees(service: OnBoth) -> None:
    gone = service.state.parent / "seen"
    job = started(service, f"cat /w/words; {wait_for_file(str(gone))}; cat /w/words")
    until(lambda: SECRET in service.output(job), "the job to read")
    door = links(service) / f"{job}-1"
    found = door.stat()
    assert (found.st_uid, found.st_mode & 0o777) == (getpwnam(ANN).pw_uid, 0o700)
    assert (links(service).stat().st_uid, links(service).stat().st_mode & 0o777) == (0, 0o711)
    look = (
        f"ls {links(service)}; ls {door}; ls {door}/0; cat {door}/0/words; cd {door}; "
        f"ls {service.state}/data; ls /w; cat /w/words; "
        "cat /proc/[0-9]*/root/w/words /proc/[0-9]*/cwd/../w/words; true"
    )
    status, refused = service.ask_as(
        BEN, {"name": "t", "tenant": "ben", "command": look, "resources": SMALL,
              "data": {"ann/words": "/w"}},
    )  # fmt: skip
    assert (status, refused["code"]) == (404, "data_missing")
    said = service.says(BEN, "jobs", look)
    assert SECRET not in said
    assert "0\n" not in said
    assert service.says(BEN, "jobs", "id -un").split() == [BEN]
    for user in (BEN, "daemon"):
        ran = subprocess.run(
            ["sh", "-c", look], user=user, group=getpwnam(user).pw_gid, extra_groups=[],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert SECRET not in ran.stdout
        assert ran.stderr.count("ermission denied") >= 4, ran.stderr
    inside = service.allot("exec", str(job), "--", "cat", "/w/words")
    assert SECRET in inside.stdout, inside.stderr
    gone.touch()
    assert ended(service, job).count(SECRET) == 2
    until(lambda: is_clear(service), "the links to be taken away")


def test_no_process_of_a_user_keeps_its_folder_from_going(service: OnBoth) -> None:
    """One fills it and holds it open, another has mounted something over it for itself."""
    gone = service.state.parent / "held"
    job = started(service, f"cat /w/words; {wait_for_file(str(gone))}; cat /w/words")
    door = links(service) / f"{job}-1"
    fill = "cd $0 && mkdir deep && while :; do true >deep/$((n+=1)); true >$n; done 2>/dev/null"
    over = 'mount -t tmpfs none "$0" && touch "$0/mine" && exec sleep 1000'
    user = getpwnam(ANN)
    held = [
        subprocess.Popen(
            [*words, str(door)], user=ANN, group=user.pw_gid, extra_groups=[],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for words in (["sh", "-c", fill], ["unshare", "-Urm", "sh", "-c", over])
    ]  # fmt: skip
    try:
        until(lambda: (door / "deep/9").exists(), "the folder to be filled")
        until(lambda: Path(f"/proc/{held[1].pid}/root{door}/mine").exists(), "a mount")
        gone.touch()
        assert ended(service, job).count(SECRET) == 2
        until(lambda: is_clear(service), "the links to be taken away")
        assert [each.poll() for each in held] == [None, None]
    finally:
        for each in held:
            each.kill()
            each.wait()


def test_a_grant_that_is_taken_back_ends_with_the_attempt(service: OnBoth) -> None:
    gone = service.state.parent / "revoked"
    granted = ("data", "grant", "ann/words", f"user:{BEN}")
    assert as_user(ANN, service, *granted).returncode == 0
    script = f"cat /w/words; {wait_for_file(str(gone))}; cat /w/words; exit 3"
    job = started(service, script, BEN, retry=2)
    assert as_user(ANN, service, "data", "revoke", *granted[2:]).returncode == 0
    gone.touch()
    service.wait_for(job, *ENDED)
    view = service.job(job)
    assert (view["row"]["state"], view["diagnosis"]["code"]) == ("failed", "data_missing")
    assert len(view["attempts"]) == 2
    first = service.allot("logs", str(job), "--attempt", "1").stdout
    assert first.count(SECRET) == 2, "what runs goes on"
    until(lambda: is_clear(service), "the links to be taken away")


def test_what_would_be_and_what_is_mounted_is_told(service: OnBoth) -> None:
    file = service.state.parent / "job.yaml"
    file.write_text(
        "{name: t, tenant: ann, command: cat /w/words, engine: jobs, data: {words: /w}, "
        "resources: {cpu: 0.1, memory: 64MiB}}"
    )
    told = as_user(ANN, service, "submit", str(file), "--dry-run").stdout
    words = "data: ann/words@1 (2 files, 32 B) would be linked for the job, and mounted at /w"
    assert words in " ".join(told.split()), told
    said = as_user(ANN, service, "submit", str(file), "--json")
    job = json.loads(said.stdout)["id"]
    assert SECRET in ended(service, job)
    assert "ann/words@1 at /w" in service.allot("show", str(job)).stdout


def test_a_service_that_is_killed_keeps_what_jobs_see_and_no_more(service: OnBoth) -> None:
    gone = service.state.parent / "killed"
    stays = started(service, f"{wait_for_file(str(gone))}; cat /w/words; cat /w/words")
    ends = started(service, f"cat /w/words; {wait_for_file(f'{gone}-soon')}")
    doors = [links(service) / f"{job}-1" for job in (stays, ends)]
    until(lambda: all(door.is_dir() for door in doors), "both to see it")
    service.kill()
    (links(service) / "999999-1").mkdir()
    (links(service) / "no-job").mkdir()
    (service.state / "data/new/half-made").mkdir()
    Path(f"{gone}-soon").touch()
    status = Path(f"{service.state}/engines/jobs/slurm/tasks/{ends}/1/0/status.json")
    until(lambda: '"ended"' in status.read_text(), "a job to end meanwhile")
    assert all(door.is_dir() for door in doors)
    service.up()
    assert SECRET in ended(service, ends)
    until(lambda: list(links(service).iterdir()) == doors[:1], "the rest to be taken away")
    gone.touch()
    assert ended(service, stays).count(SECRET) == 2
    assert len(service.job(stays)["attempts"]) == 1
    until(lambda: is_clear(service), "the links to be taken away")


def test_what_was_half_made_when_the_service_was_killed_is_made_anew(service: OnBoth) -> None:
    count = 4000
    put(service, "many", {f"{number}/{number}": "x" for number in range(count)})
    spec = {"name": "t", "tenant": "ann", "resources": SMALL, "data": {"many": "/m"},
            "command": "find /m -type f | wc -l"}  # fmt: skip
    status, answer = service.ask_as(ANN, spec)
    assert status == 201, answer
    new, until_s = service.state / "data/new", time.monotonic() + PATIENCE_S
    while not list(new.glob("*/0/1*")):
        assert time.monotonic() < until_s, "waited for links to be made"
    os.kill(service.address["pid"], signal.SIGKILL)
    (half,) = new.glob("*/0")
    assert len(list(half.iterdir())) < count
    assert not list(links(service).iterdir())
    service.up()
    assert ended(service, answer["id"]).split() == [str(count)]
    until(lambda: is_clear(service), "all of it to be taken away")


def test_where_no_links_can_be_made_a_job_is_refused_at_once(service: OnBoth) -> None:
    """As where `data` is on another disk: a mount is enough for the kernel."""
    place = str(links(service))
    subprocess.run(["mount", "--bind", place, place], check=True)
    try:
        spec = {"name": "t", "tenant": "ann", "command": "true", "resources": SMALL}
        status, refused = service.ask_as(ANN, {**spec, "data": {"words": "/w"}})
        assert (status, refused["code"]) == (501, "not_supported"), refused
        assert f"from {service.state}/data to {place}: invalid cross-dev" in refused["detail"]
        assert "on one file system" in refused["hint"]
        assert service.says(ANN, "jobs", "echo without") == "without\n"
    finally:
        subprocess.run(["umount", place], check=True)
    assert SECRET in service.says(ANN, "jobs", "cat /w/words", data={"words": "/w"})


def test_who_lost_a_grant_while_other_data_came_gets_no_links(service: OnBoth) -> None:
    with a_store(Moto, service.state.parent / "slow") as store:
        store.put({"far/a": "1" * 10_000})
        gate = Gate(store, 5_000)
        words = ("--s3", f"s3://{BUCKET}/far", "--endpoint", gate.endpoint, "--public")
        made = as_user(ANN, service, "data", "create", "far", *words)
        assert made.returncode == 0, made.stderr
        for name in ("far", "words"):
            as_user(ANN, service, "data", "grant", name, f"user:{BEN}")
        try:
            spec = {"name": "t", "tenant": "ben", "command": "true", "resources": SMALL,
                    "data": {"ann/far": "/f", "ann/words": "/w"}}  # fmt: skip
            status, answer = service.ask_as(BEN, spec)
            assert status == 201, answer
            until(gate.is_reached.is_set, "the fetch to be in its middle")
            as_user(ANN, service, "data", "revoke", "ann/words", f"user:{BEN}")
            gate.open()
            door = links(service) / f"{answer['id']}-1"
            until(lambda: door.exists() or service.state_of(answer["id"]) in ENDED, "the start")
            assert not door.exists()
            service.wait_for(answer["id"], *ENDED)
            assert service.job(answer["id"])["diagnosis"]["code"] == "data_missing"
        finally:
            gate.close()


def test_what_a_job_sees_of_a_store_stays_in_the_cache_until_its_end(
    service: OnBoth,
) -> None:
    with a_store(Moto, service.state.parent / "moto") as store:
        store.put({"one/a": "1" * (6 << 20), "two/a": "2" * (6 << 20)})
        for name in ("one", "two"):
            words = ("--s3", f"s3://{BUCKET}/{name}", "--endpoint", store.endpoint, "--public")
            made = as_user(ANN, service, "data", "create", name, *words)
            assert made.returncode == 0, made.stderr
        gone = service.state.parent / "fetched"
        script = f"head -c 3 /d/a; {wait_for_file(str(gone))}; tail -c 4 /d/a"
        job = started(service, script, data={"one": "/d"})
        other = service.ended(ANN, "jobs", "true", data={"two": "/d"})
        assert other.diagnosis["code"] == "data_no_room"
        gone.touch()
        assert ended(service, job) == "1111111"
        assert service.says(ANN, "jobs", "head -c 3 /d/a", data={"two": "/d"}) == "222"
        (left,) = [path.stat().st_size for path in service.state.glob("data/*/trees/*/a")
                   if path.stat().st_size > 1 << 20]  # fmt: skip
        assert left == 6 << 20

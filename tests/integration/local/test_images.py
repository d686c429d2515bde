"""Jobs that bring images: a real registry, a service of root's with two users of two tenants,
and one of an ordinary user's."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from allotment.backends.local.runner import image_root
from allotment.client import Client
from allotment.model.quantity import show_bytes
from allotment.rights import removing
from tests.integration.local.harness import alive
from tests.support.cluster import ALLOT, gone, until
from tests.support.registry import (
    MARKS,
    OF_ONE_USER,
    OF_ROOT,
    USERS,
    ZSTD_LAYER,
    Job,
    OfOneUser,
    Registry,
    WithUsers,
    a_file,
    a_folder,
    a_registry,
    a_service,
    busybox,
    layer,
)

pytestmark = MARKS

UNTIL_TOLD = "while ! test -e $TMPDIR/go; do sleep 0.05; done"


@pytest.fixture(scope="module")
def registry(reachable_once: Path) -> Iterator[Registry]:
    with a_registry(reachable_once / "registry") as made:
        yield made


@pytest.fixture(scope="module", params=[OF_ROOT, OF_ONE_USER])
def service(request: pytest.FixtureRequest, reachable_once: Path) -> Iterator[WithUsers]:
    with a_service(reachable_once / request.param.__name__, kind=request.param) as made:
        yield made


ROOTS_ALONE = pytest.mark.parametrize("service", [OF_ROOT], indirect=True, scope="module")


@pytest.fixture(params=[OF_ROOT])
def own_service(request: pytest.FixtureRequest, reachable: Path) -> Iterator[WithUsers]:
    """A service that has no image yet."""
    with a_service(reachable, kind=request.param) as made:
        yield made


def test_a_job_runs_in_its_image_as_its_user(service: WithUsers, registry: Registry) -> None:
    top = layer(a_file("bin/.wh.wc"), a_folder("srv"), a_file("srv/note", "from above\n"))
    settings = {"Env": ["PATH=/bin", "WHO=image", "HOME=/wrong"], "WorkingDir": "/srv"}
    digest = registry.push("bb", [busybox(), top], config=settings)
    script = """
    echo uid=$(id -u) name=$(id -un) home=$HOME who=$WHO path=$PATH pwd=$(pwd)
    cat note; test -e /bin/wc || echo hidden
    test -e /usr/bin/python3 || echo no-host
    echo out > $ALLOT_OUTPUT_DIR/made && touch $HOME/own /tmp/any $TMPDIR/scratch && echo wrote
    touch /bin/mine 2>/dev/null || echo kept
    """
    job = service.run(f"{registry.host}/bb:1", script, "ann")
    assert job.state == "succeeded", job.view
    first, *rest = job.output.splitlines()
    home = service.home("ann")
    uid = USERS["ann"]
    assert first == f"uid={uid} name=ann home={home} who=image path=/bin pwd=/srv"
    assert rest[:3] == ["from above", "hidden", "no-host"]
    # An ordinary user's files of an image are that user's, and each task's alone.
    assert set(rest[3:]) == ({"wrote"} if service.owner else {"wrote", "kept"})
    made = service.state / "outputs" / str(job.id) / "attempt-1/made"
    assert made.read_text() == "out\n"
    assert made.stat().st_uid == uid
    assert not (home / "own").exists()  # its home is the image's, not the host's
    assert job.view["spec"]["image"] == f"{registry.host}/bb:1@{digest}"
    assert job.phases[:2] == ["pull", "unpack"]
    again = service.run(f"{registry.host}/bb:1", "cat note", "ann")
    assert "pull" not in again.phases
    assert again.output == "from above\n"


def test_layers_packed_with_zstd_are_the_layers_that_they_are_plain(
    service: WithUsers, registry: Registry
) -> None:
    layers = [busybox(), layer(a_file("etc/zstd", bytes(1 << 20)))]
    registry.push("zstd", layers, kind=ZSTD_LAYER)
    job = service.run(f"{registry.host}/zstd:1", "wc -c </etc/zstd", "ann")
    assert (job.state, job.output) == ("succeeded", "1048576\n"), job.view
    registry.push("gzip", layers)
    again = service.run(f"{registry.host}/gzip:1", "wc -c </etc/zstd", "ann")
    assert again.output == job.output
    shown = service.allot("image", "inspect", f"{registry.host}/gzip:1").stdout
    assert "zstd:1" in shown


@ROOTS_ALONE
def test_two_tenants_run_two_systems_at_once(service: WithUsers, registry: Registry) -> None:
    for name in USERS:
        registry.push(name, [busybox(), layer(a_file("etc/system", name))])
    wait = "cat /etc/system; touch $ALLOT_OUTPUT_DIR/up; " + UNTIL_TOLD
    jobs = {name: service.submitted(f"{registry.host}/{name}:1", wait, name) for name in USERS}
    for job in jobs.values():
        up = service.state / "outputs" / str(job) / "attempt-1/up"
        until(up.exists, f"job {job} to be up")
    for name, job in jobs.items():
        done = service.allot("exec", str(job), "--", "cat", "/etc/system")
        assert done.stdout == name, done.stderr
        (service.state / "scratch" / f"{job}.1.task.0" / "go").touch()
    for name, job in jobs.items():
        service.wait_for(job, "succeeded")
        log = service.state / "tasks" / str(job) / "1/task.0/stdout.log"
        assert log.read_text() == name


def test_a_retry_runs_the_same_bytes(service: WithUsers, registry: Registry) -> None:
    first = registry.push("bb", [busybox(a_file("which", "one"))])
    script = f"cat /which; test $ALLOT_ATTEMPT = 2 && exit; {UNTIL_TOLD}; exit 9"
    job = service.submitted(f"{registry.host}/bb:1", script, "ann", retry=1)
    service.wait_for(job, "running")
    registry.push("bb", [busybox(a_file("which", "two"))])
    (service.state / "scratch" / f"{job}.1.task.0" / "go").touch()
    service.wait_for(job, "succeeded")
    texts = [
        path.read_text() for path in (service.state / "tasks" / str(job)).glob("*/*/stdout.log")
    ]
    assert texts == ["one", "one"]
    assert first in json.dumps(service.get(f"/v1/jobs/{job}"))


def test_a_killed_service_finds_its_task_in_the_image_again(
    service: WithUsers, registry: Registry
) -> None:
    registry.push("bb", [busybox()])
    script = f"{UNTIL_TOLD}; cat /etc/system"
    job = service.submitted(f"{registry.host}/bb:1", script, "ann")
    service.wait_for(job, "running")
    service.kill()
    service.up()
    assert service.state_of(job) == "running"
    done = service.allot("exec", str(job), "--", "sh", "-c", "id -un; cat /etc/system; exit 3")
    assert (done.returncode, done.stdout) == (3, "ann\nbusybox\n"), done.stderr
    (service.state / "scratch" / f"{job}.1.task.0" / "go").touch()
    service.wait_for(job, "succeeded")
    assert left(service) == []


def test_nothing_is_left_of_a_task_whose_supervisor_is_killed(
    service: WithUsers, registry: Registry
) -> None:
    registry.push("bb", [busybox()])
    job = service.submitted(f"{registry.host}/bb:1", "sleep 1000", "ann")
    service.wait_for(job, "running")
    status = json.loads(
        (service.state / "tasks" / str(job) / "1/task.0/status.json").read_text()
    )
    os.kill(status["supervisor_pid"], signal.SIGKILL)
    until(lambda: gone(status["pid"]), "the task to be gone")
    until(lambda: not any("1.task" in name for name in left(service)), "its folders to be gone")
    service.allot("cancel", str(job))
    service.wait_for(job, "cancelled", "failed")
    until(lambda: left(service) == [], "all folders to be gone")
    assert str(service.state) not in Path("/proc/self/mountinfo").read_text()


def test_what_it_writes_into_the_image_counts_as_its_disk(
    service: WithUsers, registry: Registry
) -> None:
    registry.push("bb", [busybox()])
    script = "dd if=/dev/zero of=$HOME/much bs=1M count=64 && sleep 100"
    job = service.run(f"{registry.host}/bb:1", script, "ann", resources={"disk": "16MiB"})
    assert job.state == "failed"
    assert job.diagnosis["code"] == "disk_limit", job.diagnosis
    fine = service.run(f"{registry.host}/bb:1", "test -e $HOME/much || echo no", "ann")
    assert fine.output == "no\n"  # what one task wrote no other sees


def left(service: WithUsers) -> list[str]:
    return [path.name for path in (service.state / "scratch").iterdir()]


def test_a_start_writes_nothing_into_the_image_on_the_disk(
    service: WithUsers, registry: Registry
) -> None:
    registry.push("plain", [busybox()])
    files = "/ /bin/busybox /etc/passwd /etc/hosts /etc/system"
    command = f"cat /proc/mounts; stat -c 'on %d' {files}; {UNTIL_TOLD}; echo x > /etc/new"
    job = service.submitted(f"{registry.host}/plain:1", command)
    service.wait_for(job, "running")
    key = next(service.state.glob(f"scratch/{job}.*.image"))
    until(lambda: "on " in Job(service, job).output, "the task to look")
    assert not list((key / "upper").iterdir())
    (key.with_suffix("") / "go").touch()
    service.wait_for(job, "succeeded")
    told = Job(service, job).output
    assert len({line for line in told.splitlines() if line.startswith("on ")}) == 1
    root = next(line for line in told.splitlines() if line.split()[1:3] == ["/", "overlay"])
    assert "volatile" in root  # or the end of each task would write out the whole disk


@pytest.mark.parametrize("own_service", [OF_ROOT, OF_ONE_USER], indirect=True)
def test_the_store_shares_layers_and_forgets_what_nobody_uses(
    own_service: WithUsers, registry: Registry
) -> None:
    service = own_service
    base = busybox()
    for number in range(3):
        registry.push(f"on-{number}", [base, layer(a_file("which", str(number)))])
        done = service.allot("image", "pull", f"{registry.host}/on-{number}:1")
        assert done.returncode == 0, done.stderr
    assert len(list((service.state / "images/layers").iterdir())) == 4
    job = service.submitted(f"{registry.host}/on-1:1", "sleep 1000")
    service.wait_for(job, "running")
    view = json.loads(
        service.allot("image", "inspect", "--json", f"{registry.host}/on-1:1").stdout
    )
    assert (view["is_here"], len(view["layers"])) == (True, 2)
    refused = service.allot("image", "rm", f"{registry.host}/on-1:1")
    assert refused.returncode == 1
    assert "A task uses" in refused.stderr
    for number in (0, 2):
        done = service.allot("image", "rm", f"{registry.host}/on-{number}:1")
        assert done.returncode == 0, done.stderr
    assert len(list((service.state / "images/layers").iterdir())) == 2
    service.allot("cancel", str(job))
    service.wait_for(job, "cancelled")
    until(lambda: not service.get("/v1/images")[0]["in_use"], "the image to be free")
    assert service.allot("image", "rm", f"{registry.host}/on-1:1").returncode == 0
    assert list((service.state / "images/layers").iterdir()) == []


def test_three_images_on_one_base_store_it_once(
    own_service: WithUsers, registry: Registry
) -> None:
    service = own_service
    base = busybox(a_file("much", os.urandom(8 << 20)))
    names = [f"{registry.host}/three-{number}:1" for number in range(3)]
    for number, user in enumerate(("ann", "ann", "ben")):
        top = layer(a_file("which", str(number)), a_file("own", os.urandom((1 + number) << 20)))
        registry.push(f"three-{number}", [base, top])
        done = service.allot("image", "pull", names[number], user=user)
        assert done.returncode == 0, done.stderr
    rows = {row["image"].partition("@")[0]: row for row in service.get("/v1/images")}
    own = [rows[name]["alone"] for name in names]
    (shared,) = {rows[name]["bytes"] - rows[name]["alone"] for name in names}
    words = ["du", "-s", "-B1", str(service.state / "images/layers")]
    taken = int(
        subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[0]
    )
    told = shared + sum(own)
    assert 8 << 20 < shared < 12 << 20
    assert [size >> 20 for size in own] == [1, 2, 3]
    assert abs(taken - told) < 1 << 19, "what is said is what the disk has"
    view = json.loads(service.allot("image", "inspect", "--json", names[0], user="ann").stdout)
    assert (view["bytes"], view["alone"]) == (rows[names[0]]["bytes"], own[0])
    for user, known in (("ann", "{1} and 1 of other users"), ("", "{1} and {2}")):
        shown = service.allot("image", "inspect", names[0], user=user).stdout
        assert f"shared with {known.format(*names)}\n" in shown
        assert f"of which no other image has {show_bytes(own[0])}\n" in shown


def test_by_the_client(own_service: WithUsers, registry: Registry) -> None:
    name = f"{registry.host}/client:1"
    digest = registry.push("client", [busybox()])
    with Client(state=str(own_service.state)) as client:
        assert not client.inspect_image(name).is_here
        assert client.warm_image(name).is_here
        (row,) = client.images()
        assert (row.digest, row.bytes) == (digest, client.inspect_image(name).bytes)
        client.remove_image(name)
        assert client.images() == []


def test_a_disk_that_can_be_no_upper_part_is_told_at_submission(
    reachable: Path, registry: Registry
) -> None:
    registry.push("bb", [busybox()])
    place = reachable / "place"
    layers = [reachable / name for name in ("lower", "upper", "work")]
    for each in (place, *layers):
        each.mkdir()
    options = "lowerdir={},upperdir={},workdir={}".format(*layers)
    mount = ["mount", "-t", "overlay", "overlay", "-o", options, str(place)]
    subprocess.run(mount, check=True)
    try:
        with a_service(place) as service:
            why = service.refused(f"{registry.host}/bb:1", "ann")
            assert "on a disk that cannot take what tasks write into images" in why
            assert not (service.state / "run/overlay").exists()
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


class WithoutNamespaces(OfOneUser):
    """On a machine whose users may make no user namespace."""

    def up(self) -> None:
        forbid = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'
        within = ["unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c", forbid]
        up = [*ALLOT, "up", "--config", str(self.config)]
        self.until_up(self.ran([*within, "sh", *up], user=self.owner, cwd="/"))


def test_a_user_who_may_not_mount_is_told_so_at_submission(
    reachable: Path, registry: Registry
) -> None:
    registry.push("bb", [busybox()])
    with a_service(reachable, kind=WithoutNamespaces) as service:
        why = service.refused(f"{registry.host}/bb:1", "ann")
        assert "user.max_user_namespaces is 0); an administrator can set it" in why
        assert "jobs with an image are refused: users may not make" in service.said("doctor")


def test_files_that_an_image_closes_are_read_changed_and_removed_as_it_says(
    service: WithUsers, registry: Registry
) -> None:
    top = layer(
        a_file("closed", "x", 0o000), a_file("others", "read by others", 0o004),
        a_folder("kept", 0o555), a_file("kept/a", "low"), a_file("kept/b", "low"),
    )  # fmt: skip
    digest = registry.push("closed", [busybox(), top, layer(a_file("kept/.wh.b"))])
    script = """cat /closed 2>/dev/null || echo no; cat /others; echo; cat kept/a; ls kept
    if test -O /; then chmod u+w kept; echo new > kept/a; cat kept/a; chmod 0 kept; fi"""
    name = f"{registry.host}/closed:1"
    job = service.run(name, script, "ann", workdir="/")
    changed = ["new"] if service.owner else []
    assert job.output.splitlines() == ["no", "read by others", "lowa", *changed], job.view
    assert left(service) == []
    assert service.run(name, "cat kept/a", "ann", workdir="/").output == "low"
    until(lambda: not service.get("/v1/images")[0]["in_use"], "the image to be free")
    assert service.allot("image", "rm", f"{registry.host}/closed@{digest}").returncode == 0
    until(lambda: not any((service.state / "images/new").iterdir()), "its layers to be gone")


def test_cancelling_ends_all_that_a_task_began(service: WithUsers, registry: Registry) -> None:
    registry.push("bb", [busybox()])
    mark = f"1000.{os.getpid()}"
    script = f"(trap '' TERM; setsid sleep {mark} & setsid sleep {mark} &); sleep {mark}"
    job = service.submitted(f"{registry.host}/bb:1", script, "ann")
    until(lambda: len(alive(mark)) == 3, "its processes")
    service.allot("cancel", str(job))
    service.wait_for(job, "cancelled")
    assert alive(mark) == []
    assert left(service) == []


class WithRdma(WithUsers):
    """A host that has a network adapter whose devices all tasks share."""

    before = """{
        mount -t tmpfs none /mnt && cp -a /dev/null /dev/zero /dev/full /dev/random \
        /dev/urandom /dev/tty /mnt && mkdir /mnt/shm /mnt/infiniband &&
        mknod -m 666 /mnt/infiniband/uverbs0 c 1 3 && mount --move /mnt /dev; }"""


def test_a_job_in_an_image_has_the_devices_that_all_tasks_share(
    reachable: Path, registry: Registry
) -> None:
    registry.push("rdma", [busybox()])
    with a_service(reachable, kind=WithRdma) as service:
        look = (
            "stat -c %F /dev/infiniband/uverbs0 && echo 1 > /dev/infiniband/uverbs0 && echo ok"
        )
        job = service.run(f"{registry.host}/rdma:1", look, "ann")
    assert (job.state, job.output) == ("succeeded", "character special file\nok\n")


MOUNTED = """
import os, sys
from allotment.backends.local.runner import image_root, libc
libc.unshare(libc.CLONE_NEWNS)
libc.mount("none", "/", "", libc.MS_REC | libc.MS_SLAVE)
low, written = sys.argv[1:]
layers = os.open(os.path.dirname(low), os.O_PATH)
image_root.mount_layers([os.path.basename(low)], layers, written, low, image_root.OF_TASKS)
"""


def test_all_that_a_mount_leaves_goes_by_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it is looked for, which takes ten times as many calls."""
    (tmp_path / "low").mkdir()
    folder = tmp_path / image_root.beside("k")
    folder.mkdir()
    words = [sys.executable, "-c", MOUNTED, str(tmp_path / "low"), str(folder)]
    subprocess.run(words, check=True)
    assert (folder / "work" / "work").is_dir()
    left: list[Path] = []
    monkeypatch.setattr(removing, "remove", lambda *_: left.extend(folder.rglob("*")))
    top = os.open(tmp_path, os.O_RDONLY)
    image_root.remove(top, "k")
    os.close(top)
    assert left == []


ENTRY = {"Entrypoint": ["/bin/sh", "-c", "echo entry $0 $@ as $(id -u)"], "Cmd": ["one", "two"]}


def test_a_job_without_a_command_runs_that_of_its_image(
    service: WithUsers, registry: Registry
) -> None:
    registry.push("entry", [busybox()], config={**ENTRY, "User": "nobody"})
    image = f"{registry.host}/entry:1"
    spec = {"name": "x", "image": image, "tenant": "ann"}
    status, made = service.ask_as("ann", "POST", "/v1/jobs", spec)
    assert status == 201, made
    service.wait_for(made["id"], "succeeded", "failed")
    job = Job(service, made["id"])
    said = f"entry one two as {USERS['ann']}\n"
    assert job.output == said
    own = [*ENTRY["Entrypoint"], *ENTRY["Cmd"]]
    assert job.view["spec"]["roles"]["main"]["command"] == own
    # A command takes the place of both.
    assert service.run(image, "echo mine", "ann").output == "mine\n"
    ran = service.allot("run", "--image", image, "--tenant", "ann", user="ann")
    assert (ran.returncode, ran.stdout) == (0, said), ran.stderr
    assert "(entry)" in ran.stderr  # The job has its name.
    with Client(state=str(service.state)) as client:
        roles = {"a": {"command": "echo a"}, "b": {}}
        both = client.submit({"name": "x", "image": image, "tenant": "ann", "roles": roles})
    made_of = service.get(f"/v1/jobs/{both.id}")["spec"]["roles"]
    assert [role["command"] for role in made_of.values()] == ["echo a", own]


def test_the_command_of_an_image_counts_for_each_job_of_an_array(
    service: WithUsers, registry: Registry
) -> None:
    long = {"Entrypoint": ["/bin/sh", "-c", "true", "x" * 100_000]}
    registry.push("long", [busybox()], config=long)
    spec = {"name": "x", "image": f"{registry.host}/long:1", "tenant": "ann"}
    for array in ({"array": {"count": 400}}, {"grid": {"lr": list(range(400))}}):
        status, told = service.ask_as("ann", "POST", "/v1/jobs", {**spec, **array})
        assert (status, told["code"]) == (413, "too_large"), told
        assert "With the command of its image, the job makes 400 copies of" in told["detail"]
    status, _ = service.ask_as("ann", "POST", "/v1/jobs", {**spec, "array": {"count": 2}})
    assert status == 201


def test_an_image_that_has_no_command_needs_one(service: WithUsers, registry: Registry) -> None:
    registry.push("bare", [busybox()])
    ran = service.allot("run", "--image", f"{registry.host}/bare:1", user="ann")
    assert ran.returncode == 1
    assert "has neither an entry point nor a command" in ran.stderr
    assert "Write what to run" in ran.stderr
    nothing = service.allot("run", user="ann")
    assert "there is nothing to run" in nothing.stderr

"""A whole Debian as an image: what programs of a real system find of their user and machine."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import until
from tests.support.image_debian import debian
from tests.support.on_slurm import a_shared_folder
from tests.support.registry import (
    MARKS,
    OF_ONE_USER,
    OF_ROOT,
    USERS,
    Job,
    Registry,
    WithUsers,
    a_file,
    a_registry,
    a_service,
    busybox,
)

pytestmark = [*MARKS, pytest.mark.needs_tool("dpkg")]
SETTINGS = {
    "Entrypoint": ["/bin/false"],
    "Cmd": ["no", "such"],
    "User": "daemon",
    "Env": ["PATH=/usr/bin:/bin", "MADE_BY=image"],
    "WorkingDir": "/usr/share",
}
"""All but the last two are documented to have no effect."""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Return a folder that all users may pass through."""
    with a_shared_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def private(place: Path) -> Iterator[Registry]:
    """Run a registry that nobody may read without a password."""
    with a_registry(place / "registry", users=list(USERS)) as made:
        made.push("debian", [debian()], config=SETTINGS)
        made.push("busybox", [busybox(a_file("etc/os-release", "ID=busybox\n"))])
        yield made


@pytest.fixture(scope="module", params=[OF_ROOT, OF_ONE_USER])
def service(
    request: pytest.FixtureRequest, place: Path, private: Registry
) -> Iterator[WithUsers]:
    with a_service(place / request.param.__name__, kind=request.param) as made:
        for user in USERS:
            made.log_in(user, private)
        yield made


ROOTS_ALONE = pytest.mark.parametrize("service", [OF_ROOT], indirect=True, scope="module")


def in_debian(service: WithUsers, registry: Registry, script: str, **more: object) -> Job:
    return service.run(f"{registry.host}/debian:1", script, "ann", **more)


@ROOTS_ALONE
def test_two_tenants_run_two_systems_from_a_registry_with_a_password(
    service: WithUsers, private: Registry
) -> None:
    script = """. /etc/os-release; echo $ID $(id -u) > $ALLOT_OUTPUT_DIR/up
        while ! test -e $TMPDIR/go; do sleep 0.05; done"""
    images = {"ann": "debian", "ben": "busybox"}
    jobs = {
        user: service.submitted(f"{private.host}/{name}:1", script, user)
        for user, name in images.items()
    }
    for user, job in jobs.items():
        up = service.state / "outputs" / str(job) / "attempt-1/up"
        until(
            lambda up=up: up.exists() and up.stat().st_size > 0, f"the job of {user} to be up"
        )
        assert up.read_text().split() == [images[user], str(USERS[user])]
    assert {service.state_of(job) for job in jobs.values()} == {"running"}
    for job in jobs.values():
        (service.state / "scratch" / f"{job}.1.task.0" / "go").touch()
        service.wait_for(job, "succeeded")


def test_a_user_is_known_to_the_system_of_its_image(
    service: WithUsers, private: Registry
) -> None:
    script = """
    set -e; cd
    echo $(id -un) $(getent passwd $(id -u) | cut -d: -f1,3,4,6) $PWD $(stat -c %U:%a .)
    getent passwd daemon | cut -d: -f1,3; id -G; touch here /tmp/here
    """
    job = in_debian(service, private, script)
    assert job.state == "succeeded", job.output
    uid, home = USERS["ann"], service.home("ann")
    first, *rest = job.output.splitlines()
    assert first == f"ann ann:{uid}:{uid}:{home} {home} ann:700"
    assert rest == ["daemon:1", str(uid)]


def test_zone_and_names_are_the_machines(service: WithUsers, private: Registry) -> None:
    script = (
        "date +%Z%z; getent hosts localhost | wc -l; cd /etc; cat timezone hosts resolv.conf"
    )
    job = in_debian(service, private, script)
    here = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert job.output == here.stdout


def test_entry_point_and_user_have_no_effect_and_the_rest_has(
    service: WithUsers, private: Registry
) -> None:
    job = in_debian(service, private, "echo $(id -u) $PWD $PATH $MADE_BY")
    assert job.output == f"{USERS['ann']} /usr/share /usr/bin:/bin image\n"
    job = in_debian(
        service, private, "echo $PWD $MADE_BY", workdir="/srv", env={"MADE_BY": "me"}
    )
    assert job.output == "/srv me\n"


def test_shared_memory_is_the_machines_half_and_counts_as_the_tasks_memory(
    service: WithUsers, private: Registry
) -> None:
    fill = (
        "head -c 100M /dev/zero > /dev/shm/much && df -B1 --output=size,used /dev/shm | tail -1"
    )
    fits = in_debian(service, private, fill, resources={"memory": "256MiB"})
    size, used = map(int, fits.output.split())
    words = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    assert size >= 0.45 * int(words["MemTotal"].split()[0]) * 1024
    assert used == 100 << 20
    if service.owner:
        return  # It is counted by control groups, which this user has none of.
    small = in_debian(service, private, f"{fill}; sleep 100", resources={"memory": "48MiB"})
    assert small.diagnosis["code"] == "out_of_memory", small.diagnosis


@ROOTS_ALONE
def test_limits_hold_in_an_image(service: WithUsers, private: Registry) -> None:
    grow = "x=0123456789; while :; do x=$x$x; done"
    job = in_debian(service, private, grow, resources={"memory": "48MiB"})
    assert (job.state, job.diagnosis["code"]) == ("failed", "out_of_memory")
    image = f"{private.host}/debian:1"
    number = service.submitted(image, "sleep 1000", "ann", resources={"cpu": 0.25})
    service.wait_for(number, "running")
    status = service.state / "tasks" / str(number) / "1/task.0/status.json"
    pid = json.loads(status.read_text())["pid"]
    groups = dict(
        line.split(":")[1:] for line in Path(f"/proc/{pid}/cgroup").read_text().split()
    )
    if "cpu" in groups:
        weight = Path(f"/sys/fs/cgroup/cpu{groups['cpu']}/cpu.shares").read_text()
        assert int(weight) == 256
    else:
        assert Path(f"/sys/fs/cgroup{groups['']}/cpu.weight").exists()
    service.allot("cancel", str(number))
    service.wait_for(number, "cancelled")

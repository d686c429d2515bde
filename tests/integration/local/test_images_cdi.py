"""Devices of tasks in images, by CDI: real specifications, mounts, hooks and a real linker.

There need be no accelerator here: its file is one like /dev/null, and its driver's library one
of the machine's, without which a program in the image does not start.
"""

import asyncio
import json
import os
import shutil
import stat
import subprocess
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allotment.backends.local.backend import LocalBackend
from allotment.backends.local.cdi.found import Specifications
from allotment.backends.local.driver.by_driver import device_of
from allotment.backends.local.images.images import Images
from allotment.backends.local.runner import spawn
from allotment.backends.local.runner.mounts import User
from allotment.model.ids import AttemptNo, JobId, TaskIndex, TaskKey
from allotment.model.quantity import MIB, Millis, Resources
from allotment.model.reports import Seen, TaskReport
from allotment.service.ports import (
    Binding,
    GangLaunch,
    Identity,
    ImageWish,
    Report,
    TaskLaunch,
)
from tests.support.cluster import end_launchers
from tests.support.patience import PATIENCE_S
from tests.support.registry import MARKS, Registry, a_file, a_link, a_registry, busybox, layer

pytestmark = MARKS

DEVICE, OTHER = "/dev/allot-test0", "/dev/allot-test1"
UID = 64103
PROGRAM = "/usr/bin/id"
MISSING = "libselinux.so.1"
"""What the program needs and the image has not: the driver's library here."""
VENDOR = "/opt/vendor/lib"


def libraries() -> dict[str, str]:
    """The libraries of the program on this machine, by their names."""
    said = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=True).stdout
    found: dict[str, str] = {}
    for line in said.splitlines():
        words = line.split()
        path = words[2] if "=>" in words else words[0]
        if path.startswith("/"):
            found[Path(path).name] = path
    return found


def programs() -> bytes:
    """A layer with the program and all of its libraries but one."""
    kept = [path for name, path in libraries().items() if name != MISSING]
    files = [a_file(path.lstrip("/"), Path(path).read_bytes(), 0o755) for path in kept]
    return layer(
        a_file("usr/bin/dynamic", Path(PROGRAM).read_bytes(), 0o755),
        *files,
        a_file("etc/ld.so.conf", "/nowhere\n"),
        a_link("opt/vendor/lib/libother.so", "gone"),
    )


def specification(**changes: Any) -> dict[str, Any]:
    hook = {"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook"}
    return {
        "cdiVersion": "0.5.0",
        "kind": "vendor.example/gpu",
        "devices": [
            {"name": "0", "containerEdits": {"deviceNodes": [{"path": DEVICE}]}},
            {"name": "1", "containerEdits": {"deviceNodes": [{"path": OTHER}]}},
            {
                "name": "all",
                "containerEdits": {"deviceNodes": [{"path": DEVICE}, {"path": OTHER}]},
            },
        ],
        "containerEdits": {
            "env": ["VENDOR_VISIBLE=void", "WHO=vendor"],
            "mounts": [
                {
                    "hostPath": libraries()[MISSING],
                    "containerPath": f"{VENDOR}/libselinux.so.1.2.3",
                    "options": ["ro", "nosuid", "nodev", "bind"],
                },
                {
                    "hostPath": "/nowhere/socket",
                    "containerPath": "/run/socket",
                    "options": ["ro"],
                },
            ],
            "hooks": [
                {
                    **hook,
                    "args": [
                        "nvidia-cdi-hook", "create-symlinks",
                        "--link", f"libselinux.so.1.2.3::{VENDOR}/libother.so",
                        "--link", "/usr/bin/dynamic::/usr/local/bin/tool",
                    ],
                },
                {**hook, "args": ["nvidia-ctk", "hook", "update-ldcache", "--folder", VENDOR]},
                {**hook, "args": ["nvidia-cdi-hook", "chmod", "--mode", "755"]},
            ],
        },
        **changes,
    }  # fmt: skip


class Place:
    """A local backend with a registry beside it, and folders of CDI of its own."""

    def __init__(self, folder: Path, registry: Registry) -> None:
        self.registry, self.state, self.cdi = registry, folder / "state", folder / "cdi"
        for each in (self.state, self.cdi):
            each.mkdir(mode=0o755)
        self.jobs = 0

    def write(self, spec: object, name: str = "vendor.json") -> Path:
        path = self.cdi / name
        path.write_text(spec if isinstance(spec, str) else json.dumps(spec))
        path.chmod(0o644)
        return path

    def run(
        self,
        *scripts: str,
        devices: tuple[int, ...] = (0,),
        images: Sequence[str] = (),
        **named: str,
    ) -> list["Ran"]:
        """Run jobs one after the other in a backend; give what became of them."""
        os.umask(0o077)  # as the service has it
        pairs = list(zip(scripts, images or ["x"] * len(scripts), strict=True))
        return asyncio.run(self._run(pairs, devices, named))

    async def _run(
        self, jobs: list[tuple[str, str]], devices: tuple[int, ...], named: dict[str, str]
    ) -> list["Ran"]:
        heard: dict[TaskKey, TaskReport] = {}
        news = asyncio.Event()

        def hear(report: Report) -> None:
            if isinstance(report, TaskReport):
                heard[report.key] = report
                news.set()

        images = Images(self.state, lambda: 1 << 30)
        files = {0: (DEVICE,), 1: (OTHER,)}
        backend = LocalBackend(self.state, files, images, Specifications((self.cdi,)))
        await backend.start(hear)
        try:
            who = None if os.geteuid() else Identity(UID, UID, (UID,))
            found: list[Ran] = []
            for script, image in jobs:
                name = f"{self.registry.host}/{image}:1"
                wish = ImageWish(name, "ann", "/home/ann", identity=who)
                exact = await backend.images().resolve(wish)
                wish = msgspec.structs.replace(wish, reference=exact)
                self.jobs += 1
                key = TaskKey(JobId(self.jobs), AttemptNo(1), TaskIndex(0))
                task = TaskLaunch(
                    key, "main.0", Binding("here", devices), ("/bin/sh", "-c", script),
                    (("NVIDIA_VISIBLE_DEVICES", "0"), ("PATH", "/bin"), *named.items()),
                    Resources(cpu_milli=100, memory=64 * MIB),
                )  # fmt: skip
                gang = GangLaunch(
                    (task,), "/", who, image=exact, image_wish=wish, named=frozenset(named),
                    by_driver=True,
                )  # fmt: skip
                assert await backend.launch(gang) == {}
                async with asyncio.timeout(PATIENCE_S):
                    while key not in heard or heard[key].seen is not Seen.ENDED:
                        news.clear()
                        await news.wait()
                found.append(Ran(self.state, key, heard[key]))
            return found
        finally:
            for key in heard:
                await backend.stop(key, "KILL", Millis(0))
            await backend.close()
            end_launchers(self.state)

    def layers(self) -> list[dict[str, Any]]:
        """What the store has that belongs to drivers."""
        known = (self.state / "images/known").glob("*.json")
        return [each for path in known if (each := json.loads(path.read_text()))["made_for"]]


class Ran:
    """What became of a task."""

    def __init__(self, state: Path, key: TaskKey, report: TaskReport) -> None:
        self.exit, self.diagnosis = report.exit, report.diagnosis
        folder = state / "tasks" / str(key.job) / "1/task.0"
        self.device_by_driver = device_of(folder)
        log = folder / "stdout.log"
        self.output = log.read_text() if log.exists() else ""
        status = folder / "status.json"
        self.phases: list[str] = []
        if status.exists():
            self.phases = [each["name"] for each in json.loads(status.read_text())["phases"]]


@pytest.fixture
def device() -> Iterator[None]:
    number = Path("/dev/null").stat().st_rdev
    for path in (DEVICE, OTHER):
        with suppress(FileNotFoundError):
            Path(path).unlink()
        os.mknod(path, stat.S_IFCHR | 0o666, number)
        Path(path).chmod(0o666)
    yield
    for path in (DEVICE, OTHER):
        Path(path).unlink()


@pytest.fixture
def place(reachable: Path, device: None) -> Iterator[Place]:
    del device
    with a_registry(reachable / "registry") as registry:
        settings = {"Env": ["WHO=image", "PATH=/bin"]}
        registry.push("x", [busybox(), programs()], config=settings)
        yield Place(reachable, registry)


LOOK = f"""
echo $WHO $VENDOR_VISIBLE $NVIDIA_VISIBLE_DEVICES
/usr/bin/dynamic -u
/usr/local/bin/tool -u
readlink {VENDOR}/libother.so; readlink {VENDOR}/libselinux.so.1
test -c {DEVICE} && echo device; test -c {OTHER} || echo no-other
touch {VENDOR}/libselinux.so.1.2.3 2>/dev/null || echo read-only
test -e /run/socket || echo no-socket
"""


def test_a_task_finds_its_drivers_and_hooks_are_carried_out_once(place: Place) -> None:
    place.write(specification())
    first, second = place.run(LOOK, LOOK)
    assert first.output.splitlines() == [
        "vendor void 0", str(UID), str(UID), "libselinux.so.1.2.3", "libselinux.so.1.2.3",
        "device", "no-other", "read-only", "no-socket",
    ]  # fmt: skip
    assert second.output == first.output
    assert "drivers" in first.phases
    assert "drivers" not in second.phases
    assert len(place.layers()) == 1
    (again,) = place.run(LOOK)  # A service that starts anew has it still.
    assert again.output == first.output
    assert "drivers" not in again.phases


def test_a_service_of_an_ordinary_user_has_it_too(place: Place) -> None:
    """All of it, its tasks as well, is that user's."""
    place.write(specification())
    os.chown(place.state, UID, UID)
    told, tell = os.pipe()
    if not (child := os.fork()):
        try:
            spawn.become(User(UID, UID, ()))
            ran = place.run(LOOK, LOOK, "touch /etc/ld.so.cache /new && id -u")
            said = json.dumps([(each.output, each.phases, str(each.exit)) for each in ran])
        except BaseException:
            said = json.dumps(traceback.format_exc())
        os.write(tell, said.encode())
        os._exit(0)
    os.close(tell)
    with os.fdopen(told) as answer:
        said = json.loads(answer.read())
    assert len(said) == 3, said
    first, second, third = said
    os.waitpid(child, 0)
    assert first[0].splitlines() == [
        "vendor void 0", str(UID), str(UID), "libselinux.so.1.2.3", "libselinux.so.1.2.3",
        "device", "no-other", "read-only", "no-socket",
    ], first  # fmt: skip
    assert second[0] == first[0]
    assert ("drivers" in first[1], "drivers" in second[1]) == (True, False)
    assert third[0] == f"{UID}\n"


def test_the_driver_may_take_the_memory_of_a_task_in_an_image(place: Place) -> None:
    first, second = place.run("true", "true", devices=(1,))  # the second finds its image there
    assert first.device_by_driver == second.device_by_driver == (1,)


def test_without_a_device_or_a_specification_nothing_is_added(place: Place) -> None:
    script = "/usr/bin/dynamic -u 2>/dev/null || echo no-library; echo $WHO"
    (bare,) = place.run(script)
    place.write(specification())
    (without,) = place.run(script, devices=())
    assert bare.output == without.output == "no-library\nimage\n"
    assert not place.layers()


def test_variables_that_a_job_names_win(place: Place) -> None:
    place.write(specification())
    (ran,) = place.run("echo $WHO", WHO="me")
    assert ran.output == "me\n"


def test_a_new_driver_makes_a_new_layer(place: Place) -> None:
    copy = place.state.parent / "driver.so"
    shutil.copy(libraries()[MISSING], copy)
    spec = specification()
    spec["containerEdits"]["mounts"][0]["hostPath"] = str(copy)
    place.write(spec)
    place.run(LOOK)
    (before,) = place.layers()
    copy.write_bytes(copy.read_bytes() + b"\0")
    (ran,) = place.run(LOOK)
    assert "drivers" in ran.phases
    assert str(UID) in ran.output
    assert before in place.layers()
    assert len(place.layers()) == 2


def test_the_layer_goes_with_its_image(place: Place) -> None:
    place.write(specification())
    place.run(LOOK)

    async def remove() -> None:
        images = Images(place.state, lambda: 1 << 30)
        await images.remove(f"{place.registry.host}/x:1")

    asyncio.run(remove())
    assert not place.layers()
    assert not list((place.state / "images/layers").iterdir())


def test_what_a_user_could_write_is_no_specification(place: Place) -> None:
    os.chown(place.write(specification()), UID, UID)
    (ran,) = place.run("/usr/bin/dynamic -u 2>/dev/null || echo no-library")
    assert ran.output == "no-library\n"


HOSTILE = {
    "a link out of the image": [a_link("opt/vendor/lib", "../../../../../../etc")],
    "a folder of the system": [a_link("opt/vendor/lib", "/proc/1")],
    "a loop": [a_link("opt/vendor/lib", "lib2"), a_link("opt/vendor/lib2", "lib")],
    "a file": [a_file("opt", "x")],
    "a cache that is a folder": [a_file("etc/ld.so.cache/x", "y")],
    "a cache that is a link": [a_link("etc/ld.so.cache", "/../../../etc/passwd")],
    "endless configurations": [a_file("etc/ld.so.conf", "include /etc/ld.so.conf\n")],
    "libraries that are none": [
        a_file("opt/vendor/lib/libx.so.1", b"\x7fELF\x02\x01\x01" + b"\xff" * 4096),
        a_file("lib/libz.so.1", b"\x7fELF\x01\x01" + b"\xff" * 4096),
    ],
}


def test_an_image_of_any_kind_harms_nothing_but_its_task(place: Place) -> None:
    for at, entries in enumerate(HOSTILE.values()):
        place.registry.push(f"x{at}", [busybox(*entries)])
    place.write(specification())
    before = {path: path.stat().st_mtime_ns for path in map(Path, ("/etc", "/etc/passwd"))}
    mounts = _mounted(place)
    names, unfit = [f"x{at}" for at in range(len(HOSTILE))], list[str]()
    for what, ran in zip(
        HOSTILE, place.run(*["echo ran"] * len(names), images=names), strict=True
    ):
        assert ran.output in ("ran\n", ""), what
        if not ran.output:
            assert ran.diagnosis is not None, what
            assert ran.diagnosis.code == "image_unfit"
            unfit.append(what)
    assert unfit == ["a folder of the system", "a loop", "a file", "a cache that is a folder"]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert _mounted(place) == mounts
    assert not list((place.state / "images/new").iterdir())


def _mounted(place: Place) -> list[str]:
    """Return where the machine has mounts, but in the folders of tests beside this one."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    theirs = tempfile.gettempdir() + "/"
    mine = str(place.state.parent)
    return [each for each in points if each.startswith(mine) or not each.startswith(theirs)]


def test_yaml_is_read_as_json_is(place: Place) -> None:
    place.write(
        f"cdiVersion: 0.6.0\nkind: vendor.example/gpu\ndevices:\n- name: GPU-1\n"
        f"  containerEdits:\n    deviceNodes:\n    - path: {DEVICE}\n"
        "containerEdits:\n  env:\n  - WHO=yaml\n",
        "vendor.yaml",
    )
    (ran,) = place.run("echo $WHO")
    assert ran.output == "yaml\n"

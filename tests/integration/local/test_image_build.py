"""Images that jobs build: with their user's rights, in layers that are used again."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import until
from tests.support.exchange import owned
from tests.support.night import AT_NIGHT, at_night
from tests.support.registry import (
    BUSYBOX,
    MARKS,
    PASSWORD,
    USERS,
    Job,
    Registry,
    WithUsers,
    a_registry,
    a_service,
    login,
)

pytestmark = [*MARKS, pytest.mark.needs_tool("buildah")]
TRIES = int(os.environ.get("ALLOT_TRIES", "2"))
NIGHTLY_KILLS = 25
SEED = int(os.environ.get("ALLOT_SEED", random.randrange(1 << 32)))
MOMENTS = ("step-0", "COMMIT", "STEP 2/", "step-2", "STEP 1/", "STEP 4/", "STEP 3/")
"""When a build is killed: as soon as it has printed this."""
SHELL = "sh cat ls echo id sleep true mkdir rm touch stat chown dd grep seq wc chroot"


class Builds:
    """A service, a registry in which ann may write, and folders of users to build from."""

    def __init__(self, service: WithUsers, registry: Registry) -> None:
        self.service = service
        self.registry = registry
        self.count = 0

    @property
    def base(self) -> str:
        return f"{self.registry.host}/base:1"

    def folder(self, user: str, lines: str, **files: str) -> Path:
        """Make a folder of a user's with a Dockerfile on top of the base."""
        self.count += 1
        folder = owned(self.service.home(user) / f"from-{self.count}", USERS[user], 0o700)
        for name, text in {"Dockerfile": f"FROM {self.base}\n{lines}", **files}.items():
            (folder / name).write_text(text)
        return folder

    def build(
        self, user: str, folder: Path, name: str, *words: str
    ) -> subprocess.CompletedProcess[str]:
        tag = name if "/" in name else f"{self.registry.host}/{name}"
        return self.service.allot(
            "image", "build", "-t", tag, "--memory", "200MiB", "-c", "0.4", *words, str(folder),
            user=user, cwd=folder,
        )  # fmt: skip

    def failed(
        self, user: str, lines: str, *words: str, name: str = "x:1"
    ) -> tuple[str, str, str]:
        """Build what cannot be built; give code, whose matter it is, and the evidence."""
        done = self.build(user, self.folder(user, lines), name, *words)
        assert done.returncode == 1, done.stdout + done.stderr
        job = Job(self.service, int(re.findall(r"job (\d+) \(", done.stderr)[-1]))
        assert job.state == "failed"
        found = job.view["diagnosis"]
        return found["code"], found["owner"], found["evidence"]

    def detached(self, user: str, folder: Path, name: str, *words: str) -> int:
        """Begin a build; give its job."""
        done = self.build(user, folder, name, "--detach", *words)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    def runs(self, image: str, command: str, user: str = "ann") -> str:
        """Run a command in an image; give its output."""
        done = self.service.allot(
            "run", "-q", "-c", "0.1", "--memory", "64MiB",
            "--image", f"{self.registry.host}/{image}", "--", "sh", "-c", command, user=user,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def output(self, job: int) -> str:
        return Job(self.service, job).output

    def layers(self, user: str) -> Path:
        return self.service.home(user) / ".local/share/allotment/images/layers"


@pytest.fixture(scope="module")
def builds(reachable_once: Path) -> Iterator[Builds]:
    with (
        a_registry(reachable_once / "registry", users=["ann"]) as registry,
        a_service(reachable_once) as service,
    ):
        made = Builds(service, registry)
        service.log_in("ann", registry)
        _push_base(made)
        yield made


def _push_base(builds: Builds) -> None:
    folder = builds.folder("ann", "")
    (folder / "bin").mkdir()
    shutil.copy(BUSYBOX, folder / "bin/busybox")
    for name in SHELL.split():
        (folder / "bin" / name).symlink_to("busybox")
    (folder / "Dockerfile").write_text("FROM scratch\nCOPY bin /bin\n")
    done = builds.build("ann", folder, "base:1")
    assert done.returncode == 0, done.stdout + done.stderr


STEPS = """\
RUN echo one > /one && chown 33:33 /one
COPY --chown=1000:1000 two /two
RUN echo three > /three
RUN echo {} > /four
"""


def test_what_is_built_runs_and_steps_are_not_done_again(builds: Builds) -> None:
    folder = builds.folder("ann", STEPS.format("four"), two="two\n")
    done = builds.build("ann", folder, "app:1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 steps, 0 of them as before" in done.stdout
    (folder / "Dockerfile").write_text(f"FROM {builds.base}\n{STEPS.format('new')}")
    done = builds.build("ann", folder, "app:2")
    assert "5 steps, 3 of them as before" in done.stdout, done.stdout
    for tag, last in (("1", "four"), ("2", "new")):
        said = builds.runs(f"app:{tag}", "cat /one /two /three /four")
        assert said == f"one\ntwo\nthree\n{last}\n"


def test_what_is_wrong_is_told_and_whose_matter_it_is(builds: Builds) -> None:
    for user, lines, code, owner, word in (
        ("ann", "RUN exit 7", "image_step_failed", "user", "exit code 7"),
        ("ann", "COPY nothing /", "image_not_built", "user", "no such file"),
        ("ben", "RUN true", "image_base_denied", "user", "authentication required"),
    ):
        found = builds.failed(user, lines)
        assert found[:2] == (code, owner), found
        assert word in found[2]


def test_what_could_not_be_pushed_is_kept_and_pushed_later(builds: Builds) -> None:
    """Its user has no password at first, and then the registry is down."""
    service, registry = builds.service, builds.registry
    name = f"{registry.host}/kept:1"
    folder = builds.folder("ann", "RUN echo kept > /kept")
    assert builds.build("ann", folder, "kept:1", "--no-push").returncode == 0
    login_file = service.home("ann") / ".docker/config.json"
    kept = login_file.read_text()
    login_file.write_text("{}")
    done = service.allot("image", "push", name, user="ann")
    assert (done.returncode, "may not write" in done.stderr) == (1, True), done.stderr
    login_file.write_text(kept)
    registry.stop()
    done = service.allot("image", "push", name, user="ann")
    assert (done.returncode, "cannot be reached" in done.stderr) == (1, True), done.stderr
    registry.start()
    done = service.allot("image", "push", name, user="ann")
    assert done.returncode == 0, done.stdout + done.stderr
    assert builds.runs("kept:1", "cat /kept") == "kept\n"
    done = service.allot("image", "push", f"{registry.host}/never:1", user="ann")
    assert "no image of that name" in done.stderr


def test_a_build_goes_on_when_the_service_is_killed(builds: Builds) -> None:
    lines = "RUN echo begun; sleep 3; echo done > /done"
    job = builds.detached("ann", builds.folder("ann", lines), "survivor:1")
    until(lambda: "begun" in builds.output(job), "the step to begin")
    builds.service.kill()
    builds.service.up()
    builds.service.wait_for(job, "succeeded", "failed")
    assert Job(builds.service, job).state == "succeeded", builds.output(job)
    assert builds.runs("survivor:1", "cat /done") == "done\n"


def test_a_build_that_is_killed_leaves_nothing_and_nothing_of_it_is_used(
    builds: Builds,
) -> None:
    steps = "".join(f"RUN echo step-{n}; seq 20000 > /{n}; sleep 0.1\n" for n in range(3))
    folder = builds.folder("ann", steps)
    for number in range(TRIES):
        moment = MOMENTS[number % len(MOMENTS)]
        job = builds.detached("ann", folder, "killed:1", "--no-push")
        until(lambda job=job, moment=moment: moment in builds.output(job), f"{moment} to come")
        if number % 2:
            _kill_all_of("ann")
        else:
            builds.service.ask("POST", f"/v1/jobs/{job}:cancel")
        builds.service.wait_for(job, "cancelled", "failed", "succeeded")
        until(lambda: not _processes_of("ann"), "its processes to end")
    is_whole(builds, folder)


def test_a_container_that_was_only_begun_goes_with_the_next_build(builds: Builds) -> None:
    """A kill may come before buildah has noted that it is its own: it then passes over it."""
    folder = _three_steps(builds, "begun")
    assert builds.build("ann", folder, "killed:1").returncode == 0
    layers, run = builds.layers("ann"), builds.service.home("ann") / "run"
    words = ["unshare", "--user", "--map-root-user", "--mount", "--", "buildah"]
    words += ["--root", str(layers), "--runroot", str(run), "--storage-driver", "overlay"]
    env = {"_CONTAINERS_USERNS_CONFIGURED": "done"}
    made = builds.service.ran([*words, "from", "scratch"], user="ann", env=env)
    assert made.returncode == 0, made.stderr
    (mark,) = (layers / "overlay-containers").glob("*/userdata/buildah.json")
    mark.unlink()
    is_whole(builds, folder)


def is_whole(builds: Builds, folder: Path) -> None:
    """Build again; fail where something half-made was used, or is left."""
    done = builds.build("ann", folder, "killed:1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert builds.runs("killed:1", "cat /0 /1 /2 | wc -l") == "60000\n"
    left = builds.layers("ann") / "overlay-containers/containers.json"
    assert json.loads(left.read_text() or "[]") in ([], None)
    known = json.loads((builds.layers("ann") / "overlay-layers/layers.json").read_text())
    folders = {path.name for path in (builds.layers("ann") / "overlay").glob("?" * 64)}
    assert folders == {each["id"] for each in known}
    assert str(builds.layers("ann")) not in Path("/proc/self/mountinfo").read_text()


@at_night
@pytest.mark.may_skip(AT_NIGHT)
@pytest.mark.slow
def test_builds_that_are_killed_at_any_moment_leave_nothing(builds: Builds) -> None:
    print("seed", SEED)
    rng = random.Random(SEED)
    began = time.monotonic()
    is_whole(builds, _three_steps(builds, "first"))
    whole_s = time.monotonic() - began
    for number in range(NIGHTLY_KILLS):
        folder = _three_steps(builds, str(number))
        job = builds.detached("ann", folder, "killed:1", "--no-push")
        time.sleep(rng.random() * whole_s)  # Any moment is what is meant.
        match rng.choice(("all", "one", "cancel", "service")):
            case "all":
                _kill_all_of("ann")
            case "one":
                if there := _processes_of("ann"):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(rng.choice(there).name), signal.SIGKILL)
            case "cancel":
                builds.service.ask("POST", f"/v1/jobs/{job}:cancel")
            case _:
                builds.service.kill()
                builds.service.up()
        builds.service.wait_for(job, "cancelled", "failed", "succeeded")
        until(lambda: not _processes_of("ann"), f"all to end after kill {number}")
        is_whole(builds, folder)


def _three_steps(builds: Builds, word: str) -> Path:
    steps = (f"RUN echo {word}-{n} && seq 20000 > /{n} && chown 0:0 /{n}\n" for n in range(3))
    return builds.folder("ann", "".join(steps))


def _kill_all_of(user: str) -> None:
    for path in _processes_of(user):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(path.name), signal.SIGKILL)


def _processes_of(user: str) -> list[Path]:
    return [path for path in Path("/proc").glob("[0-9]*") if _uid(path) == USERS[user]]


def _uid(path: Path) -> int:
    try:
        return path.stat().st_uid
    except FileNotFoundError:
        return -1


def test_a_build_is_bounded_in_disk_and_in_time(builds: Builds) -> None:
    code, owner, _ = builds.failed(
        "ann", "RUN dd if=/dev/urandom of=/large bs=1M count=60; sleep 60", "--disk", "40MiB"
    )
    assert (code, owner) == ("image_too_large", "user")
    made = builds.folder("ann", "RUN dd if=/dev/urandom of=/large bs=1M count=25")
    assert builds.build("ann", made, "large:1", "--no-push").returncode == 0
    done = builds.build("ann", builds.folder("ann", ""), "small:1", "--disk", "40MiB")
    assert (done.returncode, "20 MiB: removed" in done.stdout) == (0, True), done.stdout
    name = f"{builds.registry.host}/large:1"
    assert (
        "no image of that name"
        in builds.service.allot("image", "push", name, user="ann").stderr
    )
    job = builds.detached(
        "ann", builds.folder("ann", "RUN sleep 600"), "long:1", "--time", "2s"
    )
    builds.service.wait_for(job, "timed_out")
    until(lambda: not _processes_of("ann"), "its processes to end")


def test_a_step_reads_nothing_of_its_users_home(builds: Builds) -> None:
    """What an image of somebody else does with the rights of whoever builds on it."""
    home = builds.service.home("ann")
    secret = home / ".docker/config.json"
    settings = home / ".config/containers/containers.conf"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'[containers]\nvolumes = ["{home}:/shared"]\n')  # meant for podman
    tries = (
        "cat /shared/.docker/config.json",
        f"cat {secret}", f"cat /proc/*/root{secret}", f"cat /proc/*/cwd/../..{secret}",
        f"chroot /proc/1/root cat {secret}",
    )  # fmt: skip
    lines = "RUN true; " + "; ".join(f"{each} 2>&1" for each in tries) + "; true"
    done = builds.build("ann", builds.folder("ann", lines), "thief:1", "--no-push")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "auths" not in done.stdout
    assert login("ann") not in done.stdout


def test_passwords_are_in_nothing_that_is_kept_and_layers_are_the_users_own(
    builds: Builds,
) -> None:
    done = builds.build("ann", builds.folder("ann", "RUN echo x > /x"), "quiet:1")
    assert done.returncode == 0, done.stdout + done.stderr
    for word in (PASSWORD, login("ann")):
        assert word not in done.stdout + done.stderr
        found = subprocess.run(
            ["grep", "-rlF", word, str(builds.service.state), str(builds.layers("ann"))],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert found.stdout == ""
    assert builds.layers("ann").parent.stat().st_mode & 0o777 == 0o700


def test_a_dry_run_says_what_would_be_built(builds: Builds) -> None:
    folder = builds.folder("ann", "ARG X\nRUN true\nCOPY . /", more="x" * 2048)
    done = builds.build("ann", folder, "dry:1", "--dry-run")
    assert done.returncode == 0, done.stderr
    for words in ("dry:1: 4 steps", "2 files, 2.0 KiB", f"base {builds.base}: 1 layer"):
        assert words in done.stdout, done.stdout
    (folder / "Dockerfile").write_text(f"FROM {builds.registry.host}/base:9\n")
    done = builds.build("ann", folder, "dry:1", "--dry-run")
    assert "or none that you may see" in done.stdout, done.stdout


IN_PYTHON = """
import sys
from allotment import Client
from allotment.client import Refused

registry, folder = sys.argv[1:]
limits = {"resources": {"cpu": 0.4, "memory": "200MiB"}}
with Client() as client:
    made = client.build_image(
        f"{registry}/py:1", folder, build_args={"WORD": "said"}, push=False, job=limits,
        secrets={"pip": f"{folder}/token"},
    )
    print(client.wait(made.id).state)
    print(client.wait(client.push_image(f"{registry}/py:1", job=limits).id).state)
    try:
        client.build_image("py", folder)
    except Refused as error:
        print(error.message)
"""


def test_an_image_is_built_and_pushed_in_python(builds: Builds) -> None:
    lines = (
        "ARG WORD\nRUN --mount=type=secret,id=pip "
        "test $(cat /run/secrets/pip) = hush && echo $WORD >/word\n"
    )
    folder = builds.folder("ann", lines, token="hush")
    done = builds.service.ran(
        [sys.executable, "-c", IN_PYTHON, builds.registry.host, str(folder)], user="ann"
    )
    assert done.returncode == 0, done.stderr
    first, second, refused = done.stdout.splitlines()
    assert [first, second] == ["succeeded"] * 2
    assert "names no registry" in refused
    assert builds.runs("py:1", "cat /word") == "said\n"

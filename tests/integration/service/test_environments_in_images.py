"""Environments on top of images: a real registry, a real index, and a service of root's."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allotment.backends.local.machine import cpu_milli
from tests.support.cluster import until
from tests.support.image_python import a_seeming_python, host_python
from tests.support.package_index import Index, a_package_index
from tests.support.registry import (
    CONFIG,
    OF_ROOT,
    Job,
    OfOneUser,
    Registry,
    WithUsers,
    a_file,
    a_link,
    a_registry,
    a_service,
    busybox,
    layer,
)

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tool("docker-registry", "htpasswd", "busybox"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]

STEP = "def step(weight, error):\n    return weight - error / {}\n"
TRAIN = """
import hashlib, json, os, random, signal, sys, time
from framework import step

folder = os.environ["ALLOT_CHECKPOINT_DIR"]
saved = os.environ.get("ALLOT_RESUME_FROM")
at, weights = json.load(open(saved)) if saved else (0, [0.0] * 8)
asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
while at < 40:
    order = random.Random(at)
    weights = [step(w, w - order.random() * i) for i, w in enumerate(weights)]
    at += 1
    if at == 20 and not saved:
        open(os.path.join(os.environ["ALLOT_OUTPUT_DIR"], "up"), "w").close()
        while not asked:
            time.sleep(0.01)
    if asked:
        place = os.path.join(folder, "state.json")
        json.dump((at, weights), open(place + "~", "w"))
        os.replace(place + "~", place)
        file = os.environ["ALLOT_CHECKPOINT_FILE"]
        json.dump({"path": place, "step": at}, open(file + "~", "w"))
        os.replace(file + "~", file)
        sys.exit(85)
print("from", at if not saved else 20, hashlib.sha256(json.dumps(weights).encode()).hexdigest())
"""


@pytest.fixture
def index(reachable: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    home = reachable / "home"
    monkeypatch.setenv("HOME", str(home))
    with a_package_index(home) as made:
        for version in ("1.0", "2.0"):
            text = f"version = {version!r}\n{STEP.format(2)}"
            made.wheel("framework", version, text)
        yield made


@pytest.fixture
def registry(reachable: Path) -> Iterator[Registry]:
    with a_registry(reachable / "registry") as made:
        yield made


@pytest.fixture
def service(reachable: Path, index: Index) -> Iterator[WithUsers]:
    with a_service(reachable) as made:
        yield made


def with_packages(*lines: str, python: str = "") -> dict[str, Any]:
    return {"environment": {"requirements": list(lines), "python": python}}


def real_python(*more: Any) -> list[bytes]:
    """Return the layers of an image with a shell and the machine's own Python."""
    return [busybox(), host_python()[0], layer(*more, a_file("etc/marked", "an image\n"))]


SHOW = "python -c 'import framework; print(framework.version, framework.__file__)'"


def test_two_versions_run_at_once_in_one_image(
    service: WithUsers, registry: Registry, reachable: Path
) -> None:
    registry.push("py", real_python(), config={"Env": ["PATH=/usr/bin:/bin", "X=image"]})
    meet = "touch $ALLOT_OUTPUT_DIR/up; while ! test -e $TMPDIR/go; do sleep 0.05; done; "
    script = f"{meet} cat /etc/marked; echo $X $PATH; touch $VIRTUAL_ENV/x || echo kept; {SHOW}"
    jobs = {
        version: service.submitted(
            f"{registry.host}/py:1", script, user, **with_packages(f"framework=={version}")
        )
        for user, version in (("ann", "1.0"), ("ben", "2.0"))
    }
    for job in jobs.values():
        up = service.state / "outputs" / str(job) / "attempt-1/up"
        until(up.exists, f"job {job} to be up")
    for version, job in jobs.items():
        (service.state / "scratch" / f"{job}.1.task.0/go").touch()
        service.wait_for(job, "succeeded", "failed")
        marked, words, kept, shown = Job(service, job).output.splitlines()
        key = service.get(f"/v1/jobs/{job}")["spec"]["environment"]["key"]
        place = f"{service.state}/environments/made/{key}"
        assert (marked, kept) == ("an image", "kept")
        assert words == f"image {place}/bin:/usr/bin:/bin"
        assert shown.startswith(f"{version} {place}/lib/python{host_python()[1]}/")


class OfOneUserWithIndex(OfOneUser):
    """That has the settings of the test's index in its home."""

    def allot(self, *words: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
        return super().allot(*words, env={"HOME": os.environ["HOME"]}, **kwargs)


@pytest.mark.parametrize("kind", [OF_ROOT, pytest.param(OfOneUserWithIndex, id="user")])
def test_one_program_gives_one_result_wherever_it_runs(
    registry: Registry, index: Index, reachable: Path, kind: type[WithUsers]
) -> None:
    framework = a_file("srv/framework.py", STEP.format(2))
    registry.push("bare", real_python(), config={"Env": ["PATH=/usr/bin:/bin"]})
    registry.push("full", real_python(framework), config={"Env": ["PATH=/usr/bin:/bin"]})
    code = reachable / "code"
    code.mkdir()
    (code / "train.py").write_text(TRAIN)
    beside = reachable / "beside"
    beside.mkdir()
    (beside / "framework.py").write_text(STEP.format(2))
    for folder in (code, beside):
        folder.chmod(0o755)
    ways: dict[str, dict[str, Any]] = {
        "bare": {"env": {"PYTHONPATH": str(beside)}},
        "image": {"image": f"{registry.host}/full:1", "env": {"PYTHONPATH": "/srv"}},
        "environment": with_packages("framework==1.0"),
        "both": {"image": f"{registry.host}/bare:1", **with_packages("framework==1.0")},
    }
    whole = cpu_milli() / 1000
    of_ben = (
        CONFIG.replace("[ben,", "[ben, ann,")
        .replace("cpu: 0.5", "cpu: 0", 1)
        .replace("cpu: 0.5", f"cpu: {whole}")
    )
    with a_service(reachable, of_ben, kind) as service:
        jobs: dict[str, int] = {}
        for name, way in ways.items():
            job = {
                "name": name, "tenant": "ann", "code": str(code),
                "command": "python3 $ALLOT_CODE_DIR/train.py",
                "checkpoint": {"signal": "USR1", "grace": "60s"},
                "resources": {"cpu": whole / 4, "memory": "64MiB"}, **way,
            }  # fmt: skip
            status, answer = service.ask_as("ann", "POST", "/v1/jobs", job)
            assert status == 201, answer
            jobs[name] = answer["id"]
        for name, job in jobs.items():
            up = service.state / "outputs" / str(job) / "attempt-1/up"
            until(up.exists, f"{name} to be up")
        other = {"name": "o", "tenant": "ben", "command": "true", "resources": {"cpu": whole}}
        status, answer = service.ask_as(service.owner or "ben", "POST", "/v1/jobs", other)
        assert status == 201, answer
        service.wait_for(answer["id"], "succeeded")
        for job in jobs.values():
            service.wait_for(job, "succeeded", "failed")
        found = {name: Job(service, job) for name, job in jobs.items()}
        assert [job.view["evictions"] for job in found.values()] == [1] * 4
        told = {name: job.output for name, job in found.items()}
        assert len(set(told.values())) == 1, told
        assert told["bare"].startswith("from 20 ")


def test_wheels_are_chosen_for_the_image_and_nothing_of_it_is_run(
    service: WithUsers, registry: Registry, index: Index
) -> None:
    index.wheel("fitting", "1.0", "x = 12\n", tag="cp312-cp312-manylinux_2_31_x86_64")
    index.wheel("fitting", "1.1", "x = 13\n", tag="cp312-cp312-manylinux_2_38_x86_64")
    index.wheel("fitting", "1.2", "x = 14\n", tag="cp312-cp312-musllinux_1_2_x86_64")
    index.wheel("fitting", "1.3", "x = 15\n", tag="cp313-cp313-manylinux_2_31_x86_64")
    registry.push("odd", [busybox(*a_seeming_python("3.12"))])
    script = (
        "readlink $VIRTUAL_ENV/bin/python; cat $VIRTUAL_ENV/lib/python3.12/site-packages/f*.py"
    )
    image = f"{registry.host}/odd:1"
    job = service.run(image, script, "ann", **with_packages("fitting"))
    assert job.output == "/usr/local/bin/python3.12\nx = 12\n", job.view
    asked = job.view["spec"]["environment"]
    assert (asked["python"], asked["requirements"]) == ("3.12", ["fitting"])
    rows = service.ask_as("ann", "GET", "/v1/environments")[1]
    assert [row["platform"] for row in rows] == ["x86_64-manylinux_2_36"]
    # Another image that has the same Python has the same environment.
    registry.push("like", [busybox(*a_seeming_python("3.12"), a_file("etc/other", "x"))])
    again = service.run(f"{registry.host}/like:1", script, "ann", **with_packages("fitting"))
    assert again.view["spec"]["environment"]["key"] == asked["key"]
    # With another C library it is another.
    registry.push("newer", [busybox(*a_seeming_python("3.12", libc="2.41"))])
    newer = service.run(f"{registry.host}/newer:1", script, "ann", **with_packages("fitting"))
    assert newer.output.endswith("x = 13\n")
    cloned = service.ask_as("ann", "POST", "/v1/jobs", {**job.view["spec"], "image": image})
    assert cloned[0] == 201, cloned
    assert (
        service.get(f"/v1/jobs/{cloned[1]['id']}")["spec"]["environment"]["key"] == asked["key"]
    )


def test_what_no_image_can_give_is_refused_at_once(
    service: WithUsers, registry: Registry
) -> None:
    registry.push("none", [busybox()])
    registry.push("old", [busybox(*a_seeming_python("3.12", libc="2.12"))])
    registry.push("round", [busybox(a_link("usr/bin/python3", "python3"))])
    registry.push("odd", [busybox(*a_seeming_python("3.12"))])
    for name, python, told in (
        ("none", "", "the image has no Python, and none is put into it"),
        ("round", "", "the image has no Python"),
        ("old", "", "no wheels are made for the C library, 2.12"),
        (
            "odd",
            "3.11",
            "the image has no Python 3.11; it has 3.12 at /usr/local/bin/python3.12",
        ),
    ):
        job = {
            "name": "x", "tenant": "ann", "command": "true",
            "image": f"{registry.host}/{name}:1",
            **with_packages("framework", python=python),
        }  # fmt: skip
        status, answer = service.ask_as("ann", "POST", "/v1/jobs", job)
        assert status == 422, answer
        assert told in json.dumps(answer)
    assert not list((service.state / "environments/made").iterdir())


def test_built_ahead_by_the_command_line(
    service: WithUsers, registry: Registry, reachable: Path
) -> None:
    registry.push("odd", [busybox(*a_seeming_python("3.12"))])
    file = reachable / "requirements.txt"
    file.write_text("framework==1.0\n")
    image = f"{registry.host}/odd:1"
    built = service.allot("env", "build", str(file), "--image", image)
    assert built.returncode == 0, built.stderr
    assert "3.12 (x86_64-manylinux_2_36)" in service.allot("env", "ls").stdout
    key = json.loads(service.allot("env", "ls", "--json").stdout)[0]["key"]
    assert (service.state / "environments/made" / key / "lib/python3.12").is_dir()

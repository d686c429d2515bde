"""Jobs that bring images, each task a Slurm job: a real Apptainer runs them as their user."""

import json
import os
import pwd
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import until
from tests.support.on_slurm import OnSlurm, as_nobody, shell
from tests.support.registry import Registry, a_file, a_registry, busybox, layer
from tests.support.slurm import TOOLS

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tool(*TOOLS, "apptainer", "docker-registry", "busybox"),
    pytest.mark.may_skip("Debian 12 has no package of Apptainer"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]

NOBODY = pwd.getpwnam("nobody")


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with a_registry(tmp_path / "registry") as made:
        yield made


@pytest.fixture
def home(folder: Path) -> Path:
    """A folder of the user's, in which Apptainer may keep images."""
    made = folder / "home"
    made.mkdir()
    os.chown(made, NOBODY.pw_uid, NOBODY.pw_gid)
    return made


def submitted(cluster: OnSlurm, home: Path, image: str, script: str, **more: Any) -> int:
    """Submit a job as an ordinary user."""
    env = {"HOME": str(home), **more.pop("env", {})}
    file = home.parent / f"job-{time.monotonic_ns()}.yaml"
    file.write_text(json.dumps(shell(script, image=image, env=env, **more)))
    done = as_nobody(cluster, "submit", str(file), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)["id"]


def test_a_gang_runs_in_its_image_as_its_user(
    cluster: OnSlurm, registry: Registry, home: Path
) -> None:
    settings = {"Env": ["PATH=/bin", "WHO=image", "OTHER=image", "CUDA_VISIBLE_DEVICES=all"]}
    exact = registry.push(
        "bb", [busybox(), layer(a_file("srv/note", "from above\n"))], config=settings
    )
    odd = 'it\'s "$(id)" \\ ${HOME}'
    script = """
    echo $RANK $(id -un) who=$WHO other=$OTHER path=$PATH gpus=$CUDA_VISIBLE_DEVICES
    echo "odd=$ODD"; cat /srv/note; test -e /usr/bin/python3 || echo no-host
    echo out > $ALLOT_OUTPUT_DIR/made-$RANK
    """
    job = submitted(
        cluster, home, f"{registry.host}/bb:1", script, count=2, resources={"gpu": 4},
        env={"WHO": "job", "ODD": odd},
    )  # fmt: skip
    cluster.wait_for(job, "succeeded", "failed")
    said = cluster.output(job)
    view = cluster.job(job)
    assert view["row"]["state"] == "succeeded", said + cluster.allot("logs", str(job)).stderr
    for rank in (0, 1):
        assert f"{rank} nobody who=job other=image path=/bin" in said
    assert said.count("gpus=0,1,2,3") == 2
    assert said.count(f"odd={odd}") == said.count("from above") == said.count("no-host") == 2
    files = [each["path"] for each in cluster.get(f"/v1/jobs/{job}/outputs")["items"]]
    assert files == ["made-0", "made-1"]
    assert view["spec"]["image"] == f"{registry.host}/bb:1@{exact}"


def test_a_job_in_an_image_ends_by_its_own_rules(
    cluster: OnSlurm, registry: Registry, home: Path
) -> None:
    registry.push("bb", [busybox()])
    name = f"{registry.host}/bb:1"
    fails = submitted(cluster, home, name, "exit 7")
    cluster.wait_for(fails, "failed")
    assert cluster.job(fails)["attempts"][0]["tasks"][0]["exit"]["code"] == 7
    script = "trap 'cat /etc/system; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    told = submitted(cluster, home, name, script)
    until(lambda: "up" in cluster.output(told), "the job to be up")
    inside = ("exec", str(told), "--", "sh", "-c", "cat /etc/system; id -un")
    done = cluster.allot(*inside)
    assert done.stdout.splitlines() == ["busybox", "nobody"], done.stderr
    cluster.allot("cancel", str(told))
    cluster.wait_for(told, "cancelled")
    assert "busybox" in cluster.output(told), "its image was there as long as it was"
    soon = {"grace": "1s"}
    deaf = submitted(cluster, home, name, "trap '' TERM; echo up; sleep 1000", checkpoint=soon)
    until(lambda: "up" in cluster.output(deaf), "the job to be up")
    cluster.allot("cancel", str(deaf))
    cluster.wait_for(deaf, "cancelled")
    until(lambda: not holders(home), "nothing to hold the image open")


def holders(home: Path) -> list[str]:
    """Return the processes that were started with a folder as their home."""
    mark = f"HOME={home}".encode()
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and mark in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_text())
        except OSError:
            continue
    return found


def test_what_is_refused_says_why(cluster: OnSlurm, registry: Registry, home: Path) -> None:
    registry.push("bb", [busybox()])
    spec = shell("true", image=f"{registry.host}/none:1")
    status, told = cluster.ask("POST", "/v1/jobs", spec)
    assert status == 404, told
    done = cluster.allot("image", "pull", f"{registry.host}/bb:1")
    assert "kept by Apptainer" in done.stderr
    told = json.loads(cluster.allot("doctor", "--json", env=cluster.slurm.env).stdout)
    found = {each["subject"]: each["text"] for each in told}
    assert found["images"].startswith("jobs with an image run by /")

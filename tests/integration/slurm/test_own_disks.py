"""Pilots on nodes that do not see the service's disk: what jobs leave is asked of the nodes.

Each node of this Slurm has a mount namespace, in which both the folder of the service and the
node's own folder are empty ones of its own: what went by a shared disk would not be there.
"""

import json
import pwd
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from tests.support.cluster import RealCluster, until
from tests.support.image_python import host_python
from tests.support.on_pilots import Piloted
from tests.support.on_slurm import as_nobody, shell
from tests.support.package_index import Index, a_package_index
from tests.support.python_mirror import HERE, Mirror
from tests.support.registry import a_registry, busybox
from tests.support.slurm import TOOLS, Slurm, a_slurm

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool(*TOOLS, "openssl", "unshare")]

NOBODY = pwd.getpwnam("nobody").pw_uid
CONFIG = """\
engines:
  gpus: {{type: pilot, partition: main, folder: {disk}/pilots}}
nodes:
- {{names: [n1, n2], cpu: 4, memory: 2000MiB, disk: 1TiB, gpu: {{type: a100, count: 4}}}}
tenants: {{lab: {{}}}}
"""
S = TypeVar("S", bound=RealCluster)


class OwnDisks(Piloted):
    """A service that sees no disk of its nodes."""

    def up(self) -> None:
        self.until_up(self.allot("up", "--config", str(self.config)))

    def fetched(self, job: int, path: str, attempt: int = 1) -> bytes:
        """Return a file that a job left, as the API gives it."""
        status, body = self.ask("GET", f"/v1/jobs/{job}/outputs/{attempt}/{path}")
        assert status == 200, body
        return body

    def outputs(self, job: int) -> list[str]:
        return [file["path"] for file in self.get(f"/v1/jobs/{job}/outputs")["items"]]


@contextmanager
def a_folder(name: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=f"allot-{name}-", dir="/var/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@contextmanager
def with_own_disks(made: Callable[[Path, Path, Slurm], S]) -> Iterator[S]:
    """Run a service, made of its folder and of what is a folder of each node's own disk."""
    with a_folder("ours") as ours, a_folder("disk") as disk, a_slurm(apart=(ours, disk)) as up:
        (ours / "state").mkdir()
        running = made(ours, disk, up)
        running.up()
        try:
            yield running
        finally:
            running.down()
            up.clear()
        assert not list(disk.iterdir()), "the node's folder was made on the service's disk"


@pytest.fixture(scope="module")
def index() -> Iterator[Index]:
    with a_folder("home") as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        with a_package_index(home) as made:
            made.wheel("framework", "1.0", "version = '1.0'\n")
            yield made


@pytest.fixture(scope="module")
def service(index: Index) -> Iterator[OwnDisks]:  # noqa: ARG001 - its pip.conf names it
    def made(ours: Path, disk: Path, slurm: Slurm) -> OwnDisks:
        mirror = Mirror(ours / "pythons")
        mirror.add(98)
        text = f"{CONFIG.format(disk=disk)}pythons: {mirror.list.as_uri()}\n"
        return OwnDisks(ours / "state", slurm, text)

    with with_own_disks(made) as running:
        yield running


def test_output_and_files_of_a_job_come_from_its_node(cluster: OwnDisks) -> None:
    script = "echo to stdout; echo to stderr >&2; echo weights > $ALLOT_OUTPUT_DIR/model.pt"
    job = cluster.submit(shell(script))
    cluster.wait_for(job, "succeeded")
    assert "to stdout" in cluster.output(job)
    assert cluster.outputs(job) == ["model.pt"]
    assert cluster.fetched(job, "model.pt") == b"weights\n"
    assert not list(cluster.state.glob("outputs/*")), "the service's own disk was used"


def test_doctor_says_what_the_nodes_of_a_named_engine_enforce(cluster: OwnDisks) -> None:
    told = json.loads(cluster.allot("doctor", "--json").stdout)
    found = {each["subject"]: each["text"] for each in told}
    assert found["pilots"].startswith("n1, n2: ")
    assert found["epilog"].startswith("none in slurm.conf")
    assert "nodes see" not in found, "they need not see the state folder"


def test_a_gang_leaves_its_files_on_all_its_nodes(cluster: OwnDisks) -> None:
    script = (
        "echo $RANK > $ALLOT_OUTPUT_DIR/same; echo $RANK > $ALLOT_OUTPUT_DIR/of-$RANK; "
        "[ $RANK = 1 ] || echo '{\"step\": 7}' > $ALLOT_PROGRESS_FILE; "
        "while [ ! -e $ALLOT_OUTPUT_DIR/end ]; do sleep 0.1; done"
    )
    job = cluster.submit(shell(script, count=2, resources={"gpu": 4}))
    cluster.wait_for(job, "running")
    tasks = cluster.job(job)["attempts"][0]["tasks"]
    assert {task["node"] for task in tasks} == {"n1", "n2"}
    until(lambda: cluster.outputs(job) == ["of-0", "of-1", "same"], "both nodes' files")
    assert cluster.fetched(job, "same") == b"0\n"
    assert cluster.fetched(job, "of-1") == b"1\n"
    until(lambda: (cluster.job(job)["progress"] or {}).get("step") == 7, "its progress")
    assert cluster.job(job)["checkpoint"] is None


def test_jobs_run_on_while_the_service_is_away(cluster: OwnDisks) -> None:
    job = cluster.submit(shell("echo begun; sleep 4; echo over"))
    until(lambda: "begun" in cluster.output(job), "the job to begin")
    held = cluster.pilots()
    cluster.kill()
    cluster.up()
    cluster.wait_for(job, "succeeded")
    until(lambda: "over" in cluster.output(job), "the rest of its output")
    assert cluster.pilots() == held, "the runners dialled again, at the same address"


def test_output_stays_when_its_node_is_gone(cluster: OwnDisks) -> None:
    line = "x" * 99
    job = cluster.submit(shell(f"yes {line} | head -n 20000; touch $ALLOT_OUTPUT_DIR/a"))
    cluster.wait_for(job, "succeeded")
    with cluster.drained(job) as node:
        until(lambda: node not in cluster.pilots(), "the node to be given back")
        assert cluster.output(job) == f"{line}\n" * 20000
        status, body = cluster.ask("GET", f"/v1/jobs/{job}/outputs")
        assert status == 503
        assert f"disk of node {node}, which is not held now" in str(body)
    both = cluster.submit(shell("true", count=2, resources={"gpu": 4}))
    cluster.wait_for(both, "succeeded")
    assert cluster.outputs(job) == ["a"]


def test_an_attempt_that_lost_its_node_is_tried_again(cluster: OwnDisks) -> None:
    job = cluster.submit(shell('[ "$ALLOT_ATTEMPT" = 2 ] || sleep 600'))
    cluster.wait_for(job, "running")
    node = cluster.node_of(job)
    cluster.slurm.say("scancel", cluster.pilots()[node])
    cluster.wait_for(job, "succeeded")
    assert len(cluster.job(job)["attempts"]) == 2


def test_a_command_beside_a_task_ends_with_its_own_code(cluster: OwnDisks) -> None:
    job = cluster.submit(shell("sleep 600"))
    cluster.wait_for(job, "running")
    done = cluster.allot("exec", str(job), "--", "sh", "-c", "echo $ALLOT_JOB_ID; exit 7")
    assert (done.stdout, done.returncode) == (f"{job}\n", 7), done.stderr


def test_a_batch_script_has_its_programs_on_the_node(cluster: OwnDisks, tmp_path: Path) -> None:
    script = tmp_path / "two.sh"
    script.write_text("#!/bin/bash\n#SBATCH --ntasks=2\nsrun sh -c 'echo rank $SLURM_PROCID'\n")
    done = cluster.allot("submit", str(script), cwd=str(tmp_path))
    assert done.returncode == 0, done.stderr
    job = max(row["id"] for row in cluster.get("/v1/jobs")["items"])
    cluster.wait_for(job, "succeeded")
    assert sorted(cluster.output(job).splitlines()) == ["rank 0", "rank 1"]


def test_files_are_made_and_read_as_their_user(cluster: OwnDisks) -> None:
    done = as_nobody(cluster, "run", "--", "sh", "-c", "id -u; echo a > $ALLOT_OUTPUT_DIR/own")
    assert done.stdout.strip() == str(NOBODY), done.stderr
    job = max(row["id"] for row in cluster.get("/v1/jobs")["items"])
    assert cluster.fetched(job, "own") == b"a\n"
    link = cluster.submit(
        shell("ln -s /etc/passwd $ALLOT_OUTPUT_DIR/link; mkfifo $ALLOT_OUTPUT_DIR/p")
    )
    cluster.wait_for(link, "succeeded")
    assert cluster.outputs(link) == []
    for name in ("link", "p", "none"):
        status, body = cluster.ask("GET", f"/v1/jobs/{link}/outputs/1/{name}")
        assert status == 404, body


SAVE = """\
at=$ALLOT_CHECKPOINT_DIR/step-5; mkdir -p $at/deep
head -c 3000000 /dev/zero | tr '\\0' x > $at/deep/rank-$RANK; ln -s /etc/passwd $at/link
"""
REPORT = """\
echo '{"path": "'$at'", "step": 5}' > $ALLOT_CHECKPOINT_DIR/.new
mv $ALLOT_CHECKPOINT_DIR/.new $ALLOT_CHECKPOINT_FILE
"""


def test_a_checkpoint_is_there_when_its_node_is_lost(cluster: OwnDisks) -> None:
    found = "find $ALLOT_RESUME_FROM -type f -size 3000000c"
    resume = f'[ -z "$ALLOT_RESUME_FROM" ] || {{ {found}; exit; }}'
    job = cluster.submit(shell(f"{resume}\n{SAVE}{REPORT}sleep 600"))
    until(lambda: (cluster.job(job)["checkpoint"] or {}).get("step") == 5, "it to be saved")
    node = cluster.node_of(job)
    cluster.allot("drain", node)
    try:
        cluster.slurm.say("scancel", cluster.pilots()[node])
        cluster.wait_for(job, "succeeded")
    finally:
        cluster.allot("undrain", node)
    attempts = cluster.job(job)["attempts"]
    assert attempts[1]["tasks"][0]["node"] != node
    assert cluster.output(job).endswith(f"/checkpoints/{job}/step-5/deep/rank-0\n")
    both = cluster.submit(shell("true", count=2, resources={"gpu": 4}))
    cluster.wait_for(both, "succeeded")


def test_what_a_gang_saved_last_is_whole_on_all_its_nodes(cluster: OwnDisks) -> None:
    """Each node has a part of it; it is reported just before the attempt ends."""
    resume = '[ -z "$ALLOT_RESUME_FROM" ] || { ls $ALLOT_RESUME_FROM/deep; exit; }'
    last = f"if [ $RANK = 0 ]; then sleep 2; {REPORT}exit 1; fi; sleep 600"
    spec = shell(f"{resume}\n{SAVE}{last}", count=2, resources={"gpu": 4}, retry=1)
    job = cluster.submit(spec)
    cluster.wait_for(job, "succeeded")
    assert cluster.job(job)["checkpoint"]["step"] == 5
    words = cluster.output(job).split()
    assert (words.count("rank-0"), words.count("rank-1")) == (2, 2), words


def test_a_checkpoint_that_is_not_there_does_not_count(cluster: OwnDisks) -> None:
    script = f"at=$ALLOT_CHECKPOINT_DIR/none\n{REPORT}sleep 3; exit 1"
    job = cluster.submit(shell(script))
    cluster.wait_for(job, "failed")
    assert cluster.job(job)["checkpoint"] is None
    said = cluster.said("show", str(job))
    assert "its last checkpoint does not count as saved: there is no file where" in said


def test_what_a_user_lays_into_a_checkpoint_keeps_nothing_waiting(cluster: OwnDisks) -> None:
    """Files of holes alone are as large as they say; pipes and links are left out."""
    lay = (
        "at=$ALLOT_CHECKPOINT_DIR/step-5; mkdir -p $at; mkfifo $at/pipe; "
        "ln -s /etc/shadow $at/link; "
        'echo fine > "$at/a\nb"; '
    )
    holes = f"{lay}truncate -s 70G $at/holes\n{REPORT}sleep 2; exit 1"
    done = as_nobody(cluster, "run", "--", "sh", "-c", holes)
    assert done.returncode == 1, done.stderr
    job = max(row["id"] for row in cluster.get("/v1/jobs")["items"])
    assert cluster.job(job)["checkpoint"] is None
    said = cluster.said("show", str(job))
    assert "it has 75161927685 bytes, and 68719476736 are kept at most" in said
    kept = cluster.submit(shell(f"{lay}\n{REPORT}sleep 600"))
    until(lambda: (cluster.job(kept)["checkpoint"] or {}).get("step") == 5, "it to be saved")
    folder = cluster.state / "engines/gpus/pilot/checkpoints" / str(kept)
    files = list(folder.glob("*/*/*"))
    assert [path.name for path in files] == ["a\nb"]
    assert files[0].read_text() == "fine\n"


VERSION = (
    "python -c 'import sys, framework; print(framework.version, sys.base_prefix, sys.prefix)'"
)


def packed(cluster: OwnDisks, script: str, **more: object) -> int:
    """Run a job with packages, and a Python that comes along, to its end."""
    asked = {"requirements": ["framework"], "python": f"{HERE}.98"}
    job = cluster.submit(shell(script, environment=asked, **more))
    cluster.wait_for(job, "succeeded", "failed")
    return job


def packed_says(cluster: OwnDisks, script: str, **more: object) -> str:
    job = packed(cluster, script, **more)
    said = cluster.output(job)
    assert cluster.state_of(job) == "succeeded", (str(cluster.job(job)["diagnosis"]), said)
    return said


def test_an_environment_is_brought_to_a_node_once(cluster: OwnDisks, index: Index) -> None:
    """What a task does to it is in vain."""
    found = packed_says(cluster, VERSION, count=2, resources={"gpu": 4}).splitlines()
    lines = [line.rpartition("| ")[2].split() for line in found]
    assert [words[0] for words in lines] == ["1.0", "1.0"]
    _, base, env = lines[0]
    assert not env.startswith(f"{cluster.state}/"), "the service's disk is not on the node"
    assert base.startswith(f"{env.partition('/environments/')[0]}/environments/pythons/")
    spoil = f"echo x >{env}/pyvenv.cfg; rm -rf {env}/lib; ls -ld {env}/lib"
    assert " root root " in packed_says(cluster, f"{spoil}; {VERSION}")
    assert "1.0" in packed_says(cluster, VERSION)
    assert sum(path.endswith(".whl") for path in index.asked) == 1


def test_a_job_goes_to_the_node_that_has_its_environment(cluster: OwnDisks) -> None:
    asked = {"environment": {"requirements": ["framework"]}, "resources": {"gpu": 1}}
    filling = cluster.submit(shell("sleep 1000", resources={"gpu": 4}))
    cluster.wait_for(filling, "running")
    first = cluster.submit(shell("python -c 'import framework'", **asked))
    cluster.wait_for(first, "succeeded")
    assert (cluster.node_of(filling), cluster.node_of(first)) == ("n1", "n2")
    key = cluster.job(first)["spec"]["environment"]["key"]
    noted = cluster.state / "engines/gpus/pilot/nodes/n2/content.json"
    until(lambda: noted.exists() and key in noted.read_text(), "n2 to say that it has it")
    cluster.allot("cancel", str(filling))
    cluster.wait_for(filling, "cancelled")
    again = cluster.submit(shell("python -c 'import framework'", **asked))
    cluster.wait_for(again, "succeeded")
    assert cluster.node_of(again) == "n2"
    assert cluster.job(again)["attempts"][-1]["with_environment"] == 1
    assert "where its environment is already" in cluster.allot("show", str(again)).stdout


@pytest.mark.needs_tool("docker-registry", "htpasswd", "busybox")
def test_an_environment_comes_into_an_image_that_can_run_it(
    cluster: OwnDisks, tmp_path: Path
) -> None:
    with a_registry(tmp_path / "registry") as registry:
        registry.push("libc", [busybox(), host_python()[0]])
        registry.push("bare", [busybox()])
        said = packed_says(cluster, VERSION, image=f"{registry.host}/libc:1")
        assert said.split()[0] == "1.0"
        assert "/environments/pythons/" in said.split()[1]
        job = packed(cluster, "echo began", image=f"{registry.host}/bare:1")
        assert cluster.job(job)["diagnosis"]["code"] == "environment_unfit"
        assert "began" not in cluster.output(job)

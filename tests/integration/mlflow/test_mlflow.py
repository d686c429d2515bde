"""Jobs that log to a real MLflow, which a real service starts."""

import json
import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allotment.backends.mlflow.server import RUNNER
from allotment.client import Client
from tests.support import mlflow
from tests.support.cluster import RealCluster, a_real_cluster, gone, until
from tests.support.image_python import host_python, with_libraries
from tests.support.patience import PATIENCE_S
from tests.support.registry import Job, a_registry, layer
from tests.support.served import free_ports

pytestmark = mlflow.MARKS

TRAIN = """\
import mlflow, os, pathlib, sys, time
mlflow.set_experiment(sys.argv[1])
run = mlflow.start_run(run_id=os.environ.get("ALLOT_MLFLOW_LAST_RUN"))
for step in range(1, 6):
    mlflow.log_metric("loss", 1 / step, step=step)
mlflow.log_metric("system/cpu", 50.0, step=1000)
class Model(mlflow.pyfunc.PythonModel):
    def predict(self, model_input: list[str]) -> list[str]:
        return model_input
if sys.argv[2] == "model":
    client = mlflow.MlflowClient()
    client.create_registered_model("resnet")
    client.create_model_version("resnet", run.info.artifact_uri, run.info.run_id)
print("run", run.info.run_id, flush=True)
pathlib.Path(sys.argv[3], "waits").touch()
while not pathlib.Path(sys.argv[3], "go").exists():
    time.sleep(0.05)
"""
IN_IMAGE = "import mlflow; print('run', mlflow.start_run().info.run_id)"
LIBRARIES = ("libstdc++.so.6", "libgcc_s.so.1", "librt.so.1", "libpthread.so.0", "libdl.so.2")
"""What packages load of the machine's that Python itself does not."""


class WithMlflow(RealCluster):
    """A service that starts MLflow."""

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__(folder / "state", "")
        self.port, self.meet = port, folder / "meet"
        (folder / "state").mkdir()
        self.meet.mkdir()
        program = mlflow.program()
        self.python = program.with_name("python")
        (folder / "train.py").write_text(TRAIN)
        self.train = folder / "train.py"
        self.config.write_text(
            f"mlflow: {{start: true, port: {port}, program: {program}}}\n"
            "nodes: [{name: n, cpu: 4, memory: 8GiB}]\ntenants: {vision: }\n"
        )

    @property
    def server(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def job(self, *words: str, meet: Path | None = None, **more: Any) -> int:
        command = f"exec {self.python} {self.train} {' '.join(words)} {meet or self.meet}"
        need = {"cpu": 1, "memory": "2GiB"}
        data = {"name": "train", "tenant": "vision", "command": command, "resources": need}
        return self.submit({**data, **more})

    def pids(self) -> list[int]:
        """Return the processes of the server, those that end it among them."""
        home = (self.state / "mlflow").resolve()
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdecimal() and (entry / "cwd").readlink() == home:
                    found.append(int(entry.name))
            except OSError:
                continue
        return found


@pytest.fixture(scope="module")
def cluster(reachable_once: Path) -> Iterator[WithMlflow]:
    mlflow.program()
    made = WithMlflow(reachable_once, free_ports(1)[0])
    made.up()
    try:
        until(lambda: mlflow.answers(made.server), "MLflow", 4 * PATIENCE_S)
        yield made
    finally:
        made.down()
        until(lambda: not made.pids(), "MLflow to be gone")


def test_a_run_says_which_job_made_it_and_what_it_logs_is_progress(cluster: WithMlflow) -> None:
    job = cluster.job("pictures", "model")

    def shown() -> dict[str, Any]:
        return cluster.get(f"/v1/jobs/{job}")

    until((cluster.meet / "waits").exists, "the job to have logged", 2 * PATIENCE_S)
    until(lambda: (shown()["progress"] or {}).get("step") == 5, "its progress")
    progress = shown()["progress"]
    assert progress["metrics"] == {"loss": pytest.approx(0.2)}
    (run,) = shown()["runs"]
    assert run["run"] in cluster.allot("logs", str(job)).stdout
    assert (run["attempt"], run["status"]) == (1, "RUNNING")
    assert run["url"].startswith(f"{cluster.server}/#/experiments/")
    page = cluster.allot("show", str(job)).stdout
    assert f"{run['url']} (attempt 1, running)" in page
    assert "loss" in page
    (cluster.meet / "go").touch()
    cluster.wait_for(job, "succeeded")

    until(lambda: cluster.ask("GET", "/v1/models")[0] == 200, "MLflow to have a moment")
    with Client(state=str(cluster.state)) as client:
        (model,) = client.models().items
        assert (model.name, model.version, model.job, model.tenant) == (
            "resnet", "1", job, "vision",
        )  # fmt: skip
        assert client.job(job).runs[0].run == run["run"]
    assert (
        "`allot models` shows 1 model"
        in cluster.allot("doctor", "--state", str(cluster.state)).stdout
    )
    listed = cluster.allot("models").stdout
    assert "resnet" in listed
    assert "train" in listed
    status, raw = cluster.ask("GET", "/v1/models")
    assert (status, raw["server"]) == (200, cluster.server)


def tags_of(cluster: WithMlflow, output: str) -> dict[str, str]:
    """Return what MLflow itself says of the run that a job's output names."""
    found = re.findall(r"^run (\w+)$", output, re.MULTILINE)
    assert len(found) == 1, output
    address = f"{cluster.server}/api/2.0/mlflow/runs/get?run_id={found[0]}"
    with urllib.request.urlopen(address) as answer:
        told = json.load(answer)["run"]["data"]["tags"]
    return {tag["key"]: tag["value"] for tag in told}


def test_a_run_keeps_what_it_was_made_of(cluster: WithMlflow, tmp_path: Path) -> None:
    """Its code by content and commit, and its data by version, are tags in MLflow itself."""
    (tmp_path / "words.txt").write_text("words")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, check=True)
    with Client(state=str(cluster.state)) as client:
        client.create_dataset("words", tenant="vision")
        client.put_data("words", tmp_path / "words.txt")
        taken = client.take_code(tmp_path)
    meet = tmp_path / "meet"
    meet.mkdir()
    (meet / "go").touch()
    job = cluster.job("made", "none", meet=meet, code=taken.code, data={"words": "/data/words"})
    cluster.wait_for(job, "succeeded", seconds=4 * PATIENCE_S)
    tags = tags_of(cluster, Job(cluster, job).output)
    view = cluster.get(f"/v1/jobs/{job}")
    assert tags["allotment.job"] == str(job)
    assert tags["allotment.commit"] == commit.stdout.decode().strip()
    assert tags["allotment.code"] == view["spec"]["code"]["bundle"]
    assert tags["allotment.data"] == "vision/words@1"


@pytest.mark.needs_root
@pytest.mark.needs_tool("docker-registry", "htpasswd")
def test_a_run_keeps_the_digest_of_its_image(cluster: WithMlflow, reachable: Path) -> None:
    """MLflow's own client runs in the image, out of a registered folder."""
    venv = mlflow.folder()
    libraries = [Path("/usr/lib/x86_64-linux-gnu", name) for name in LIBRARIES]
    with a_registry(reachable / "registry") as registry:
        digest = registry.push(
            "python", [host_python()[0], layer(*with_libraries(libraries, []))]
        )
        with Client(state=str(cluster.state)) as client:
            client.create_dataset("mlflow", tenant="vision", folder=str(venv))
        job = cluster.submit({
            "name": "in-image", "tenant": "vision", "image": f"{registry.host}/python:1",
            "command": ["/data/mlflow/bin/python", "-c", IN_IMAGE],
            "data": {"mlflow": "/data/mlflow"},
            "resources": {"cpu": 1, "memory": "2GiB"},
        })  # fmt: skip
        cluster.wait_for(job, "succeeded", "failed", seconds=4 * PATIENCE_S)
        done = Job(cluster, job)
        assert done.state == "succeeded", done.diagnosis["evidence"]
        tags = tags_of(cluster, done.output)
    assert tags["allotment.job"] == str(job)
    assert tags["allotment.image"] == f"{registry.host}/python:1@{digest}"


def test_a_service_that_starts_again_finds_the_runs_of_before(cluster: WithMlflow) -> None:
    job = json.loads(cluster.allot("models", "--json").stdout)["items"][0]["job"]
    before = cluster.get(f"/v1/jobs/{job}")["runs"]
    pids = cluster.pids()
    assert pids
    cluster.kill()
    until(lambda: all(map(gone, pids)), "MLflow to end with its service")
    cluster.up()
    until(lambda: mlflow.answers(cluster.server), "MLflow", 4 * PATIENCE_S)
    until(lambda: bool(cluster.get(f"/v1/jobs/{job}")["runs"]), "its runs", 2 * PATIENCE_S)
    after = cluster.get(f"/v1/jobs/{job}")["runs"]
    assert [run["run"] for run in after] == [run["run"] for run in before]
    assert after[0]["status"] == "FINISHED"


@pytest.mark.needs_root
def test_it_is_not_roots_and_nobody_elses(cluster: WithMlflow) -> None:
    pids = cluster.pids()
    assert pids
    for pid in pids:
        status = Path(f"/proc/{pid}/status").read_text()
        line = next(each for each in status.splitlines() if each.startswith("Uid:"))
        assert line.split()[1:] == [str(RUNNER)] * 4
    home = (cluster.state / "mlflow").stat()
    assert (home.st_uid, home.st_mode & 0o777) == (RUNNER, 0o700)


def test_a_server_that_is_killed_comes_back(cluster: WithMlflow) -> None:
    for pid in cluster.pids():
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            continue
    until(lambda: not mlflow.answers(cluster.server), "MLflow to be away")
    job = cluster.submit({
        "name": "meanwhile", "tenant": "vision", "command": "true",
        "resources": {"cpu": 1, "memory": "64MiB"},
    })  # fmt: skip
    cluster.wait_for(job, "succeeded")
    until(lambda: mlflow.answers(cluster.server), "MLflow", 4 * PATIENCE_S)


@pytest.mark.needs_root
def test_a_program_that_cannot_run_harms_nothing_and_is_told(reachable: Path) -> None:
    config = (
        f"mlflow: {{start: true, port: {free_ports(1)[0]}, program: /bin/false}}\n"
        "nodes: [{name: n, cpu: 4, memory: 8GiB}]\ntenants: {vision: }\n"
    )
    with a_real_cluster(reachable, config) as cluster:
        log = cluster.state / "service.log"
        until(lambda: "MLflow does not run" in log.read_text(), "the log to say so")
        job = cluster.submit({
            "name": "x", "tenant": "vision", "command": "echo $MLFLOW_TRACKING_URI",
            "resources": {"cpu": 1, "memory": "64MiB"},
        })  # fmt: skip
        cluster.wait_for(job, "succeeded")
        doctor = cluster.allot("doctor", "--state", str(cluster.state)).stdout
        assert "warn  mlflow" in doctor
        told = cluster.allot("models")
        assert told.returncode == 1
        assert "does not say which models it has" in told.stderr

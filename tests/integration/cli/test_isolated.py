"""Nothing of the folder or the environment of who starts a service runs in what it starts."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import allotment
from tests.support.cluster import RealCluster, end_launchers, until
from tests.support.patience import PATIENCE_S

ALLOT = Path(sys.executable).with_name("allot")
NAMES = ("sitecustomize", "usercustomize", "allotment", "msgspec", "json", "socket", "select")
TRAP = """
import os
with open({marks!r}, "a") as file:
    file.write(f"{{os.getpid()}} {{__name__}}\\n")
"""
CONFIG = """
tenants: {everyone: {guaranteed: {gpu: 1, cpu: 4}}}
nodes: [{name: here, cpu: 4, memory: 8GiB, gpu: {type: T, count: 1}}]
"""


@pytest.fixture
def trap(reachable: Path) -> Path:
    """A folder full of modules with the names of ours, that tell when they are imported.

    Beside it one for PYTHONPATH, whose only module any Python imports at its start.
    """
    folder = reachable / "trap"
    folder.mkdir()
    path = reachable / "path"
    path.mkdir()
    text = TRAP.format(marks=str(reachable / "marks"))
    for name in NAMES:
        (folder / f"{name}.py").write_text(text)
    (path / "sitecustomize.py").write_text(text)
    return folder


def sprung(folder: Path, but: int) -> list[str]:
    """Return who imported a trap, but for the process we started with them on its path."""
    marks = folder.parent / "marks"
    lines = marks.read_text().splitlines() if marks.exists() else []
    return [line for line in lines if line.split()[0] != str(but)]


@contextmanager
def a_service(trap: Path, *words: str) -> Iterator[tuple[RealCluster, int]]:
    """Start one as an administrator with a poisoned environment, standing in the trap."""
    state = trap.parent / "state"
    state.mkdir(mode=0o711)
    cluster = RealCluster(state, CONFIG)
    poison = {
        "PYTHONPATH": str(trap.parent / "path"),
        "PYTHONSTARTUP": str(trap / "json.py"),
        "PYTHONWARNINGS": "error",
        "LD_PRELOAD": "/no/such/library.so",
        "BASH_ENV": str(trap / "json.py"),
        "SECRET_OF_ADMIN": "hunter22",
    }
    process = subprocess.Popen(
        [ALLOT, "up", "--state", str(state), "--config", str(cluster.config), *words],
        cwd=trap,
        env={**os.environ, **poison} if "--foreground" not in words else None,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        if not words:
            assert process.wait(PATIENCE_S) == 0
        until(lambda: (state / "address.json").exists(), "the service to be up")
        until(lambda: cluster.ask("GET", "/v1/service")[0] == 200, "an answer")
        yield cluster, process.pid
    finally:
        cluster.down()
        end_launchers(state)
        process.wait(PATIENCE_S)


def run_a_job(cluster: RealCluster) -> str:
    """Have a launcher, a supervisor, a task and a forecast started; give what the task said."""
    job = cluster.submit(a_job(["cat", "/proc/self/environ"]))
    cluster.wait_for(job, "succeeded", "failed")
    cluster.wait_for(cluster.submit(a_job("sleep 600")), "running")
    waiting = cluster.submit(a_job("true"))
    assert cluster.ask("GET", f"/v1/jobs/{waiting}/eta")[0] == 200
    done = cluster.allot("logs", str(job))
    return done.stdout.replace("\0", "\n")


def a_job(command: object) -> dict[str, object]:
    need = {"gpu": 1, "cpu": 1}
    return {"name": "j", "tenant": "everyone", "command": command, "resources": need}


@pytest.mark.parametrize("words", [(), ("--foreground",)], ids=["background", "foreground"])
def test_nothing_of_the_starters_surroundings_is_run(trap: Path, words: tuple[str]) -> None:
    with a_service(trap, *words) as (cluster, pid):
        env = run_a_job(cluster)
        assert sprung(trap, pid) == []
        names = {line.split("=", 1)[0] for line in env.splitlines()}
        assert "ALLOT_JOB_ID" in names, env
        assert not names & {"PYTHONPATH", "PYTHONSTARTUP", "LD_PRELOAD", "BASH_ENV"}
        assert "hunter22" not in env
        if not words:
            service = cluster.address["pid"]
            assert b"hunter22" not in Path(f"/proc/{service}/environ").read_bytes()


def test_a_module_of_ours_is_found_without_being_installed(tmp_path: Path) -> None:
    """As with PYTHONPATH: isolated, a program looks where its starter has its modules."""
    code = (
        "from allotment.service.isolated import isolated; import json; "
        "print(json.dumps(isolated('allotment.cli', '--version')))"
    )
    copied = tmp_path / "lib"
    shutil.copytree(Path(allotment.__file__).parent, copied / "allotment")
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(copied)},
        capture_output=True,
        text=True,
        check=True,
    )
    argv = json.loads(done.stdout)
    assert str(copied) in argv
    assert subprocess.run(argv, cwd="/", capture_output=True, check=False).returncode == 0

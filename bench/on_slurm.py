"""What the benchmarks on Slurm share: a service on a Slurm of the benchmark's own."""

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.cluster import ALLOT, BenchCluster, Connection, allot, until
from tests.support.slurm import TOOLS, Slurm


def is_possible() -> bool:
    """Whether Slurm can be run here; says so where it cannot."""
    if os.geteuid() == 0 and all(map(shutil.which, TOOLS)):
        print(f"  load: {os.getloadavg()[0]:.1f}", flush=True)
        return True
    print("  left out: it needs root and Slurm")
    return False


@contextmanager
def a_folder() -> Iterator[Path]:
    """Make a folder that every user may pass through, and that goes away."""
    folder = Path(tempfile.mkdtemp(prefix="allot-bench-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def a_service(
    slurm: Slurm, state: Path, config: str, options: Sequence[str] = ()
) -> Iterator[BenchCluster]:
    """Start a service on the nodes of a partition; end it with its jobs."""
    state.mkdir()
    path = state.with_suffix(".yaml")
    path.write_text(config)
    words = [*ALLOT, "up", "--slurm", "main", *options, "--config", str(path)]
    env = {**slurm.env, "ALLOT_STATE": str(state)}
    subprocess.run(words, env=env, check=True, capture_output=True)
    try:
        yield BenchCluster(state)
    finally:
        allot(state, "down", "--cancel-jobs")
        until(lambda: not slurm.say("squeue", "-h"), "the nodes to be given back")


def nodes_of(slurm: Slurm) -> str:
    """Return the `nodes` of a configuration, as the Slurm has them."""
    names = ", ".join(f"n{number}" for number in range(1, slurm.nodes + 1))
    gpus = f"gpu: {{type: a100, count: {slurm.gpus}}}"
    about = f"cpu: {slurm.cpus}, memory: 2000MiB, disk: 1TiB, {gpus}"
    return f"nodes: [{{names: [{names}], {about}}}]\n"


def is_live(connection: Connection) -> bool:
    """Whether any job has not ended."""
    time.sleep(0.05)
    states = "&".join(f"state={s}" for s in ("queued", "starting", "running", "stopping"))
    return bool(connection.get(f"/v1/jobs?limit=1&{states}")["items"])


def thousand(connection: Connection, need: Mapping[str, object], jobs: int) -> float:
    """Submit so many jobs of `true`; return how long all of them took, in seconds."""
    body = body_of("true", need)
    connection.submit(body)
    until(lambda: not is_live(connection), "the first job")
    began = time.perf_counter()
    for _ in range(jobs):
        connection.submit(body)
    until(lambda: not is_live(connection), "all jobs to end", 600)
    took = time.perf_counter() - began
    failed = connection.get("/v1/jobs?finished=true&state=failed&limit=100")["items"]
    if failed:
        raise RuntimeError(f"{len(failed)} of {jobs} jobs failed")
    return took


def body_of(command: str, need: Mapping[str, object]) -> bytes:
    """Return the body of a submission."""
    return json.dumps({"name": "bench", "command": command, "resources": need}).encode()


def start_of(
    connection: Connection, need: Mapping[str, object], folder: Path, number: int
) -> float:
    """Return how long after its submission the first line of a job runs, in ms."""
    until(lambda: not is_live(connection), "quiet")
    stamp = folder / f"stamp-{number}"
    body = body_of(stamping(stamp), need)
    began = time.time_ns()
    connection.submit(body)
    return until_stamped(stamp, began)


def stamping(stamp: Path) -> str:
    """Return a command that writes the clock into a file."""
    return f"date +%s%N > {stamp}.new; mv {stamp}.new {stamp}"


def until_stamped(stamp: Path, began: int) -> float:
    """Wait for a file with the clock; return how long after `began` that was, in ms."""
    until(stamp.exists, "the job to run")
    return (int(stamp.read_text()) - began) / 1e6


def start_in_slurm(slurm: Slurm, folder: Path, number: int) -> float:
    """Return how long after `sbatch` the first line of a job runs, in ms."""
    stamp = folder / f"sbatch-{number}"
    script = folder / f"sbatch-{number}.sh"
    script.write_text(f"#!/bin/sh\n{stamping(stamp)}\n")
    began = time.time_ns()
    slurm.say("sbatch", "--gres=gpu:1", "-o", "/dev/null", str(script))
    return until_stamped(stamp, began)

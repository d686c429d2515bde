"""Whole Slurm nodes held by Allotment, beside Slurm alone: the same daemons in one run.

Four nodes of eight GPUs, all on this machine. A thousand jobs of `true` with one GPU each:
through the service, and as an array of Slurm. Then one job at a time: from before the
submission to the first line of the job, which writes the clock.
"""

import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from bench.cluster import ALLOT, BenchCluster, Connection, allot, percentile, until
from bench.figures import Figure
from tests.support.slurm import TOOLS, Slurm, a_slurm

JOBS = 1000
ROUNDS = 30
NODES, GPUS = 4, 8


def main() -> list[Figure]:
    if os.geteuid() != 0 or not all(map(shutil.which, TOOLS)):
        print("  left out: it needs root and Slurm")
        return []
    folder = Path(tempfile.mkdtemp(prefix="allot-bench-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        with a_slurm(NODES, GPUS) as slurm:
            figures = _slurm(slurm, folder)
            return figures + _pilot(slurm, folder, figures[0].value)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ── Slurm alone ─────────────────────────────────────────────────────────────────────────


def _slurm(slurm: Slurm, folder: Path) -> list[Figure]:
    script = folder / "true.sh"
    script.write_text("#!/bin/sh\ntrue\n")
    began = time.perf_counter()
    slurm.say("sbatch", f"--array=1-{JOBS}", "--gres=gpu:1", "-o", "/dev/null", str(script))
    until(lambda: not slurm.say("squeue", "-h", "-o", "%i"), "the array to end", 600)
    took = time.perf_counter() - began
    starts = [_start_in_slurm(slurm, folder, number) for number in range(ROUNDS)]
    return [
        Figure("Slurm alone: array of 1,000 × `true`, 32 GPUs", took, "s", "lower"),
        Figure("Slurm alone: sbatch → running, p50", percentile(starts, 0.5), "ms", "lower"),
    ]


def _start_in_slurm(slurm: Slurm, folder: Path, number: int) -> float:
    stamp = folder / f"sbatch-{number}"
    script = folder / f"sbatch-{number}.sh"
    script.write_text(f"#!/bin/sh\ndate +%s%N > {stamp}.new; mv {stamp}.new {stamp}\n")
    began = time.time_ns()
    slurm.say("sbatch", "--gres=gpu:1", "-o", "/dev/null", str(script))
    return _until_stamped(stamp, began)


def _until_stamped(stamp: Path, began: int) -> float:
    until(stamp.exists, "the job to run")
    return (int(stamp.read_text()) - began) / 1e6


# ── through pilots ──────────────────────────────────────────────────────────────────────


def _pilot(slurm: Slurm, folder: Path, alone: float) -> list[Figure]:
    state = folder / "state"
    state.mkdir()
    config = folder / "bench.yaml"
    names = ", ".join(f"n{number}" for number in range(1, NODES + 1))
    config.write_text(
        f"nodes: [{{names: [{names}], cpu: {GPUS}, memory: 2000MiB, disk: 1TiB, "
        f"gpu: {{type: a100, count: {GPUS}}}}}]\n"
        f"tenants: {{bench: {{}}}}\nlimits: {{keep_finished: {2 * JOBS}}}\n"
    )
    words = [*ALLOT, "up", "--slurm", "main", "--pilot", "--config", str(config)]
    env = {**slurm.env, "ALLOT_STATE": str(state)}
    began = time.perf_counter()
    subprocess.run(words, env=env, check=True, capture_output=True)
    cluster = BenchCluster(state)
    try:
        connection = cluster.connect()
        until(lambda: _held(connection), "the nodes to be held")
        held = time.perf_counter() - began
        took = _thousand(connection)
        starts = [_start(connection, folder, number) for number in range(ROUNDS)]
        connection.close()
    finally:
        allot(state, "down", "--cancel-jobs")
        until(lambda: not slurm.say("squeue", "-h"), "the nodes to be given back")
    return [
        Figure("pilots: `allot up` → four nodes held", held, "s", "lower"),
        Figure("pilots: 1,000 × `true`, first POST to last finish", took, "s", "lower", 8.0),
        Figure("  of Slurm's own time", took / alone, "×", "lower", 0.1),
        Figure("pilots: submit → running, p50", percentile(starts, 0.5), "ms", "lower", 30),
        Figure("pilots: submit → running, p90", percentile(starts, 0.9), "ms", "lower"),
    ]


def _held(connection: Connection) -> bool:
    return all(node["state"] == "ready" for node in connection.get("/v1/nodes"))


def _body(command: str) -> bytes:
    need = {"gpu": 1, "cpu": 0.1, "memory": "32MiB"}
    return json.dumps({"name": "bench", "command": command, "resources": need}).encode()


def _thousand(connection: Connection) -> float:
    body = _body("true")
    connection.submit(body)
    until(lambda: not _live(connection), "the first job")
    began = time.perf_counter()
    for _ in range(JOBS):
        connection.submit(body)
    until(lambda: not _live(connection), "all jobs to end")
    took = time.perf_counter() - began
    failed = connection.get("/v1/jobs?finished=true&state=failed&limit=100")["items"]
    if failed:
        raise RuntimeError(f"{len(failed)} of {JOBS} jobs failed")
    return took


def _live(connection: Connection) -> bool:
    time.sleep(0.05)
    states = "&".join(f"state={s}" for s in ("queued", "starting", "running", "stopping"))
    return bool(connection.get(f"/v1/jobs?limit=1&{states}")["items"])


def _start(connection: Connection, folder: Path, number: int) -> float:
    until(lambda: not _live(connection), "quiet")
    stamp = folder / f"stamp-{number}"
    body = _body(f"date +%s%N > {stamp}.new; mv {stamp}.new {stamp}")
    began = time.time_ns()
    connection.submit(body)
    return _until_stamped(stamp, began)

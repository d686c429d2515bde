"""What an image costs a task, and how long one takes to come, beside other tools.

Submit → process running is from sending the request to the start that the supervisor noted.
Beside it the same image by podman, and by docker where its daemon runs: from starting the
command to the first letter of its program, with the network of the machine, as jobs have it.
The cold pull is of 96 MiB in 3,000 files over three layers, from a registry on this machine:
`allot image pull` as a whole, and `skopeo copy` with `umoci unpack` where they are installed.
What jobs take on the disk is how much larger the service's whole folder is while they run:
the store, what tasks write into images, their scratch folders and records, and the event log.
"""

import json
import os
import random
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from bench.cluster import BenchCluster, a_cluster, a_job, allot, percentile, until
from bench.figures import Figure
from tests.support.registry import Registry, a_file, a_registry, busybox, layer

ROUNDS = 30
MANY = 1000
AT_ONCE = 100
TOOLS = ("docker-registry", "htpasswd")


def main() -> list[Figure]:
    if os.geteuid() != 0 or not all(shutil.which(tool) for tool in TOOLS):
        print("  not root, or no docker-registry and htpasswd: nothing to measure")
        return []
    with (
        tempfile.TemporaryDirectory(prefix="allot-bench-") as folder,
        a_registry(Path(folder) / "registry") as registry,
        a_cluster(gpus=8) as cluster,
    ):
        registry.push("small", [busybox()])
        registry.push("large", _large())
        image = f"{registry.host}/small:1"
        _start(cluster, image)
        pairs = [(_start(cluster, ""), _start(cluster, image)) for _ in range(ROUNDS)]
        bare, inside = ([pair[k] for pair in pairs] for k in (0, 1))
        many_bare, many_inside = _many(cluster, ""), _many(cluster, image)
        taken_mib = _taken_mib(cluster, image)
        pull = _pull(cluster, registry)
        other = _other_tools(registry, Path(folder))
        runs = _runs(image, Path(folder))
        builds = _builds(cluster, registry, Path(folder))
    added = percentile(inside, 0.5) - percentile(bare, 0.5)
    figures = [
        Figure("submit → running in an image, p50", percentile(inside, 0.5), "ms", "lower", 40),
        *runs,
        Figure("what the image adds, p50", added, "ms", "lower", 12),
        Figure(f"{MANY:,} jobs of `true`, in an image", many_inside, "s", "lower"),
        Figure("  to the same without", many_inside / many_bare, "×", "lower", 1.5),
        Figure(f"disk per job, {AT_ONCE} in one image", taken_mib / AT_ONCE, "MiB", "lower", 5),
        Figure("cold pull of 96 MiB", pull, "s", "lower"),
    ]
    if other:
        figures.append(Figure("  skopeo copy, umoci unpack", other, "s", "lower"))
        figures.append(Figure("  to these", pull / other, "×", "lower", 1.2))
    return figures + builds


def _large() -> list[bytes]:
    rng = random.Random(1)
    half = [rng.randbytes(16 << 10) + bytes(16 << 10) for _ in range(1000)]
    files = [
        [a_file(f"data-{part}/{n}", data[part:] + data[:part]) for n, data in enumerate(half)]
        for part in range(3)
    ]
    return [busybox(*files[0]), layer(*files[1]), layer(*files[2])]


def _job(image: str) -> bytes:
    return a_job("/bin/true", gpu=1, **({"image": image} if image else {}))


def _start(cluster: BenchCluster, image: str) -> float:
    connection = cluster.connect()
    began = time.time_ns()
    job = connection.submit(_job(image))
    until(lambda: _state(cluster, job) == "succeeded", "the job to end")
    task = cluster.connect().get(f"/v1/jobs/{job}")["attempts"][0]["tasks"][0]
    connection.close()
    return task["started_at"] - began / 1e6


def _state(cluster: BenchCluster, job: int) -> str:
    connection = cluster.connect()
    try:
        return connection.get(f"/v1/jobs/{job}")["row"]["state"]
    finally:
        connection.close()


def _many(cluster: BenchCluster, image: str) -> float:
    connection = cluster.connect()
    began = time.perf_counter()
    jobs = [connection.submit(_job(image)) for _ in range(MANY)]
    until(lambda: _state(cluster, jobs[-1]) == "succeeded", "the last job to end")
    connection.close()
    return time.perf_counter() - began


def _taken_mib(cluster: BenchCluster, image: str) -> float:
    """Measure what jobs take on the disk, all running at once, before they write anything."""
    small = {"cpu": 0.01, "memory": "8MiB"}
    role = {"command": "sleep 1000", "resources": small}
    spec = {"name": "at-once", "tenant": "bench", "image": image, "roles": {"main": role}}
    body = json.dumps(spec).encode()
    connection = cluster.connect()
    before = _blocks_mib(cluster.state)
    jobs = [connection.submit(body) for _ in range(AT_ONCE)]
    running = f"/v1/jobs?limit={AT_ONCE}&state=running"
    until(lambda: len(connection.get(running)["items"]) == AT_ONCE, "all jobs to run at once")
    taken = _blocks_mib(cluster.state) - before
    for job in jobs:
        connection.ask("POST", f"/v1/jobs/{job}:cancel", b"{}")
    until(lambda: not connection.get(running)["items"], "all jobs to be gone")
    connection.close()
    return taken


def _blocks_mib(folder: Path) -> float:
    """Add up the blocks of the disk below a folder, each file's once."""
    words = ["du", "-sx", "-B1", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return int(done.stdout.split()[0]) / 2**20  # What goes away meanwhile is no matter.


def _pull(cluster: BenchCluster, registry: Registry) -> float:
    began = time.perf_counter()
    done = allot(cluster.state, "image", "pull", f"{registry.host}/large:1")
    if done.returncode:
        raise RuntimeError(done.stderr)
    return time.perf_counter() - began


def _other_tools(registry: Registry, folder: Path) -> float:
    """Measure the same with other tools; 0 where these are not installed."""
    if not shutil.which("skopeo") or not shutil.which("umoci"):
        return 0.0
    began = time.perf_counter()
    source = f"docker://{registry.host}/large:1"
    copy = ["skopeo", "--insecure-policy", "copy", "--quiet", "--src-tls-verify=false"]
    subprocess.run([*copy, source, f"oci:{folder}/oci:1"], check=True)
    unpack = ["umoci", "unpack", "--image", f"{folder}/oci:1", f"{folder}/bundle"]
    subprocess.run(unpack, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


PODMAN_CONF = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
"""
"""What it takes where there is no systemd, and no right to raise limits."""


def _runs(image: str, folder: Path) -> list[Figure]:
    """Measure how long other tools take to run a program in the same image, where they can."""
    figures: list[Figure] = []
    if shutil.which("podman"):
        conf = folder / "containers.conf"
        conf.write_text(PODMAN_CONF)
        places = ["--root", f"{folder}/podman", "--runroot", f"{folder}/podman-run"]
        podman = ["podman", *places, "--storage-driver", "overlay"]
        env = {**os.environ, "CONTAINERS_CONF": str(conf)}
        pull = [*podman, "pull", "--quiet", "--tls-verify=false", image]
        subprocess.run(pull, env=env, check=True, stdout=subprocess.DEVNULL)
        figures.append(_run_by("podman", podman, image, env))
        subprocess.run([*podman, "system", "reset", "--force"], env=env, check=True,
                       capture_output=True)  # fmt: skip
    docker = ["docker"]
    if shutil.which("docker") and _is_up([*docker, "info"]):
        subprocess.run([*docker, "pull", "--quiet", image], check=True, capture_output=True)
        figures.append(_run_by("docker", docker, image, dict(os.environ)))
        subprocess.run([*docker, "rmi", image], check=True, capture_output=True)
    return figures


def _is_up(words: list[str]) -> bool:
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def _run_by(name: str, tool: list[str], image: str, env: dict[str, str]) -> Figure:
    words = [*tool, "run", "--rm", "--network", "host", image, "/bin/echo", "here"]
    took: list[float] = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        with subprocess.Popen(words, env=env, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            if not process.stdout.read(1):
                raise RuntimeError(f"{name} ran nothing")
            took.append((time.perf_counter() - began) * 1000)
    return Figure(f"  by {name} run", percentile(took, 0.5), "ms", "lower")


def _builds(cluster: BenchCluster, registry: Registry, folder: Path) -> list[Figure]:
    """Build four layers and push them, and again with another last one.

    Beside it the same by buildah alone, without a job; nothing where that is not installed.
    """
    if not shutil.which("buildah"):
        return []
    here = folder / "build"
    (here / "bin").mkdir(parents=True)
    for name in ("sh", "dd", "echo"):
        shutil.copy("/bin/busybox", here / "bin" / name)
    steps = "".join(f"RUN dd if=/dev/urandom of=/{n} bs=1M count=8\n" for n in range(2))
    name = f"{registry.host}/built:1"
    jobs: list[float] = []
    alone: list[float] = []
    reused = 0
    for last in ("one", "other"):
        text = f"FROM scratch\nCOPY bin /bin\n{steps}RUN echo {last} > /last\n"
        (here / "Dockerfile").write_text(text)
        began = time.perf_counter()
        where = f"XDG_DATA_HOME={folder}/data"
        done = allot(cluster.state, "image", "build", "-t", name, "-e", where, str(here))
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)
        jobs.append(time.perf_counter() - began)
        reused = done.stdout.count("--> Using cache")
        began = time.perf_counter()
        _by_buildah(here, folder, f"{registry.host}/alone:1")
        alone.append(time.perf_counter() - began)
    return [
        Figure("build and push of 4 layers, 2 of 8 MiB", jobs[0], "s", "lower"),
        Figure("  by buildah alone", alone[0], "s", "lower"),
        Figure("with another last step", jobs[1], "s", "lower", 2),
        Figure("  by buildah alone", alone[1], "s", "lower"),
        Figure("  layers used again", reused, "", "higher", 3),
    ]


def _by_buildah(here: Path, folder: Path, name: str) -> None:
    """Build and push as root, with nothing of ours."""
    words = ["buildah", "--root", f"{folder}/alone", "--runroot", f"{folder}/alone-run"]
    build = ["build", "-q", "--isolation", "chroot", "--layers", "-t", name, str(here)]
    push = ["push", "-q", "--tls-verify=false", name, f"docker://{name}"]
    for each in (build, push):
        subprocess.run([*words, *each], check=True, stdout=subprocess.DEVNULL)

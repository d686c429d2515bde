"""What tests share that break things on a Kubernetes under load: the load, and the faults."""

import contextlib
import itertools
import os
import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from tests.support.chaos import (
    DRAINED_S,
    Load,
    Told,
    ended,
    events_of,
    unended,
)
from tests.support.cluster import RealCluster, until
from tests.support.kube_judge import HERE, Play
from tests.support.kubernetes import GPUS, IMAGE, NAMESPACE, Kubernetes
from tests.support.line import Line
from tests.support.pod_witness import SERVICE, Findings, Witness

FAULTS = int(os.environ.get("ALLOT_FAULTS", "12"))
"""`make nightly` makes 200."""
SEED = int(os.environ.get("ALLOT_SEED", "2026"))
TEAMS = """\
tenants:
  a: {{guaranteed: {{gpu: 3}}, queues: {{default: {{order: skip}}}}}}
  b: {{guaranteed: {{gpu: 3}}, queues: {{default: {{order: skip}}}}}}
  c: {{guaranteed: {{gpu: 2}}, queues: {{default: {{order: skip}}}}}}
limits: {{platform_retries: 1000, backoff: {{first: 100ms, most: 1s}}, phase: 60s, barrier: 5s}}
"""
ENGINE = """\
engines:
  k8s:
    type: kubernetes
    kubeconfig: {kubeconfig}
    image: "{image}"
    volumes: {{{folder}: host, /usr: host, /lib: host, /lib64: host}}
    namespaces: {{{namespaces}}}
"""
_NODES = """\
nodes:
- names: [{nodes}]
  cpu: 2
  memory: 2000MiB
  disk: 1GiB
  gpu: {{type: gpu, count: {gpus}}}
  engine: k8s
"""
CONFIG = ENGINE + _NODES + TEAMS
HALF_S = 60 + 5 + 10
"""A gang that is bound in part has failed by then: its phase, its barrier, and its end."""
COUNTED = """\
node=$(grep -o 'n[12]/kubepods' /proc/self/cgroup | head -n 1)
node=${{node%%/*}}
for slot in {slots} none; do
  exec 9>> {folder}/locks/${{node:-$ALLOT_NODE}}.$slot
  flock -n 9 && break
done
[ $slot = none ] && echo twice $me has no device on $node >> {marks}
"""
"""A pod takes any device that nobody has: as many are there as its node may give. A pod that
others put on a node knows by its cgroup where it is."""
HOLD = """\
exec 8>> {folder}/locks/$task
flock -n 8 || echo twice $me is there already >> {marks}
echo begin $me >> {marks}
sleep {seconds} || exit
echo end $me >> {marks}
"""
OWN = """\
me=$ALLOT_JOB_ID.$ALLOT_ATTEMPT.$ALLOT_ROLE_INDEX
task={whose}.$ALLOT_JOB_ID.$ALLOT_ROLE_INDEX
"""
THEIRS = """\
me=$POD
task=$POD
"""
Tree = dict[str, Any]


def script(folder: Path, whose: str, seconds: float, takes: str = COUNTED) -> str:
    """Return what a pod does; `whose` are its marks, `takes` is how it holds devices."""
    head = THEIRS if whose == "theirs" else OWN.format(whose=whose)
    slots = " ".join(map(str, range(GPUS)))
    marks = folder / whose
    text = head + takes + HOLD
    return text.format(folder=folder, marks=marks, slots=slots, seconds=seconds)


def a_job(
    folder: Path, whose: str, rng: random.Random, takes: str = COUNTED
) -> dict[str, object]:
    """Return a gang of one to three short tasks, whose role says of how many."""
    count = rng.choice([1, 2, 3])
    seconds = rng.choice([0.1, 0.5, 1, 3])
    role = {
        "count": count,
        "command": script(folder, whose, seconds, takes),
        "resources": {"gpu": 1, "cpu": 0.05, "memory": "16MiB"},
    }
    return {"name": "chaos", "tenant": rng.choice("ab"), "roles": {f"of{count}": role}}


class OnCluster(RealCluster):
    """A service on the cluster, which it asks over a line."""

    def __init__(
        self,
        folder: Path,
        whose: str,
        kubernetes: Kubernetes,
        port: int,
        namespaces: str,
        text: str = CONFIG,
    ) -> None:
        self.whose = whose
        (folder / whose).touch()
        kubeconfig = folder / f"{whose}.kubeconfig"
        access = kubernetes.kubeconfig.read_text()
        kubeconfig.write_text(access.replace(f":{kubernetes.port}", f":{port}"))
        kubeconfig.chmod(0o600)
        state = folder / f"state-{whose}"
        state.mkdir()
        config = text.format(
            kubeconfig=kubeconfig, image=IMAGE, folder=folder, gpus=GPUS,
            namespaces=namespaces, nodes=", ".join(kubernetes.nodes),
        )  # fmt: skip
        super().__init__(state, config)

    def up(self) -> None:
        """Start it, and again where a busy machine did not get it ready in time."""

        def is_up() -> bool:
            return self.allot("up", "--config", str(self.config)).returncode == 0

        until(is_up, "the service to be up", DRAINED_S)

    @property
    def prefix(self) -> str:
        """What the names of its pods begin with."""
        return (self.state / "engines" / "k8s" / "kubernetes" / "name").read_text()


def counted(spec: Tree) -> Tree:
    """Have a pod ask for a number of devices."""
    spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 1
    return spec


class Makers(threading.Thread):
    """Makes pods for the first service to place: Jobs of one pod, and gangs of two."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        folder: Path,
        takes: str = COUNTED,
        asks: Callable[[Tree], Tree] = counted,
    ) -> None:
        """`takes` is how a pod holds its devices, and `asks` has it ask for them."""
        super().__init__()
        self._kubernetes, self._folder = kubernetes, folder
        self._takes, self._asks = takes, asks
        self._rng = random.Random(11)
        self.over = threading.Event()
        self.jobs: list[str] = []
        self.gangs: list[str] = []

    def run(self) -> None:
        for number in itertools.count():
            if self.over.wait(3):
                return
            if number % 2:
                name = f"gang-{number}"
                for pod in (0, 1):
                    self._make("/api/v1", "pods", self._pod(f"{name}-{pod}", name))
                self.gangs.append(name)
            else:
                name = f"job-{number}"
                self._make("/apis/batch/v1", "jobs", self._job(name))
                self.jobs.append(name)

    def _make(self, group: str, kind: str, document: Tree) -> None:
        """Make an object: asked again, where it is not known whether it is there."""
        while True:
            try:
                self._kubernetes.ask("POST", f"{group}/namespaces/{HERE}/{kind}", document)
            except HTTPError as error:
                if error.code == 409:
                    return
            except (OSError, HTTPException):
                time.sleep(0.05)
            else:
                return

    def _job(self, name: str) -> Tree:
        spec = {"backoffLimit": 1000, "template": {"spec": self._spec()}}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
                "spec": spec}  # fmt: skip

    def _pod(self, name: str, gang: str) -> Tree:
        words = {"allotment.io/gang": gang, "allotment.io/gang-size": "2"}
        meta = {"name": name, "annotations": words}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": self._spec()}

    def _spec(self) -> Tree:
        amounts = {"cpu": "50m", "memory": "16Mi"}
        text = script(self._folder, "theirs", self._rng.choice([0.5, 1, 3]), self._takes)
        folders = [str(self._folder), "/usr", "/lib", "/lib64"]
        name = {"fieldRef": {"fieldPath": "metadata.name"}}
        spec = {
            "schedulerName": "allotment", "restartPolicy": "Never", "hostNetwork": True,
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main", "image": IMAGE, "command": ["sh", "-c", text],
                "env": [{"name": "POD", "valueFrom": name}],
                "resources": {"limits": amounts},
                "volumeMounts": [
                    {"name": f"v{at}", "mountPath": path} for at, path in enumerate(folders)
                ],
            }],
            "volumes": [
                {"name": f"v{at}", "hostPath": {"path": path}}
                for at, path in enumerate(folders)
            ],
        }  # fmt: skip
        return self._asks(spec)


def shuffled(kinds: Sequence[str]) -> tuple[list[str], random.Random]:
    """Return as many faults as there are to be, as often of each kind, in an order by chance;
    and what picks further."""
    rng = random.Random(SEED)
    order = [kinds[n % len(kinds)] for n in range(FAULTS)]
    rng.shuffle(order)
    return order, rng


class Chaos:
    """Breaks things, and has them mended as an administrator or systemd would."""

    def __init__(
        self, services: list[OnCluster], kubernetes: Kubernetes, line: Line, rng: random.Random
    ) -> None:
        self.services, self.kubernetes = services, kubernetes
        self.line, self.rng = line, rng
        self.done: Counter[str] = Counter()
        self.struck: set[str] = set()
        """Pods that were deleted, put on a node or changed, by NAMESPACE/NAME."""

    def strike(self, kind: str) -> None:
        """Do one kind of fault."""
        self.kubernetes.revive()
        self.faults[kind]()
        self.done[kind] += 1

    @property
    def faults(self) -> dict[str, Callable[[], None]]:
        """What each kind is."""
        return {
            "service": partial(self._service, 0),
            "rival": partial(self._service, 1),
            "apiserver": partial(self._daemon, "apiserver"),
            "etcd": partial(self._daemon, "etcd"),
            "controllers": partial(self._daemon, "controllers"),
            "cut": self._cut,
            "compacted": self._compacted,
            "bind": self._bind,
            "delete": self._delete,
            "edit": self._edit,
        }

    def _service(self, which: int) -> None:
        self.services[which].kill()
        time.sleep(self.rng.uniform(0, 1))
        self.services[which].up()

    def _daemon(self, name: str) -> None:
        self.kubernetes.kill(name)
        time.sleep(self.rng.uniform(0, 2))
        self.kubernetes.again(name)

    def _cut(self) -> None:
        self.line.cut()
        time.sleep(self.rng.uniform(0, 3))
        self.line.mend()

    def _compacted(self) -> None:
        """Cut watches, and forget what changed since: they cannot go on where they were."""
        self.line.cut()
        self._pods()
        self.kubernetes.kill("apiserver")
        self.kubernetes.again("apiserver")
        self._pods()
        self.kubernetes.compact()
        self.line.mend()

    # ── a writer that is in the way ─────────────────────────────────────────────────────

    def _pods(self) -> list[Tree]:
        """Return the pods there are, once the API server says."""
        end = time.monotonic() + DRAINED_S
        while True:
            try:
                return self.kubernetes.ask("GET", "/api/v1/pods")["items"]
            except (OSError, HTTPException, ValueError):
                assert time.monotonic() < end, "the API server is not there again"
                self.kubernetes.revive()  # on a busy machine it gives up as it starts
                time.sleep(0.05)

    def _one(self, fits: Callable[[Tree], bool]) -> Tree:
        """Wait for a pod that fits, and return it."""
        end = time.monotonic() + DRAINED_S
        while not (found := [pod for pod in self._pods() if fits(pod)]):
            assert time.monotonic() < end, "there is no such pod"
        return self.rng.choice(found)

    def _on(self, pod: Tree, method: str, part: str, document: Tree, kind: str) -> bool:
        """Do something to a pod. Whether it was done."""
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}{part}"
        self.struck.add(f"{meta['namespace']}/{meta['name']}")
        try:
            self.kubernetes.ask(method, path, document, kind)
        except HTTPError as error:  # it is gone, or bound, by now
            return error.code not in (404, 409, 422)
        except (OSError, HTTPException):
            return False  # whether it was done nobody knows
        return True

    def _bind(self) -> None:
        """Put a pod on some node, as another scheduler that thinks it is its own."""

        def waits(pod: Tree) -> bool:
            return is_live(pod) and not pod["spec"].get("nodeName")

        for _ in range(5):
            pod, node = self._one(waits), self.rng.choice(self.kubernetes.nodes)
            binding = {
                "apiVersion": "v1", "kind": "Binding",
                "metadata": {"name": pod["metadata"]["name"]},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            }  # fmt: skip
            if self._on(pod, "POST", "/binding", binding, "application/json"):
                self.done["bound"] += 1
                return

    def _delete(self) -> None:
        grace = self.rng.choice([0, 1, 30])
        document = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": grace}
        self._on(self._one(is_live), "DELETE", "", document, "application/json")

    def _edit(self) -> None:
        """Take from a pod of ours the words that say so, or change what another pod says."""
        pod = self._one(lambda pod: is_live(pod) and bool(pod["spec"].get("nodeName")))
        words: Tree = {"annotations": {"allotment.io/gang-size": "7"}}
        if SERVICE in pod["metadata"].get("labels", {}):
            gone = self.rng.choice([SERVICE, "allotment.io/launch"])
            words = {"labels": {gone: self.rng.choice([None, "another"])}}
        kind = "application/merge-patch+json"
        self._on(pod, "PATCH", "", {"metadata": words}, kind)


def is_live(pod: Tree) -> bool:
    """Whether a pod is ours or for us, and not over."""
    is_there = pod["metadata"]["namespace"] in (NAMESPACE, HERE)
    return is_there and not is_over(pod) and "deletionTimestamp" not in pod["metadata"]


def is_over(pod: Tree) -> bool:
    """Whether all of a pod has ended."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


@contextlib.contextmanager
def a_folder() -> Iterator[Path]:
    """Make a folder for all that is written, in pods too."""
    made = Path(tempfile.mkdtemp(prefix="allot-test-", dir="/var/tmp"))
    made.chmod(0o755)
    (made / "locks").mkdir()
    (made / "theirs").touch()
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def make_room(kubernetes: Kubernetes) -> None:
    """Make the namespace of others, in which the service may place."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HERE}}
    kubernetes.apply(space)
    kubernetes.kubectl(
        "create", "rolebinding", "allotment", "-n", HERE,
        "--clusterrole=allotment-foreign-pods", "--serviceaccount=allotment:allotment",
    )  # fmt: skip


def play(chaos: Chaos, kinds: list[str], makers: Makers, takes: str = COUNTED) -> Play:
    """Break things under load; return what is told when all is over."""
    services, kubernetes = chaos.services, chaos.kubernetes
    folder = services[0].state.parent
    loads = [
        Load(each, partial(a_job, folder, each.whose, takes=takes), most=6, pause_s=1.0 + at)
        for at, each in enumerate(services)
    ]
    witness = Witness(kubernetes, Findings(GPUS, HALF_S))
    for thread in (*loads, makers, witness):
        thread.start()
    try:
        try:
            for kind in kinds:
                time.sleep(chaos.rng.uniform(0.2, 1.5))
                began = time.monotonic()
                chaos.strike(kind)
                print(f"{kind}: {time.monotonic() - began:.1f} s")
        finally:
            for thread in (*loads, makers):
                thread.over.set()
            for thread in (*loads, makers):
                thread.join()
        for service in services:
            until(partial(all_ended, kubernetes, service), "jobs to end", DRAINED_S)
        with told_of_jobs(kubernetes, services[0]):
            until(lambda: all_done(kubernetes), "the Jobs of others to be done", DRAINED_S)
            # The service may not know yet of one that was made just before.
            until(
                lambda: not left_of(makers.gangs, chaos.struck, witness.findings, kubernetes),
                "the gangs of others to be over",
                DRAINED_S,
            )
        for service, load in zip(services, loads, strict=True):
            until(lambda s=service, x=load: ended(s) >= {*x.accepted}, "the log to have it")
    finally:
        witness.over.set()
        witness.join()
    findings = witness.findings
    print(
        f"\n{dict(chaos.done)}; {[len(each.accepted) for each in loads]} jobs, "
        f"{len(makers.jobs)} Jobs and {len(makers.gangs)} gangs of others; seed {SEED}; "
        f"{findings.looks} looks, a gang in part for {findings.longest_half_s:.1f} s at most"
    )
    return Play(
        {s.whose: Told(list(events_of(s)), (folder / s.whose).read_text()) for s in services},
        {s.whose: load.accepted for s, load in zip(services, loads, strict=True)},
        chaos.struck, {s.whose: s.prefix for s in services}, findings, makers.gangs,
        makers.jobs, (folder / "theirs").read_text(),
    )  # fmt: skip


def all_ended(kubernetes: Kubernetes, service: OnCluster) -> bool:
    """Whether every job of a service has ended."""
    kubernetes.revive()
    return not unended(service, 1)


def all_done(kubernetes: Kubernetes) -> bool:
    """Whether every Job of others is complete."""
    kubernetes.revive()
    with contextlib.suppress(OSError, HTTPException):
        return not undone(kubernetes)
    return False


def left_of(
    gangs: list[str], struck: set[str], findings: Findings, kubernetes: Kubernetes
) -> list[str]:
    """Return the pods of gangs of others that nobody touched and that are not over."""
    kubernetes.revive()
    touched = {name.rpartition("-")[0] for name in struck | findings.excused}
    whole = {f"{HERE}/{gang}" for gang in gangs} - touched
    try:
        pods = kubernetes.ask("GET", f"/api/v1/namespaces/{HERE}/pods")["items"]
    except (OSError, HTTPException):
        return ["the API server is away"]
    names = [f"{HERE}/{pod['metadata']['name']}" for pod in pods if not is_over(pod)]
    return [name for name in names if name.rpartition("-")[0] in whole]


def undone(kubernetes: Kubernetes) -> list[Tree]:
    """Return the Jobs of others that are not complete. Raises OSError, HTTPException."""
    found = kubernetes.ask("GET", f"/apis/batch/v1/namespaces/{HERE}/jobs")["items"]
    return [
        job
        for job in found
        if not any(
            each["type"] == "Complete" and each["status"] == "True"
            for each in job["status"].get("conditions", ())
        )
    ]


@contextlib.contextmanager
def told_of_jobs(kubernetes: Kubernetes, service: OnCluster) -> Iterator[None]:
    """Add to a failure what may explain it: how Jobs and their pods stand, what the service
    that places them knows of them, and what the controllers said."""
    try:
        yield
    except AssertionError as error:
        pods = kubernetes.ask("GET", f"/api/v1/namespaces/{HERE}/pods")["items"]
        told = [
            *(f"Job {job['metadata']['name']}: {job['status']}" for job in undone(kubernetes)),
            *(
                f"pod {pod['metadata']['name']} on {pod['spec'].get('nodeName')}, "
                f"{pod['metadata'].get('annotations')}: {pod['status']}"
                for pod in pods
                if not is_over(pod)
            ),
            *(f"here {row}" for row in unended(service, 100)),
            *(f"{name} runs" for name in sorted(kubernetes.running)),
            kubernetes.said_by("controllers")[-6000:],
            (service.state / "service.log").read_text(errors="replace")[-3000:],
        ]
        raise AssertionError("\n".join((str(error), *told))) from None


OF_JOBS = tuple(
    f"/api/v1/namespaces/{NAMESPACE}/{kind}"
    for kind in ("pods", "secrets", "services", "configmaps")
)
"""The lists of what is made for jobs."""


def nothing_is_left(chaos: Chaos, lists: Sequence[str] = OF_JOBS) -> None:
    """Wait until nothing is there that was made for jobs, which are all over."""
    kubernetes, services = chaos.kubernetes, chaos.services

    def left() -> list[str]:
        found: list[str] = []
        for path in lists:
            kind = path.rpartition("/")[2]
            names = [each["metadata"]["name"] for each in kubernetes.ask("GET", path)["items"]]
            found += [f"{kind}/{name}" for name in names if name.startswith(prefixes)]
        return found

    prefixes = tuple(service.prefix for service in services)
    end = time.monotonic() + 120
    while found := left():
        assert time.monotonic() < end, f"left behind: {found}"
        time.sleep(0.2)

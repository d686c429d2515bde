"""A real Kubernetes for tests: a control plane on this machine, and two kubelets that run pods.

The programs are found in BUILD; nothing of it is installed. `ALLOT_TEST_KUBERNETES` says of
which version they are: 1.20, or 1.36 with a containerd that knows CDI. Each node has a
containerd of its own and a mount namespace that both live in, so that its mounts go with its
last process.
"""

import base64
import contextlib
import json
import os
import secrets
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import PATIENCE_S
from tests.support.served import free_ports

VERSION = os.environ.get("ALLOT_TEST_KUBERNETES", "1.20")
MINOR = int(VERSION.partition(".")[2])
PLACE = "~/.cache/allotment-k8s" if VERSION == "1.20" else f"~/.cache/allotment-k8s-{VERSION}"
BUILD = Path(PLACE).expanduser()
BIN = BUILD / "bin"
KUBECTL = BIN / "kubectl" if (BIN / "kubectl").exists() else Path("kubectl")
PROGRAMS = (
    "etcd", "kube-apiserver", "kube-controller-manager", "kubelet", "kubectl", "containerd",
    "containerd-shim-runc-v2", "ctr", "runc", "cni/loopback",
)  # fmt: skip
NAMED = os.environ.get("ALLOT_TEST_KUBECONFIG", "")
"""A cluster that is used in place of one of our own."""
IMAGE = os.environ.get("ALLOT_TEST_IMAGE", "busybox:1" if NAMED else "localhost/busybox:1")
NAMESPACE = "allotment"
MANIFESTS = Path(__file__).parents[2] / "ops" / "kubernetes"
GPUS = 4
SILENT_S = 12
"""After which a node whose kubelet does not report is called so."""
GRACE_S = 5
WITHOUT_JOBS = 'Skipping "job"'
"""What kube-controller-manager logs that found no Jobs as it began."""
START_S = 4 * PATIENCE_S
"""How long an API server or a kubelet may take to be ready, on a busy machine."""

IS_NEWER = MINOR >= 34
"""Whether it has devices with names, and what else came since 1.20."""
if not IS_NEWER:
    SERVER_OPTIONS, CONTROLLER_OPTIONS = ("--insecure-port=0",), ("--port=0",)
    SCHEDULER_OPTIONS = ("--port=0",)
    KUBELET_OPTIONS, KUBELET_SETTINGS = ("--container-runtime=remote",), {}
else:
    GATES = "--feature-gates=GenericWorkload=true,GangScheduling=true,DRADeviceTaintRules=true"
    SERVED = "scheduling.k8s.io/v1alpha2=true,resource.k8s.io/v1beta2=true"
    SERVER_OPTIONS = (GATES, f"--runtime-config={SERVED}")
    CONTROLLER_OPTIONS, KUBELET_OPTIONS = (GATES,), ()
    SCHEDULER_OPTIONS = ()
    KUBELET_SETTINGS: dict[str, Any] = {"failCgroupV1": False}

WHY = f"needs a build of Kubernetes in {PLACE}"
MARKS = [
    pytest.mark.needs_root,
    pytest.mark.may_skip(WHY),
    pytest.mark.slow,
    pytest.mark.engine,
]


def skip_without() -> None:
    """Skip a test where there is no Kubernetes to be had, naming what is missing."""
    missing = [name for name in PROGRAMS if not (BIN / name).exists()]
    images = [name for name in ("busybox", "pause") if not _image(name).exists()]
    if missing or images:
        pytest.skip(f"{WHY}; missing: {', '.join((*missing, *images))}")


def needs_newer() -> None:
    """Skip a test of what Kubernetes 1.20 has not."""
    if not IS_NEWER:
        pytest.skip("needs Kubernetes 1.36: a build of it, and ALLOT_TEST_KUBERNETES=1.36")


def _image(name: str) -> Path:
    return BUILD / "images" / f"{name}.tar"


CONTAINERD = """\
version = 2
root = "{node}/root"
state = "{node}/state"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = "{node}/c.sock"
[ttrpc]
  address = "{node}/t.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  {cdi}
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{bin}/cni"
    conf_dir = "{node}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "{bin}/runc"
"""
CDI = 'enable_cdi = true\n  cdi_spec_dirs = ["{node}/cdi"]'
"""Devices that a driver names reach a container by this."""
MOUNTS = (
    "mount --make-rprivate / && mkdir -p /var/lib/kubelet /var/log/pods"
    ' && mount --bind "$1" /var/lib/kubelet && mount --bind "$2" /var/log/pods'
    " && for group in /sys/fs/cgroup/*/allotment /sys/fs/cgroup/allotment;"
    ' do [ ! -d $group ] || mount --bind "$3" $group; done'
    " && echo ready && exec sleep infinity"
)
"""A kubelet removes logs of pods that it does not know, so each has a folder of its own. And it
looks at every cgroup of the machine, which takes it minutes where local engines run beside it:
theirs are hidden from it."""


class Kubernetes:
    """The daemons, and what they are asked by."""

    def __init__(
        self,
        folder: Path,
        nodes: Sequence[str] = ("n1", "n2"),
        silent_s: int = SILENT_S,
        options: Sequence[str] = (),
    ) -> None:
        """`options` are further ones of its API server."""
        self.folder = folder
        self._silent_s, self._options = silent_s, options
        self.nodes = tuple(nodes)
        self.admin = folder / "admin.kubeconfig"
        self.kubeconfig = folder / "service.kubeconfig"
        """Of the service account that the manifests make."""
        self._mark = folder.name
        self._tokens: list[str] = []
        self._ports = iter(free_ports(8 + 3 * len(self.nodes)))
        self._etcd, self._peer, self._api = (next(self._ports) for _ in range(3))
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, Sequence[str | Path]] = {}
        self._logged: dict[str, int] = {}
        """How long a daemon's log was when it was started last."""

    # ── asking ──────────────────────────────────────────────────────────────────────────

    def kubectl(self, *words: str, text: str = "") -> str:
        """Run kubectl as the administrator; return what it says. Raises where it fails."""
        done = subprocess.run(
            [KUBECTL, f"--kubeconfig={self.admin}", *words],
            input=text, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(words)}: {done.stderr}")
        return done.stdout

    def get(self, *words: str) -> Any:
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def ask(
        self, method: str, path: str, document: object = None, kind: str = "application/json"
    ) -> Any:
        """Ask the API server itself as the administrator, which takes far less time than a
        program. Raises OSError, such as HTTPError."""
        with self._opened(method, path, document, kind) as answer:
            return json.loads(answer.read())

    def watch(self, path: str) -> Iterator[Any]:
        """Yield what is there, and each change: until the API server ends it, or says nothing
        for long. Raises OSError, HTTPException."""
        with self._opened("GET", f"{path}?watch=1", None, "") as answer:
            for line in answer:
                yield json.loads(line)

    def _opened(self, method: str, path: str, document: object, kind: str) -> Any:
        token = self._tokens[0].split(",")[0]
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.port}{path}",
            None if document is None else json.dumps(document).encode(),
            {"Authorization": f"Bearer {token}", "Content-Type": kind},
            method=method,
        )
        trusted = ssl.create_default_context(cafile=self.folder / "ca.crt")
        return urllib.request.urlopen(request, context=trusted, timeout=PATIENCE_S)

    @property
    def port(self) -> int:
        """At which the API server answers."""
        return self._api

    def apply(self, document: object) -> None:
        """Make an object, or change it."""
        self.kubectl("apply", "-f", "-", text=json.dumps(document))

    def apply_manifests(self) -> None:
        self.kubectl("apply", "-k", str(MANIFESTS))

    @property
    def running(self) -> frozenset[str]:
        """The daemons that were started and not killed."""
        return frozenset(self._running)

    def pid(self, name: str) -> int:
        """Return the process of a daemon."""
        return self._running[name].pid

    def pods(self) -> list[dict[str, Any]]:
        """Return the pods of tasks."""
        return self.get("pods", "-n", NAMESPACE)["items"]

    def until(self, check: Callable[[], object], what: str, patience_s: float = 0) -> None:
        """Wait for something. Raises TimeoutError."""
        until = time.monotonic() + (patience_s or PATIENCE_S)
        while not check():
            if time.monotonic() > until:
                raise TimeoutError(f"{what}; logs: {self._last_words()}")
            time.sleep(0.1)

    def _asks(self, *words: str) -> bool:
        with contextlib.suppress(RuntimeError):
            self.kubectl(*words)
            return True
        return False

    def _last_words(self) -> str:
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(
            f"{log.name}: {log.read_text(errors='replace')[-600:]}" for log in logs
        )

    def said_by(self, name: str) -> str:
        """Return what a daemon has logged since it was started last."""
        with (self.folder / f"{name}.log").open("rb") as log:
            log.seek(self._logged[name])
            return log.read().decode(errors="replace")

    # ── starting ────────────────────────────────────────────────────────────────────────

    def start_all(self) -> None:
        """Start all, and wait for nodes that are ready, with GPUs, and for our account."""
        self._write_keys()
        self.start_control()
        for number, name in enumerate(self.nodes, 1):
            self._start_node(name, number)
        # A newer API server is ready before it can say what an object looks like.
        words = ("apply", "-k", str(MANIFESTS))
        self.until(lambda: self._asks(*words), "the manifests to be taken", START_S)
        self.until(
            lambda: self.write_account(self.kubeconfig, NAMESPACE), "the service account"
        )
        for name in self.nodes:
            is_ready = partial(self.is_ready, name)
            self.until(is_ready, f"node {name} to be ready", START_S)
            self.offer(name, GPUS)

    def start_control(self) -> None:
        f = self.folder
        at = f"http://127.0.0.1:{self._etcd}"
        peer = f"http://127.0.0.1:{self._peer}"
        self._start(
            "etcd", BIN / "etcd", "--name=k8s", f"--data-dir={f}/etcd",
            f"--listen-client-urls={at}", f"--advertise-client-urls={at}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=k8s={peer}",
        )  # fmt: skip
        self._start(
            "apiserver", BIN / "kube-apiserver", "--bind-address=127.0.0.1",
            f"--secure-port={self._api}", f"--etcd-servers={at}",
            "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
            f"--tls-cert-file={f}/apiserver.crt", f"--tls-private-key-file={f}/apiserver.key",
            f"--client-ca-file={f}/ca.crt", f"--token-auth-file={f}/tokens.csv",
            "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={f}/sa.pub",
            f"--service-account-signing-key-file={f}/sa.key",
            "--service-cluster-ip-range=10.96.0.0/16", "--allow-privileged=true",
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-client-certificate={f}/to-kubelet.crt",
            f"--kubelet-client-key={f}/to-kubelet.key",
            f"--default-not-ready-toleration-seconds={GRACE_S}",
            f"--default-unreachable-toleration-seconds={GRACE_S}",
            *SERVER_OPTIONS, *self._options,
        )  # fmt: skip
        self.until(lambda: self._asks("get", "--raw", "/readyz"), "the API server", START_S)
        self._start(
            "controllers", BIN / "kube-controller-manager",
            f"--kubeconfig={f}/controllers.kubeconfig", "--leader-elect=false",
            f"--secure-port={next(self._ports)}", f"--cert-dir={f}/controllers",
            f"--service-account-private-key-file={f}/sa.key", f"--root-ca-file={f}/ca.crt",
            "--node-monitor-period=1s", f"--node-monitor-grace-period={self._silent_s}s",
            "--node-startup-grace-period=30s", "--controllers=*", *CONTROLLER_OPTIONS,
        )  # fmt: skip

    def _start_node(self, name: str, number: int) -> None:
        node = self.folder / name
        for each in ("kubelet", "logs", "cni", "cdi", "root", "state", "nothing"):
            (node / each).mkdir(parents=True)
        (node / "cni" / "10.conflist").write_text(
            '{"cniVersion":"0.4.0","name":"k","plugins":[{"type":"loopback"}]}'
        )
        (node / "containerd.toml").write_text(
            CONTAINERD.format(node=node, bin=BIN, cdi=CDI.format(node=node) if IS_NEWER else "")
        )
        for group in _hierarchies():
            own = group / self._group(name)
            own.mkdir(exist_ok=True)
            for file in ("cpuset.cpus", "cpuset.mems"):
                if (group / file).exists():
                    (own / file).write_text((group / file).read_text())
        holder = self._start(
            f"{name}-mounts", "unshare", "-m", "sh", "-c", MOUNTS, "sh", node / "kubelet",
            node / "logs", node / "nothing", out=subprocess.PIPE,
        )  # fmt: skip
        assert holder.stdout is not None
        with holder.stdout:
            assert holder.stdout.readline() == b"ready\n"
        inside = ("nsenter", "-m", "-t", str(holder.pid))
        self._start(
            f"{name}-containerd", *inside, BIN / "containerd", "-c", node / "containerd.toml"
        )
        self.until(lambda: self.ctr(name, "version") is not None, f"containerd of {name}")
        for image in ("pause", "busybox"):
            self.ctr(name, "images", "import", str(_image(image)))
        port = next(self._ports)
        settings = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "address": "0.0.0.0", "port": port, "readOnlyPort": 0,
            "healthzBindAddress": "127.0.0.1", "healthzPort": next(self._ports),
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True},
                               "x509": {"clientCAFile": f"{self.folder}/ca.crt"}},
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{self._group(name)}",
            "cgroupsPerQOS": True, "enforceNodeAllocatable": ["pods"], "failSwapOn": False,
            "makeIPTablesUtilChains": False, "hairpinMode": "none",
            "imageGCHighThresholdPercent": 100, "evictionHard": {"memory.available": "50Mi"},
            "nodeStatusUpdateFrequency": "2s", "nodeStatusReportFrequency": "5s",
            "nodeLeaseDurationSeconds": 8, "syncFrequency": "5s",
            "volumePluginDir": f"{node}/plugins", **KUBELET_SETTINGS,
        }  # fmt: skip
        (node / "kubelet.json").write_text(json.dumps(settings))
        self._start(
            f"{name}-kubelet", *inside, BIN / "kubelet", f"--config={node}/kubelet.json",
            f"--kubeconfig={self.folder}/{name}.kubeconfig", f"--hostname-override={name}",
            "--root-dir=/var/lib/kubelet", f"--cert-dir={node}/pki",
            f"--container-runtime-endpoint=unix://{node}/c.sock",
            "--runtime-cgroups=/", "--kubelet-cgroups=", *KUBELET_OPTIONS,
        )  # fmt: skip

    def is_ready(self, name: str) -> bool:
        with contextlib.suppress(RuntimeError):
            conditions = self.get("node", name)["status"]["conditions"]
            return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
        return False

    def offer(self, node: str, gpus: int) -> None:
        """Have a node offer GPUs that are only counted, as a device plugin would."""
        amounts = {"nvidia.com/gpu": str(gpus)}
        self._patch_status(node, {"capacity": amounts, "allocatable": amounts})
        self.until(
            lambda: (
                self.get("node", node)["status"]["allocatable"].get("nvidia.com/gpu")
                == str(gpus)
            ),
            "GPUs to be offered",
        )

    def add_node(self, name: str) -> None:
        """Add a node that is ready, for as long as nobody misses its kubelet."""
        self.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        amounts = {"cpu": "2", "memory": "2Gi", "ephemeral-storage": "1Gi", "pods": "10"}
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ready = {"type": "Ready", "status": "True", "reason": "Test", "message": "",
                 "lastHeartbeatTime": now, "lastTransitionTime": now}  # fmt: skip
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        self._patch_status(name, status)

    def _patch_status(self, node: str, status: object) -> None:
        kind = "application/strategic-merge-patch+json"
        self.ask("PATCH", f"/api/v1/nodes/{node}/status", {"status": status}, kind)

    # ── breaking ────────────────────────────────────────────────────────────────────────

    def kill(self, name: str) -> None:
        """Kill a daemon outright."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def again(self, name: str) -> None:
        """Start a daemon that was killed."""
        self._start(name, *self._commands[name])

    @contextlib.contextmanager
    def kubelet_with(self, node: str, **settings: object) -> Iterator[None]:
        """Run the kubelet of a node with other settings for a while."""
        file = self.folder / node / "kubelet.json"
        before = self._started_with(node, file, file.read_text(), settings)
        try:
            yield
        finally:
            self._started_with(node, file, before, {})

    def _started_with(
        self, node: str, file: Path, text: str, settings: dict[str, object]
    ) -> str:
        """Start a kubelet again with settings on top of some; return these."""
        before = self._heard_at(node)
        self.kill(f"{node}-kubelet")
        file.write_text(json.dumps(json.loads(text) | settings))
        self.again(f"{node}-kubelet")
        self._until_heard(node, before)
        return text

    def _until_heard(self, node: str, before: str) -> None:
        """Wait until a kubelet that was started again has reported. It may take back what only
        we said of its node: say it again."""
        self.until(lambda: self._heard_at(node) != before, f"{node} to report", START_S)
        self.offer(node, GPUS)

    def _heard_at(self, node: str) -> str:
        conditions = self.get("node", node)["status"]["conditions"]
        return next(c["lastHeartbeatTime"] for c in conditions if c["type"] == "Ready")

    @contextlib.contextmanager
    def without_network(self, node: str) -> Iterator[None]:
        """Have a node not be ready for a while, as its container runtime lost its network."""
        if not (self.folder / node).exists():
            pytest.skip(f"{WHY}: the network of {node} is not the tests' own")
        file = self.folder / node / "cni" / "10.conflist"
        text = file.read_text()
        file.unlink()
        try:
            yield
        finally:
            file.write_text(text)
            self.until(lambda: self.is_ready(node), f"{node} to be ready")

    @contextlib.contextmanager
    def tainted(self, node: str, taint: str) -> Iterator[None]:
        """Have a node be tainted for a while."""
        self.kubectl("taint", "node", node, taint)
        try:
            yield
        finally:
            self.kubectl("taint", "node", node, f"{taint.partition('=')[0]}-")

    def reboot(self, node: str) -> None:
        """End all that runs on a node at once, and have it start anew, as a power cut does."""
        before = self._heard_at(node)
        for daemon in ("kubelet", "containerd"):
            self.kill(f"{node}-{daemon}")
        for pid in self._running_on(node):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        start = self.folder / node / "boot_id"
        start.write_text(f"{uuid.uuid4()}\n")
        holder = str(self.pid(f"{node}-mounts"))
        inside = ("nsenter", "-m", "-t", holder, "mount", "--bind")
        subprocess.run([*inside, start, "/proc/sys/kernel/random/boot_id"], check=True)
        self.again(f"{node}-containerd")
        self.until(lambda: self.ctr(node, "version") is not None, f"containerd of {node}")
        self.again(f"{node}-kubelet")
        self._until_heard(node, before)

    def _running_on(self, node: str) -> list[int]:
        """Return the processes of a node's containers, and those that look after them."""
        socket = str(self.folder / node / "c.sock").encode()
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                groups = (entry / "cgroup").read_text()
                if entry.name.isdecimal() and (socket in words or self._group(node) in groups):
                    found.append(int(entry.name))
        return found

    @contextlib.contextmanager
    def a_scheduler(self) -> Iterator[None]:
        """Run Kubernetes' own scheduler for a while; skip where it is missing."""
        if not (BIN / "kube-scheduler").exists():
            pytest.skip(f"{WHY}; missing: kube-scheduler")
        self._start(
            "scheduler", BIN / "kube-scheduler", f"--kubeconfig={self.folder}/admin.kubeconfig",
            "--leader-elect=false", f"--secure-port={next(self._ports)}",
            f"--cert-dir={self.folder}/scheduler", *SCHEDULER_OPTIONS,
        )  # fmt: skip
        try:
            yield
        finally:
            self._end("scheduler")

    def revive(self) -> None:
        """Start again what has ended by itself, as systemd would: controllers do, for want of
        an API server.

        And controllers that came up without Jobs, as an administrator would: an API server
        that ends while it tells them what kinds it has makes them do without the rest, until
        they are started anew (`GetAvailableResources` of 1.20 logs its error, and goes on).
        """
        if self.has_no_jobs():
            self.kill("controllers")
            self.again("controllers")
        for name, process in list(self._running.items()):
            if process.poll() is not None:
                self.again(name)

    def has_no_jobs(self) -> bool:
        """Whether the controllers that run began without the one that looks after Jobs."""
        return "controllers" in self._running and WITHOUT_JOBS in self.said_by("controllers")

    def compact(self) -> None:
        """Have etcd forget all but the newest state: nothing that changed before is told to a
        watch any more, once an API server starts that does not remember it either."""
        ask = (BIN / "etcdctl", f"--endpoints=http://127.0.0.1:{self._etcd}")

        def said(*words: str) -> str:
            done = subprocess.run([*ask, *words], check=True, capture_output=True, text=True)
            return done.stdout

        (status,) = json.loads(said("endpoint", "status", "-w", "json"))
        said("compact", str(status["Status"]["header"]["revision"]))

    def clear(self) -> None:
        """Delete what pods there are, and have every node take pods again."""
        self.kubectl(
            "delete", "pods", "--all", "-n", NAMESPACE, "--wait=false", "--grace-period=1"
        )
        self.kubectl(
            "delete", "pods", "--all", "-n", "default", "--wait=false", "--grace-period=1"
        )
        for name in self.nodes:
            self.kubectl("uncordon", name)
        with contextlib.suppress(TimeoutError):  # a kubelet under load may take its time
            self.until(lambda: not self.pods(), "the pods to be gone", 30)
        if self.pods():
            self.kubectl(
                "delete", "pods", "--all", "-n", NAMESPACE, "--force", "--grace-period=0"
            )

    # ── parts ───────────────────────────────────────────────────────────────────────────

    def _group(self, node: str) -> str:
        return f"{self._mark}-{node}"

    def ctr(self, node: str, *words: str) -> str | None:
        """Ask the containerd of a node; return what it says, None where it refuses."""
        done = subprocess.run(
            [BIN / "ctr", "-a", self.folder / node / "c.sock", "-n", "k8s.io", *words],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.stdout if done.returncode == 0 else None

    def _start(
        self, name: str, *words: str | Path, out: int | None = None
    ) -> "subprocess.Popen[bytes]":
        self._commands[name] = words
        path = os.environ.get("PATH", "")
        with (self.folder / f"{name}.log").open("ab") as log:
            self._logged[name] = log.tell()
            process = subprocess.Popen(
                [str(word) for word in words], stdout=out or log, stderr=log,
                stdin=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, "PATH": f"{BIN}:{path}:/usr/sbin:/sbin"},
            )  # fmt: skip
        self._running[name] = process
        return process

    def _write_keys(self) -> None:
        f = self.folder

        def openssl(*words: str) -> None:
            subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=f)

        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30",
                "-subj", "/CN=test-ca", "-keyout", "ca.key", "-out", "ca.crt")  # fmt: skip
        for name, subject, more in (
            ("apiserver", "/CN=kube-apiserver",
             "subjectAltName=DNS:localhost,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:10.96.0.1"),
            ("to-kubelet", "/O=system:masters/CN=to-kubelet", "extendedKeyUsage=clientAuth"),
        ):  # fmt: skip
            (f / f"{name}.ext").write_text(more)
            openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", subject,
                    "-keyout", f"{name}.key", "-out", f"{name}.csr")  # fmt: skip
            openssl("x509", "-req", "-days", "30", "-in", f"{name}.csr", "-CA", "ca.crt",
                    "-CAkey", "ca.key", "-CAcreateserial", "-out", f"{name}.crt",
                    "-extfile", f"{name}.ext")  # fmt: skip
        openssl("genrsa", "-out", "sa.key", "2048")
        openssl("rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub")
        self._write_access("admin", "admin", "system:masters")
        self._write_access("controllers", "system:kube-controller-manager", "system:masters")
        for name in self.nodes:
            self._write_access(name, f"system:node:{name}", "system:nodes")
        (f / "tokens.csv").write_text("".join(self._tokens))

    def _write_access(self, name: str, user: str, group: str) -> None:
        token = secrets.token_hex(16)
        self._tokens.append(f'{token},{user},{user},"{group}"\n')
        self.write_kubeconfig(self.folder / f"{name}.kubeconfig", token)

    def write_kubeconfig(self, path: Path, token: str, namespace: str = "default") -> None:
        """Write how the cluster is asked with a token."""
        ca = base64.b64encode((self.folder / "ca.crt").read_bytes()).decode()
        server = f"https://127.0.0.1:{self._api}"
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster":
                          {"server": server, "certificate-authority-data": ca}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context":
                          {"cluster": "c", "user": "u", "namespace": namespace}}],
        }  # fmt: skip
        path.write_text(json.dumps(config))
        path.chmod(0o600)

    def write_account(self, path: Path, namespace: str, account: str = "allotment") -> bool:
        """Write the kubeconfig of a service account. Whether it has a token yet, which is
        asked for: Kubernetes of today makes none by itself."""
        kind = "kubernetes.io/service-account"
        self.apply({
            "apiVersion": "v1", "kind": "Secret", "type": f"{kind}-token",
            "metadata": {"name": f"{account}-asked", "namespace": namespace,
                         "annotations": {f"{kind}.name": account}},
        })  # fmt: skip
        for secret in self.get("secrets", "-n", namespace)["items"]:
            owner = secret["metadata"].get("annotations", {})
            if owner.get(f"{kind}.name") == account and "token" in secret.get("data", {}):
                token = base64.b64decode(secret["data"]["token"]).decode()
                self.write_kubeconfig(path, token, namespace)
                return True
        return False

    def stop_all(self) -> None:
        """End all that was started: containers outlive their daemons, so those first."""
        for name in self.nodes:
            self._end(f"{name}-kubelet")
        for name in self.nodes:
            for ids in ("tasks", "containers"):
                for id_ in (self.ctr(name, ids, "ls", "-q") or "").split():
                    end = ("tasks", "rm", "-f") if ids == "tasks" else ("containers", "rm")
                    self.ctr(name, *end, id_)
            self._end(f"{name}-containerd")
            self._end(f"{name}-mounts")
            for group in _hierarchies():
                _remove_group(group / self._group(name))
        for name in ("controllers", "apiserver", "etcd"):
            self._end(name)
        with contextlib.suppress(OSError):  # it is somebody's, and not empty
            Path("/var/lib/kubelet").rmdir()

    def _end(self, name: str) -> None:
        process = self._running.pop(name, None)
        if process is None:
            return
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _hierarchies() -> list[Path]:
    """Return where a node needs a cgroup of its own: each hierarchy, or the only one."""
    top = Path("/sys/fs/cgroup")
    if (top / "cgroup.controllers").exists():
        return [top]
    return [each for each in top.iterdir() if (each / "cgroup.procs").exists()]


def _remove_group(group: Path) -> None:
    if not group.exists():
        return
    for each in sorted(
        (p for p in group.rglob("*") if p.is_dir()), key=lambda p: -len(p.parts)
    ):
        with contextlib.suppress(OSError):
            each.rmdir()
    with contextlib.suppress(OSError):
        group.rmdir()


@contextlib.contextmanager
def a_kubernetes() -> Iterator[Kubernetes]:
    """Start a Kubernetes of two nodes, and end it; skip where there is none to be had.

    Where one is named, that is taken.
    """
    if not NAMED:
        skip_without()
    folder = Path(tempfile.mkdtemp(prefix="allot-k8s-", dir="/var/tmp"))
    kubernetes = _named(folder) if NAMED else Kubernetes(folder)
    try:
        kubernetes.start_all()
        yield kubernetes
    finally:
        kubernetes.stop_all()
        shutil.rmtree(folder, ignore_errors=True)


def _named(folder: Path) -> Kubernetes:
    from tests.support.found_kubernetes import FoundKubernetes

    return FoundKubernetes(folder, Path(NAMED))

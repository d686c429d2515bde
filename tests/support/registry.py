"""A real registry of a test's own, on loopback, and images made for it by hand."""

import contextlib
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

import pytest
import zstandard

from allotment.backends.local.images.manifest import architecture
from tests.integration.api.live import Answer
from tests.integration.api.test_guard import as_user
from tests.support import forked
from tests.support.cluster import ALLOT, IN_PROCESS, RealCluster
from tests.support.exchange import owned, written
from tests.support.forked import USERS_IN
from tests.support.patience import PATIENCE_S
from tests.support.served import Served

BUSYBOX = Path("/bin/busybox")
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
ZSTD_LAYER = "application/vnd.oci.image.layer.v1.tar+zstd"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
BYTES = "application/octet-stream"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
PASSWORD = "correct-horse"  # noqa: S105 - of a registry that lives for one test

MARKS = [
    pytest.mark.needs_root,
    pytest.mark.needs_tool("docker-registry", "htpasswd", "busybox"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
"""What tests need in which several users run images of a registry."""

Entry = tuple[tarfile.TarInfo, bytes]


class Registry(Served):
    """A registry that runs. `users` may log in, with PASSWORD; without any it is open."""

    def __init__(self, folder: Path, users: Sequence[str] = ()) -> None:
        super().__init__(folder)
        self.users = users
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "registry.yml").write_text(self._settings())
        self.start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _settings(self) -> str:
        text = (
            "version: 0.1\nlog: {level: error}\n"
            f"storage: {{filesystem: {{rootdirectory: {self.folder}/data}}}}\n"
            f"http: {{addr: 127.0.0.1:{self.port}}}\n"
        )
        if self.users:
            lines = [_htpasswd(user) for user in self.users]
            (self.folder / "htpasswd").write_text("".join(lines))
            text += f"auth: {{htpasswd: {{realm: test, path: {self.folder}/htpasswd}}}}\n"
        return text

    def words(self) -> list[str]:
        return ["docker-registry", "serve", f"{self.folder}/registry.yml"]

    # ── pushing ─────────────────────────────────────────────────────────────────────

    def push(
        self,
        name: str,
        layers: Sequence[bytes],
        tag: str = "1",
        config: Mapping[str, Any] | None = None,
        *,
        architecture: str = architecture(),
        diff_ids: Sequence[str] = (),
        kind: str = LAYER,
    ) -> str:
        """Push an image of these layers, packed as tar; give its digest."""
        if kind == ZSTD_LAYER:
            packed = [zstandard.compress(layer, 1) for layer in layers]
        else:
            packed = [gzip.compress(layer, 1, mtime=0) for layer in layers]
        told = [(self.blob(name, data), len(data)) for data in packed]
        plain = list(diff_ids) or [digest(layer) for layer in layers]
        return self.made_of(
            name, told, plain, tag, config, architecture=architecture, kind=kind
        )

    def made_of(
        self,
        name: str,
        layers: Sequence[tuple[str, int]],
        diff_ids: Sequence[str],
        tag: str = "1",
        config: Mapping[str, Any] | None = None,
        *,
        architecture: str = architecture(),
        kind: str = LAYER,
    ) -> str:
        """Push an image of layers that are there, by digest and size; give its digest."""
        about = {
            "architecture": architecture,
            "os": "linux",
            "config": dict(config or {}),
            "rootfs": {"type": "layers", "diff_ids": list(diff_ids)},
        }
        body = json.dumps(about).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {
                "mediaType": CONFIG_TYPE,
                "digest": self.blob(name, body),
                "size": len(body),
            },
            "layers": [
                {"mediaType": kind, "digest": each, "size": size} for each, size in layers
            ],
        }
        return self.manifest(name, tag, json.dumps(manifest).encode())

    def blob(self, name: str, data: bytes) -> str:
        self.ask("PUT", self._upload(name, digest(data)), data, BYTES)
        return digest(data)

    def blob_of(self, name: str, path: Path) -> tuple[str, int]:
        """Push a file that is too large for memory; give its digest and size."""
        with path.open("rb") as file:
            found = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
            file.seek(0)
            self.ask("PUT", self._upload(name, found), file, BYTES, path.stat().st_size)
        return found, path.stat().st_size

    def _upload(self, name: str, found: str) -> str:
        where = self.ask("POST", f"/v2/{name}/blobs/uploads/")["Location"]
        mark = "&" if "?" in where else "?"
        return f"{where[where.index('/v2/') :]}{mark}digest={found}"

    def manifest(self, name: str, tag: str, data: bytes, kind: str = MANIFEST) -> str:
        self.ask("PUT", f"/v2/{name}/manifests/{tag}", data, kind)
        return digest(data)

    def ask(
        self,
        method: str,
        path: str,
        data: bytes | IO[bytes] | None = None,
        kind: str = "",
        size: int = 0,
    ) -> Any:
        request = urllib.request.Request(f"http://{self.host}{path}", data=data, method=method)
        if kind:
            request.add_header("Content-Type", kind)
        if size:
            request.add_header("Content-Length", str(size))
        if self.users:
            request.add_header("Authorization", f"Basic {login(self.users[0])}")
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.headers

    def file_of(self, blob: str) -> Path:
        """Where it keeps a blob."""
        number = blob.removeprefix("sha256:")
        root = self.folder / "data/docker/registry/v2/blobs/sha256"
        return root / number[:2] / number / "data"


def login(user: str, password: str = PASSWORD) -> str:
    """Return a user's name and password as a header and a file have them."""
    return b64encode(f"{user}:{password}".encode()).decode()


def _htpasswd(user: str) -> str:
    words = ["htpasswd", "-nbB", "-C", "4", user, PASSWORD]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@contextlib.contextmanager
def a_registry(folder: Path, users: Sequence[str] = ()) -> Iterator[Registry]:
    """Run a registry in a folder, and end it after the test."""
    made = Registry(folder, users)
    try:
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


# ── layers ──────────────────────────────────────────────────────────────────────────────


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def layer(*entries: Entry) -> bytes:
    """Pack a layer."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry, data in entries:
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def a_file(name: str, data: bytes | str = b"", mode: int = 0o644, **fields: Any) -> Entry:
    entry = tarfile.TarInfo(name)
    raw = data.encode() if isinstance(data, str) else data
    entry.size, entry.mode, entry.mtime = len(raw), mode, 1_700_000_000
    for field, value in fields.items():
        setattr(entry, field, value)
    return entry, raw


def a_folder(name: str, mode: int = 0o755) -> Entry:
    return a_file(name, mode=mode, type=tarfile.DIRTYPE)


def a_link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> Entry:
    return a_file(name, linkname=target, type=kind, mode=0o777)


def busybox(*more: Entry) -> bytes:
    """Pack a layer in which a shell and its usual commands run."""
    names = (
        "sh cat ls echo id sleep true mkdir rm touch stat env dd readlink mount wc find chmod "
        "setsid"
    )
    return layer(
        a_folder("bin"),
        a_file("bin/busybox", BUSYBOX.read_bytes(), 0o755),
        *(a_link(f"bin/{name}", "busybox") for name in names.split()),
        a_folder("etc"),
        a_file("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
        a_file("etc/system", "busybox\n"),
        a_folder("tmp", 0o1777),
        *more,
    )


# ── a service whose users have homes ────────────────────────────────────────────────────


_FIRST = 1_000_000 + 2 * os.getpid()
USERS = {"ann": _FIRST, "ben": _FIRST + 1}
"""Users of this process alone: a test may kill all processes of one of them."""


class WithUsers(RealCluster):
    """A service of root's on a host that has a few users more, each with a home."""

    owner = ""
    """Whose it is where it is not root's, and whose are all its jobs."""
    before = ""
    """What the shell does on that host before the command line runs."""

    def allot(self, *words: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
        """Run the command line where these users are known, as one of them where `user` is."""
        if words[0] in IN_PROCESS and not kwargs and not self.before:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv(USERS_IN, str(self.make_homes()))
                return super().allot(*words)
        if self.before:
            return self.ran([*ALLOT, *words], **kwargs)
        user = kwargs.pop("user", "")
        home = {"HOME": str(self.home(user))} if user else {}
        users = {"ALLOT_STATE": str(self.state), USERS_IN: str(self.make_homes())}
        env = {**os.environ, **users, **home, **kwargs.pop("env", {})}
        return forked.run(words, env, USERS[user] if user else 0, **kwargs)

    def ran(self, argv: Sequence[str], **kwargs: Any) -> subprocess.CompletedProcess[str]:
        """Run a program where these users are known, as one of them where `user` is."""
        passwd = self.make_homes()
        script = f'mount --bind "$0" /etc/passwd && {self.before or "true"} && exec "$@"'
        within = ["unshare", "-m", "--propagation", "slave", "sh", "-c", script, str(passwd)]
        user = kwargs.pop("user", "")
        if user:
            ids = f"--reuid={USERS[user]}", f"--regid={USERS[user]}", "--clear-groups"
            within += ["setpriv", *ids]
            kwargs["env"] = {"HOME": str(self.home(user)), **kwargs.get("env", {})}
        env = {**os.environ, "ALLOT_STATE": str(self.state), **kwargs.pop("env", {})}
        kwargs.setdefault("timeout", PATIENCE_S)
        return subprocess.run(
            [*within, *argv], env=env, text=True, capture_output=True, check=False,
            **kwargs,
        )  # fmt: skip

    def make_homes(self) -> Path:
        """Make the users' homes once; give the file that the host knows the users by."""
        passwd = self.state.parent / "passwd"
        if not passwd.exists():
            lines = [Path("/etc/passwd").read_text().rstrip("\n")]
            for name, uid in USERS.items():
                lines.append(f"{name}:x:{uid}:{uid}::{self.home(name)}:/bin/sh")
                owned(self.home(name), uid, 0o700)
            passwd.write_text("\n".join(lines) + "\n")
        return passwd

    def home(self, name: str) -> Path:
        return self.state.parent / f"home-{name}"

    def log_in(self, name: str, registry: Registry, password: str = PASSWORD) -> None:
        """Write what `allot image login` writes."""
        folder = owned(self.home(name) / ".docker", USERS[name], 0o700)
        text = json.dumps({"auths": {registry.host: {"auth": login(name, password)}}})
        written(folder / "config.json", text, USERS[name], 0o600)

    def ask_as(self, name: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Ask as a user; give the status and what is answered."""
        answer = as_user(USERS[name], cast("Any", Asking(self)), method, path, body)
        return answer.status, json.loads(answer.body) if answer.body else None

    def run(self, image: str, command: str, user: str = "", **more: Any) -> "Job":
        """Run a job in an image to its end."""
        job = self.submitted(image, command, user, **more)
        self.wait_for(job, "succeeded", "failed", "cancelled")
        return Job(self, job)

    def submitted(self, image: str, command: str, user: str = "", **more: Any) -> int:
        user = user or self.owner
        small = {"cpu": 0.1, "memory": "64MiB", **more.pop("resources", {})}
        spec = {"name": "x", "image": image, "command": command, "resources": small, **more}
        spec.setdefault("tenant", user or "ann")
        if user:
            status, answer = self.ask_as(user, "POST", "/v1/jobs", spec)
            assert status == 201, answer
            return answer["id"]
        return self.submit(spec)

    def refused(self, image: str, user: str, command: str = "true") -> str:
        """Submit a job that is not accepted; give what is said."""
        spec = {"name": "x", "image": image, "command": command, "tenant": user}
        status, answer = self.ask_as(user, "POST", "/v1/jobs", spec)
        assert status >= 400, answer
        return json.dumps(answer)


class OfOneUser(WithUsers):
    """A service of an ordinary user, which answers this user alone."""

    owner = "ann"

    def __init__(self, state: Path, config: str) -> None:
        super().__init__(state, config)
        shutil.chown(state, USERS[self.owner], USERS[self.owner])

    def allot(self, *words: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
        return super().allot(*words, **{"user": self.owner, "cwd": Path("/"), **kwargs})


OF_ROOT = pytest.param(WithUsers, id="root")
OF_ONE_USER = pytest.param(OfOneUser, id="user")
"""Kinds of services, for tests of both."""


class Asking:
    """What `as_user` asks."""

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster

    def ask(self, method: str, path: str, body: object = None) -> Answer:
        status, found = self._cluster.ask(method, path, body)
        return Answer(status, {}, json.dumps(found).encode() if found else b"")


class Job:
    """A job that is over."""

    def __init__(self, cluster: RealCluster, number: int) -> None:
        self.id = number
        self.view: dict[str, Any] = cluster.get(f"/v1/jobs/{number}")
        self.state: str = self.view["row"]["state"]
        self._folder = cluster.state / "tasks" / str(number)

    @property
    def output(self) -> str:
        """What its only task of the last attempt wrote."""
        found = sorted(self._folder.glob("*/*/stdout.log"))
        return found[-1].read_text() if found else ""

    @property
    def diagnosis(self) -> dict[str, Any]:
        return self.view["attempts"][-1]["diagnosis"] or self.view["diagnosis"]

    @property
    def phases(self) -> list[str]:
        return [phase["name"] for phase in self.view["attempts"][-1]["tasks"][0]["phases"]]


CONFIG = "\n".join((
    "tenants:",
    *(f"  {name}: {{users: [{name}, root], guaranteed: {{cpu: 0.5, memory: 512MiB}}}}"
      for name in USERS),
    "visibility: private",
    "limits: {backoff: {first: 100ms, most: 200ms}, platform_retries: 1}",
))  # fmt: skip


@contextlib.contextmanager
def a_service(
    folder: Path, config: str = CONFIG, kind: type[WithUsers] = WithUsers
) -> Iterator[WithUsers]:
    """Start a service of root's for these users, and end it and its tasks after the test."""
    state = folder / "state"
    state.mkdir(exist_ok=True, parents=True)
    cluster = kind(state, config)
    cluster.up()
    try:
        yield cluster
    finally:
        cluster.down()

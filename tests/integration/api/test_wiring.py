"""The service as a process: how it starts, why it does not, and how it ends."""

import asyncio
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPException
from pathlib import Path

import pytest

from allotment.model.events import JobArchived, Record
from allotment.model.ids import SYSTEM, JobId, Seq
from allotment.model.quantity import Instant
from allotment.store.sqlite import SqliteStore
from allotment.wiring.options import Options
from allotment.wiring.service import open_service, restore
from tests.integration.api.live import Answer, ask
from tests.support.cluster import UnixConnection
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]
CODE = """
import sys
from pathlib import Path
from allotment.wiring.engines import Engines
from allotment.wiring.options import Options
from allotment.wiring.service import serve
state, config, port, gpus, ready, backend, root = sys.argv[1:]
if backend == "fake":
    sys.path.insert(0, root)
    from tests.support.fake_backend import FakeBackend
    Engines.backend = lambda *_: FakeBackend()
sys.exit(serve(Options(
    Path(state), config=Path(config) if config else None, port=int(port) if port else None,
    gpus=int(gpus) if gpus else None, ready_fd=int(ready),
)))
"""


class Started:
    """A service process; `address` is what it wrote when it was ready, None if it never was."""

    def __init__(
        self,
        state: Path,
        *,
        config: Path | None = None,
        port: int | str = "",
        gpus: str = "",
        backend: str = "fake",
        before: str = "",
    ) -> None:
        reader, writer = os.pipe()
        words = [
            str(state),
            str(config or ""),
            str(port),
            gpus,
            str(writer),
            backend,
            str(ROOT),
        ]
        self.state = state
        self.process = subprocess.Popen(
            [sys.executable, "-c", before + CODE, *words],
            pass_fds=[writer],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        os.close(writer)
        with os.fdopen(reader) as pipe:
            line = pipe.readline()
        self.address = json.loads(line) if line else None

    def ask(self, method: str, path: str, body: object = None) -> Answer:
        assert self.address is not None
        return ask(UnixConnection(self.address["socket"]), method, path, body)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Stop it; give exit code and stderr."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        _, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, err


@contextmanager
def started(state: Path, **options: object) -> Iterator[Started]:
    service = Started(state, **options)  # type: ignore[arg-type]
    try:
        assert service.address is not None, service.end()
        yield service
    finally:
        service.end()


def refused(state: Path, **options: object) -> str:
    """Start what cannot start; give what it said."""
    service = Started(state, **options)  # type: ignore[arg-type]
    assert service.address is None, service.end()
    assert service.process.wait(timeout=PATIENCE_S) == 1
    _, err = service.end()
    assert "Traceback" not in err
    return err


# ── starting ────────────────────────────────────────────────────────────────────────────


def test_a_first_start_makes_everything_it_needs(tmp_path: Path) -> None:
    state = tmp_path / "deep" / "state"
    with started(state, gpus="4", port=0) as service:
        assert service.address is not None
        posted = json.loads((state / "address.json").read_text())
        assert posted == service.address
        assert posted["pid"] == service.process.pid
        assert posted["url"].startswith("http://127.0.0.1:")
        config = (state / "config.yaml").read_text()
        assert "virtual: true" in config
        assert len(service.ask("GET", "/v1/nodes").json[0]["devices"]) == 4
        assert service.ask("GET", "/readyz").body == b"ready\n"
        modes = {
            path.name: stat.S_IMODE(path.stat().st_mode)
            for path in state.iterdir()
            if path.is_file()
        }
        open_to_all = {"address.json"} if os.geteuid() == 0 else set[str]()
        assert {name for name, mode in modes.items() if mode & 0o077} == open_to_all
        limits = Path(f"/proc/{posted['pid']}/limits").read_text()
        assert "Max core file size        0 " in limits
    assert not (state / "address.json").exists()
    assert not (state / "allot.sock").exists()
    with started(state) as service:  # the same configuration, without --gpus
        assert len(service.ask("GET", "/v1/nodes").json[0]["devices"]) == 4
        assert service.address is not None
        assert service.address["url"] == ""


CONFIG = """
nodes:
  - name: here
    cpu: 4
    memory: 8GiB
    disk: 10GiB
tenants:
  vision: {guaranteed: {cpu: 2}}
"""


DIES = """
import os
from allotment.wiring import kept_config
def {name}(folder, *text, _real=kept_config.{name}):
    if {done}:
        _real(folder, *text)
    os.kill(os.getpid(), 9)
kept_config.{name} = {name}
"""


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state folder of a service that ran with a configuration; to be copied."""
    folder = tmp_path_factory.mktemp("configured")
    (folder / "cluster.yaml").write_text(CONFIG)
    with started(folder / "state", config=folder / "cluster.yaml"):
        pass
    return folder / "state"


@pytest.mark.parametrize(
    ("dies", "edited", "in_force"),
    [
        (DIES.format(name="announce", done=False), False, 2),
        (DIES.format(name="announce", done=True), False, 2),
        (DIES.format(name="keep", done=False), False, 3),
        (DIES.format(name="keep", done=False), True, 1),
        (DIES.format(name="keep", done=True), False, 3),
    ],
    ids=["unwritten", "not applied", "applied", "applied, then edited", "kept"],
)
def test_a_crash_leaves_the_configuration_in_force_that_the_log_has(
    tmp_path: Path, configured: Path, dies: str, edited: bool, in_force: int
) -> None:
    state = Path(shutil.copytree(configured, tmp_path / "state"))
    with started(state, before=dies) as service:
        new = {"text": CONFIG.replace("cpu: 2", "cpu: 3"), "source": "new.yaml", "expect": ""}
        with pytest.raises((ConnectionError, HTTPException)):
            service.ask("POST", "/v1/config:apply", new)
        assert service.process.wait(timeout=PATIENCE_S) == -signal.SIGKILL
    kept = state / "config.yaml"
    if edited:
        kept.write_text(CONFIG.replace("cpu: 2", "cpu: 1"))
    with started(state) as service:
        written = json.loads(service.ask("GET", "/v1/config").json["text"])
        assert float(written["tenants"]["vision"]["guaranteed"]["cpu"]) == in_force
        assert f"cpu: {in_force}" in kept.read_text()
    assert not (state / "config.next.yaml").exists()
    again = open_service(Options(state))
    asyncio.run(again.service.stop())
    again.lock.release()
    for config in (again.config, again.service.state.config):
        assert config.tenants[0].guaranteed.cpu_milli == 1000 * in_force


def test_a_configuration_is_used_and_kept(tmp_path: Path) -> None:
    state, config = tmp_path / "state", tmp_path / "cluster.yaml"
    config.write_text(CONFIG)
    for options in ({"config": config}, {}):
        with started(state, **options) as service:
            assert service.ask("GET", "/v1/tenants").json[0]["name"] == "vision"
    assert (state / "config.yaml").read_text() == CONFIG


def test_a_log_that_cannot_be_folded_ends_the_start_and_says_so(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with started(state):
        pass
    with closing(SqliteStore.open(state)) as store:
        ended = JobArchived(JobId(77))  # Of a job that never was.
        store.append([Record(Seq(store.last_seq() + 1), Instant(10**15), SYSTEM, ended)], [])
    broken = Started(state)
    assert broken.address is None
    assert broken.process.wait(timeout=PATIENCE_S) == 1
    _, err = broken.end()
    assert err.splitlines()[-1].startswith(
        "allot: the service ended by a bug in Allotment: KeyError: 77. "
    )
    assert str(state / "service.log") in err
    entry = json.loads((state / "service.log").read_text().splitlines()[-1])
    assert entry["level"] == "critical"
    assert "in _archived" in entry["exception"]


def test_a_long_path_gets_a_short_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "r"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    state = tmp_path / ("x" * 60) / ("y" * 60)
    with started(state) as service:
        assert service.address is not None
        assert len(service.address["socket"]) <= 100
        assert service.ask("GET", "/healthz").status == 200
        assert not (state / "allot.sock").exists()
        assert json.loads((state / "address.json").read_text()) == service.address
    assert not Path(service.address["socket"]).exists()


def test_a_stale_socket_and_address_are_replaced(tmp_path: Path) -> None:
    with started(tmp_path) as service:
        service.process.kill()
        service.process.wait()
        assert (tmp_path / "allot.sock").exists()
    with started(tmp_path) as service:
        assert service.ask("GET", "/healthz").status == 200


# ── not starting ────────────────────────────────────────────────────────────────────────


def test_two_services_never_share_a_folder(tmp_path: Path) -> None:
    with started(tmp_path) as service:
        said = refused(tmp_path)
        assert f"pid {service.process.pid}" in said
        assert "allot down" in said
        assert service.ask("GET", "/readyz").status == 200  # and was not disturbed
        with pytest.raises(Exception, match=f"pid {service.process.pid}"):
            open_service(Options(tmp_path))


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refused(tmp_path, port=port)
    assert f"port {port}" in said
    assert "--port" in said
    with started(tmp_path, port=port):
        pass


def test_a_bad_configuration_is_explained_line_by_line(tmp_path: Path) -> None:
    config = tmp_path / "cluster.yaml"
    config.write_text("tenants:\n  vision:\n    guaranted: {gpu: 4}\n  'a b': {}\nlimit: {}\n")
    said = refused(tmp_path / "state", config=config)
    assert "line 3" in said
    assert "guaranteed" in said
    assert "line 5" in said
    assert str(config) in said


def test_a_configuration_that_is_not_there(tmp_path: Path) -> None:
    said = refused(tmp_path / "state", config=tmp_path / "none.yaml")
    assert "no such file" in said


def test_a_database_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "allot.db").write_bytes(b"this is no database" * 1000)
    said = refused(tmp_path)
    assert "allot.db" in said
    assert "allot restore" in said


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.may_skip("only for ordinary users")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "--state" in refused(tmp_path / "state")


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    assert "--state" in refused(tmp_path / "state")


def test_a_backend_that_cannot_start(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("in the way")
    assert f"{tmp_path}/run" in refused(tmp_path, backend="local")
    assert not (tmp_path / "address.json").exists()


@pytest.mark.needs_root
def test_a_folder_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    os.chown(tmp_path / "state", 65534, 65534)
    assert "belongs to uid 65534" in refused(tmp_path / "state")


def test_a_new_configuration_that_cannot_be_had_leaves_the_old_one(tmp_path: Path) -> None:
    state, config = tmp_path / "state", tmp_path / "cluster.yaml"
    config.write_text(CONFIG)
    with started(state, config=config) as service:
        job = {"name": "j", "command": "fake forever", "tenant": "vision"}
        made = service.ask("POST", "/v1/jobs", job).json["id"]
        deadline = time.monotonic() + PATIENCE_S
        while service.ask("GET", f"/v1/jobs/{made}").json["row"]["state"] != "running":
            assert time.monotonic() < deadline
        service.process.kill()  # its fake task is not heard of any more, but not known as gone
    other = tmp_path / "other.yaml"
    other.write_text(CONFIG.replace("here", "there"))
    service = Started(state, config=other)
    try:
        if service.address is None:
            pytest.fail(service.end()[1])
        names = [node["name"] for node in service.ask("GET", "/v1/nodes").json]
        kept = (state / "config.yaml").read_text()
        assert ("there" in names) == ("there" in kept)
    finally:
        service.end()


# ── ending ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_within_two_seconds(tmp_path: Path, number: int) -> None:
    """At best: a machine that others share may hold up any single end."""
    took = (seconds_to_end(tmp_path / str(n), number) for n in range(5))
    assert any(each < 2 for each in took)


def seconds_to_end(state: Path, number: int) -> float:
    """End a service that has followers, and a client that does not finish its request."""
    with started(state) as service:
        assert service.address is not None
        followers = [UnixConnection(service.address["socket"]) for _ in range(5)]
        for follower in followers:
            follower.request("GET", "/v1/events?follow=true")
            follower.getresponse()
        with socket.socket(socket.AF_UNIX) as silent:
            silent.connect(service.address["socket"])
            silent.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
            began = time.monotonic()
            code, err = service.end(number)
            took = time.monotonic() - began
        for follower in followers:
            follower.close()
    assert (code, err) == (0, err)
    assert "Traceback" not in err
    last = json.loads((state / "service.log").read_text().splitlines()[-1])
    assert "stopped" in last["event"]
    return took


def test_a_request_ends_it_too(tmp_path: Path) -> None:
    with started(tmp_path) as service:
        assert service.ask("POST", "/v1/service:stop").status == 200
        assert service.process.wait(timeout=PATIENCE_S) == 0


def test_the_log_is_json_and_has_no_secrets(tmp_path: Path) -> None:
    with started(tmp_path, port=0) as service:
        job = {"name": "j", "command": "fake 0.01", "secrets": {"TOKEN": "hunter22"}}
        assert service.ask("POST", "/v1/jobs", job).status == 201
        token = (tmp_path / "token").read_text().strip()
    text = (tmp_path / "service.log").read_text()
    for line in text.splitlines():
        entry = json.loads(line)
        assert {"event", "level", "timestamp"} <= set(entry)
    assert "hunter22" not in text
    assert token not in text
    assert stat.S_IMODE((tmp_path / "service.log").stat().st_mode) == 0o600


UNFORESEEN = """
import sys
from pathlib import Path
from allotment.api.logbook import close_logbook, open_logbook
from allotment.api.problems import unexpected
open_logbook(Path(sys.argv[1]))
try:
    raise ZeroDivisionError("the inside")
except ZeroDivisionError as error:
    print(unexpected(error).detail)
close_logbook()
"""


def test_what_nobody_foresaw_is_in_the_log_under_its_id(tmp_path: Path) -> None:
    words = [sys.executable, "-c", UNFORESEEN, str(tmp_path)]
    detail = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    (entry,) = map(json.loads, (tmp_path / "service.log").read_text().splitlines())
    assert entry["id"] in detail
    assert "the inside" not in detail
    assert "ZeroDivisionError: the inside" in entry["exception"]


# ── without a process ───────────────────────────────────────────────────────────────────


def test_a_service_is_built_without_being_started(tmp_path: Path) -> None:
    opened = open_service(Options(tmp_path, gpus=2))
    try:
        assert opened.config.nodes[0].devices
        assert not opened.service.ready
    finally:
        asyncio.run(opened.service.stop())
        opened.lock.release()


def test_a_backup_is_put_back(tmp_path: Path) -> None:
    state, backup = tmp_path / "state", tmp_path / "backup.db"
    with started(state) as service:
        job = {"name": "kept", "command": "fake forever"}
        service.ask("POST", "/v1/jobs?held=true", job)
        assert service.ask("POST", "/v1/service:backup", {"target": str(backup)}).status == 200
        with pytest.raises(Exception, match="already uses"):
            restore(backup, state)
    mask = os.umask(0o022)
    try:
        assert restore(backup, tmp_path / "other") > 0
    finally:
        os.umask(mask)
    with started(tmp_path / "other") as service:
        assert service.ask("GET", "/v1/jobs/kept").json["row"]["state"] == "held"

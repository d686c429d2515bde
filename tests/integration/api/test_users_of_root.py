"""A service of the superuser, real tasks, and three users: each gets at his own and no more."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from allotment.api import accounts
from tests.integration.api.live import Answer, Live
from tests.integration.api.test_guard import as_user
from tests.integration.api.test_wiring import Started
from tests.support.cluster import end_launchers, until
from tests.support.exchange import owned, written

ALICE, BOB, CAROL = 64001, 64002, 64003
CONFIG = "tenants:\n  all:\n    guaranteed: {cpu: 1, memory: 1GiB}\n"

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


@pytest.fixture
def service(reachable: Path) -> Iterator[Started]:
    (reachable / "config.yaml").write_text(CONFIG)
    state = reachable / "state"
    started = Started(state, config=reachable / "config.yaml", backend="local")
    try:
        assert started.address is not None, started.end()
        yield started
    finally:
        started.end()
        end_launchers(state)


def asked(service: Started, uid: int, method: str, path: str, body: object = None) -> Answer:
    return as_user(uid, cast("Live", service), method, path, body)


def ended(service: Started, uid: int, **job: Any) -> tuple[int, str]:
    """Submit a job as a user; give its id and how it ended."""
    small = {"cpu": 0.1, "memory": "64MiB"}
    spec = {"name": "real", "tenant": "all", "resources": small, **job}
    answer = asked(service, uid, "POST", "/v1/jobs", spec)
    assert answer.status == 201, answer
    number = answer.json["id"]
    over = ("succeeded", "failed", "cancelled")

    def state() -> str:
        return service.ask("GET", f"/v1/jobs/{number}").json["row"]["state"]

    until(lambda: state() in over, "the job to end")
    return number, state()


def test_a_users_own_paths_work_and_those_of_others_do_not(
    service: Started, reachable: Path
) -> None:
    home = owned(reachable / "alice", ALICE, 0o700)
    written(owned(home / "data", ALICE) / "x", "42", ALICE)
    (reachable / "link").symlink_to(home / "data")  # laid by root
    script = 'touch "$ALLOT_DATA_DIR/y" || cp "$ALLOT_DATA_DIR/x" "$ALLOT_OUTPUT_DIR/answer"'
    for data in (str(home / "data"), str(reachable / "link")):
        job, state = ended(service, ALICE, command=script, data=data, output=str(home))
        assert state == "succeeded"
        page = asked(service, ALICE, "GET", f"/v1/jobs/{job}/outputs").json
        assert [file["path"] for file in page["items"]] == ["answer"]
        for uid, status in ((ALICE, 200), (0, 200), (BOB, 403), (CAROL, 403)):
            path = f"/v1/jobs/{job}/outputs"
            assert asked(service, uid, "GET", path).status == status
            assert asked(service, uid, "GET", f"{path}/1/answer").status == status
        refused = asked(
            service, BOB, "POST", "/v1/jobs",
            {"name": "a", "tenant": "all", "command": "true", "data": data},
        )  # fmt: skip
        assert refused.status == 422, refused
        assert "you may not pass through" in refused.body.decode()


def test_an_attempts_output_folder_is_the_users_also_below_the_state_folder(
    service: Started, reachable: Path
) -> None:
    job, state = ended(
        service, BOB, command="id -u > $ALLOT_OUTPUT_DIR/who; ls $ALLOT_HOSTFILE"
    )
    assert state == "succeeded"
    body = asked(service, BOB, "GET", f"/v1/jobs/{job}/outputs/1/who").body
    assert body == f"{BOB}\n".encode()


def test_subordinate_numbers_of_a_user_are_no_users(
    monkeypatch: pytest.MonkeyPatch, reachable: Path
) -> None:
    """With newuidmap one user may be 65,536, with a share, a limit and a word each."""
    listed = reachable / "subuid"
    listed.write_text("mallory:200000:65536\nbad line\n64003:300000:10\n")
    monkeypatch.setattr(accounts, "SUBORDINATES", listed)
    job = {"name": "job", "tenant": "vision", "command": "fake 0.01"}
    with Live(reachable / "state") as live:
        for uid, status in ((200000, 403), (265535, 403), (300009, 403), (265536, 201)):
            answer = as_user(uid, live, "POST", "/v1/jobs", job)
            assert answer.status == status, answer
        assert (
            "subordinate uid of mallory"
            in as_user(200007, live, "GET", "/v1/jobs").body.decode()
        )


@pytest.mark.needs_tool("unshare")
@pytest.mark.may_skip("where users may not make user namespaces")
def test_a_user_namespace_makes_nobody_root(reachable: Path) -> None:
    """Its root is, to the kernel that tells us who asks, the user who made it."""
    with Live(reachable / "state") as live:
        done = subprocess.run(
            [*UNSHARE, sys.executable, "-I", "-S", "-c", STOP, live.socket],
            user=BOB,
            group=BOB,
            extra_groups=[],
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
    if done.stderr.startswith("unshare"):
        pytest.skip(done.stderr)
    assert done.stdout.startswith("0 HTTP/1.1 403 "), done


UNSHARE = ("unshare", "--user", "--map-root-user")
STOP = r"""
import os, socket, sys
sock = socket.socket(socket.AF_UNIX)
sock.connect(sys.argv[1])
sock.sendall(b"POST /v1/service:stop HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
print(os.getuid(), sock.recv(1000).decode())
"""

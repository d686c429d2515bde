"""The fence of a pilot as a process by itself: whatever dies, nothing inside outlives it.

As root, as an ordinary user, and as one whose machine forbids user namespaces.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from allotment.backends.local.runner import procfs
from allotment.backends.pilot.hold import FENCE
from allotment.service.isolated import isolated
from tests.support.cluster import gone, until
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool("unshare", "setpriv")]

USER = 4711
AS_USER = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--"]
FORBIDDEN = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'
"""In a user namespace of the test's own: no further one may be made."""
BEFORE = {
    "root": [],
    "user": AS_USER,
    "user without namespaces": [
        *AS_USER, "unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c",
        FORBIDDEN, "sh",
    ],
}  # fmt: skip
INSIDE = """\
cat > %s/note
(setsid sleep 1000 & setsid sh -c 'trap "" TERM; sleep 1000; sleep 1000' &)
setsid sh -c 'echo > %s/up; kill -STOP $$' & wait
"""
"""An agent with children of all kinds: in sessions of their own, deaf, stopped."""


class Fence:
    """One that runs in a folder of its own, with an agent as above."""

    def __init__(self, before: list[str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="allot-fence-", dir="/var/tmp"))
        os.chown(self.folder, *((USER, USER) if before else (0, 0)))
        agent = json.dumps(["/bin/sh", "-c", INSIDE % (self.folder, self.folder)])
        words = isolated(FENCE, str(self.folder), agent, bare=True)
        self.process = subprocess.Popen(
            [*before, *words], cwd="/", stdin=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self.process.stdin is not None
        self.process.stdin.write(b'{"node": "n1"}')
        self.process.stdin.close()
        until((self.folder / "up").exists, "its agent")
        until(lambda: len(self.members()) >= 6, "all of it")
        self.all = self.members()

    @property
    def pid(self) -> int:
        return int((self.folder / "pilot.lock").read_text().split()[0])

    def members(self) -> list[int]:
        return list(procfs.descendants(self.pid))

    @property
    def inner(self) -> int:
        return procfs.children(self.pid)[0]

    @property
    def note(self) -> dict[str, str]:
        return json.loads((self.folder / "note").read_text())

    def until_all_gone(self) -> None:
        until(lambda: all(map(gone, self.all)), "everything inside to be gone")
        self.process.wait(PATIENCE_S)


@pytest.fixture
def a_fence() -> Iterator[Callable[[list[str]], Fence]]:
    made: list[Fence] = []

    def make(before: list[str]) -> Fence:
        made.append(Fence(before))
        return made[-1]

    yield make
    for fence in made:
        for pid in (fence.process.pid, *fence.all):
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)
        fence.process.wait(PATIENCE_S)
        assert fence.process.stderr is not None
        fence.process.stderr.close()
        shutil.rmtree(fence.folder)


@pytest.mark.parametrize("who", BEFORE)
@pytest.mark.parametrize("how", ["told to end", "killed", "its process 1 is killed"])
def test_nothing_outlives_a_fence(
    a_fence: Callable[[list[str]], Fence], who: str, how: str
) -> None:
    fence = a_fence(BEFORE[who])
    assert fence.note["fence"] == ("processes" if "without" in who else "namespaces")
    match how:
        case "told to end":
            os.kill(fence.pid, signal.SIGTERM)
        case "killed":
            os.kill(fence.pid, signal.SIGKILL)
        case _:
            os.kill(fence.inner, signal.SIGKILL)
    fence.until_all_gone()


def test_a_fence_of_a_user_has_the_users_rights_and_no_more(
    a_fence: Callable[[list[str]], Fence],
) -> None:
    fence = a_fence(AS_USER)
    agent, *_ = procfs.children(fence.inner)
    status = dict(
        line.split(":\t", 1)
        for line in Path(f"/proc/{agent}/status").read_text().splitlines()
        if ":\t" in line
    )
    assert status["Uid"].split() == [str(USER)] * 4
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
    fence.process.terminate()
    fence.until_all_gone()

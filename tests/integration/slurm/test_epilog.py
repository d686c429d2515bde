"""The epilog that Slurm runs after a pilot: what it ends, and what it leaves alone."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from allotment.backends.local.runner import procfs
from allotment.cli.doctor_slurm import EPILOG
from tests.support.cluster import gone, until
from tests.support.on_pilots import Piloted, groups, processes
from tests.support.on_slurm import a_shared_folder, shell
from tests.support.patience import PATIENCE_S
from tests.support.slurm import TOOLS, Slurm, a_slurm

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool(*TOOLS, "openssl")]

SCRIPT = Path(__file__).parents[3] / "ops/slurm" / EPILOG
JOB = 4_000_000_000 + os.getpid()
FREEZER = Path("/sys/fs/cgroup/freezer")
V2 = Path("/sys/fs/cgroup/unified")


class Groups:
    """Control groups with a frozen process each."""

    def __init__(self, root: Path) -> None:
        self.root = root / f"allot-test-{os.getpid()}"
        self.is_v2 = (root / "cgroup.controllers").exists()
        self.processes: list[subprocess.Popen[bytes]] = []

    def frozen(self, name: str) -> subprocess.Popen[bytes]:
        folder = self.root / name
        folder.mkdir(parents=True)
        process = subprocess.Popen(["sleep", "1000"])
        self.processes.append(process)
        (folder / "cgroup.procs").write_text(str(process.pid))
        if self.is_v2:
            (folder / "cgroup.freeze").write_text("1")
        else:
            (folder / "freezer.state").write_text("FROZEN")
        return process

    def clear(self) -> None:
        """Thaw, end and remove all of it."""
        folders = [Path(folder) for folder, _, _ in os.walk(self.root, topdown=False)]
        for folder in folders:
            if self.is_v2:
                (folder / "cgroup.freeze").write_text("0")
            else:
                (folder / "freezer.state").write_text("THAWED")
        for process in self.processes:
            process.kill()
            process.wait(PATIENCE_S)
        for folder in folders:
            until(lambda path=folder: not (path / "cgroup.procs").read_text(), "its members")
            folder.rmdir()


@pytest.fixture(params=[FREEZER, V2], ids=["v1", "v2"])
def made(request: pytest.FixtureRequest) -> Iterator[Groups]:
    if not (request.param / "cgroup.procs").exists():
        pytest.skip(f"needs control groups at {request.param}")
    groups = Groups(request.param)
    try:
        yield groups
    finally:
        groups.clear()


def run_epilog(job: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": job}
    return subprocess.run([str(SCRIPT)], env=env, text=True, capture_output=True, check=False)


@pytest.mark.may_skip("few machines have both versions of control groups")
def test_it_ends_the_groups_of_its_job_and_nothing_else(made: Groups) -> None:
    ours = [
        made.frozen(f"uid_0/job_{JOB}/step_batch/allotment/ab12/{name}")
        for name in ("runner", "1.1.task.0")
    ]
    others = [
        made.frozen(f"uid_0/job_{JOB}/step_batch/theirs"),
        made.frozen(f"uid_0/job_{JOB}0/step_batch/allotment/ab12/1.1.task.0"),
        made.frozen("allotment/cd34/1.1.task.0"),
    ]
    assert run_epilog("").returncode == 0
    assert run_epilog("*").returncode == 0
    assert all(process.poll() is None for process in (*ours, *others))
    done = run_epilog(str(JOB))
    assert done.returncode == 0, done.stderr
    assert [process.wait(PATIENCE_S) for process in ours] == [-signal.SIGKILL] * 2
    assert all(process.poll() is None for process in others)
    assert not (made.root / f"uid_0/job_{JOB}/step_batch/allotment/ab12").exists()


@pytest.mark.may_skip("few machines have both versions of control groups")
def test_a_users_group_leads_it_nowhere_else(made: Groups, tmp_path: Path) -> None:
    """What follows a space in its name is no path; one of a user's own is not looked at."""
    bait, victim = tmp_path / "allotment/x", tmp_path / "victim"
    bait.mkdir(parents=True)
    victim.write_text("theirs")
    bystander = subprocess.Popen(["sleep", "1000"])
    made.processes.append(bystander)
    (bait / "cgroup.procs").write_text(str(bystander.pid))
    (bait / "freezer.state").symlink_to(victim)
    (bait / "cgroup.freeze").symlink_to(victim)
    inside = made.frozen(f"job_{JOB}/step {bait}")
    users = made.frozen(f"user/job_{JOB}/step/allotment/ab12")
    os.chown(made.root / f"user/job_{JOB}", 64002, 64002)
    done = run_epilog(str(JOB))
    assert done.returncode == 0, done.stderr
    assert victim.read_text() == "theirs"
    assert bystander.poll() is None
    assert inside.wait(PATIENCE_S) == -signal.SIGKILL
    assert users.poll() is None


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with a_slurm(settings=f"Epilog={SCRIPT}\n") as running:
        yield running


def test_it_ends_what_is_frozen_when_slurmstepd_is_killed(slurm: Slurm) -> None:
    with a_shared_folder() as folder:
        cluster = Piloted(folder / "state", slurm)
        cluster.up()
        bystander = Groups(FREEZER)
        try:
            cluster.until_held()
            mark = f"sleep 4000.{os.getpid()}"
            job = cluster.submit(shell(mark, count=2, resources={"gpu": 4}))
            cluster.wait_for(job, "running")
            assert cluster.allot("suspend", str(job)).returncode == 0
            cluster.wait_for(job, "suspended")
            frozen = processes(mark)
            other = bystander.frozen("another")
            pilots = cluster.pilots()
            for node in pilots:  # So that no next pilot clears up.
                slurm.say(
                    "scontrol", "update", f"nodename={node}", "state=drain", "reason=test"
                )
            for lock in cluster.state.glob("pilot/nodes/*/pilot.lock"):
                fence = int(lock.read_text().split()[0])
                stat = procfs.stat(fence)
                assert stat is not None
                os.kill(stat.ppid, signal.SIGKILL)
                until(lambda pid=stat.ppid: gone(pid), "slurmstepd to be gone")
            assert not any(map(gone, frozen)), "nobody thaws them yet"
            for number in pilots.values():
                slurm.say("scancel", number)
            until(lambda: all(map(gone, frozen)), "the frozen ones to be gone")
            until(lambda: not groups(cluster.state), "their groups to be gone")
            assert other.poll() is None
            until(lambda: not slurm.say("squeue", "-h"), "Slurm to be done")
            assert "drained" in slurm.say("sinfo", "-h", "-o", "%T")
        finally:
            bystander.clear()
            cluster.down()
            slurm.clear()

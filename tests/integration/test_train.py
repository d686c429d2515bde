"""The demo's training job, as a scheduler runs it: real processes, TCP, signals and files."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from allotment.demo import train
from tests.support.patience import PATIENCE_S

TRAIN = Path(train.__file__)
OURS = ("ALLOT_", "MASTER_", "RANK", "WORLD_SIZE")
SLOWLY = ("--step-time-ms", "20", "--log-every", "1")
"""Leaves time to act between two steps; only tests that interrupt a job need it."""


class Gang:
    """The processes of one job; `env` adds to what a scheduler sets."""

    def __init__(self, world: int, *args: str, env: dict[str, str], cwd: Path) -> None:
        clean = {name: at for name, at in os.environ.items() if not name.startswith(OURS)}
        self.reserved = reserve_port()
        port = str(self.reserved.getsockname()[1])
        meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(world)}
        self.members = [
            subprocess.Popen(
                [sys.executable, str(TRAIN), *args],
                env=clean | meet | {"RANK": str(rank)} | env,
                cwd=cwd,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(world)
        ]

    def until(self, start: str) -> None:
        """Read rank 0's output up to a line that begins so."""
        for line in cast("Iterator[str]", self.members[0].stdout):
            if line.startswith(start):
                return
        pytest.fail(f"it ended without a line {start!r}")

    def end(self) -> list[int]:
        """Wait for all; give the exit codes. Output is in `out` and `err`, by rank."""
        said = [member.communicate(timeout=PATIENCE_S) for member in self.members]
        self.out, self.err = [each[0] for each in said], [each[1] for each in said]
        return [member.returncode for member in self.members]

    def close(self) -> None:
        """Leave nothing behind."""
        self.reserved.close()
        for member in self.members:
            member.kill()
            member.communicate()


class Job:
    """A job's folders, which outlive its attempts."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.checkpoints = folder, folder / "checkpoints"
        self.report, self.output = folder / "report.json", folder / "output"
        self.gangs = list[Gang]()

    def start(self, world: int, *args: str, **env: str) -> Gang:
        folders = {
            "ALLOT_CHECKPOINT_DIR": str(self.checkpoints),
            "ALLOT_CHECKPOINT_FILE": str(self.report),
            "ALLOT_OUTPUT_DIR": str(self.output),
        }
        self.gangs.append(Gang(world, *args, env=folders | env, cwd=self.folder))
        return self.gangs[-1]

    def finish(self, world: int, *args: str, **env: str) -> Gang:
        gang = self.start(world, *args, **env)
        codes = gang.end()
        assert codes == [0] * world, gang.err
        return gang

    def metrics(self) -> dict[str, float]:
        return json.loads((self.output / "metrics.json").read_text())

    def saved_steps(self) -> list[int]:
        assert not list(self.checkpoints.glob(".*")), "an unfinished file stayed"
        return sorted(int(path.stem.split("-")[1]) for path in self.checkpoints.iterdir())


NewJob = Callable[[], Job]


@pytest.fixture
def new_job(tmp_path: Path) -> Iterator[NewJob]:
    jobs = list[Job]()

    def make() -> Job:
        folder = tmp_path / str(len(jobs))
        folder.mkdir()
        jobs.append(Job(folder))
        return jobs[-1]

    yield make
    for job in jobs:
        for gang in job.gangs:
            gang.close()


@pytest.fixture
def job(new_job: NewJob) -> Job:
    return new_job()


def reserve_port() -> socket.socket:
    """Bind a port without listening: the job may listen there, nobody else is given it."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


# ── it learns ───────────────────────────────────────────────────────────────────────────


def test_one_process_converges_and_leaves_a_model(job: Job) -> None:
    gang = job.finish(1, "--require-accuracy")
    assert "step 20/400  loss " in gang.out[0]
    assert "samples/s" in gang.out[0]
    assert job.metrics()["held_out_accuracy"] >= 0.95
    with np.load(job.output / "model.npz") as model:
        assert model["weights"].shape == (train.Net(64).length,)


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_it_converges_with_any_seed_and_a_narrow_net(job: Job, seed: str) -> None:
    job.finish(1, "--require-accuracy", "--hidden", "32", "--seed", seed)


def test_too_low_an_accuracy_is_a_failure_if_so_required(job: Job) -> None:
    assert job.start(1, "--steps", "5", "--require-accuracy").end() == [1]
    assert job.metrics()["held_out_accuracy"] < 0.95


@pytest.mark.parametrize("world", [2, 3, 4])
def test_any_number_of_processes_reaches_the_same_loss(new_job: NewJob, world: int) -> None:
    alone, together = new_job(), new_job()
    size = ("--steps", "150", "--batch", "250")  # 3 and 4 do not divide it
    alone.finish(1, *size)
    together.finish(world, *size)
    assert together.metrics() == pytest.approx(alone.metrics(), rel=1e-6)


def test_it_runs_as_a_module_and_as_a_copy_on_its_own(tmp_path: Path) -> None:
    copy = tmp_path / "job.py"
    copy.write_bytes(TRAIN.read_bytes())
    source = {**os.environ, "PYTHONPATH": str(TRAIN.parents[2])}
    alone = {name: at for name, at in os.environ.items() if name != "PYTHONPATH"}
    as_module = [sys.executable, "-m", "allotment.demo.train", "--steps", "20"]
    for command, env in (
        (as_module, source),
        ([sys.executable, "-P", str(copy), "--steps", "20"], alone),
    ):
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines()[-1].startswith("done: accuracy ")


# ── it stops, and goes on ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("world", "rank", "number"), [(1, 0, 15), (2, 1, 15), (2, 0, 10)])
def test_a_signal_to_any_process_stops_all_at_one_checkpoint(
    new_job: NewJob, world: int, rank: int, number: int
) -> None:
    whole, job = new_job(), new_job()
    whole.finish(world, "--steps", "120")
    gang = job.start(world, "--steps", "120", *SLOWLY)
    gang.until("step 3/")
    gang.members[rank].send_signal(number)
    assert gang.end() == [85] * world, gang.err

    (step,) = job.saved_steps()
    assert 3 <= step < 50
    assert f"stopped at the checkpoint of step {step}" in gang.out[0]
    report = json.loads(job.report.read_text())
    saved = str(job.checkpoints / f"ckpt-{step:08}.npz")
    assert report == {"path": saved, "step": step, "progress": step / 120}

    assert f"resumed at step {step} from" in job.finish(world, "--steps", "120").out[0]
    assert job.metrics() == whole.metrics() | {"resumed_from_step": step}


def test_a_job_may_go_on_with_fewer_processes(new_job: NewJob) -> None:
    whole, job = new_job(), new_job()
    whole.finish(1, "--steps", "100")
    job.finish(2, "--steps", "50")
    job.finish(1, "--steps", "100")
    assert job.metrics()["resumed_from_step"] == 50
    assert job.metrics()["loss"] == pytest.approx(whole.metrics()["loss"], rel=1e-6)


def test_a_finished_job_started_again_is_done_at_once(job: Job) -> None:
    job.finish(1, "--steps", "30")
    before = job.metrics()
    job.finish(1, "--steps", "30")
    assert job.metrics() == before | {"resumed_from_step": 30}


def test_without_a_folder_for_checkpoints_a_signal_ends_it_unsaved(job: Job) -> None:
    gang = job.start(2, *SLOWLY, ALLOT_CHECKPOINT_DIR="")
    gang.until("step 1/")
    gang.members[1].terminate()
    assert gang.end() == [143, 143]
    assert "stopped without a checkpoint" in gang.out[0]
    assert not job.report.exists()


# ── checkpoints ─────────────────────────────────────────────────────────────────────────


def test_it_keeps_the_last_checkpoints(job: Job) -> None:
    often = ("--steps", "65", "--checkpoint-every", "10")
    job.finish(1, *often, ALLOT_CHECKPOINT_KEEP="3")
    assert job.saved_steps() == [50, 60, 65]
    assert json.loads(job.report.read_text())["progress"] == 1.0


def half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def nothing(content: bytes) -> bytes:
    return content[:0]


def flipped(content: bytes) -> bytes:
    at = len(content) // 2
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def of_another_net(content: bytes) -> bytes:
    return train.npz(**train.State(100, *np.zeros((3, 9)))._asdict())


def of_another_program(content: bytes) -> bytes:
    return train.npz(epoch=np.array(7))


@pytest.mark.parametrize("damage", [half, nothing, flipped, of_another_net, of_another_program])
def test_a_bad_checkpoint_is_skipped_with_a_message(
    job: Job, damage: Callable[[bytes], bytes]
) -> None:
    job.finish(1, "--steps", "100")
    assert job.saved_steps() == [50, 100]
    newest = job.checkpoints / "ckpt-00000100.npz"
    newest.write_bytes(damage(newest.read_bytes()))
    first, second, *_ = job.finish(1, "--steps", "100").out[0].splitlines()
    assert first.startswith(f"skipped checkpoint {newest}: ")
    assert second.startswith("resumed at step 50 from ")
    assert train.read_state(newest, train.Net(64).length).step == 100


def test_the_checkpoint_that_the_scheduler_names_comes_first(job: Job) -> None:
    job.finish(1, "--steps", "100")
    older = str(job.checkpoints / "ckpt-00000050.npz")
    assert "resumed at step 50" in job.finish(1, ALLOT_RESUME_FROM=older).out[0]
    gone = job.finish(1, "--steps", "100", ALLOT_RESUME_FROM="/nowhere.npz").out[0]
    assert "skipped checkpoint /nowhere.npz" in gone
    assert "resumed at step 400" in gone


def test_a_checkpoint_that_cannot_be_written_is_never_called_saved(job: Job) -> None:
    job.checkpoints.write_text("a file where the folder should be")
    gang = job.start(2, "--steps", "60")
    assert gang.end() == [1, 75]
    assert "Error: [Errno" in gang.err[0]
    assert not job.report.exists()


# ── processes vanish ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("world", [2, 3])
def test_a_peer_that_vanishes_is_named(job: Job, world: int) -> None:
    gang = job.start(world, *SLOWLY)
    gang.until("step 1/")
    gang.members[1].kill()
    assert gang.end() == [75, -signal.SIGKILL, 75][:world]
    # The first to notice says the truth; the next may have lost that one.
    assert "gives up: lost rank 1: " in "".join(gang.err)


def test_a_peer_that_falls_silent_is_named(job: Job) -> None:
    gang = job.start(2, "--peer-timeout-s", "1", *SLOWLY)
    gang.until("step 1/")
    gang.members[1].send_signal(signal.SIGSTOP)
    _, complaint = gang.members[0].communicate(timeout=PATIENCE_S)
    assert gang.members[0].returncode == 75
    assert complaint == "rank 0 gives up: lost rank 1: silent for 1 s\n"


@pytest.mark.parametrize(("rank", "why"), [(0, "lost rank 1: timed out"), (1, "no answer at")])
def test_a_peer_that_never_comes_is_named(job: Job, rank: int, why: str) -> None:
    gang = job.start(1, "--peer-timeout-s", "1", RANK=str(rank), WORLD_SIZE="2")
    assert gang.end() == [75]
    assert f"rank {rank} gives up: lost rank {1 - rank}: " in gang.err[0]
    assert why in gang.err[0]


def test_a_stranger_at_the_door_is_turned_away() -> None:
    with reserve_port() as held, ThreadPoolExecutor() as pool:
        master = held.getsockname()
        host = pool.submit(train.Ring, 0, 2, master, 10)
        with train.reach(master, 10) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\n")
            assert stranger.recv(1) == b""
        rings = [train.Ring(1, 2, master, 10), host.result()]
        sums = list(pool.map(lambda ring: ring.add(np.ones(3)), rings))
        disband(rings)
    assert np.array_equal(sums, np.full((2, 3), 2.0))


@pytest.mark.parametrize("length", [0, 1, 5, 1_000_000])
def test_a_ring_adds_vectors_of_any_length(length: int) -> None:
    vectors = np.random.default_rng(0).normal(size=(3, length))
    with reserve_port() as held, ThreadPoolExecutor() as pool:
        meet = [pool.submit(train.Ring, rank, 3, held.getsockname(), 10) for rank in range(3)]
        rings = [each.result() for each in meet]
        sums = list(pool.map(lambda ring: ring.add(vectors[ring.rank]), rings))
        disband(rings)
    assert np.allclose(sums[0], vectors.sum(axis=0))
    assert np.array_equal(sums[0], sums[1])
    assert np.array_equal(sums[0], sums[2])


def disband(rings: list[train.Ring]) -> None:
    for ring in rings:
        ring.left.close()
        ring.right.close()


# ── it fails on purpose, and arguments ──────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("how", "code", "trace"),
    [
        ("cuda-oom", 1, "RuntimeError: CUDA out of memory. Tried to allocate"),
        ("import", 1, "ModuleNotFoundError: No module named 'deepspeed'"),
        ("exit:3", 3, ""),
    ],
)
def test_it_fails_on_purpose(job: Job, how: str, code: int, trace: str) -> None:
    gang = job.start(1, "--fail-at-step", "60", "--fail-with", how)
    assert gang.end() == [code]
    assert trace in gang.err[0]
    assert job.saved_steps() == [50]


def test_it_fails_in_its_first_tries_only_if_told_so(job: Job) -> None:
    failing = ("--steps", "70", "--fail-at-step", "60", "--fail-times", "2")
    for attempt in ("1", "2"):
        assert job.start(2, *failing, ALLOT_ATTEMPT=attempt).end() == [1, 1]
    assert "resumed at step 50" in job.finish(2, *failing, ALLOT_ATTEMPT="3").out[0]


@pytest.mark.parametrize(
    ("args", "env", "complaint"),
    [
        (("--steps", "0"), {}, "argument --steps: invalid positive value: '0'"),
        (("--fail-with", "flood"), {}, "argument --fail-with: invalid failure value"),
        ((), {"RANK": "one"}, "argument --rank: invalid int value: 'one'"),
        ((), {"RANK": "2", "WORLD_SIZE": "2"}, "rank 2 is not one of 2"),
    ],
)
def test_wrong_arguments_are_named(
    job: Job, args: tuple[str, ...], env: dict[str, str], complaint: str
) -> None:
    gang = job.start(1, *args, **env)
    assert gang.end() == [2]
    assert complaint in gang.err[0]


def test_a_signal_that_comes_late_ends_nothing_any_more(job: Job) -> None:
    gang = job.start(1, *SLOWLY)
    (member,) = gang.members
    gang.until("step 3")
    member.send_signal(signal.SIGUSR1)
    gang.until("stopped at")
    while member.poll() is None:
        member.send_signal(signal.SIGUSR1)
    assert gang.end() == [train.EXIT_CHECKPOINTED]

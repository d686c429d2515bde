"""A small training job, as a pattern for your own: data-parallel, checkpointed, resumable.

It needs numpy and nothing else: copy this file and run `python train.py --steps 400`. A net
learns to tell the arms of noisy spirals apart. WORLD_SIZE processes share each batch and sum
their gradients in a ring over TCP, so the loss is the same for any number of processes.

What it takes from the environment, where a scheduler sets it:
  RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT   who it is, and where rank 0 listens
  ALLOT_CHECKPOINT_DIR   where rank 0 keeps its checkpoints; the newest good one is resumed
  ALLOT_CHECKPOINT_KEEP  how many of them stay
  ALLOT_RESUME_FROM      a checkpoint to try before those
  ALLOT_CHECKPOINT_FILE  where rank 0 reports each checkpoint once it is safely on disk, as
                         {"path": "/…/ckpt-00000050.npz", "step": 50, "progress": 0.125}
  ALLOT_OUTPUT_DIR       where rank 0 leaves model.npz and metrics.json at the end
  ALLOT_ATTEMPT          counts the tries from 1; only --fail-times looks at it
SIGTERM or SIGUSR1 to any one process means: finish this step, save, stop, all of you.

Exit codes: 0 done · 1 failed, or --require-accuracy not reached · 2 wrong arguments ·
75 another process vanished or never came · 85 told to stop, and stopped at a checkpoint ·
143 told to stop, but there is no directory for checkpoints.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import select
import signal
import socket
import sys
import time
import zipfile
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

# One core for each process, unless somebody says otherwise; numpy looks when it is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Address = tuple[str, int]

EXIT_PEER_LOST, EXIT_CHECKPOINTED, EXIT_UNSAVED = 75, 85, 143
ARMS, TRAINING_SAMPLES, HELD_OUT_SAMPLES, LEARNING_RATE = 3, 3000, 1500, 0.02


# ── training ────────────────────────────────────────────────────────────────────────────


class Training:
    """One process's part in training a net, from the first or a saved state to the last."""

    def __init__(self, options: argparse.Namespace, ring: Ring) -> None:
        """Draw the data, which are the same everywhere, and agree where to go on from."""
        self.options, self.ring, self.net = options, ring, Net(options.hidden)
        self.checkpoints = Checkpoints(options.checkpoint_dir, options.keep)
        self.points, self.arms = spirals(TRAINING_SAMPLES, self._rng(0))
        self.state = self._agree_on_start()
        self.first_step, self.began = self.state.step, time.monotonic()
        self.stop_asked = False

    def run(self) -> int:
        """Train to the last step, or until any process is told to stop. Give the exit code."""
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self._on_signal)
        while self.state.step < self.options.steps:
            fail_if_told(self.options, self.state.step)
            pause_ends = time.monotonic() + self.options.step_time_ms / 1000
            stopping = self._take_step() and self.state.step < self.options.steps
            saved = self._save_if_due(stopping)
            if stopping:
                return self._stop(saved)
            time.sleep(max(0.0, pause_ends - time.monotonic()))
        return self._finish()

    def _heed_no_more(self) -> None:
        """Let no signal end this process any more: all is decided, and one may come late."""
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)

    def _on_signal(self, number: int, frame: object) -> None:
        self.stop_asked = True

    def _rng(self, *purpose: int) -> np.random.Generator:
        """Return each purpose chance of its own, so that none of it has to be saved."""
        return np.random.default_rng([self.options.seed, *purpose])

    def _agree_on_start(self) -> State:
        """Return everybody what rank 0 starts from, as a sum to which the others add zeros."""
        start = np.zeros(1 + 3 * self.net.length)
        if self.ring.rank == 0:
            start[1 : 1 + self.net.length] = self.net.first_weights(self._rng(2))
            if saved := self.checkpoints.newest(self.net.length):
                start = np.hstack(saved)
        start = self.ring.add(start)
        return State(int(start[0]), *np.split(start[1:], 3))

    def _take_step(self) -> bool:
        """Train on one batch; return whether any process was asked to stop.

        That travels with the gradients, so that all hear of it at the same step.
        """
        batch: int = self.options.batch
        rows = self._rng(3, self.state.step).integers(TRAINING_SAMPLES, size=batch)
        mine = rows[self.ring.rank :: self.ring.world]
        sums = self.net.gradient(self.state.weights, self.points[mine], self.arms[mine])
        total = self.ring.add(np.append(sums, self.stop_asked))
        self.state = self.state.advance(total[:-3] / batch)
        if self.state.step % self.options.log_every == 0:
            self._show(loss=total[-3] / batch, accuracy=total[-2] / batch)
        return bool(total[-1])

    def _show(self, loss: float, accuracy: float) -> None:
        done = (self.state.step - self.first_step) * self.options.batch
        speed = done / (time.monotonic() - self.began)
        at = f"step {self.state.step}/{self.options.steps}"
        self._say(f"{at}  loss {loss:.4f}  accuracy {accuracy:.3f}  {speed:.0f} samples/s")

    def _save_if_due(self, stopping: bool) -> bool:
        step, last = self.state.step, self.options.steps
        due = stopping or step == last or step % self.options.checkpoint_every == 0
        return due and self.ring.rank == 0 and self.checkpoints.save(self.state, step / last)

    def _stop(self, saved: bool) -> int:
        """Leave, but not before rank 0 has the checkpoint safe."""
        self._heed_no_more()
        safe = self.ring.add(np.array([float(saved)]))[0] > 0
        how = "at the checkpoint of" if safe else "without a checkpoint at"
        self._say(f"stopped {how} step {self.state.step}")
        return EXIT_CHECKPOINTED if safe else EXIT_UNSAVED

    def _finish(self) -> int:
        loss, accuracy = self._score(self.points, self.arms)
        _, held_out = self._score(*spirals(HELD_OUT_SAMPLES, self._rng(1)))
        self._say(f"done: accuracy {accuracy:.4f}, on held-out samples {held_out:.4f}")
        if self.ring.rank == 0 and (folder := self.options.output_dir):
            metrics = {"loss": loss, "train_accuracy": accuracy, "held_out_accuracy": held_out}
            metrics |= {"steps": self.state.step, "resumed_from_step": self.first_step}
            write_atomically(folder / "model.npz", npz(weights=self.state.weights))
            write_atomically(folder / "metrics.json", json.dumps(metrics).encode())
        return int(held_out < self.options.require_accuracy)

    def _score(self, points: Floats, arms: Labels) -> tuple[float, float]:
        loss, hits = self.net.gradient(self.state.weights, points, arms)[-2:] / len(arms)
        return float(loss), float(hits)

    def _say(self, text: str) -> None:
        """Print one line for all, at once: somebody may be following the log."""
        if self.ring.rank == 0:
            print(text, flush=True)


def fail_if_told(options: argparse.Namespace, step: int) -> None:
    """Fail as real jobs do, to rehearse what a scheduler makes of it."""
    attempt = int(os.environ.get("ALLOT_ATTEMPT") or 1)
    if not 0 <= options.fail_at_step <= step or attempt > options.fail_times:
        return
    if options.fail_with == "import":
        raise ModuleNotFoundError("No module named 'deepspeed'", name="deepspeed")
    if options.fail_with == "cuda-oom":
        raise RuntimeError(
            "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.15 GiB "
            "total capacity; 77.41 GiB already allocated; 1.21 GiB free)"
        )
    sys.exit(int(options.fail_with.removeprefix("exit:")))


# ── checkpoints ─────────────────────────────────────────────────────────────────────────


class State(NamedTuple):
    """All that one step hands to the next. `step` counts the steps done."""

    step: int
    weights: Floats
    mean: Floats
    square: Floats

    def advance(self, gradient: Floats) -> State:
        """Take one step of Adam."""
        step = self.step + 1
        mean = 0.9 * self.mean + 0.1 * gradient
        square = 0.99 * self.square + 0.01 * gradient**2
        move = (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)
        return State(step, self.weights - LEARNING_RATE * move, mean, square)


class Checkpoints:
    """The states that rank 0 saved; without a folder there are none."""

    def __init__(self, folder: Path | None, keep: int) -> None:
        self.folder, self.keep = folder, keep

    def newest(self, length: int) -> State | None:
        """Read the newest good one, of so many weights; return which are bad."""
        asked = os.environ.get("ALLOT_RESUME_FROM")
        for path in [*([Path(asked)] if asked else []), *reversed(self._paths())]:
            try:
                state = read_state(path, length)
            except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
                print(f"skipped checkpoint {path}: {error}", flush=True)
            else:
                print(f"resumed at step {state.step} from {path}", flush=True)
                return state
        return None

    def save(self, state: State, progress: float) -> bool:
        """Save, tell the scheduler, and only then forget old ones; False without a folder."""
        if not self.folder:
            return False
        path = self.folder.resolve() / f"ckpt-{state.step:08}.npz"
        write_atomically(path, npz(**state._asdict()))
        if report := os.environ.get("ALLOT_CHECKPOINT_FILE"):
            words = {"path": str(path), "step": state.step, "progress": progress}
            write_atomically(Path(report), json.dumps(words).encode())
        for old in [other for other in self._paths() if other.name <= path.name][: -self.keep]:
            old.unlink()
        return True

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob("ckpt-*.npz")) if self.folder else []


def read_state(path: Path, length: int) -> State:
    """Read a checkpoint of so many weights, and raise if it is damaged or of another net."""
    with np.load(path, allow_pickle=False) as file:
        state = State(int(file["step"]), *(file[name] for name in State._fields[1:]))
    if any(vector.shape != (length,) for vector in state[1:]):
        raise ValueError("it is of a net of another size")
    return state


def npz(**arrays: ArrayLike) -> bytes:
    """Pack arrays into one file, with checksums."""
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **arrays)
    return packed.getvalue()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that is there as a whole or not at all, even if the power fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.tmp")
    with unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)  # its new name, too
    os.close(folder)


# ── data and net ────────────────────────────────────────────────────────────────────────


def spirals(count: int, rng: np.random.Generator) -> tuple[Floats, Labels]:
    """Draw noisy points of interleaved spiral arms, and which arm each belongs to."""
    arms = rng.integers(ARMS, size=count)
    along = np.sqrt(rng.uniform(0.02, 1.0, count))
    angle = 2 * np.pi * (1.25 * along + arms / ARMS) + rng.normal(0.0, 0.2, count)
    return 2 * along[:, None] * np.column_stack([np.cos(angle), np.sin(angle)]), arms


class Net:
    """One hidden layer. The weights are one flat vector: easy to sum, to send and to save."""

    def __init__(self, hidden: int) -> None:
        self.ends = [2 * hidden, 3 * hidden, (3 + ARMS) * hidden]
        self.length = self.ends[-1] + ARMS

    def first_weights(self, rng: np.random.Generator) -> Floats:
        """Draw the weights that training starts from."""
        into, into_bias, out, out_bias = np.split(rng.normal(size=self.length), self.ends)
        return np.hstack([2 * into, 2 * into_bias, out * len(into_bias) ** -0.5, 0 * out_bias])

    def gradient(self, weights: Floats, points: Floats, arms: Labels) -> Floats:
        """Return the gradient, then loss and hits as two more entries: sums over the points."""
        into, into_bias, out, out_bias = np.split(weights, self.ends)
        active = np.tanh(points @ into.reshape(2, -1) + into_bias)
        logs = active @ out.reshape(-1, ARMS) + out_bias
        logs -= logs.max(axis=1, keepdims=True)
        logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))

        true_arm = np.arange(len(arms)), arms
        loss, hits = -logs[true_arm].sum(), (logs.argmax(axis=1) == arms).sum()
        error = np.exp(logs)
        error[true_arm] -= 1.0
        back = (error @ out.reshape(-1, ARMS).T) * (1.0 - active**2)
        into, out = (points.T @ back).ravel(), (active.T @ error).ravel()
        return np.hstack([into, back.sum(axis=0), out, error.sum(axis=0), loss, hits])


# ── processes in a ring: what a framework does for you ──────────────────────────────────


class PeerLost(Exception):
    """Another process of this job vanished, fell silent or never came."""


@contextlib.contextmanager
def blaming(*ranks: int) -> Generator[None]:
    """Return who is missing when the network fails here."""
    try:
        yield
    except OSError as error:
        names = ", ".join(map(str, ranks))
        raise PeerLost(f"lost rank {names}: {error.strerror or error}") from error


class Ring:
    """Adds vectors up over all processes; each talks to its two neighbours only."""

    def __init__(self, rank: int, world: int, master: Address, patience_s: int) -> None:
        """Connect. Raises PeerLost when somebody does not come in time."""
        self.rank, self.world, self.patience_s = rank, world, patience_s
        self.left_rank, self.right_rank = (rank - 1) % world, (rank + 1) % world
        if world > 1:
            self._connect(*(self._host(master) if rank == 0 else self._visit(master)))

    def add(self, vector: Floats) -> Floats:
        """Sum a vector over all processes; every one gets the very same bits.

        Its parts go once round the ring and grow into sums, then once more for all to know
        them: each process sends less than twice the vector, however many there are.
        """
        total = vector.copy()
        parts = np.array_split(total, self.world)
        for turn in range(self.world - 1):
            mine = parts[(self.rank - turn - 1) % self.world]
            theirs = np.empty_like(mine)
            self._exchange(parts[(self.rank - turn) % self.world], theirs)
            mine += theirs
        for turn in range(self.world - 1):
            known = parts[(self.rank - turn + 1) % self.world]
            self._exchange(known, parts[(self.rank - turn) % self.world])
        return total

    def _exchange(self, outgoing: Floats, incoming: Floats) -> None:
        """Send to the right while receiving from the left: if all sent first, all might hang.

        Silence is counted in waits of a second, not by the clock: a gang that was frozen and
        is thawed must not give itself up.
        """
        out, into, waits = outgoing.view(np.uint8).data, incoming.view(np.uint8).data, 0
        while out or into:
            receiving, sending = [self.left] if into else [], [self.right] if out else []
            readable, writable, _ = select.select(receiving, sending, [], 1.0)
            with blaming(self.right_rank):
                out = out[self.right.send(out) :] if writable else out
            with blaming(self.left_rank):
                into = into[receive(self.left, into) :] if readable else into
            waits = 0 if readable or writable else waits + 1
            if waits == self.patience_s:
                silent = self.left_rank if into else self.right_rank
                raise PeerLost(f"lost rank {silent}: silent for {waits} s")

    def _host(self, master: Address) -> tuple[socket.socket, Address]:
        """As rank 0: hear where each process listens, and tell its left neighbour."""
        door, doors = socket.create_server(master), {0: master}
        guests: dict[int, socket.socket] = {}
        while missing := set(range(self.world)) - set(doors):
            rank, doors[rank], guests[rank] = self._admit(door, missing)
        for rank, guest in guests.items():
            with guest, blaming(rank):
                tell(guest, 0, doors[(rank + 1) % self.world])
        return door, doors[1]

    def _visit(self, master: Address) -> tuple[socket.socket, Address]:
        """As any other: tell rank 0 where this process listens, and hear who is right."""
        with blaming(0), reach(master, self.patience_s) as host:
            door = socket.create_server((host.getsockname()[0], 0))
            tell(host, self.rank, door.getsockname())
            return door, hear(host)[1]

    def _connect(self, door: socket.socket, right: Address) -> None:
        with door, blaming(self.right_rank):
            self.right = reach(right, self.patience_s)
            tell(self.right, self.rank, right)
            _, _, self.left = self._admit(door, {self.left_rank})
        for link in (self.left, self.right):
            link.setblocking(False)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _admit(
        self, door: socket.socket, ranks: set[int]
    ) -> tuple[int, Address, socket.socket]:
        """Wait for one of these ranks; anybody else who comes is turned away."""
        door.settimeout(self.patience_s)
        while True:
            with blaming(*ranks):
                guest, _ = door.accept()
            guest.settimeout(5.0)
            with contextlib.suppress(OSError, ValueError, TypeError):
                rank, address = hear(guest)
                if rank in ranks:
                    return rank, address, guest
            guest.close()


def reach(address: Address, patience_s: int) -> socket.socket:
    """Connect, again and again until it works: nobody knows who starts first."""
    end = time.monotonic() + patience_s
    while True:
        try:
            link = socket.create_connection(address, timeout=patience_s)
            if link.getsockname() != link.getpeername():  # TCP, left alone, can meet itself
                return link
            link.close()
        except OSError as error:
            if time.monotonic() > end:
                where = f"{address[0]}:{address[1]}"
                raise ConnectionError(f"no answer at {where}: {error}") from error
        time.sleep(0.02)


def receive(link: socket.socket, into: memoryview) -> int:
    """Receive some bytes; raise if the other side is gone."""
    if count := link.recv_into(into):
        return count
    raise ConnectionError("Connection closed by peer")


def tell(link: socket.socket, rank: int, address: Address) -> None:
    """Send who listens where, in a line."""
    link.sendall(json.dumps([rank, *address]).encode() + b"\n")


def hear(link: socket.socket) -> tuple[int, Address]:
    """Receive what `tell` sent, and not one byte more."""
    if line := link.makefile("rb", buffering=0).readline(1000):
        rank, host, port = json.loads(line)
        return int(rank), (str(host), int(port))
    raise ConnectionError("Connection closed by peer")


# ── command line ────────────────────────────────────────────────────────────────────────


def positive(text: str) -> int:
    """Read a whole number from 1 on."""
    if (number := int(text)) < 1:
        raise ValueError
    return number


def failure(text: str) -> str:
    """Read a way to fail."""
    if not re.fullmatch(r"cuda-oom|import|exit:\d{1,3}", text):
        raise ValueError
    return text


def read_options() -> argparse.Namespace:
    """Read the command line; the environment gives the defaults. Exits with 2 if wrong."""
    parser, env = argparse.ArgumentParser(description="Train a small net."), os.environ.get
    add = parser.add_argument
    add("--steps", type=positive, default=400, help="number of batches in all")
    add("--hidden", type=positive, default=64, help="width of the net")
    add("--batch", type=positive, default=240, help="samples in a batch, over all processes")
    add("--seed", type=int, default=0, help="same seed, same run")
    add("--checkpoint-dir", type=Path, default=env("ALLOT_CHECKPOINT_DIR") or None)
    add("--checkpoint-every", type=positive, default=50, metavar="STEPS")
    add("--keep", type=positive, default=env("ALLOT_CHECKPOINT_KEEP") or 2, metavar="COUNT")
    add("--output-dir", type=Path, default=env("ALLOT_OUTPUT_DIR") or None)
    add("--log-every", type=positive, default=20, metavar="STEPS")
    add("--require-accuracy", type=float, nargs="?", const=0.95, default=0.0, metavar="SHARE",
        help="fail if fewer held-out samples are classified correctly (0.95)")  # fmt: skip
    add(
        "--step-time-ms",
        type=int,
        default=0,
        help="the least time of a step, so that it can be watched",
    )
    add(
        "--peer-timeout-s",
        type=positive,
        default=60,
        help="how long to wait for other processes",
    )
    add(
        "--fail-at-step",
        type=int,
        default=-1,
        help="fail on purpose after this number of steps",
    )
    add("--fail-times", type=int, default=sys.maxsize, help="... but in the first tries only")
    add("--fail-with", type=failure, default="cuda-oom", help="cuda-oom, import or exit:CODE")
    add("--rank", type=int, default=env("RANK") or 0)
    add("--world-size", type=positive, default=env("WORLD_SIZE") or 1)
    add("--master-addr", default=env("MASTER_ADDR") or "127.0.0.1")
    add("--master-port", type=positive, default=env("MASTER_PORT") or 29500)
    options = parser.parse_args()
    if not 0 <= options.rank < options.world_size:
        parser.error(f"rank {options.rank} is not one of {options.world_size}, from 0")
    return options


def main() -> int:
    """Run one process of the job; see the top of this file."""
    options = read_options()
    master = options.master_addr, options.master_port
    try:
        ring = Ring(options.rank, options.world_size, master, options.peer_timeout_s)
        return Training(options, ring).run()
    except PeerLost as lost:
        print(f"rank {options.rank} gives up: {lost}", file=sys.stderr, flush=True)
        return EXIT_PEER_LOST


if __name__ == "__main__":
    sys.exit(main())

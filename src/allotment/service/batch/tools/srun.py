"""`srun` inside a batch script: starts a command once for each task of a step, on this node.

Every option of srun is carried out, has nothing to do on one node, or is refused by name.
"""

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import NoReturn

from allotment.service.batch.tools.options import Misused, read_options
from allotment.service.batch.tools.patterns import PatternValues, expand_slurm
from allotment.service.batch.tools.signals import alone, listen, send_group
from allotment.service.batch.tools.srun_options import OPTIONS, StepOptions
from allotment.service.batch.tools.steps import Book, Held, Whole

PASSED_ON = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1,
    signal.SIGUSR2, signal.SIGALRM, signal.SIGCONT,
)  # fmt: skip
KILL_WAIT_S = 30.0
FOREVER = float("inf")
CHUNK = 1 << 16


class Step:
    """One run of srun: so many tasks of one command."""

    def __init__(self, wish: StepOptions, command: list[str]) -> None:
        env = os.environ
        self._wish = wish
        self._command = command
        gpus = tuple(gpu for gpu in env.get("ALLOT_DEVICES", "").split(",") if gpu)
        self._whole = Whole(int(env.get("SLURM_CPUS_ON_NODE", "1")), gpus)
        asked = wish.tasks or wish.tasks_per_node or _number_of(env, "SLURM_NTASKS")
        self.tasks: int = asked or _number_of(env, "SLURM_NTASKS_PER_NODE") or 1
        per_task = wish.cpus_per_task or _number_of(env, "SLURM_CPUS_PER_TASK") or 1
        self._per_task = per_task
        self.cpus = 0 if wish.overcommit else self.tasks * per_task
        if env.get("SLURM_OVERCOMMIT"):
            self.cpus = min(self.cpus, self._whole.cpus)
        self._gpus_per_task = wish.gpus_per_task
        if self._gpus_per_task is None and wish.gpus is None:
            self._gpus_per_task = _number_of(env, "SLURM_GPUS_PER_TASK")
        self.gpus = self._count_gpus()
        self._book = Book(env.get("ALLOT_SCRATCH_DIR", "/tmp"))
        self._children: list[subprocess.Popen[bytes]] = []
        self._sources: dict[int, tuple[int, int, bytes]] = {}
        self._held = Held(0, ())
        self._end_at = FOREVER
        self._kill_at = FOREVER

    def _count_gpus(self) -> int:
        if self._gpus_per_task is not None:
            return self._gpus_per_task * self.tasks
        return len(self._whole.gpus) if self._wish.gpus is None else self._wish.gpus

    def check(self) -> None:
        """Refuse what the job can never give. Raises Misused."""
        if self.cpus > self._whole.cpus:
            raise Misused(
                f"{self.tasks} tasks need {self.cpus} CPUs, and the job has "
                f"{self._whole.cpus}; ask for them in the script, or use --overcommit"
            )
        if self.gpus > len(self._whole.gpus):
            raise Misused(f"needs {self.gpus} GPUs, and the job has {len(self._whole.gpus)}")

    def run(self) -> int:
        """Start the tasks and wait for all; return the highest exit code."""
        wake = listen((*PASSED_ON, signal.SIGCHLD))
        self._held = self._book.wait_for(self._whole, self.cpus, self.gpus, self._wish.overlap)
        try:
            for rank in range(self.tasks):
                self._children.append(self._start(rank))
            self._book.started([child.pid for child in self._children])
            return self._wait(wake)
        finally:
            self._signal(signal.SIGKILL)
            self._book.leave()

    # ── starting ────────────────────────────────────────────────────────────────────────

    def _start(self, rank: int) -> subprocess.Popen[bytes]:
        stdout, out = self._stream(self._wish.output, rank, 1)
        stderr, err = self._stream(self._wish.error, rank, 2)
        if self._wish.output and not self._wish.error:
            stderr, err = (stdout, -1)
        stdin = self._stdin(rank)
        try:
            return subprocess.Popen(
                self._command,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=self._wish.folder or None,
                env=self._env(rank),
                preexec_fn=alone,
            )
        finally:
            for fd in {stdout, stderr, stdin} - {0, 1, 2}:
                os.close(fd)
            for source, target in ((out, 1), (err, 2)):
                if source >= 0:
                    self._sources[source] = (target, rank, b"")

    def _stream(self, pattern: str, rank: int, ours: int) -> tuple[int, int]:
        """Return where a task writes to, and from where we copy it, if we do."""
        if pattern and pattern not in ("all", "none"):
            how = os.O_APPEND if self._wish.append or "%t" not in pattern else os.O_TRUNC
            if rank == 0 and not self._wish.append:
                how |= os.O_TRUNC
            path = expand_slurm(pattern, self._known(rank))
            return os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o666), -1
        if pattern == "none":
            return os.open(os.devnull, os.O_WRONLY), -1
        if self._wish.label:
            source, end = os.pipe()
            return end, source
        return ours, -1

    def _stdin(self, rank: int) -> int:
        wanted = self._wish.input
        if wanted in ("", "all"):
            return 0 if rank == 0 or wanted == "all" else os.open(os.devnull, os.O_RDONLY)
        if wanted == "none":
            return os.open(os.devnull, os.O_RDONLY)
        if wanted.isdigit():
            return 0 if rank == int(wanted) else os.open(os.devnull, os.O_RDONLY)
        return os.open(expand_slurm(wanted, self._known(rank)), os.O_RDONLY)

    def _known(self, rank: int) -> PatternValues:
        env = os.environ
        job = int(env.get("SLURM_JOB_ID", "0"))
        index = env.get("SLURM_ARRAY_TASK_ID")
        return PatternValues(
            job=job,
            array=int(env.get("SLURM_ARRAY_JOB_ID", job)),
            member=None if index is None else int(index),
            name=self._wish.name or env.get("SLURM_JOB_NAME", ""),
            node=env.get("SLURM_JOB_NODELIST", ""),
            user=env.get("SLURM_JOB_USER", ""),
            restarts=int(env.get("SLURM_RESTART_COUNT", "0")),
            step=self._held.step,
            task=rank,
        )

    def _env(self, rank: int) -> dict[str, str]:
        step, tasks = str(self._held.step), str(self.tasks)
        node = os.environ.get("SLURM_JOB_NODELIST", "")
        told = {
            "SLURM_STEP_ID": step, "SLURM_STEPID": step, "SLURM_NTASKS": tasks,
            "SLURM_NPROCS": tasks, "SLURM_STEP_NUM_TASKS": tasks, "SLURM_STEP_NUM_NODES": "1",
            "SLURM_STEP_NODELIST": node, "SLURM_STEP_TASKS_PER_NODE": tasks,
            "SLURM_TASKS_PER_NODE": tasks, "SLURM_NNODES": "1",
            "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_NODEID": "0",
            "SLURM_GTIDS": ",".join(map(str, range(self.tasks))),
            "SLURM_CPUS_ON_NODE": str(max(1, self.cpus)),
            "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1", "SLURM_SRUN_COMM_HOST": "127.0.0.1",
            "SLURM_UMASK": f"{_umask():04o}", "SLURMD_NODENAME": node,
        }  # fmt: skip
        if self._wish.cpus_per_task:
            told["SLURM_CPUS_PER_TASK"] = str(self._per_task)
        if self._held.gpus or self._whole.gpus:
            told |= self._devices(rank)
        if self._wish.name:
            told["SLURM_JOB_NAME"] = self._wish.name
        env = {**self._exported(), **told}
        env.pop("SLURM_TASK_PID", None)  # it is that of the script
        return env

    def _devices(self, rank: int) -> dict[str, str]:
        """Return which devices a task sees: its own, where each has so many."""
        mine = self._held.gpus
        each = self._gpus_per_task
        if each is not None and self._wish.binds_gpus:
            mine = mine[rank * each : (rank + 1) * each]
        listed = ",".join(mine)
        return {
            "CUDA_VISIBLE_DEVICES": listed, "ROCR_VISIBLE_DEVICES": listed,
            "HIP_VISIBLE_DEVICES": listed, "NVIDIA_VISIBLE_DEVICES": listed or "none",
            "GPU_DEVICE_ORDINAL": listed, "SLURM_STEP_GPUS": ",".join(self._held.gpus),
            "SLURM_GPUS_ON_NODE": str(len(self._held.gpus)),
        }  # fmt: skip

    def _exported(self) -> dict[str, str]:
        names = self._wish.export.split(",")
        if "ALL" in names:
            kept = dict(os.environ)
        else:
            plain = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TMPDIR")
            kept = {
                name: value
                for name, value in os.environ.items()
                if name.startswith(("SLURM", "ALLOT_")) or name in plain or name in names
            }
        return {**kept, **dict(name.split("=", 1) for name in names if "=" in name)}

    # ── waiting ─────────────────────────────────────────────────────────────────────────

    def _wait(self, wake: int) -> int:
        if self._wish.limit_s:
            self._end_at = time.monotonic() + self._wish.limit_s
        codes: dict[int, int] = {}
        while len(codes) < len(self._children):
            self._look_at_the_clock(time.monotonic())
            ready = select.select([wake, *self._sources], [], [], 0.5)[0]
            for fd in ready:
                if fd == wake:
                    self._pass_on(os.read(wake, 512))
                else:
                    self._copy(fd)
            new = self._reap(codes)
            if new:
                self._lose_patience(any(codes[rank] for rank in new), time.monotonic())
        for fd in list(self._sources):
            while fd in self._sources and select.select([fd], [], [], 0)[0]:
                self._copy(fd)
        return max(codes.values(), default=0)

    def _look_at_the_clock(self, now: float) -> None:
        if now >= self._end_at:
            _say("the time limit of the step is over")
            self._end_at = FOREVER
            self._kill_at = now + KILL_WAIT_S
            self._signal(signal.SIGTERM)
        if now >= self._kill_at:
            self._kill_at = FOREVER
            self._signal(signal.SIGKILL)

    def _pass_on(self, numbers: bytes) -> None:
        for number in numbers:
            if number != signal.SIGCHLD:
                self._signal(signal.Signals(number))

    def _lose_patience(self, failed: bool, now: float) -> None:
        """Set a time for the other tasks once some have ended."""
        if failed and self._wish.kill_on_bad_exit:
            self._kill_at = min(self._kill_at, now + KILL_WAIT_S)
            self._signal(signal.SIGTERM)
        elif self._wish.wait_s:
            self._kill_at = min(self._kill_at, now + self._wish.wait_s)

    def _reap(self, codes: dict[int, int]) -> list[int]:
        new: list[int] = []
        for rank, child in enumerate(self._children):
            if rank not in codes and (code := child.poll()) is not None:
                codes[rank] = code if code >= 0 else 128 - code
                new.append(rank)
                if code:
                    node = os.environ.get("SLURM_JOB_NODELIST", "")
                    _say(f"error: {node}: task {rank}: {_how(code)}")
        return new

    def _copy(self, fd: int) -> None:
        """Copy whole lines, each with the number of its task before it."""
        target, rank, rest = self._sources[fd]
        data = os.read(fd, CHUNK)
        lines = (rest + data).split(b"\n")
        rest = lines.pop()
        if not data:
            del self._sources[fd]
            os.close(fd)
            lines += [rest] if rest else []
        else:
            self._sources[fd] = (target, rank, rest)
        width = len(str(self.tasks - 1))
        text = b"".join(b"%*d: %s\n" % (width, rank, line) for line in lines)
        while text:
            text = text[os.write(target, text) :]

    def _signal(self, signum: signal.Signals) -> None:
        for child in self._children:
            if child.returncode is None or signum == signal.SIGKILL:
                send_group(child.pid, signum)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _number_of(env: Mapping[str, str], name: str) -> int | None:
    found = re.search(r"([0-9]+)$", env.get(name, ""))
    return int(found[1]) if found else None


def _how(code: int) -> str:
    if code > 0:
        return f"Exited with exit code {code}"
    return f"ended by {signal.Signals(-code).name}"


def _say(text: str) -> None:
    sys.stderr.write(f"srun: {text}\n")
    sys.stderr.flush()


def run(words: list[str]) -> int:
    """Run a step; return the highest exit code of its tasks. Raises Misused."""
    wish = StepOptions()
    command = read_options(OPTIONS, words, wish)
    if not command:
        raise Misused("there is no command to run")
    step = Step(wish, command)
    step.check()
    return step.run()


def main() -> NoReturn:
    """Run a step, and end with the highest exit code of its tasks."""
    try:
        code = run(sys.argv[1:])
    except Misused as error:
        _say(f"error: {error}")
        code = 1
    except OSError as error:
        _say(f"error: {error.strerror}: {error.filename or ''}")
        code = 2
    sys.exit(min(code, 255))

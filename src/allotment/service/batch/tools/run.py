"""Runs a batch script: its output into its file and to us, its signals to the right processes.

The engine says when the job is to end, with the signal of its checkpoint. A script that asked
for a warning gets that signal so long before its time limit; TERM for all comes when that time
is over, and the end by force 30 s later.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import IO, Any, NoReturn

from allotment.service.batch.tools.signals import alone, listen, send_group
from allotment.service.batch.tools.steps import Book

REQUEUE_CODE = 121
CALLED = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1,
    signal.SIGUSR2, signal.SIGALRM, signal.SIGURG, signal.SIGCHLD,
)  # fmt: skip
CHUNK = 1 << 16
LONGEST_STEP_S = 2.0
"""Between two looks at the clock; a job that was suspended for longer did not run then."""
KILL_WAIT_S = 30.0


def main() -> NoReturn:
    """Run the script whose plan lies in the named folder."""
    folder = sys.argv[1]
    with open(os.path.join(folder, "plan.json"), encoding="utf-8") as file:
        plan: dict[str, Any] = json.load(file)
    try:
        code = Runner(folder, plan).run()
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        sys.stderr.write(f"allotment: cannot run the script: {error.strerror}{where}\n")
        code = 1
    end(code)


def end(code: int) -> NoReturn:
    """End as the script did: with its exit code, or by its signal."""
    sys.stdout.flush()
    if code < 0:
        signum = signal.Signals(-code)
        if signum not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(signum, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signum})
        os.kill(os.getpid(), signum)
        time.sleep(1)
        os._exit(128 - code)
    os._exit(code)


class Stream:
    """One pipe of the script's, copied into a file and on to ours."""

    def __init__(self, file: int, ours: int) -> None:
        self.source, self.theirs = os.pipe()
        os.set_blocking(self.source, False)
        self._file = file
        self._ours = ours

    def copy(self) -> bool:
        """Copy what the pipe has now; False at its end."""
        try:
            data = os.read(self.source, CHUNK)
        except BlockingIOError:
            return True
        for target in (self._file, self._ours):
            self._write(target, data)
        return bool(data)

    def _write(self, target: int, data: bytes) -> None:
        """Write all of it; a disk that is full must not end the script."""
        view = memoryview(data)
        while view and target >= 0:
            try:
                view = view[os.write(target, view) :]
            except OSError as error:
                if target == self._file:
                    self._file = -1
                    os.write(2, f"allotment: output file: {error.strerror}\n".encode())
                return

    def drain(self) -> None:
        """Copy what the pipe still has, even if other processes hold it open."""
        while select.select([self.source], [], [], 0)[0] and self.copy():
            pass


class Runner:
    """One run of a script."""

    def __init__(self, folder: str, plan: dict[str, Any]) -> None:
        self._plan = plan
        self._script = os.path.join(folder, plan["script"])
        self._scratch = os.environ.get("ALLOT_SCRATCH_DIR", "/tmp")
        self._book = Book(self._scratch)
        self._signal = signal.Signals[f"SIG{plan['signal']}"]
        self._warn_s: float = plan["warn_ms"] / 1000
        self._warn_at = _warn_at(plan["limit_ms"] / 1000, self._warn_s)
        self._ran_s = 0.0
        self._looked = time.monotonic()
        self._is_warned = False
        self._term_at = float("inf")
        self._kill_at = float("inf")

    def run(self) -> int:
        """Run the script to its end; return its exit code, or minus its signal's number."""
        streams, stdin = self._open()
        wake = listen(CALLED)
        env = {**os.environ, **_moment(self._plan)}
        with open(stdin, "rb") as source:
            self._child = self._start(source, streams, env)
        self._tell_where()
        for stream in streams:
            os.close(stream.theirs)
        left = list(streams)
        while self._child.poll() is None:
            left = self._turn(left, wake)
        for stream in left:
            stream.drain()
        return REQUEUE_CODE if self._is_requeued() else self._child.returncode

    # ── starting ────────────────────────────────────────────────────────────────────────

    def _open(self) -> tuple[list[Stream], str]:
        plan = self._plan
        out = [Stream(self._file(plan["output"]), 1)]
        if plan["error"] and plan["error"] != plan["output"]:
            out.append(Stream(self._file(plan["error"]), 2))
        return out, plan["input"] or os.devnull

    def _file(self, path: str) -> int:
        if not path:
            return -1
        how = os.O_APPEND if self._plan["append"] else os.O_TRUNC
        return os.open(path, os.O_WRONLY | os.O_CREAT | how | os.O_CLOEXEC, 0o666)

    def _start(
        self, source: IO[bytes], streams: list[Stream], env: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [self._script, *self._plan["args"]],
            stdin=source,
            stdout=streams[0].theirs,
            stderr=streams[-1].theirs,
            env=env,
            preexec_fn=alone,
        )

    def _tell_where(self) -> None:
        """Let `scontrol` find this process."""
        with open(os.path.join(self._scratch, ".allot-run"), "w", encoding="utf-8") as file:
            file.write(str(os.getpid()))

    # ── watching ────────────────────────────────────────────────────────────────────────

    def _turn(self, streams: list[Stream], wake: int) -> list[Stream]:
        sources = {stream.source: stream for stream in streams}
        ready = select.select([*sources, wake], [], [], self._patience())[0]
        if wake in ready:
            for number in os.read(wake, 512):
                self._called(signal.Signals(number))
        over = [sources[fd] for fd in ready if fd in sources and not sources[fd].copy()]
        self._look_at_the_clock()
        return [stream for stream in streams if stream not in over]

    def _patience(self) -> float:
        is_timed = self._warn_at < float("inf") or self._term_at < float("inf")
        return 0.5 if is_timed or self._kill_at < float("inf") else LONGEST_STEP_S

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        self._ran_s += min(now - self._looked, LONGEST_STEP_S)
        self._looked = now
        if self._ran_s >= self._warn_at:
            self._warn()
        if self._ran_s >= self._term_at:
            self._term_at = float("inf")
            self._to_all(signal.SIGTERM)
        if self._ran_s >= self._kill_at:
            self._kill_at = float("inf")
            self._to_all(signal.SIGKILL)

    def _called(self, signum: signal.Signals) -> None:
        if signum == signal.SIGCHLD:
            return
        if signum == signal.SIGURG:
            if self._is_requeued():
                self._to_all(signal.SIGTERM)
                self._kill_at = self._ran_s + KILL_WAIT_S
        elif signum != self._signal or not self._warn_s:
            self._to_all(signum)
        elif not self._is_warned:
            self._warn()
            self._term_at = self._ran_s + self._warn_s
        else:
            self._to_all(signal.SIGTERM)
            self._kill_at = self._ran_s + KILL_WAIT_S

    def _warn(self) -> None:
        """Send the signal that the script asked for, once, to the processes it is for."""
        self._warn_at = float("inf")
        if self._is_warned:
            return
        self._is_warned = True
        if self._plan["dialect"] == "lsf":
            self._to_all(self._signal)
        elif self._plan["warn_script"]:
            _send(self._child.pid, self._signal)
        else:
            for pid in self._book.tasks():
                send_group(pid, self._signal)

    def _to_all(self, signum: signal.Signals) -> None:
        """Signal the script and what it runs; srun passes on what can be passed on."""
        for pid in self._book.tasks() if signum == signal.SIGKILL else ():
            send_group(pid, signum)
        send_group(self._child.pid, signum)

    def _is_requeued(self) -> bool:
        return os.path.exists(os.path.join(self._scratch, ".allot-requeue"))


def _warn_at(limit_s: float, warn_s: float) -> float:
    return max(0.0, limit_s - warn_s) if limit_s and warn_s else float("inf")


def _moment(plan: dict[str, Any]) -> dict[str, str]:
    """Return the variables about this start."""
    if plan["dialect"] != "slurm":
        return {"LS_JOBPID": str(os.getpid())}
    now = int(time.time())
    told = {
        "SLURM_JOB_START_TIME": str(now),
        "SLURM_TASK_PID": str(os.getpid()),
        "SLURM_JOB_UID": str(os.getuid()),
        "SLURM_JOB_GID": str(os.getgid()),
    }
    if plan["limit_ms"]:
        told["SLURM_JOB_END_TIME"] = str(now + plan["limit_ms"] // 1000)
    return told


def _send(pid: int, signum: signal.Signals) -> None:
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        return

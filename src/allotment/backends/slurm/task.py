"""The first process of a task inside its Slurm job. Standard library only: it runs anywhere.

    python3 -I -S task-….pyz FOLDER
    python3 -I -S task-….pyz enter FOLDER FILE COMMAND…    a further step of the same job
    python3 -I -S task-….pyz rank FOLDER    a rank of MPI: the folder of its number in this one

The folder lies on a disk that the service sees, too. `request.json` says what to run; `go`
opens the barrier; `stop` says by which signal to end, and after how many ms by force. What
becomes of the task is written to `status.json`, always as a whole, into room that was taken
beforehand: also on a disk that is full. Output goes through us into logs of bounded size.

A second copy, as Slurm may start after a requeue or a repeated submission, ends at once:
only one can make the claim.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import select
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from allotment.backends.local.runner.logs import DEFAULT_CAP_BYTES, CappedLog
from allotment.backends.slurm.folders import NotThere, shown

LOOK_S = 0.1
BEAT_S = 20.0
"""How often it shows that it is there, by the time of its claim."""
KILL_WAIT_MS = 1000
"""How long Slurm lets a job live at least that it told to end."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126
NO_ROOM = 74
SAY_TRIES = 60
ROOM = 8192
"""Bytes of a status at most, blanks included."""
DRAIN_S = 1.0
"""How long output is taken from what outlives the command."""
TOLD_S = 1.0
OF_JOB = re.compile(r".*?/job_\d+(?=/|$)")
OF_RANK = re.compile(r".*?/job_\d+/step_[^/]+(?:/user)?/task_\d+(?=/|$)")
"""A rank has its job together with others."""
TICKS = os.sysconf("SC_CLK_TCK")
ENDED_BY_SIGNAL = (-signal.SIGTERM, -signal.SIGKILL, 128 + signal.SIGTERM, 128 + signal.SIGKILL)
"""How a command ends that Slurm ended, itself or below a shell."""
FORGOTTEN_LOOKS = 50


def main(folder: str) -> int:
    """Run what a folder describes, in it; return the exit code of the Slurm job."""
    os.chdir(folder)
    try:
        os.close(os.open("claim", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return 0
    if not has_room():
        return NO_ROOM
    return Task({**json.loads(Path("request.json").read_bytes()), "folder": folder}).run()


def enter(folder: str, code: str, argv: list[str]) -> int:
    """Run a command with a task's environment, in its folder; leave its exit code in a file."""
    request: dict[str, Any] = json.loads(Path(folder, "request.json").read_bytes())
    request["folder"] = folder
    pid = os.fork()
    if pid == 0:
        try:
            with contextlib.suppress(OSError):
                os.chdir(request["cwd"])
            argv = in_folders(request, in_image(request.get("container"), argv))
            os.execvpe(argv[0], argv, environment_of(request))
        except OSError as error:
            sys.stderr.write(f"{argv[0]}: {error.strerror}\n")
            sys.stderr.flush()
            os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)  # They are for the command.
    end = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    write_whole(code, str(128 - end if end < 0 else end))
    return 0


def has_room() -> bool:
    """Whether there is room for a status; waits for it a while."""
    for _ in range(SAY_TRIES):
        try:
            reserve("status.json")
        except OSError:
            time.sleep(1)
        else:
            return True
    return False


class NotStarted(Exception):
    """The command cannot be run; `code` is the exit code that shells give for that."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Task:
    """One command, from the barrier to its end."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.command = in_image(request.get("container"), request["argv"])
        self.pid = 0
        self.ended_by = ""
        self.told = 0
        """The last signal by which Slurm told us to end; 0 for none."""
        self.is_nearly_over = False
        """Whether Slurm said that it will soon end us."""
        self.parent = os.getppid()
        """Slurm's own process for this job, which starts and ends us."""
        self.kill_at: float | None = None
        self.missed = 0
        """How often our folder was not there."""
        self.logs: dict[int, CappedLog] = {}
        """By the end of the pipe that is ours."""
        self.open: set[int] = set()
        """Pipes at whose other end somebody may write."""
        self.began = self.beaten = time.monotonic()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self.hear)
        for number in (signal.SIGCONT, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGUSR2, self.hear_of_time)

    def hear_of_time(self, _number: int, _frame: FrameType | None) -> None:
        """Slurm will end the job: nobody but it knew when."""
        self.is_nearly_over = True

    def hear(self, number: int, _frame: FrameType | None) -> None:
        """Slurm ends the job: by scancel, or at a time limit."""
        self.told = number

    def run(self) -> int:
        """Run the task from its start to its end."""
        if self.request["at_barrier"]:
            self.say("ready")
        if not self.pass_barrier():
            self.say("ended", signal=signal.SIGTERM, ended_by=self.ended_by, **self.reason())
            return 0
        try:
            self.pid = self.start()
        except NotStarted as error:
            self.say("ended", exit_code=error.code)
            return 0
        except OSError as error:
            self.say("ended", platform_error=f"the command was not started: {error}")
            return 0
        self.say("running")
        try:
            code, used = self.wait()
        finally:
            self.sweep()
        self.finish_logs()
        if code in ENDED_BY_SIGNAL and not self.ended_by:
            self.ended_by = "slurm" if self.hears_soon() else ""
        how = {"signal": -code} if code < 0 else {"exit_code": code}
        self.say("ended", usage=used, ended_by=self.ended_by, **how, **self.reason())
        return 0

    def hears_soon(self) -> bool:
        """Whether Slurm told us to end: it signals all processes, and us perhaps last."""
        until = time.monotonic() + TOLD_S
        while not self.told and time.monotonic() < until:
            time.sleep(LOOK_S)
        return bool(self.told)

    def pass_barrier(self) -> bool:
        """Wait for all of the gang; return whether the barrier opened before a stop."""
        while not (self.is_doomed() or Path("stop").exists()):
            if not self.request["at_barrier"] or Path("go").exists():
                return True
            self.beat()
            time.sleep(LOOK_S)
        self.ended_by = "slurm" if self.told else "orphan" if self.is_orphan() else "time"
        if Path("stop").exists():
            self.ended_by = "stop"
        return False

    def is_doomed(self) -> bool:
        """Whether Slurm ends us, is about to, or lost hold of us."""
        return bool(self.told) or self.is_nearly_over or self.is_orphan()

    def is_orphan(self) -> bool:
        """Whether Slurm lost hold of us: it would neither end us nor say that we ended."""
        return os.getppid() != self.parent

    def reason(self) -> dict[str, str]:
        """Return what a status adds for a task that is to be tried again, for Slurm's sake."""
        if self.ended_by == "orphan":
            node = os.environ.get("SLURMD_NODENAME", "its node")
            why = f"Slurm's own process of it (slurmstepd) is gone on {node}"
        elif self.ended_by == "time":
            why = "its time in Slurm was over: it ran to a reservation, or to the limit there"
        else:
            return {}
        return {"platform_error": why}

    def start(self) -> int:
        """Fork the command; return its pid. Raises OSError."""
        out = [self.open_log(name) for name in ("stdout", "stderr")]
        told, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            self.become(out, tell)
        for fd in (*out, tell):
            os.close(fd)
        with os.fdopen(told, "rb") as pipe:
            words = pipe.read(4000).decode(errors="replace")
        if words:
            os.waitpid(pid, 0)
            if words[0] == "=":
                self.finish_logs()
                raise OSError(words[1:])
            *_, stderr = self.logs.values()
            stderr.say(f"{self.command[0]}: {words[1:]}\n")
            self.finish_logs()
            raise NotStarted(NOT_FOUND if words[0] == "?" else NOT_EXECUTABLE)
        return pid

    def open_log(self, stream: str) -> int:
        """Open one log; return the end of its pipe that is the command's."""
        ours, theirs = os.pipe()
        os.set_blocking(ours, False)
        cap = self.request.get("log_bytes", DEFAULT_CAP_BYTES)
        self.logs[ours] = CappedLog(f"{stream}.log", cap)
        self.open.add(ours)
        return theirs

    def take_output(self, seconds: float) -> None:
        """Take output that is there, or comes soon."""
        ready, _, _ = select.select(list(self.open), [], [], max(0.0, seconds))
        self.open -= {source for source in ready if not self.logs[source].feed(source)}

    def look(self) -> None:
        """Take output for a moment, or until there will be no more."""
        until, is_open = time.monotonic() + LOOK_S, bool(self.open)
        while (left := until - time.monotonic()) > 0 and bool(self.open) == is_open:
            self.take_output(left)

    def finish_logs(self) -> None:
        """Take the last output. A process that escaped may hold a pipe open: not for long."""
        until = time.monotonic() + DRAIN_S
        while self.open and (left := until - time.monotonic()) > 0:
            self.take_output(left)
        for log in self.logs.values():
            log.finish()

    def become(self, out: list[int], tell: int) -> NoReturn:
        """Become the command; what keeps us from it goes through the pipe."""
        try:
            os.setsid()
            for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT):
                signal.signal(number, signal.SIG_DFL)
            nothing = os.open("/dev/null", os.O_RDONLY)
            for theirs, ours in enumerate((nothing, *out)):
                os.dup2(ours, theirs)
            env = environment_of(self.request)
            os.chdir(self.request["cwd"])
            command = in_folders(self.request, self.command)
            os.execvpe(command[0], command, env)
        except OSError as error:
            kind = "?" if isinstance(error, FileNotFoundError) else "!"
            os.write(tell, f"{kind}{error.strerror}: {error.filename}".encode()[:4000])
        except NotThere as error:
            os.write(tell, f"={error}".encode()[:4000])
        finally:
            os._exit(70)

    def wait(self) -> tuple[int, dict[str, int]]:
        """Wait for the end of the command, and see to what it is told meanwhile."""
        while True:
            pid, status, used = os.wait4(self.pid, os.WNOHANG)
            if pid:
                group = OF_RANK if self.request.get("is_rank") else OF_JOB
                usage = with_all(usage_of(used, self.began), usage_of_job(group))
                return os.waitstatus_to_exitcode(status), usage
            self.obey()
            self.beat()
            self.look()

    def beat(self) -> None:
        """Show that we are there, for a service whose Slurm has forgotten us."""
        if time.monotonic() - self.beaten >= BEAT_S:
            self.beaten = time.monotonic()
            with contextlib.suppress(OSError):
                os.utime("claim")

    def obey(self) -> None:
        """Do what Slurm or the service told us."""
        if self.kill_at is None:
            if self.told or self.is_forgotten():
                self.end("TERM", KILL_WAIT_MS, "slurm")
            elif self.is_orphan():
                self.end("TERM", KILL_WAIT_MS, "orphan")
            elif (words := read("stop").split())[1:] and words[1].isdecimal():
                self.end(words[0], int(words[1]), "stop")
            elif self.is_nearly_over:
                name, grace_ms = self.request["warning"]
                self.end(name, grace_ms, "time")
        elif time.monotonic() >= self.kill_at:
            self.ended_by = "kill" if self.ended_by == "stop" else self.ended_by
            self.send(signal.SIGKILL)

    def is_forgotten(self) -> bool:
        """Whether our folder is gone: nobody could tell us to end any more."""
        try:
            Path("claim").stat()
        except FileNotFoundError:
            self.missed += 1
        except OSError:
            return False
        return self.missed >= FORGOTTEN_LOOKS

    def end(self, name: str, grace_ms: int, why: str) -> None:
        """Send the command a signal, and remember when it ends by force."""
        self.ended_by = why
        self.kill_at = time.monotonic() + grace_ms / 1000
        self.send(getattr(signal, f"SIG{name}", signal.SIGTERM))

    def send(self, number: int) -> None:
        """Send a signal to the whole process group of the command.

        Not to what shows it its folders: that would end without it, and we take its end for
        the command's.
        """
        if self.request.get("folders"):
            for pid in session_of(self.pid):
                if pid != self.pid:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def sweep(self) -> None:
        """End what the command left behind in its process group.

        What holds an image open has a group of its own, and does not end by itself.
        """
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        if self.request.get("container"):
            for pid in session_of(self.pid):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def say(self, phase: str, **more: Any) -> None:
        """Write how the task is."""
        status: dict[str, Any] = {
            "version": 1, "phase": phase, "pid": self.pid,
            "node": os.environ.get("SLURMD_NODENAME", ""),
            "engine_job": os.environ.get("SLURM_JOB_ID", ""),
            "devices_got": os.environ.get(
                "SLURM_STEP_GPUS" if self.request.get("is_rank") else "SLURM_JOB_GPUS", ""
            ),
            "phases": self.request.get("phases", []),
            "log_dropped": {
                log.path.removesuffix(".log"): log.dropped for log in self.logs.values()
            },
            **more,
        }  # fmt: skip
        for _ in range(SAY_TRIES):
            try:
                write_in_room("status.json", json.dumps(status).encode())
            except FileNotFoundError:
                return  # The folder is gone: nobody wants to know any more.
            except OSError:
                time.sleep(1)  # A disk that does not answer, or one that moves what it writes.
            else:
                return


JOB = ("SLURM_", "SLURMD_")
OF_MPI = ("PMI", "OMPI_")
"""How ranks find each other: what `srun --mpi=…` adds."""
DEVICES = ("CUDA_VISIBLE", "ROCR_VISIBLE", "GPU_DEVICE", "ZE_AFFINITY", "SLURM_JOB_GPUS")


GPU_FLAGS = (("/dev/nvidiactl", "--nv"), ("/dev/kfd", "--rocm"))
"""What brings the drivers of the devices on a node into an image."""
OF_THE_PROGRAM = ("HOME", "APPTAINER", "SINGULARITY")
"""Variables that what runs images reads itself."""


def in_image(container: dict[str, Any] | None, argv: list[str]) -> list[str]:
    """Return the command line of a command: in its image, where it has one."""
    if not container:
        return argv
    flags = [flag for path, flag in GPU_FLAGS if Path(path).exists()]
    return [
        container["program"], "--silent", "--nocolor", "exec",
        *(flags if container["has_devices"] else []),
        *container["options"], container["image"], *argv,
    ]  # fmt: skip


def in_folders(request: dict[str, Any], argv: list[str]) -> list[str]:
    """Return the command line of a command that finds its job's folders. Raises OSError."""
    folders = request.get("folders")
    if not folders:
        return argv
    return shown(folders["program"], folders["mounts"], request["cwd"], argv)


def with_image_words(env: dict[str, str], container: dict[str, Any] | None) -> dict[str, str]:
    """Add what makes the job's variables win over those of its image."""
    if not container:
        return env
    prefix, of_image = container["env_prefix"], container["of_image"]
    wins = {
        f"{prefix}{name}": value
        for name, value in env.items()
        if name not in of_image and name.isidentifier() and not name.startswith(OF_THE_PROGRAM)
    }
    return {**env, **wins}


def session_of(leader: int) -> list[int]:
    """Return the processes of a session."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            words = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            if words.rpartition(")")[2].split()[3] == str(leader):
                found.append(int(entry.name))
    return found


def environment(wanted: dict[str, str], slurms: Mapping[str, str]) -> dict[str, str]:
    """Return the command's environment. Which devices it has, only Slurm knows.

    What Slurm says of the job besides is left out where a batch script has words of its own
    for it: its tasks are not those of this job.
    """
    devices = {name: value for name, value in slurms.items() if name.startswith(DEVICES)}
    if "ALLOT_DEVICES" in wanted:
        seen = (devices.get(f"{kind}_VISIBLE_DEVICES", "") for kind in ("CUDA", "ROCR"))
        devices["ALLOT_DEVICES"] = next(filter(None, seen), "")
    kept = ("SLURM_CONF", "SLURMD_NODENAME") if "SLURM_JOB_ID" in wanted else JOB
    told = {name: value for name, value in slurms.items() if name.startswith(kept)}
    return {**told, **wanted, **devices}


def environment_of(request: dict[str, Any]) -> dict[str, str]:
    """Return the environment of a task's command, and of those beside it."""
    return with_image_words(own_environment_of(request), request.get("container"))


def own_environment_of(request: dict[str, Any]) -> dict[str, str]:
    """Return the same as it is without an image.

    But in a batch script, which has one node, mpirun goes by the host file, and starts its
    daemons as steps of Slurm: by itself it would take the node of this job for all there are.
    """
    env = environment(request["env"], os.environ)
    if "SLURM_JOB_ID" in request["env"]:
        return env
    if request.get("is_rank"):
        found = {name: at for name, at in os.environ.items() if name.startswith(OF_MPI)}
        return {**env, **found}
    for_mpi = {
        "ALLOT_TASK_FOLDER": request["folder"],
        "OMPI_MCA_ras": "^slurm",
        "OMPI_MCA_plm": "rsh",
        "OMPI_MCA_plm_rsh_agent": str(Path(sys.argv[0]).with_name("mpi-agent")),
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
    }
    return {**for_mpi, **env}


def usage_of(used: resource.struct_rusage, began: float) -> dict[str, int]:
    """Return what the command used, its children included."""
    return {
        "wall_ms": int((time.monotonic() - began) * 1000),
        "cpu_user_ms": int(used.ru_utime * 1000),
        "cpu_system_ms": int(used.ru_stime * 1000),
        "max_rss_bytes": used.ru_maxrss * 1024,
    }


def groups_of_job(own: str, mount: Path, group: re.Pattern[str] = OF_JOB) -> dict[str, Path]:
    """Return the control groups of our whole Slurm job by controller; version 2 has but ''."""
    found: dict[str, Path] = {}
    for line in own.splitlines():
        _, kinds, path = line.split(":", 2)
        job = group.match(path)
        if job is not None:
            for kind in kinds.split(","):
                found[kind] = mount / kind / job[0].lstrip("/")
    return found


def usage_in(groups: Mapping[str, Path]) -> dict[str, int]:
    """Return what all processes of a job used, those too that nobody waited for."""
    found: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError, KeyError):
        if "cpuacct" in groups:
            told, unit = (groups["cpuacct"] / "cpuacct.stat").read_text(), 1000 // TICKS
            user, system = (int(part) * unit for part in told.split()[1::2])
        else:
            told = (groups[""] / "cpu.stat").read_text().split()
            each = dict(zip(told[::2], told[1::2], strict=False))
            user, system = (int(each[f"{kind}_usec"]) // 1000 for kind in ("user", "system"))
        found |= {"cpu_user_ms": user, "cpu_system_ms": system}
    with contextlib.suppress(OSError, ValueError, KeyError):
        name = "memory.max_usage_in_bytes" if "memory" in groups else "memory.peak"
        folder = groups["memory"] if "memory" in groups else groups[""]
        found["peak_memory_bytes"] = int((folder / name).read_text())
    return found


def usage_of_job(group: re.Pattern[str]) -> dict[str, int]:
    """Return what our Slurm job used, or our rank, where Slurm keeps it in control groups."""
    try:
        own = Path("/proc/self/cgroup").read_text(encoding="utf-8")
    except OSError:
        return {}
    return usage_in(groups_of_job(own, Path("/sys/fs/cgroup"), group))


def with_all(command: dict[str, int], job: Mapping[str, int]) -> dict[str, int]:
    """Return the larger of both figures: what the command used is the least of its job."""
    return {**command, **{name: max(command.get(name, 0), n) for name, n in job.items()}}


def write_whole(name: str, text: str) -> None:
    """Write a file that is there completely or not at all. Raises OSError."""
    part = Path(f"{name}.part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(name)


def reserve(name: str) -> None:
    """Take the room on the disk that writing a file will need. Raises OSError."""
    with Path(f"{name}.part").open("wb") as file:
        file.write(b" " * ROOM)
        file.flush()
        os.fsync(file.fileno())


def write_in_room(name: str, data: bytes) -> None:
    """Write a file as a whole, into room that was reserved. Raises OSError.

    What it replaces becomes the room for the next one.
    """
    part, old = Path(f"{name}.part"), Path(f"{name}.old")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(fd, data.ljust(ROOM), 0)
        os.fsync(fd)
    finally:
        os.close(fd)
    old.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        os.link(name, old)
    part.replace(name)
    with contextlib.suppress(OSError):
        if os.path.lexists(old):
            old.replace(part)
        else:
            reserve(name)


def read(name: str) -> str:
    """Return what the service told us under this name; '' for nothing."""
    try:
        with Path(name).open("rb") as file:
            return file.read(200).decode(errors="replace")
    except OSError:
        return ""


def start(words: list[str]) -> int:
    """Do what the command line says; return the exit code."""
    if words[0] == "enter":
        return enter(words[1], words[2], words[3:])
    if words[0] == "rank":
        return main(f"{words[1]}/{os.environ['SLURM_PROCID']}")
    return main(words[0])

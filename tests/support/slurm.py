"""A real Slurm of some nodes on this machine, for one test session: its own folder, key, ports.

All nodes are this machine under several names, with devices that are files only. Nothing of a
Slurm that is installed for real is read or touched: every command goes by SLURM_CONF.
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tests.support.patience import PATIENCE_S
from tests.support.served import free_ports

NODES, GPUS = 2, 4
TOOLS = ("munged", "slurmctld", "slurmd", "sbatch", "sinfo")
REST_TOOLS = (*TOOLS, "slurmrestd")
JWT = """\
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={folder}/jwt.key
"""
"""For a Slurm that slurmrestd asks: the plugin is a Debian package of its own."""
CONF = """\
ClusterName=allotment-test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.sock
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdSpoolDir={folder}/spool.%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
StateSaveLocation={folder}/state
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
TmpFS={folder}/tmp.%n
GresTypes=gpu
SelectType=select/cons_tres
TopologyPlugin=topology/tree
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
KillWait=2
MessageTimeout=5
{nodes}
PartitionName=main Nodes=n[1-{count}] Default=YES MaxTime=INFINITE State=UP
PartitionName=short Nodes=n1 MaxTime=1 State=UP
"""


class Slurm:
    """The daemons, and what they are asked by."""

    last: tuple[str, ...] = ("munged",)
    """What the others need, in the order in which it is ended."""

    def __init__(
        self,
        folder: Path,
        nodes: int = NODES,
        gpus: int = GPUS,
        settings: str = "",
        apart: Sequence[Path] = (),
        *,
        rest: bool = False,
        cpus: int = 0,
    ) -> None:
        """Of each folder in `apart` every node sees one of its own, in memory."""
        self.folder = folder
        self.apart = apart
        self.nodes, self.gpus, self.cpus = nodes, gpus, cpus or max(4, gpus)
        self._settings = settings
        self.conf = folder / "slurm.conf"
        self.devices = Path("/dev") / folder.name
        """In /dev, of which a task sees only what it was given."""
        self.token = folder / "token"
        self.rest_port = 0
        """Of slurmrestd, if there is one."""
        self._has_rest = rest
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def write(self) -> None:
        """Write configuration, key and device files."""
        ports = free_ports(self.nodes + 2)
        nodes = "\n".join(
            f"NodeName=n{n} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 "
            f"Port={ports[n]} CPUs={self.cpus} RealMemory=2000 "
            f"Gres=gpu:a100:{self.gpus} State=UNKNOWN"
            for n in range(1, self.nodes + 1)
        )
        host = socket.gethostname().split(".")[0]
        self.conf.write_text(
            CONF.format(
                host=host, ports=ports, folder=self.folder, nodes=nodes, count=self.nodes
            )
            + self._settings
        )
        if self._has_rest:
            self.rest_port = ports[-1]
            with self.conf.open("a") as conf:
                conf.write(JWT.format(folder=self.folder))
            secret = self.folder / "jwt.key"
            secret.write_bytes(secrets.token_bytes(32))
            secret.chmod(0o600)
        files = []
        self.devices.mkdir()
        for index in range(self.gpus):
            files.append(self.devices / f"gpu{index}")
            os.mknod(files[-1], 0o666 | stat.S_IFCHR, os.makedev(195, index))
        (self.folder / "gres.conf").write_text(
            f"AutoDetect=off\nNodeName=n[1-{self.nodes}] Name=gpu Type=a100 "
            f"File={self.devices}/gpu[0-{self.gpus - 1}]\n"
        )
        switches = (f"SwitchName=s{n} Nodes=n{n}" for n in range(1, self.nodes + 1))
        (self.folder / "topology.conf").write_text(
            "\n".join((*switches, f"SwitchName=top Switches=s[1-{self.nodes}]\n"))
        )
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        (self.folder / "state").mkdir()
        for n in range(1, self.nodes + 1):
            (self.folder / f"spool.n{n}").mkdir()
            # All nodes are here, and PMIx has files of the same names on each.
            (self.folder / f"tmp.n{n}").mkdir()
            (self.folder / f"tmp.n{n}").chmod(0o1777)

    def start_all(self) -> None:
        """Start every daemon, and wait for idle nodes."""
        self.start_munge()
        self.before_controller()
        self.start_controller()
        for n in range(1, self.nodes + 1):
            self.start_node(f"n{n}")
        idle = ("sinfo", "-h", "-t", "idle", "-p", "main", "-o", "%D")
        self.until(lambda: self.say(*idle) == str(self.nodes))
        if self._has_rest:
            self.renew_token()
            self.start_rest()

    def start_munge(self) -> None:
        """Start munged, and wait for its socket."""
        f = self.folder
        (f / "munge.sock").unlink(missing_ok=True)
        self._start(
            "munged", "munged", "--foreground", "--force", f"--key-file={f}/munge.key",
            f"--socket={f}/munge.sock", f"--pid-file={f}/munge.pid",
            f"--log-file={f}/munge.log", f"--seed-file={f}/munge.seed",
        )  # fmt: skip
        self.until(lambda: (f / "munge.sock").exists())

    def start_rest(self) -> None:
        """Start slurmrestd, and wait until it listens. It refuses to be root's."""
        is_old = self.say("slurmctld", "-V").startswith("slurm-wlm 22")
        self._start(
            "slurmrestd", "slurmrestd", "-u", "nobody", "-g", "nogroup", "-a", "rest_auth/jwt",
            "-s", "openapi/v0.0.38" if is_old else "slurmctld", "-f", str(self.conf),
            f"127.0.0.1:{self.rest_port}",
        )  # fmt: skip
        self.until(self._rest_listens)

    def _rest_listens(self) -> bool:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.rest_port), 1),
        ):
            return True
        return False

    def renew_token(self, lifespan_s: int = 3600) -> None:
        """Put a token of root's into the file, as a whole."""
        part = self.token.with_suffix(".part")
        part.touch(mode=0o600)
        part.write_text(self.say("scontrol", "token", f"lifespan={lifespan_s}"))
        part.replace(self.token)

    def before_controller(self) -> None:
        """Start what slurmctld needs."""

    def start_controller(self) -> None:
        """Start slurmctld, and wait until it answers."""
        self._start("slurmctld", "slurmctld", "-D", "-f", str(self.conf))
        self.until(lambda: "is UP" in self.say("scontrol", "ping"))

    def start_node(self, name: str, *options: str) -> None:
        """Start the daemon of a node."""
        daemon = ("slurmd", "-D", "-N", name, "-f", str(self.conf), *options)
        if not self.apart:
            self._start(name, *daemon)
            return
        mounts = [f"mount -t tmpfs -o mode=755 none {path}" for path in self.apart]
        # Slurm runs a login shell for each job: what that starts is not ours to wait for.
        mounts.append("{ [ ! -e ~/.bashrc ] || mount --bind /dev/null ~/.bashrc; }")
        script = " && ".join((*mounts, 'exec "$@"'))
        self._start(name, "unshare", "-m", "sh", "-c", script, name, *daemon)

    def seen_by(self, name: str, path: Path) -> Path:
        """Return what a node has under a path, as we see it."""
        return Path(f"/proc/{self._running[name].pid}/root{path}")

    def steps(self) -> list[int]:
        """Return the pids of Slurm's own processes for jobs on all nodes."""
        mark = f"SLURM_CONF={self.conf}".encode()
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            with contextlib.suppress(OSError):
                if (entry / "comm").read_text().strip() != "slurmstepd":
                    continue
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def kill(self, name: str) -> None:
        """Kill a daemon outright."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def stop(self, name: str) -> None:
        """End a daemon as an administrator does."""
        process = self._running.pop(name)
        process.terminate()
        process.wait(PATIENCE_S)

    def until_saved(self) -> None:
        """Wait until the controller has saved what it took on: up to 5 s later.

        One that is killed before forgets its newest jobs, and gives their numbers again.
        """
        saved = self.folder / "state" / "job_state"
        asked = time.time()
        for number in self.say("squeue", "-h", "-o", "%i").split():
            self.say("scontrol", "update", f"jobid={number}", "comment=to be saved")
        self.until(lambda: saved.exists() and saved.stat().st_mtime > asked)

    def clear(self) -> None:
        """End all jobs, and have every node take jobs again."""
        self.say("scancel", "--user=root")
        self.until(lambda: not self.say("squeue", "-h"))
        for n in range(1, self.nodes + 1):
            if "DRAIN" in self.say("sinfo", "-h", "-n", f"n{n}", "-o", "%T").upper():
                self.say("scontrol", "update", f"nodename=n{n}", "state=resume")

    def standing(self) -> str:
        """Return its jobs, its nodes and what the controller logged last: for failures."""
        jobs = self.say("squeue", "-h", "-o", "%i %j %u %T %r %N")
        nodes = self.say("sinfo", "-h", "-N", "-o", "%N %T %C %E")
        log = self.folder / "slurmctld.log"
        return f"{jobs}\n{nodes}\n{log.read_text()[-2000:] if log.exists() else 'no slurmctld'}"

    def say(self, *words: str) -> str:
        """Run a command of Slurm; return what it says, '' where it fails."""
        return subprocess.run(
            words, env=self.env, capture_output=True, text=True, check=False
        ).stdout.strip()

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.conf)}

    def until(self, check: Any) -> None:
        """Wait for something. Raises TimeoutError with what the controller logged."""
        until = time.monotonic() + PATIENCE_S
        while not check():
            if time.monotonic() > until:
                raise TimeoutError(self.standing())
            time.sleep(0.1)

    def _start(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            # In its folder: a slurmstepd that crashes leaves its memory where slurmd stands.
            env = {**self.env, "SLURM_JWT": "daemon"} if name == "slurmrestd" else self.env
            self._running[name] = subprocess.Popen(
                words, env=env, cwd=self.folder, stdout=out, stderr=out
            )

    def stop_all(self) -> None:
        """End jobs and daemons, in the order in which they need each other."""
        with contextlib.suppress(TimeoutError):
            self.clear()
        nodes = (f"n{n}" for n in range(1, self.nodes + 1))
        for name in ("slurmrestd", "slurmctld", *nodes, *self.last):
            process = self._running.pop(name, None)
            if process is not None:
                process.terminate()
                process.wait(PATIENCE_S)
        for pid in self.steps():  # One that slurmctld forgot would call for it for ever.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


S = TypeVar("S", bound=Slurm)


@contextlib.contextmanager
def a_slurm(
    nodes: int = NODES,
    gpus: int = GPUS,
    settings: str = "",
    apart: Sequence[Path] = (),
    *,
    rest: bool = False,
    cpus: int = 0,
) -> Iterator[Slurm]:
    """Start a Slurm of so many nodes, with so many GPUs each, and end it.

    `settings` are further lines of slurm.conf. Of each folder in `apart` every node sees one of
    its own.
    """
    folder = Path(tempfile.mkdtemp(prefix="allot-slurm-", dir="/var/tmp"))
    folder.chmod(0o755)
    with running(Slurm(folder, nodes, gpus, settings, apart, rest=rest, cpus=cpus)) as slurm:
        yield slurm


@contextlib.contextmanager
def running(slurm: S) -> Iterator[S]:
    """Start a Slurm, and end it; its folder is removed then."""
    try:
        slurm.write()
        slurm.start_all()
        yield slurm
    finally:
        slurm.stop_all()
        shutil.rmtree(slurm.devices, ignore_errors=True)
        shutil.rmtree(slurm.folder, ignore_errors=True)

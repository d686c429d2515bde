"""The first process of a pilot: a fence, out of which nothing of the node's tasks gets.

    fence FOLDER AGENT        with the note (JSON) on standard input

It is the batch script itself. It makes a PID namespace and a mount namespace in which its own
control groups are the top, so that what runs inside cannot leave what Slurm watches, and
dies with it, however it dies. Inside, process 1 starts the agent, again when it fails. When
the agent leaves or Slurm says TERM all is thawed, killed and removed.

An ordinary user's fence makes the namespaces in a user namespace. Where the machine forbids
that, it and its child adopt what their descendants leave behind, and each ends all when the
other dies: only who kills both at once leaves something, for Slurm to end.

Standard library and the runner's own modules only.
"""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from typing import Final, NamedTuple, NoReturn

from allotment.backends.local.runner import libc, procfs
from allotment.backends.local.runner.cgroup_files import members
from allotment.backends.local.runner.enclosure import (
    die_with_the_fence,
    enclose,
    end_below,
    mount_own,
)
from allotment.backends.local.runner.hierarchy import find_mounts, own_groups, short_hash
from allotment.backends.local.runner.record import note_fault

LOCK: Final = "pilot.lock"
NOTES: Final = "/run/allotment/pilots"
"""Where Slurm's epilog finds the groups of root's pilots: one file for each node's folder."""
LEFT: Final = 0
REFUSED: Final = 3
"""How an agent ends that is not to be started again."""
_ENDS: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_WAIT_S: Final = 60.0
_PAUSE_S: Final = 0.05
_AGAIN_S: Final = 1.0
_MOST_STARTS: Final = 20


class Place(NamedTuple):
    """A control group hierarchy, and the folder of our own group in it."""

    mount: str
    own: str


class _Inside(NamedTuple):
    """What is started inside. Without walls it is held together by adoption alone."""

    places: list[Place]
    agent: list[str]
    note: bytes
    has_walls: bool


def main() -> NoReturn:
    """Fence the agent in, and clear up after it."""
    if len(sys.argv) != 3:
        sys.exit("usage: fence FOLDER AGENT < NOTE")
    folder, agent = os.path.realpath(sys.argv[1]), json.loads(sys.argv[2])
    libc.set_name("allot-pilot")
    note = json.load(sys.stdin)
    note |= {"session": os.urandom(32).hex(), "job": os.environ.get("SLURM_JOB_ID", "")}
    libc.die_with_parent(signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, *_ENDS))
    places = find_places()
    groups = groups_of(places, folder)
    lock = take(f"{folder}/{LOCK}", groups)
    note_groups(folder, groups)
    has_walls = enclose()
    # To become another user, if only in a namespace, may forget what to die with.
    libc.die_with_parent(signal.SIGKILL if has_walls else signal.SIGTERM)
    note |= {"fence": "namespaces" if has_walls else "processes"}
    inside = _Inside(places, agent, json.dumps(note).encode(), has_walls)
    code = _fenced(inside, groups)
    clear(groups)
    forget_groups(folder)
    os.close(lock)
    sys.exit(code)


# ── one at a time ───────────────────────────────────────────────────────────────────────


def take(path: str, groups: list[str]) -> int:
    """Lock the node's folder, ending an agent that Slurm left there. Exits when it cannot."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + _WAIT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if signal.sigpending() & _ENDS or time.monotonic() > until:
                sys.exit("allotment: another pilot of this node does not end")
            _end_leftover(lock)
            thaw(groups)
            time.sleep(_PAUSE_S)
        else:
            break
    clear(groups)
    mine = f"{os.getpid()} {procfs.start_time('self')} {procfs.boot_id()}"
    os.ftruncate(lock, 0)
    os.pwrite(lock, mine.encode(), 0)
    return lock


def _end_leftover(lock: int) -> None:
    """Kill the fence that has the lock: Slurm gave us its node, so it should be gone."""
    words = os.pread(lock, 200, 0).decode(errors="replace").split()
    if len(words) == 3 and words[2] == procfs.boot_id() and words[0].isdecimal():
        pid = int(words[0])
        if str(procfs.start_time(pid)) == words[1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


# ── the fence ───────────────────────────────────────────────────────────────────────────


def _fenced(inside: _Inside, groups: list[str]) -> int:
    """Run the agent inside until it leaves, or we are told to end. Return the exit code."""
    alive, ends = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ends)
        _begin(inside, alive)
    os.close(alive)
    code = LEFT
    while signal.sigwait((signal.SIGCHLD, *_ENDS)) == signal.SIGCHLD:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            break
    else:
        os.kill(pid, signal.SIGKILL)
        while not os.waitpid(pid, os.WNOHANG)[0]:
            # What is frozen does not die, and process 1 waits for all: so thaw, and again.
            thaw(groups)
            time.sleep(_PAUSE_S)
    if not inside.has_walls:
        thaw(groups)
        end_below()
    return code


def _begin(inside: _Inside, alive: int) -> NoReturn:
    """Be process 1 inside."""
    try:
        die_with_the_fence(has_walls=inside.has_walls)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # process 1 is deaf to all but KILL
        libc.set_name("allot-fence")
        if inside.has_walls:
            mount_own()
            for place in inside.places:
                if place.own != place.mount:
                    libc.mount(place.own, place.mount, "", libc.MS_BIND)
        os.set_blocking(alive, False)
        os._exit(_look_after(inside.agent, inside.note, alive))
    except BaseException:  # noqa: BLE001 - the last line before the process ends
        note_fault()
    finally:
        os._exit(1)


def _look_after(agent: list[str], note: bytes, alive: int) -> int:
    """Start the agent, and again when it fails: tasks go on meanwhile. Reap all others."""
    for _ in range(_MOST_STARTS):
        with contextlib.suppress(BlockingIOError):
            if not os.read(alive, 1):
                return 1  # The fence died before we had asked to die with it.
        pid = _start(agent, note)
        done, status = os.wait()
        while done != pid:
            done, status = os.wait()
        code = os.waitstatus_to_exitcode(status)
        if code in (LEFT, REFUSED):
            return code
        print(f"allotment: the agent ended with {code}, and is started again", flush=True)
        time.sleep(_AGAIN_S)
    return 1


def _start(agent: list[str], note: bytes) -> int:
    handle = os.memfd_create("note")
    os.write(handle, note)
    os.lseek(handle, 0, os.SEEK_SET)
    try:
        # SLURM_CONF and the rest are of no use to it; what tasks get is in their requests.
        env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        return subprocess.Popen(agent, stdin=handle, env=env, cwd="/").pid
    finally:
        os.close(handle)


# ── control groups ──────────────────────────────────────────────────────────────────────


def find_places() -> list[Place]:
    """Find the groups where Slurm put us: the top, in a hierarchy in which it has none."""
    own = own_groups(procfs.read("/proc/self/cgroup"))
    found: list[Place] = []
    for mount in find_mounts(procfs.read("/proc/self/mountinfo")):
        name = own.get(mount.controllers[0] if mount.controllers else "", "/")
        path = f"{mount.path}{name.rstrip('/')}"
        found.append(Place(mount.path, path if os.path.isdir(path) else mount.path))
    return found


def note_groups(folder: str, groups: list[str]) -> None:
    """Write down for Slurm's epilog where our groups are, with the job that they are of."""
    if os.geteuid() != 0:
        return  # The groups of a user's are among Slurm's own for its job, or nowhere.
    words = (os.environ.get("SLURM_JOB_ID", ""), f"conf={os.environ.get('SLURM_CONF', '')}")
    with contextlib.suppress(OSError):
        os.makedirs(NOTES, mode=0o700, exist_ok=True)
        with open(_note_of(folder), "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in (*words, *groups))


def forget_groups(folder: str) -> None:
    """Take back what was written down, once nothing is left."""
    with contextlib.suppress(OSError):
        os.unlink(_note_of(folder))


def _note_of(folder: str) -> str:
    return f"{NOTES}/{short_hash(folder)}"


def groups_of(places: list[Place], folder: str) -> list[str]:
    """Return the folders that the launcher inside makes, as they are seen from outside."""
    return [f"{place.own}/allotment/{short_hash(folder)}" for place in places]


def thaw(groups: list[str]) -> None:
    """Thaw all that a task froze, so that it can die."""
    for group in groups:
        for path in _folders(group):
            for name, value in (("freezer.state", b"THAWED"), ("cgroup.freeze", b"0")):
                with contextlib.suppress(OSError):
                    fd = os.open(f"{path}/{name}", os.O_WRONLY | os.O_CLOEXEC)
                    try:
                        os.write(fd, value)
                    finally:
                        os.close(fd)


def clear(groups: list[str]) -> None:
    """Kill what is left in our groups, and remove them, deepest first. Never raises."""
    until = time.monotonic() + 2
    while time.monotonic() < until:
        thaw(groups)
        left = [path for group in groups for path in _folders(group)]
        for path in left:
            for pid in members(path):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.rmdir(path)
        if not left:
            break
        time.sleep(0.01)
    for group in groups:
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(group))  # unless another node folder's are there


def _folders(group: str) -> list[str]:
    """List a group and those below it, deepest first."""
    return [path for path, _, _ in os.walk(group, topdown=False)]


if __name__ == "__main__":
    main()

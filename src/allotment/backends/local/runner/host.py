"""What the launcher learns of this machine at its start and every supervisor inherits."""

import os
import signal
from typing import Final, NamedTuple

from allotment.backends.local.runner import hierarchy, libc, mounts, procfs, scratch

_PLACES: Final = ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap")


class Host(NamedTuple):
    """Facts and descriptors. `missing` says of each means of isolation that is not in
    force why not."""

    state_dir: str
    boot_id: str
    hierarchy: hierarchy.Hierarchy
    namespaces: str
    bwrap: str
    scratch_root: str
    stdin: int
    missing: dict[str, str]


def look(state_dir: str) -> Host:
    """Find out what this machine allows us to do, by trying it. Takes a few ms."""
    missing: dict[str, str] = {}
    groups = hierarchy.prepare(state_dir)
    bwrap = find_bwrap(missing)
    namespaces = "none"
    if own_namespaces_work(state_dir, missing):
        namespaces = "own"
    elif bwrap:
        namespaces = "bwrap"
    scratch_root = scratch.root_for(state_dir)
    scratch.make_root(scratch_root)
    return Host(
        state_dir=state_dir,
        boot_id=procfs.boot_id(),
        hierarchy=groups,
        namespaces=namespaces,
        bwrap=bwrap,
        scratch_root=scratch_root,
        stdin=os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC),
        missing=missing,
    )


def find_bwrap(missing: dict[str, str]) -> str:
    """Give the path of a bubblewrap that works here, or note why there is none."""
    path = next((place for place in _PLACES if os.access(place, os.X_OK)), "")
    if not path:
        missing["bwrap"] = "bubblewrap is not installed"
        return ""
    argv = [path, "--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--dev", "/dev"]
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    pid = os.posix_spawn(path, [*argv, "true"], {"PATH": "/usr/bin:/bin"}, file_actions=null)
    if os.waitpid(pid, 0)[1] == 0:
        return path
    missing["bwrap"] = "bubblewrap may not make namespaces here (a container, or a setting)"
    return ""


def own_namespaces_work(state_dir: str, missing: dict[str, str]) -> bool:
    """Try in a child what init does for a task."""
    if os.geteuid() != 0:
        missing["own"] = "only root makes namespaces without help"
        return False
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        _try_and_exit(state_dir, write_end)
    os.close(write_end)
    problem = os.read(read_end, 4000).decode(errors="replace")
    os.close(read_end)
    os.waitpid(pid, 0)
    if problem:
        missing["own"] = problem
    return not problem


def _try_and_exit(state_dir: str, write_end: int) -> None:
    try:
        libc.unshare(libc.CLONE_NEWPID)
        pid = os.fork()
        if pid == 0:
            libc.die_with_parent(signal.SIGKILL)
            libc.unshare(libc.CLONE_NEWNS | libc.CLONE_NEWIPC | libc.CLONE_NEWUTS)
            mounts.build(mounts.View(state_dir, (), (), ()))
        else:
            os.waitpid(pid, 0)
    except BaseException as error:  # noqa: BLE001 - a forked child must not go on
        os.write(write_end, str(error).encode()[:4000])
    finally:
        os._exit(0)

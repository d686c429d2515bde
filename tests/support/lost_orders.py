"""Orders to tasks that are written and never read: what is left of them where a service and
the supervisors that it gave them to stop at the same moment."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from allotment.backends.local.runner import layout
from tests.support.cluster import RealCluster, launchers, until


def status_of(cluster: RealCluster, job: int, rank: int = 0) -> dict[str, Any]:
    """Return what the supervisor of a task of the first attempt wrote last."""
    return json.loads((_folder(cluster, job, rank) / layout.STATUS).read_text())


@contextmanager
def lost_orders(cluster: RealCluster, job: int, *ranks: int) -> Iterator[Callable[[], None]]:
    """Let no order get to these tasks of a first attempt; yield a wait until each has one.

    The supervisors are stopped, and their launcher, which would wake them.
    """
    supervisors = [status_of(cluster, job, rank)["supervisor_pid"] for rank in ranks]
    stopped = [*launchers(cluster.state), *supervisors]
    with ExitStack() as stack:
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
            stack.callback(os.kill, pid, signal.SIGCONT)
        pipes = [
            os.open(_folder(cluster, job, rank) / layout.CONTROL, os.O_RDONLY | os.O_NONBLOCK)
            for rank in ranks
        ]
        for pipe in pipes:
            stack.callback(os.close, pipe)
        without = set(pipes)

        def all_are_given() -> bool:
            without.difference_update([pipe for pipe in without if _taken_from(pipe).strip()])
            return not without

        yield lambda: until(all_are_given, "an order to each task")
        for pipe in pipes:
            _taken_from(pipe)


def _folder(cluster: RealCluster, job: int, rank: int) -> Path:
    (folder,) = (cluster.state / layout.TASKS / str(job) / "1").glob(f"*.{rank}")
    return folder


def _taken_from(pipe: int) -> bytes:
    try:
        return os.read(pipe, 1 << 16)
    except BlockingIOError:
        return b""

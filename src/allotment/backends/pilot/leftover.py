"""What a runner that cannot be asked wrote of a task, read from the shared disk.

Whether it is still at it is not to be seen from here: a lock taken on another machine may not
show. So a task runs, for us, until its status says that it ended, or its pilot is over.
"""

from pathlib import Path

from allotment.backends.local.backend import task_name
from allotment.backends.local.runner import layout
from allotment.backends.status import report_of, status_from
from allotment.model.ids import TaskKey
from allotment.model.reports import TaskReport


def last_words(folder: Path, key: TaskKey) -> TaskReport | None:
    """Return a task's state when its runner last wrote; None before it first did."""
    try:
        status = status_from(
            (folder / layout.task_dir(task_name(key)) / layout.STATUS).read_bytes()
        )
    except OSError:
        return None
    return report_of(key, status) if status is not None else None


def was_launched(folder: Path, key: TaskKey) -> bool:
    """Whether a task was ever taken on there."""
    return (folder / layout.task_dir(task_name(key)) / layout.CLAIM).exists()

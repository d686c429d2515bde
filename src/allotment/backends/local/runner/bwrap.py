"""The same view of the file system as mounts.py, made by bubblewrap, for those not root.

It runs as the task's user, and so resolves with his rights whatever the user named.

Pure: gives the words of the command. The inner script, run by /bin/sh as the task's first
program, tells when the isolation stands, waits at the barrier, and stays after a failure.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from allotment.backends.local.runner.datasets import Shown
from allotment.backends.local.runner.mounts import View, under

NOTE_FD: Final = 3
"""Where the inner script writes lines: `ready`, `started`, `failed CODE`."""
GO_FD: Final = 4
"""Where it reads a line to go on; end of file means that it should end."""
STATUS_FD: Final = 5
"""Where bubblewrap writes its own: `exit-code` only if the set-up succeeded."""

PROCESSES: Final = 3
"""Two of bubblewrap's, and a shell that may stay: they count against the task's limit."""

_WAIT: Final = "echo ready >&3; read -r _ <&4 || exit 0; "
_RUN: Final = 'echo started >&3; exec "$@" 3>&- 4<&-'
_RUN_AND_STAY: Final = (
    'echo started >&3; "$@" 3>&- 4<&-; code=$?; [ $code = 0 ] || '
    '{ echo "failed $code" >&3; read -r _ <&4; }; exit $code'
)


class Inner(NamedTuple):
    """What the inner script has to do."""

    waits_at_barrier: bool
    stays_on_failure: bool


def plan(view: View) -> tuple[list[str], list[str]]:
    """Return which paths must be mounted again, read-only and writable, after the hiding.

    A writable path needs it below a read-only one; both need it below the hidden one.
    """
    again_read_only = [path for path in view.read_only if under(path, view.hidden)]
    covers = (view.hidden, *view.read_only)
    again_writable = [
        path for path in view.writable if any(under(path, cover) for cover in covers)
    ]
    return again_read_only, again_writable


def command(
    program: str,
    view: View,
    cwd: str,
    argv: list[str],
    inner: Inner,
    shown: Sequence[Shown] = (),
) -> list[str]:
    """Return the argument list that runs `argv` in the view.

    The state folder is hidden after paths around it are bound, and before those below it are
    bound again; bubblewrap takes their sources from the tree outside, whatever is hidden.
    """
    again_read_only, again_writable = plan(view)
    words = [program, "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    if all(each.folder != "/" for each in shown):
        words += ["--bind", "/", "/"]
    for each in shown:
        words += _shown_anew(each)
    for path in view.read_only:
        if path not in again_read_only:
            words += ["--ro-bind", path, path]
    inside = [path for path in again_writable if under(path, view.hidden)]
    for path in again_writable:
        words += ["--bind", path, path] if path not in inside else []
    words += ["--tmpfs", view.hidden]
    for path in again_read_only:
        words += ["--ro-bind", path, path]
    for path in inside:
        words += ["--bind", path, path]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for path in (*view.devices, *view.folders):
        words += ["--dev-bind-try", path, path]
    for mount in view.mounts:
        words += ["--bind" if mount.write else "--ro-bind", mount.source, mount.at]
    words += ["--chdir", cwd, "--die-with-parent", "--json-status-fd", str(STATUS_FD), "--"]
    return [*words, "/bin/sh", "-c", _script(inner), "allotment", *argv]


def _shown_anew(shown: Shown) -> list[str]:
    """Show a folder again, such that entries can be added."""
    top = shown.folder.rstrip("/")
    words = ["--tmpfs", shown.folder] if top else []
    for name, leads in shown.entries:
        path = f"{top}/{name}"
        words += ["--symlink", leads, path] if leads else ["--bind-try", path, path]
    return words


def _script(inner: Inner) -> str:
    """The shell also gives 127 for a missing command, 126 for one that is not executable.

    bubblewrap itself would give 1. The price: variables whose names no shell could set
    (`BASH_FUNC_f%%`) do not get through.
    """
    wait = _WAIT if inner.waits_at_barrier else ""
    return wait + (_RUN_AND_STAY if inner.stays_on_failure else _RUN)

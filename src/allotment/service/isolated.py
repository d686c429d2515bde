"""How one of our modules is run as a program of its own: with nothing of what surrounds us.

The service may be root, and whoever starts it may stand in a folder of somebody else, with
variables in the environment that make Python or the loader run code. So: isolated mode, our
modules from where we have ours, `cwd="/"`, and an environment of few names.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import allotment

_ROOT = str(Path(allotment.__file__).resolve().parent.parent)
_BOOT = """\
import sys
root = sys.argv.pop(1)
root in sys.path or sys.path.insert(0, root)
from {} import main
main()
"""
PLAIN = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
}
"""What a helper gets that needs nothing of anybody's."""

_KEPT = (
    "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "SLURM_CONF",
)  # fmt: skip
_KEPT_FAMILIES = ("LC_", "XDG_", "ALLOT_")
"""LD_LIBRARY_PATH: where a driver's libraries are, in some containers. SLURM_CONF: of which
Slurm the commands are."""


def isolated(module: str, *words: str, bare: bool = False) -> list[str]:
    """Return the command that runs a module's `main`, to be started in `/`.

    With `bare` installed libraries cannot be imported, only ours and Python's.
    """
    return [sys.executable, "-IS" if bare else "-I", "-c", _BOOT.format(module), _ROOT, *words]


def plain_with(environ: Mapping[str, str]) -> dict[str, str]:
    """Return a plain environment for a service, with the variables it keeps of its user's."""
    kept = {
        name: value
        for name, value in environ.items()
        if name in _KEPT or name.startswith(_KEPT_FAMILIES)
    }
    return {**PLAIN, **kept}

"""Before a process sees files that anybody could have made: it takes no code from them.

Python finds modules by their files' names, and the encodings that sources say they are in are
modules. It reads sources, too, only to print a traceback. In another root all of these names
lead to files of somebody else, and whoever reads them may be root.
"""

import os
import sys


def take_no_more_code() -> None:
    """Never import again in this process; no error that nobody catches is printed.

    What is wanted later, encodings too, must be imported before.
    """
    for places in (sys.meta_path, sys.path_hooks, sys.path):
        places.clear()
    sys.path_importer_cache.clear()
    sys.excepthook = _end
    sys.unraisablehook = _pass_over


def _end(*_: object) -> None:
    os._exit(1)


def _pass_over(*_: object) -> None:
    """A finalizer failed, and nothing depends on it."""

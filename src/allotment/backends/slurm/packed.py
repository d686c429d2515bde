"""The first process of tasks as one file, which any Python 3 of a node runs by itself. Pure.

It needs two more modules of ours. A zip archive holds all, uncompressed, under the names that
they have here, and compiled beside that: a Python of our own version starts with a third less,
any other reads the source.
"""

import importlib.util
import io
import marshal
import zipfile
from collections.abc import Mapping
from hashlib import sha256

MODULES = (
    "allotment.backends.slurm.task",
    "allotment.backends.slurm.folders",
    "allotment.backends.local.runner.logs",
)
MAIN = """\
import sys
from allotment.backends.slurm.task import start
sys.exit(start(sys.argv[1:]))
"""


def packed(sources: Mapping[str, str]) -> tuple[str, bytes]:
    """Return name and content of the archive of some modules' source texts.

    The name changes with the content: what runs is never replaced.
    """
    files = {"__main__.py": MAIN}
    for module, text in sources.items():
        *parents, name = module.split(".")
        for depth in range(1, len(parents) + 1):
            files["/".join((*parents[:depth], "__init__.py"))] = ""
        files["/".join((*parents, f"{name}.py"))] = text
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for path, text in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(path), text)
            archive.writestr(zipfile.ZipInfo(f"{path}c"), _compiled(path, text))
    content = made.getvalue()
    return f"task-{sha256(content).hexdigest()[:12]}.pyz", content


def _compiled(path: str, text: str) -> bytes:
    """Return a source text in the format of .pyc files (PEP 552), not to be checked again."""
    code = compile(text, path, "exec", dont_inherit=True)
    unchecked = (1).to_bytes(4, "little")
    digest = importlib.util.source_hash(text.encode())
    # Version 2 keeps no references, which are not the same in every process.
    return importlib.util.MAGIC_NUMBER + unchecked + digest + marshal.dumps(code, 2)

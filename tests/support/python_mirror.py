"""Archives with a Python, in the form that uv fetches them: the one that runs the tests.

What a list says of its last part is made up: no machine has a Python 3.N.98.
"""

import hashlib
import json
import platform
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
_LEFT_OUT = ("test", "__pycache__", "dist-packages", "site-packages", "ensurepip", "idlelib")


class Mirror:
    """A folder with archives, and the list of them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.list = folder / "list.json"
        self._entries: dict[str, object] = {}

    def add(self, last: int, more: Callable[[tarfile.TarFile], None] | None = None) -> Path:
        """Add a Python 3.N.`last`; `more` puts further things into its archive."""
        path = self.folder / f"python-{last}.tar.gz"
        library = Path(sys.base_prefix) / f"lib/python{HERE}"
        program = Path(sys.base_prefix) / f"bin/python{HERE}"
        with tarfile.open(path, "w:gz", compresslevel=1) as archive:
            archive.add(program.resolve(), f"python/bin/python{HERE}")
            link = tarfile.TarInfo("python/bin/python3")
            link.type, link.linkname = tarfile.SYMTYPE, f"python{HERE}"
            archive.addfile(link)
            archive.add(library, f"python/lib/python{HERE}", filter=_kept)
            if more is not None:
                more(archive)
        self._entries[f"cpython-{HERE}.{last}-linux-{platform.machine()}-gnu"] = {
            "name": "cpython", "os": "linux", "libc": "gnu", "variant": None, "build": "1",
            "arch": {"family": platform.machine(), "variant": None},
            "major": sys.version_info.major, "minor": sys.version_info.minor, "patch": last,
            "prerelease": "", "url": path.as_uri(),
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }  # fmt: skip
        self.list.write_text(json.dumps(self._entries))
        return path


def _kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out what no environment needs, and links into the machine."""
    is_out = Path(entry.name).name in _LEFT_OUT or (entry.issym() and entry.linkname[0] == "/")
    return None if is_out else entry

"""A layer with a small Debian, out of what this machine's own packages brought."""

import subprocess
from functools import cache
from pathlib import Path

from tests.support.image_python import with_libraries
from tests.support.registry import a_file, a_folder, a_link, layer

PACKAGES = (
    "base-files", "base-passwd", "bash", "coreutils", "dash", "debianutils", "findutils",
    "grep", "hostname", "libc-bin", "login", "mount", "sed", "tzdata", "util-linux",
)  # fmt: skip
_LEFT_OUT = ("/usr/share/doc", "/usr/share/man", "/usr/share/locale", "/usr/share/info")


@cache
def debian() -> bytes:
    """Pack a small Debian: essential programs, the libraries that they load, users, zones.

    As in images of others there is a zone, and a resolver, that are not this machine's.
    """
    words = ["dpkg", "-L", *PACKAGES]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    named = {Path(name) for name in told.splitlines() if not name.startswith(_LEFT_OUT)}
    files = sorted(path for path in named if path.is_file())
    needed = [path for path in files if path.read_bytes()[:4] == b"\x7fELF"]
    merged = [path.name for path in Path("/").iterdir() if path.is_symlink()]
    return layer(
        *(a_link(name, f"usr/{name}") for name in merged if (Path("/usr") / name).is_dir()),
        *with_libraries(files, needed),
        a_folder("tmp", 0o1777),
        a_file("etc/passwd", Path("/usr/share/base-passwd/passwd.master").read_bytes()),
        a_file("etc/group", Path("/usr/share/base-passwd/group.master").read_bytes()),
        a_file("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
        a_link("etc/localtime", "/usr/share/zoneinfo/Asia/Tokyo"),
        a_file("etc/timezone", "Asia/Tokyo\n"),
        a_file("etc/resolv.conf", "nameserver 192.0.2.1\n"),
    )

"""Layers with a Python: the machine's own, packed; or files that only look like one."""

import os
import re
import struct
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.support.registry import Entry, a_file, a_link, layer

LOADER = "/lib64/ld-linux-x86-64.so.2"
_LEFT_OUT = re.compile(
    r"test|idlelib|tkinter|lib2to3|ensurepip|distutils|__pycache__|pydoc_data|config-.*|.*\.a"
    r"|dist-packages|turtledemo"
)


def a_program(loader: str = LOADER) -> bytes:
    """Return the head of a program that is loaded by another; it cannot run."""
    head = struct.pack(
        "<4sBB10xHHIQQQIHHHHHH",
        b"\x7fELF", 2, 1, 3, 62, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0,
    )  # fmt: skip
    name = loader.encode() + b"\0"
    return head + struct.pack("<IIQQQQQQ", 3, 4, 120, 0, 0, len(name), len(name), 1) + name


def glibc(version: str) -> bytes:
    """Return the part of a C library that says which it is."""
    return b"\0xx\0GNU C Library (Some 1.2) stable release version %b.\n\0" % version.encode()


def a_seeming_python(version: str, libc: str = "2.36") -> list[Entry]:
    """Return files that look like a Python of a version, and its C library."""
    return [
        a_file(f"usr/local/bin/python{version}", a_program(), 0o755),
        a_link("usr/local/bin/python3", f"python{version}"),
        a_link("lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/ld-2.so"),
        a_file("lib/x86_64-linux-gnu/ld-2.so", a_program(), 0o755),
        a_file("lib/x86_64-linux-gnu/libc.so.6", glibc(libc), 0o755),
    ]


@cache
def host_python() -> tuple[bytes, str]:
    """Pack the machine's own Python with what it needs; return the layer and the version."""
    program = Path("/usr/bin/python3").resolve()
    asked = "import sys, sysconfig as s; print(sys.version_info.minor, s.get_path('stdlib'))"
    told = subprocess.run(
        [program, "-I", "-c", asked], capture_output=True, text=True, check=True
    ).stdout
    minor, library = told.split()
    files = [program, *_modules(Path(library))]
    needed = [path for path in files if path.suffix == ".so" or path == program]
    links = [
        a_link(name, f"usr/{name}")
        for name in ("lib", "lib64")
        if Path(f"/{name}").is_symlink()
    ]
    links.append(a_link("usr/bin/python3", program.name))
    return layer(*links, *with_libraries(files, needed)), f"3.{minor}"


def with_libraries(files: Iterable[Path], needed: list[Path]) -> list[Entry]:
    """Pack files of the machine, and the libraries that those of `needed` load."""
    found: dict[str, Entry] = {}
    for path in [*files, *map(Path, _libraries(needed))]:
        real, name = path.resolve(), path.parent.resolve() / path.name
        found[str(real)] = a_file(str(real)[1:], real.read_bytes(), real.stat().st_mode)
        if name != real:
            found[str(name)] = a_link(str(name)[1:], str(real))
    return list(found.values())


def _modules(library: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(library):
        names[:] = [name for name in names if not _LEFT_OUT.fullmatch(name)]
        for name in files:
            if not _LEFT_OUT.fullmatch(name) and (Path(folder) / name).is_file():
                yield Path(folder) / name


def _libraries(programs: list[Path]) -> set[str]:
    """Return the libraries that programs need, and what loads them."""
    done = subprocess.run(
        ["ldd", *map(str, programs)], capture_output=True, text=True, check=False
    )
    return set(re.findall(r"^\s+(?:\S+ => )?(/\S+) \(0x", done.stdout, re.MULTILINE))

"""An image with Open MPI: the machine's own, with its Python and a shell."""

import io
import json
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from allotment.backends.local.images.manifest import architecture
from tests.support.image_python import host_python, with_libraries
from tests.support.registry import Entry, a_file, a_link, busybox, digest, layer

PACKAGES = ("openmpi-bin", "openmpi-common", "libopenmpi3", "libpmix2")
NEEDED = ("/usr/share/openmpi", "/etc/openmpi", "/usr/lib")
LEFT_OUT = ("ucx", "ofi", "usnic", "psm", "/include/", ".a", ".la", "oshmem", "/doc/")
"""For networks and for building, which a test has not."""


def mpi_layers(program: Path) -> list[bytes]:
    """Return the layers; `/ring` is a program that was built here."""
    words = ["dpkg", "-L", *PACKAGES]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    files = [
        Path(line)
        for line in dict.fromkeys(said.splitlines())
        if line.startswith(NEEDED)
        and not any(each in line for each in LEFT_OUT)
        and Path(line).is_file()
    ]
    programs = [Path("/usr/bin/orterun"), Path("/usr/bin/orted")]
    loaded = [*programs, program, *(path for path in files if ".so" in path.name)]
    found: list[Entry] = [
        *with_libraries([*programs, *files], loaded),
        a_link("usr/bin/mpirun", "orterun"),
        a_file("ring", program.read_bytes(), 0o755),
    ]
    return [busybox(), host_python()[0], layer(*found)]


def archive_of(name: str, layers: Sequence[bytes]) -> bytes:
    """Return an image as `docker save` writes it."""
    about = {
        "architecture": architecture(),
        "os": "linux",
        "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [digest(each) for each in layers]},
    }
    files = {f"{number}.tar": each for number, each in enumerate(layers)}
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": list(files)}]
    files |= {
        "config.json": json.dumps(about).encode(),
        "manifest.json": json.dumps(manifest).encode(),
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, data in files.items():
            entry, _ = a_file(path, data)
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()

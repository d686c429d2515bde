"""Layers as large as anybody could make them, for real: a million files, a tebibyte.

They are refused, the limit of the disk holds meanwhile, and the service answers as ever.
"""

import gzip
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from allotment.backends.local.images.fetching import MOST_FILES
from tests.support.answering import answering
from tests.support.cluster import until
from tests.support.night import AT_NIGHT, at_night
from tests.support.patience import PATIENCE_S
from tests.support.registry import (
    CONFIG,
    MARKS,
    Job,
    Registry,
    WithUsers,
    a_registry,
    a_service,
    busybox,
    digest,
)

pytestmark = [*MARKS, at_night, pytest.mark.may_skip(AT_NIGHT), pytest.mark.slow]
MIB, TIB = 1 << 20, 1 << 40
STORE_MIB = 6144
"""More than a million files count, and than the archive of a tebibyte takes as it comes."""
NEVER_KNOWN = digest(b"of what nobody unpacks to its end")
QUICK_S = 2.0
"""In which the service answers, on a machine of two cores of which one unpacks."""


@pytest.fixture
def registry(reachable: Path) -> Iterator[Registry]:
    with a_registry(reachable / "registry") as made:
        yield made


@pytest.fixture
def service(reachable: Path) -> Iterator[WithUsers]:
    limits = f"limits: {{image_store: {STORE_MIB}MiB, "
    with a_service(reachable, CONFIG.replace("limits: {", limits)) as made:
        yield made


def taken_mib(service: WithUsers) -> int:
    """Return what the store of images takes of the disk."""
    words = ["du", "-smx", str(service.state / "images")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return int(done.stdout.split()[0])  # What goes away meanwhile is no matter.


def a_million_files(path: Path) -> None:
    """Pack one file more than may be."""
    with gzip.open(path, "wb", 1) as packed:
        for number in range(MOST_FILES + 1):
            entry = tarfile.TarInfo(f"d{number % 1000}/{number}")
            packed.write(entry.tobuf())
        packed.write(bytes(1024))


def a_tebibyte(path: Path) -> None:
    """Pack a file of zeros of 64 MiB so often under one name that it is a tebibyte."""
    size = 64 * MIB
    entry = tarfile.TarInfo("zeros")
    entry.size = size
    one = gzip.compress(entry.tobuf() + bytes(size), 9, mtime=0)
    with path.open("wb") as packed:
        for _ in range(TIB // size):
            packed.write(one)
    assert path.stat().st_size < STORE_MIB * MIB


@pytest.mark.parametrize(
    ("pack", "code", "told"),
    [
        (a_million_files, "image_broken", f"it has more than {MOST_FILES} files"),
        (a_tebibyte, "image_unfit", "larger than there is room for"),
    ],
)
def test_what_no_store_can_keep_is_refused_and_nothing_else_suffers(
    service: WithUsers,
    registry: Registry,
    reachable: Path,
    pack: Callable[[Path], None],
    code: str,
    told: str,
) -> None:
    packed = reachable / "packed"
    pack(packed)
    registry.push("small", [busybox()])
    registry.made_of("bomb", [registry.blob_of("bomb", packed)], [NEVER_KNOWN])
    packed.unlink()
    most_mib = 0
    with answering(service) as took:
        job = service.submitted(f"{registry.host}/bomb:1", "true", "ann")
        other = service.submitted(f"{registry.host}/small:1", "echo works", "ben")
        service.wait_for(other, "succeeded")

        def is_over() -> bool:
            nonlocal most_mib
            most_mib = max(most_mib, taken_mib(service))
            is_gone = not any((service.state / "images/new").iterdir())
            return is_gone and service.state_of(job) in {"failed", "succeeded"}

        until(is_over, "the bomb to be refused and gone", 20 * PATIENCE_S)
    found = Job(service, job)
    assert (found.state, found.diagnosis["code"]) == ("failed", code), found.diagnosis
    assert told in found.diagnosis["cause"]
    assert max(took) < QUICK_S
    assert most_mib <= STORE_MIB + 64
    print(f"slowest answer {max(took):.2f} s, most of the disk {most_mib} MiB")

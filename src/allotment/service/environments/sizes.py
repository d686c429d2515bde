"""How much would be fetched for an environment that is not here.

uv writes what it chose as a lock (PEP 751), with the size of each wheel where the index has it
in its JSON form (PEP 700). What is here already, its Python for one, is not counted.
"""

import sys
import tomllib
from typing import Any, Final

from allotment.model.quantity import show_bytes
from allotment.service.environments.pythons import size_of
from allotment.service.environments.store import EnvironmentStore, Known
from allotment.service.environments.target import ANY
from allotment.service.environments.uv import Uv

_PATIENCE_S: Final = 60.0


def to_be_fetched(uv: Uv, store: EnvironmentStore, known: Known) -> str:
    """Describe how much would be fetched. Raises Failed and TimeoutError."""
    words = [_wheels(_chosen(uv, known))] if known.packages else []
    if known.build is not None and not store.python(known.build).is_dir():
        size = size_of(known.build)
        told = show_bytes(size) if size else "size not known"
        words.append(f"Python {known.build.version} ({told})")
    return " and ".join(words) or "nothing"


def _chosen(uv: Uv, known: Known) -> str:
    told = ("--python-version", known.python)
    if known.platform:
        told = (*told, "--python-platform", known.platform)
    words = (
        "pip", "compile", "-", "--no-deps", "--format", "pylock.toml", "--quiet",
        "--only-binary", ":all:", "--python", uv.version_of(ANY) or sys.executable, *told,
    )  # fmt: skip
    return uv.run(words, _PATIENCE_S, known.lock)


def _wheels(lock: str) -> str:
    """Describe how large the wheels of a lock are."""
    packages: list[dict[str, Any]] = tomllib.loads(lock).get("packages", [])
    sizes = [wheel.get("size") for each in packages for wheel in each.get("wheels", ())]
    told = [size for size in sizes if isinstance(size, int)]
    if not told:
        return "wheels whose size the index does not say"
    more = f", and {n} more without a size" if (n := len(sizes) - len(told)) else ""
    return f"{show_bytes(sum(told))} of wheels{more}"

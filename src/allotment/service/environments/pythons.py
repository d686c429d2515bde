"""Pythons that the machine does not have: from a mirror that the configuration names, by uv.

A mirror has the archives that uv knows of, with uv's own digests. A list, whose name ends in
.json, is in the form of uv's own and says both itself. Which archive an environment gets is
settled once: its build is part of the environment's key.
"""

import contextlib
import hashlib
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote
from urllib.request import Request, urlopen

import msgspec

from allotment.service.environments.lasting import Failed, Spoilt
from allotment.service.environments.uv import Uv, own

PATIENCE_S: Final = 20.0
_LARGEST_LIST: Final = 32 << 20
_LIST: Final = ".json"


class Build(msgspec.Struct, frozen=True, omit_defaults=True):
    """One archive with a Python."""

    name: str
    """As uv has it: cpython-3.12.4-linux-x86_64-gnu."""
    version: str
    url: str
    entry: str = ""
    """What the list says of it, as JSON; '' where uv's own does."""

    @property
    def archive(self) -> str:
        """What it is in any mirror: the last two parts of its address."""
        return unquote("/".join(self.url.split("/")[-2:]))

    def digest(self, salt: bytes) -> str:
        """Return the name of its place, which nobody else works out."""
        text = "\0".join((self.name, self.entry or self.archive))
        return hashlib.sha256(salt + text.encode()).hexdigest()[:32]


class _Offered(msgspec.Struct):
    key: str
    version: str
    url: str | None
    variant: str
    implementation: str
    libc: str


class _Entry(msgspec.Struct):
    sha256: str | None = None


def chosen(uv: Uv, source: str, python: str, aside: Path) -> Build | None:
    """Return the newest build that fits, by the mirror or the list at `source`.

    Raises Failed and TimeoutError. `aside` is where a list is laid for uv.
    """
    entries = _listed(source) if source.endswith(_LIST) else {}
    offered = _offered(uv, source, python, entries, aside)
    libc = "gnu" if platform.libc_ver()[0] else "musl"
    fit = (
        each
        for each in offered
        if each.url
        and each.version.replace(".", "").isdigit()
        and (each.implementation, each.variant, each.libc) == ("cpython", "default", libc)
    )
    found = next(fit, None)
    if found is None:
        return None
    entry = entries.get(found.key)
    if entry is not None and not msgspec.json.decode(entry, type=_Entry).sha256:
        raise Failed(f"the list of Pythons has no sha256 of {found.key}: {source}")
    return Build(found.key, found.version, found.url or "", bytes(entry or b"").decode())


def install(
    uv: Uv,
    build: Build,
    source: str,
    folder: Path,
    watch: Callable[[], None],
    patience_s: float,
) -> Path:
    """Have a Python fetched, checked and unpacked below a folder; return where.

    Raises Failed and TimeoutError.
    """
    if not source:
        raise Failed(
            f"Python {build.version} is not fetched any more: `pythons` is not configured"
        )
    entries = {build.name: msgspec.Raw(build.entry.encode())} if build.entry else {}
    if not entries:
        now = [each.url or "" for each in _offered(uv, source, build.name, {}, folder)]
        if build.archive not in [Build("", "", url).archive for url in now]:
            raise Spoilt(f"uv knows of {build.archive} no more: submit the job again")
    words = ("python", "install", "--no-bin", "--install-dir", str(folder), build.name)
    env = _env(source, entries, folder) | {"UV_PYTHON_DOWNLOADS": "manual"}
    uv.run(words, patience_s, watch=watch, env=env)
    made = folder / build.name
    try:
        uv.run_as_builder([str(made / "bin/python3"), "-I", "-S", "-c", ""], PATIENCE_S)
    except (Failed, OSError) as error:
        raise Spoilt(
            f"Python {build.version} of {build.archive} does not run: {error}"
        ) from error
    return made


def moved(python: Path, place: Path) -> None:
    """Have what uv wrote into a Python about where it is name the place that it will have.

    With the rights of whoever unpacked it.
    """
    for pattern in ("lib/python3.*/_sysconfigdata_*.py", "lib/pkgconfig/*.pc"):
        for path in python.glob(pattern):
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
            named = text.replace(str(python), str(place))
            if named != text and not path.is_symlink():
                path.write_text(named, encoding="utf-8", errors="surrogateescape")


def size_of(build: Build) -> int:
    """Return how large an archive is; 0 where nobody says."""
    with contextlib.suppress(OSError, ValueError):
        asked = Request(build.url, method="HEAD")  # noqa: S310 - of an administrator's list
        with urlopen(asked, timeout=PATIENCE_S) as answer:  # noqa: S310
            return int(answer.headers.get("Content-Length") or 0)
    return 0


def _offered(
    uv: Uv, source: str, python: str, entries: Mapping[str, msgspec.Raw], aside: Path
) -> list[_Offered]:
    request = python if python.startswith("cpython-") else f"cpython@{python}"
    words = ("python", "list", "--only-downloads", "--output-format", "json", request)
    text = uv.run(words, PATIENCE_S, env=_env(source, entries, aside))
    return msgspec.json.decode(text, type=list[_Offered])


def _env(source: str, entries: Mapping[str, msgspec.Raw], aside: Path) -> dict[str, str]:
    """Return what makes uv take Pythons from there, and from nowhere else."""
    if not source.endswith(_LIST):
        return {"UV_PYTHON_INSTALL_MIRROR": source}
    path = aside / "pythons.json"
    path.write_bytes(msgspec.json.encode(entries))
    own(path)
    return {"UV_PYTHON_DOWNLOADS_JSON_URL": str(path)}


def _listed(source: str) -> dict[str, msgspec.Raw]:
    """Return the entries of a list, by name. Raises Failed."""
    try:
        with urlopen(source, timeout=PATIENCE_S) as answer:  # noqa: S310 - the administrator's
            data = answer.read(_LARGEST_LIST + 1)
    except (OSError, ValueError) as error:
        raise Failed(f"the list of Pythons cannot be read: {source}: {error}") from error
    try:
        if len(data) > _LARGEST_LIST:
            raise Failed(
                f"the list of Pythons has more than {_LARGEST_LIST >> 20} MiB: {source}"
            )
        return msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError as error:
        raise Failed(f"{source} is not a list of Pythons: {error}") from error

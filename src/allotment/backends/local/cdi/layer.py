"""The layer of an image that its drivers need: made once, and mounted above it from then on.

It has what a vendor's hooks would make at each start: links, the linker's cache, and the places
at which drivers' files are mounted. It belongs to one image and to one set of files of the
host; when the image goes from the store, so does it.
"""

import hashlib
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Final

import msgspec
import structlog

from allotment.backends.local.cdi.spec import Bind, Edits
from allotment.backends.local.images.images import Ready
from allotment.backends.local.images.store import Layer, Store, layer_name
from allotment.backends.local.images.trouble import ImageTrouble, Kind
from allotment.model.errors import BackendError
from allotment.rights.removing import remove
from allotment.service.environments.measuring import size_below
from allotment.service.isolated import PLAIN, isolated

BUILD: Final = "allotment.backends.local.cdi.build"
LINKER: Final = 2_147_459_346
"""Whom the linker's cache is made as: no account has this number, and nothing else."""
_VERSION: Final = 1
"""Of how a layer is made."""
_PATIENCE_S: Final = 60.0
_LDCONFIG: Final = ("/sbin/ldconfig.real", "/sbin/ldconfig", "/usr/sbin/ldconfig")
_STATIC_HEAD: Final = 1 << 12

log = structlog.get_logger("allot.cdi")


class Wish(msgspec.Struct, frozen=True):
    """What the process is told that makes a layer."""

    layers: tuple[str, ...]
    """Names of folders, topmost first."""
    store: str
    folder: str
    """Empty; becomes its work place, with the layer in `upper`."""
    binds: tuple[Bind, ...]
    links: tuple[tuple[str, str], ...]
    folders: tuple[str, ...]
    ldconfig: str
    """'' for no cache."""
    uid: int


class Made(msgspec.Struct, frozen=True):
    """What it says at its end."""

    trouble: str = ""
    """Why there is no layer."""
    why: str = ""
    """`unfit` where the image is the matter, `full` where the disk is."""
    doubt: str = ""
    """What is not as it should be in it."""


class DriverLayers:
    """Makes these layers, in the store of images. Made twice at once, the first one stays."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def layer(self, ready: Ready, edits: Edits) -> tuple[str, bool]:
        """Return the name of an image's layer, and whether it was made just now.

        Blocks. The image is held. Raises ImageTrouble, BackendError.
        """
        ldconfig = _ldconfig() if edits.folders else ""
        key = key_of(ready, edits, ldconfig)
        if self._store.layer(key) is not None:
            return layer_name(key), False
        self._make(ready, edits, ldconfig, key)
        return layer_name(key), True

    def _make(self, ready: Ready, edits: Edits, ldconfig: str, key: str) -> None:
        folder = self._store.new_folder()
        try:
            wish = Wish(
                ready.layers, str(self._store.folder / "layers"), str(folder), edits.binds,
                edits.links, edits.folders, ldconfig,
                LINKER if os.geteuid() == 0 else os.geteuid(),
            )  # fmt: skip
            made = _made(wish)
            if made.trouble:
                raise _refusal(ready.image.reference, made)
            if made.doubt:
                log.warning(
                    "drivers in an image", image=ready.image.reference, doubt=made.doubt
                )
            files, size = size_below(folder / "upper")
            layer = Layer(key, size, files, (), made_for=Path(ready.record).stem)
            self._store.sync()
            self._store.keep_layer(folder / "upper", layer)
        except OSError as error:
            raise BackendError(f"the image cannot have its drivers: {error}") from error
        finally:
            remove(None, str(folder))


def _refusal(image: str, made: Made) -> Exception:
    """Return why an image has no drivers, as it is told to whose matter that is."""
    if made.why == "unfit":
        cause = f"The drivers of its GPU cannot be put into {image}: {made.trouble}."
        return ImageTrouble(Kind.UNFIT, cause, "See what the image has at this place.")
    if made.why == "full":
        cause = f"The disk is full while {image} gets the drivers of its GPU."
        return ImageTrouble(Kind.NO_ROOM, cause)
    return BackendError(f"the image cannot have its drivers: {made.trouble}")


def _made(wish: Wish) -> Made:
    """Have a layer made by a process of its own."""
    try:
        done = subprocess.run(
            isolated(BUILD, bare=True),
            input=msgspec.json.encode(wish),
            env=PLAIN,
            cwd="/",
            capture_output=True,
            timeout=_PATIENCE_S,
            start_new_session=True,
            check=False,
        )
        return msgspec.json.decode(done.stdout, type=Made)
    except subprocess.TimeoutExpired:
        return Made(trouble=f"it was not done in {_PATIENCE_S:.0f} s")
    except msgspec.MsgspecError:
        return Made(trouble="the process that adds them ended early")


def key_of(ready: Ready, edits: Edits, ldconfig: str) -> str:
    """Return what a layer is of: of which image, and of which files of the host."""
    files = [_stamp(bind.source, is_searched=bind.at in edits.folders) for bind in edits.binds]
    said = (_VERSION, ready.record, ready.layers, edits.binds, edits.links, edits.folders,
            files, _stamp(ldconfig, is_searched=False) if ldconfig else None)  # fmt: skip
    return f"sha256:{hashlib.sha256(msgspec.json.encode(said)).hexdigest()}"


def _stamp(path: str, *, is_searched: bool) -> tuple[int, ...] | None:
    """Return what tells a file from what was there before.

    Sockets and folders change as they are used, and with them a layer for each start would
    come; only in those in which the linker looks it matters what there is.
    """
    try:
        state = Path(path).stat()
    except OSError:
        return None
    kind = stat.S_IFMT(state.st_mode)
    if kind == stat.S_IFREG or is_searched:
        return kind, state.st_ino, state.st_size, state.st_mtime_ns
    return (kind,)


def _ldconfig() -> str:
    """Return a program that makes the linker's cache in any root; '' where there is none.

    It has to bring all it needs: in an image its interpreter would be the image's.
    """
    for name in _LDCONFIG:
        path = shutil.which(name)
        if path is not None and not _has_interpreter(path):
            return os.path.realpath(path)
    return ""


def _has_interpreter(path: str) -> bool:
    with Path(path).open("rb") as file:
        head = file.read(_STATIC_HEAD)
    return not head.startswith(b"\x7fELF") or b"ld-linux" in head or b"ld64.so" in head

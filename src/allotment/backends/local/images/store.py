"""The images that this machine keeps: what is whole, what is in use, what goes first.

    images/layers/NAME       a layer, unpacked; there only once it is whole
    images/known/NAME.json   what it is, how large, and from which registries it came
    images/made/NAME.json    an image of one repository: locked while a task uses it; its time
                             is when it was used last
    images/made/NAME.users   who used it: for others it is not there
    images/new/              what is being made; emptied at the start

All is the service's alone. One service at a time has a state folder, so it is the only
writer; supervisors hold images, and may outlive it.
"""

import contextlib
import fcntl
import hashlib
import os
import threading
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from allotment.model.image_names import Reference
from allotment.rights.clearing import clear, remove_all
from allotment.rights.flushing import flush

FOLDER: Final = "images"
_NAME_LETTERS: Final = 24
"""Of a layer's digest: options of a mount have one page for all of them."""


class Layer(msgspec.Struct, frozen=True):
    """An unpacked layer. `sources` are pairs: a registry, and the digest it has there."""

    diff_id: str
    bytes: int
    files: int
    sources: tuple[tuple[str, str], ...]
    made_for: str = ""
    """The record of the image above which it lies, and with which it goes; '' for none."""


class Image(msgspec.Struct, frozen=True):
    """An image that is whole. `layers` are the digests of what it is unpacked, topmost last."""

    reference: str
    """With tag and digest, as it was asked for first."""
    place: str
    digest: str
    layers: tuple[str, ...]
    env: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    workdir: str = ""


def layer_name(diff_id: str) -> str:
    """Name the folder of a layer."""
    return diff_id.removeprefix("sha256:")[:_NAME_LETTERS]


def layer_names(image: Image) -> tuple[str, ...]:
    """Name the folders of an image's layers, topmost first."""
    return tuple(layer_name(each) for each in dict.fromkeys(reversed(image.layers)))


def image_name(reference: Reference) -> str:
    """Name the record of an image: the same bytes from another repository are another."""
    return hashlib.sha256(reference.exact.encode()).hexdigest()[:32]


class Store:
    """The store of a state folder. Calls may come from several threads."""

    def __init__(self, state_dir: Path) -> None:
        self._root = state_dir / FOLDER
        self._turn = threading.RLock()
        self._pinned: Counter[str] = Counter()
        """Layers that images being made rely on."""

    @property
    def folder(self) -> Path:
        """Return where it lies."""
        return self._root

    def prepare(self) -> None:
        """Make the folders; throw away what a service that was killed was making."""
        for name in ("", "layers", "known", "made", "new"):
            (self._root / name).mkdir(mode=0o700, exist_ok=True)
        for path in (self._root / "layers").iterdir():
            if not self._known(path.name).exists():
                self._put_aside(path)
        clear(self._root / "new")

    # ── images ──────────────────────────────────────────────────────────────────────

    def image(self, reference: Reference) -> Image | None:
        """Return an image that is whole; None where it is not."""
        return self._read_image(self._made(image_name(reference)))

    def hold(self, reference: Reference) -> int | None:
        """Keep an image while the descriptor is open; None where it is not there."""
        path = self._made(image_name(reference))
        with self._turn:
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            fcntl.flock(fd, fcntl.LOCK_SH)
            os.utime(fd)
        return fd

    def images(self) -> list[tuple[Image, float]]:
        """List the images that are whole, with when they were used last; newest first."""
        found: list[tuple[Image, float]] = []
        for path in (self._root / "made").glob("*.json"):
            with contextlib.suppress(FileNotFoundError):
                when = path.stat().st_mtime
                if (image := self._read_image(path)) is not None:
                    found.append((image, when))
        return sorted(found, key=lambda pair: -pair[1])

    def keep(self, reference: Reference, image: Image) -> None:
        """Add an image, all of whose layers are there."""
        path = self._made(image_name(reference))
        self._write(path, msgspec.json.encode(image))

    def note_user(self, reference: Reference, uid: int) -> None:
        """Remember that a user has used an image."""
        path = self._made(image_name(reference)).with_suffix(".users")
        with self._turn:
            if str(uid) not in self._users(path):
                with path.open("a") as file:
                    file.write(f"{uid}\n")

    def is_known_to(self, image: Image, uid: int) -> bool:
        """Whether a user has used an image."""
        path = self._made(_name_of(image)).with_suffix(".users")
        return str(uid) in self._users(path)

    def is_in_use(self, image: Image) -> bool:
        """Whether a task uses an image, or is about to."""
        try:
            fd = os.open(self._made(_name_of(image)), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def remove(self, image: Image) -> bool:
        """Remove an image, and the layers nothing else needs; False where it is in use."""
        with self._turn:
            is_gone = self._forget(image)
            aside = self._drop_unneeded()
        remove_all(aside)
        return is_gone

    def make_room(self, limit: int) -> bool:
        """Remove what was used least recently until the rest is within a limit.

        False where what is in use is more than that.
        """
        aside: list[Path] = []
        with self._turn:
            for image, _ in reversed(self.images()):
                if self.used() <= limit:
                    break
                self._forget(image)
                aside += self._drop_unneeded()
            aside += self._drop_unneeded()
            is_enough = self.used() <= limit
        remove_all(aside)
        return is_enough

    # ── layers ──────────────────────────────────────────────────────────────────────

    def layer(self, diff_id: str) -> Layer | None:
        """Return what is known of a layer that is whole."""
        try:
            found = msgspec.json.decode(
                self._known(layer_name(diff_id)).read_bytes(), type=Layer
            )
        except FileNotFoundError:
            return None
        return found if found.diff_id == diff_id else None

    def places(self, image: Image) -> list[Path]:
        """Return the folders of an image's layers, topmost first."""
        return [self._root / "layers" / name for name in layer_names(image)]

    def layers(self) -> list[Layer]:
        """List the layers that are whole."""
        found: list[Layer] = []
        for path in (self._root / "known").glob("*.json"):
            with contextlib.suppress(FileNotFoundError):
                found.append(msgspec.json.decode(path.read_bytes(), type=Layer))
        return found

    def used(self) -> int:
        """Add up the layers."""
        return sum(layer.bytes for layer in self.layers())

    @contextlib.contextmanager
    def pinned(self, diff_ids: Sequence[str]) -> Generator[None]:
        """Keep layers that an image will be made of."""
        names = [layer_name(diff_id) for diff_id in diff_ids]
        with self._turn:
            self._pinned.update(names)
        try:
            yield
        finally:
            with self._turn:
                self._pinned.subtract(names)
                self._pinned += Counter()

    def new_folder(self) -> Path:
        """Make a folder in which something is made."""
        path = self._root / "new" / os.urandom(8).hex()
        path.mkdir(mode=0o755)
        return path

    def keep_layer(self, folder: Path, layer: Layer) -> None:
        """Put a whole layer in its place; what is there of it already stays."""
        name = layer_name(layer.diff_id)
        with self._turn:
            before = self.layer(layer.diff_id)
            if before is not None:
                sources = tuple(dict.fromkeys((*before.sources, *layer.sources)))
                layer = msgspec.structs.replace(before, sources=sources)
            else:
                folder.chmod(0o755)
                folder.rename(self._root / "layers" / name)
            self._write(self._known(name), msgspec.json.encode(layer))

    def sync(self) -> None:
        """Have all that was written on the disk, before a record says that it is there."""
        flush(self._root)

    # ── parts ───────────────────────────────────────────────────────────────────────

    def _forget(self, image: Image) -> bool:
        """Remove the record of an image; False where it is in use."""
        path = self._made(_name_of(image))
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        except BlockingIOError:
            return False
        finally:
            os.close(fd)
        path.with_suffix(".users").unlink(missing_ok=True)
        return True

    def _drop_unneeded(self) -> list[Path]:
        """Take the layers nothing needs from the store; return what is to be deleted."""
        needed = {layer_name(each) for image, _ in self.images() for each in image.layers}
        for layer in self.layers():
            if layer.made_for and self._made(layer.made_for).exists():
                needed.add(layer_name(layer.diff_id))
        aside: list[Path] = []
        for path in (self._root / "known").glob("*.json"):
            if path.stem not in needed and path.stem not in self._pinned:
                path.unlink(missing_ok=True)
                aside += self._put_aside(self._root / "layers" / path.stem)
        return aside

    def _put_aside(self, path: Path) -> list[Path]:
        """Take a layer from its place at once, so that half of it is never used."""
        aside = self._root / "new" / os.urandom(8).hex()
        with contextlib.suppress(FileNotFoundError):
            path.rename(aside)
            return [aside]
        return []

    def _made(self, name: str) -> Path:
        return self._root / "made" / f"{name}.json"

    def _known(self, name: str) -> Path:
        return self._root / "known" / f"{name}.json"

    def _read_image(self, path: Path) -> Image | None:
        try:
            image = msgspec.json.decode(path.read_bytes(), type=Image)
        except FileNotFoundError:
            return None
        return image if all(self.layer(each) is not None for each in image.layers) else None

    def _users(self, path: Path) -> list[str]:
        try:
            return path.read_text().split()
        except FileNotFoundError:
            return []

    def _write(self, path: Path, data: bytes) -> None:
        fresh = self._root / "new" / os.urandom(8).hex()
        fresh.write_bytes(data)
        fresh.chmod(0o600)
        fresh.replace(path)


def _name_of(image: Image) -> str:
    return hashlib.sha256(f"{image.place}@{image.digest}".encode()).hexdigest()[:32]

"""Fetches an image: each layer goes from the registry into the process that unpacks it.

Nothing is kept in between. What a layer is called by is checked on both sides: its digest as it
comes, and what it is unpacked. Only then does it get its place. Blocks; for threads.
"""

import contextlib
import hashlib
import shutil
import subprocess
import threading
import time
from collections import deque
from http.client import HTTPException
from pathlib import Path
from typing import Final

import msgspec

from allotment.backends.local.images.manifest import (
    Config,
    Descriptor,
    Manifest,
    Wishes,
    choose,
    config_from,
    manifest_from,
)
from allotment.backends.local.images.registry import Registry
from allotment.backends.local.images.store import Image, Layer, Store
from allotment.backends.local.images.trouble import PASSING, ImageTrouble, Kind
from allotment.model.image_names import Reference
from allotment.model.quantity import show_bytes
from allotment.rights.removing import remove
from allotment.service.isolated import PLAIN, isolated

UNPACK: Final = "allotment.backends.local.images.unpack"
ZSTD: Final = "zstd"
"""How the kind of a layer ends that is packed so; all that is kept of a kind."""
LANES: Final = 2
"""Layers of an image that come at a time."""
MOST_FILES: Final = 1_000_000
"""Of one layer."""
_PIECE: Final = 1 << 18
_TRIES: Final = 4
_FIRST_PAUSE_S: Final = 0.5
_LEFT_FREE: Final = 20
"""One part in so many of the disk stays free, whatever the limit of the store."""


class Stopped(Exception):
    """Nobody wants it any more."""


class Later(Exception):
    """There may be room for a layer once no other comes."""


class Found(msgspec.Struct, frozen=True):
    """What a registry has under a digest."""

    reference: Reference
    manifest: Manifest
    config: Config

    @property
    def download(self) -> int:
        """Return how many bytes its layers are as they come."""
        return sum(layer.size for layer in self.manifest.layers)

    @property
    def pairs(self) -> list[tuple[Descriptor, str]]:
        """Return its layers, topmost last: as they come, and what they are unpacked."""
        return list(zip(self.manifest.layers, self.config.rootfs.diff_ids, strict=True))


def look(registry: Registry, digest: str) -> Found:
    """Ask what is under a digest. Raises ImageTrouble, also where it cannot run here."""
    name = str(registry.reference)
    manifest = manifest_from(registry.manifest(digest), name)
    if manifest.manifests:
        manifest = manifest_from(registry.manifest(choose(manifest, name)), name)
    if manifest.config is None:
        raise ImageTrouble(Kind.BROKEN, f"The manifest of {name} has no configuration.")
    config = config_from(registry.small_blob(manifest.config.digest), manifest, name)
    layers = tuple(
        Descriptor(layer.digest, layer.size, ZSTD if layer.media_type.endswith(ZSTD) else "")
        for layer in manifest.layers
    )
    return Found(registry.reference.at(digest), Manifest(layers=layers), config)


class _Told(msgspec.Struct, frozen=True):
    """What the process that unpacks says at its end."""

    bytes: int = 0
    files: int = 0
    bad: str = ""
    cut: bool = False
    large: bool = False
    full: str = ""


class Fetch:
    """Fetches one image. `stop` is set by whoever wants it no more."""

    def __init__(self, store: Store, registry: Registry, found: Found, limit: int) -> None:
        self._store = store
        self._registry = registry
        self._found = found
        self._limit = limit
        self.stop = threading.Event()
        self.last_byte_at = time.time()
        self.came = 0
        """Bytes of layers so far; those of a layer that is fetched again count once more."""
        self._turn = threading.Lock()
        self._used = 0
        """Bytes of the layers that are whole."""
        self._promised: dict[str, int] = {}
        """Bytes that layers may have that come just now."""
        self._ahead: deque[tuple[str, Descriptor]] = deque()
        """Layers that have to come."""

    def run(self) -> None:
        """Fetch what is not there yet, and keep the image. Raises ImageTrouble or Stopped."""
        diff_ids = self._found.config.rootfs.diff_ids
        with self._store.pinned(diff_ids):
            made: list[tuple[Path, Layer]] = []
            try:
                self._layers(made)
                self.last_byte_at = time.time()
                self._store.sync()
                for folder, layer in made:
                    self._store.keep_layer(folder, layer)
            except OSError as error:
                why = error.strerror or str(error)
                raise ImageTrouble(
                    Kind.NO_ROOM, f"The store of images cannot be written: {why}."
                ) from error
            finally:
                for folder, _ in made:
                    if folder.exists():
                        remove(None, str(folder))
            self._store.keep(self._found.reference, self._image())
        self._store.make_room(self._limit)

    def _image(self) -> Image:
        wishes = self._found.config.config or Wishes()
        reference = self._found.reference
        return Image(
            reference=str(reference),
            place=reference.place,
            digest=reference.digest,
            layers=self._found.config.rootfs.diff_ids,
            env=wishes.env or (),
            entrypoint=wishes.entrypoint or (),
            cmd=wishes.cmd or (),
            workdir=wishes.workdir or "",
        )

    # ── all layers ──────────────────────────────────────────────────────────────────

    def _layers(self, made: list[tuple[Path, Layer]]) -> None:
        """See that all layers are there, or made; some of them come at the same time."""
        missing = self._missing().items()
        self._ahead.extend(sorted(missing, key=lambda each: -each[1].size))
        alone: list[tuple[str, Descriptor]] = []
        failed: list[BaseException] = []

        def work() -> None:
            try:
                while self._ahead and not failed:
                    self._next(made, alone)
            except BaseException as error:  # told below
                failed.append(error)
                self.stop.set()

        others = [threading.Thread(target=work) for _ in self._ahead][1:LANES]
        for thread in others:
            thread.start()
        work()
        for thread in others:
            thread.join()
        if failed:
            raise failed[0]
        made += [self._fetched(*each) for each in alone]

    def _missing(self) -> dict[str, Descriptor]:
        """Return the layers that have to come; each once, whatever it comes as."""
        missing = {diff_id: descriptor for descriptor, diff_id in reversed(self._found.pairs)}
        for diff_id, descriptor in list(missing.items()):
            known = self._store.layer(diff_id)
            if known is not None and self._may_share(known, descriptor):
                self._used += known.bytes
                del missing[diff_id]
        return missing

    def _next(
        self, made: list[tuple[Path, Layer]], alone: list[tuple[str, Descriptor]]
    ) -> None:
        """Fetch the layer whose turn it is; put one `alone` that needs all the room."""
        try:
            each = self._ahead.popleft()
        except IndexError:  # another was quicker
            return
        try:
            made.append(self._fetched(*each))
        except Later:
            alone.append(each)

    def _promise(self, diff_id: str, descriptor: Descriptor) -> tuple[int, Exception]:
        """Return how large a layer may be, and what is raised where it is larger.

        Layers that come at the same time have no more room together than one alone. Raises
        ImageTrouble, and Later.
        """
        disk = shutil.disk_usage(self._store.folder)
        most = min(self._limit - self._used, disk.free - disk.total // _LEFT_FREE)
        if most <= 0:
            raise ImageTrouble(
                Kind.NO_ROOM,
                f"There is no room for {self._found.reference}: the disk has "
                f"{show_bytes(disk.free)} free, the store may have {show_bytes(self._limit)}.",
            )
        lanes = min(LANES - len(self._promised), 1 + len(self._ahead))
        mine = (most - sum(self._promised.values())) // lanes
        if mine <= 0:
            raise Later
        self._promised[diff_id] = mine
        if mine < most:
            return mine, Later()
        return mine, ImageTrouble(
            Kind.UNFIT if most == self._limit - self._used else Kind.NO_ROOM,
            f"{self._found.reference} is larger than there is room for: the store may have "
            f"{show_bytes(self._limit)}, and {show_bytes(most)} were left for its layer "
            f"{descriptor.digest[:19]}…",
            "Take a smaller image, or have `limits.image_store` raised.",
        )

    # ── one layer ───────────────────────────────────────────────────────────────────

    def _may_share(self, known: Layer, descriptor: Descriptor) -> bool:
        """Whether a layer that is there is this user's to see.

        To know its digest proves nothing. It came from this registry before, which says now
        that it is in this user's repository, too; else it is fetched again.
        """
        source = (self._registry.reference.registry, descriptor.digest)
        return source in known.sources and self._registry.has_blob(descriptor.digest)

    def _fetched(self, diff_id: str, descriptor: Descriptor) -> tuple[Path, Layer]:
        """Fetch a layer; again where that may help. Raises ImageTrouble or Stopped.

        Raises Later where it is larger than one of several that come may be.
        """
        pause_s = _FIRST_PAUSE_S
        for tries_left in reversed(range(_TRIES)):
            folder = self._store.new_folder()
            try:
                return folder, self._unpacked(folder, diff_id, descriptor)
            except ImageTrouble as trouble:
                remove(None, str(folder))
                if trouble.kind not in PASSING or not tries_left:
                    raise
                if trouble.kind is Kind.NO_ROOM:
                    self._store.make_room(0)
            except BaseException:
                remove(None, str(folder))
                raise
            if self.stop.wait(pause_s):
                raise Stopped
            pause_s *= 2
        raise AssertionError("the last try returns or raises")

    def _unpacked(self, folder: Path, diff_id: str, descriptor: Descriptor) -> Layer:
        with self._turn:
            most, beyond = self._promise(diff_id, descriptor)
        size = 0
        try:
            told = self._told(folder, descriptor, diff_id, most)
            found = self._judged(told, descriptor, beyond)
            size = found.bytes
        finally:
            with self._turn:
                del self._promised[diff_id]
                self._used += size
        source = (self._registry.reference.registry, descriptor.digest)
        return Layer(diff_id, found.bytes, found.files, (source,))

    def _told(self, folder: Path, descriptor: Descriptor, diff_id: str, most: int) -> bytes:
        """Return what the process says at its end that unpacks a layer."""
        words = isolated(
            UNPACK,
            str(folder),
            diff_id,
            str(most),
            str(MOST_FILES),
            bare=descriptor.media_type != ZSTD,
        )
        with subprocess.Popen(
            words,
            env=PLAIN,
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as child:
            try:
                self._feed(child, descriptor)
                return child.stdout.read() if child.stdout is not None else b""
            finally:
                child.kill()

    def _feed(self, child: "subprocess.Popen[bytes]", descriptor: Descriptor) -> None:
        """Hand a layer on as it comes, and check that it is the one that was meant."""
        assert child.stdin is not None
        count, digest = 0, hashlib.sha256()
        with self._registry.blob(descriptor.digest) as answer:
            while True:
                if self.stop.is_set():
                    raise Stopped
                try:
                    piece = answer.read1(_PIECE)
                except (OSError, HTTPException, ValueError) as error:
                    raise self._registry.away(error) from error
                if not piece:
                    break
                count += len(piece)
                with self._turn:
                    self.came += len(piece)
                digest.update(piece)
                if count > descriptor.size:
                    break
                try:
                    child.stdin.write(piece)
                except BrokenPipeError:
                    return  # it has said why
        if count < descriptor.size:
            raise self._registry.away(EOFError("it stopped in the middle of a layer"))
        if f"sha256:{digest.hexdigest()}" != descriptor.digest:
            raise self._broken(descriptor, "is not what its digest says")
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()

    def _judged(self, told: bytes, descriptor: Descriptor, beyond: Exception) -> _Told:
        try:
            found = msgspec.json.decode(told, type=_Told)
        except msgspec.DecodeError as error:
            raise ImageTrouble(
                Kind.KILLED,
                f"The process that unpacks {self._found.reference} was killed before it ended.",
            ) from error
        if found.full:
            raise ImageTrouble(
                Kind.NO_ROOM, f"The disk is full while {self._found.reference} is unpacked."
            )
        if found.cut:
            raise self._broken(descriptor, "ends in the middle")
        if found.large:
            raise beyond
        if found.bad:
            raise self._broken(descriptor, f"is not unpacked: {found.bad}")
        return found

    def _broken(self, descriptor: Descriptor, why: str) -> ImageTrouble:
        return ImageTrouble(
            Kind.BROKEN, f"{self._found.reference}: layer {descriptor.digest[:19]}… {why}."
        )

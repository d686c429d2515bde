"""What a registry says of an image: its manifest and its configuration, checked. Pure."""

import os
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from allotment.backends.local.images.trouble import ImageTrouble, Kind

Digest = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}$")]
Size = Annotated[int, Meta(ge=0, le=2**53)]
Words = Annotated[tuple[str, ...], Meta(max_length=1000)]
Folder = Annotated[str, Meta(max_length=1000, pattern=r"^([^/]*/){0,150}[^/]*$")]
MOST_LAYERS: Final = 120
"""The kernel takes the options of a mount in one page."""
MOST_WORDS: Final = 128 << 10
"""Bytes of its variables, entry point and command together: what a program may be given."""
_SHOWN: Final = 200
ACCEPTED: Final = ", ".join((
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
))  # fmt: skip
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le"}


class Platform(msgspec.Struct, frozen=True):
    """For what an image of several was built."""

    architecture: str = ""
    os: str = ""


class Descriptor(msgspec.Struct, frozen=True, rename="camel"):
    """A thing in the registry."""

    digest: Digest
    size: Size = 0
    media_type: str = ""
    platform: Platform | None = None


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """An image; or, with `manifests`, a choice of images for several kinds of machines."""

    config: Descriptor | None = None
    layers: tuple[Descriptor, ...] = ()
    manifests: tuple[Descriptor, ...] = ()


class Wishes(msgspec.Struct, frozen=True):
    """How an image wants to be run."""

    env: Words | None = msgspec.field(default=None, name="Env")
    entrypoint: Words | None = msgspec.field(default=None, name="Entrypoint")
    cmd: Words | None = msgspec.field(default=None, name="Cmd")
    workdir: Folder | None = msgspec.field(default=None, name="WorkingDir")


class RootFs(msgspec.Struct, frozen=True):
    """What its layers are, unpacked."""

    diff_ids: tuple[Digest, ...] = ()


class Config(msgspec.Struct, frozen=True):
    """The configuration of an image."""

    architecture: str = ""
    os: str = "linux"
    config: Wishes | None = None
    rootfs: RootFs = RootFs()


def manifest_from(data: bytes, name: str) -> Manifest:
    """Read a manifest. Raises ImageTrouble."""
    try:
        return msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ImageTrouble(
            Kind.BROKEN,
            f"What the registry has of {name} is not a manifest of a known kind: {error}.",
        ) from error


def choose(manifest: Manifest, name: str) -> str:
    """Return the digest of the image for this kind of machine. Raises ImageTrouble."""
    here = architecture()
    others: list[str] = []
    for entry in manifest.manifests:
        platform = entry.platform or Platform()
        if (platform.os, platform.architecture) == ("linux", here):
            return entry.digest
        if platform.os != "unknown":
            others.append(f"{platform.os}/{platform.architecture}")
    raise _other(name, ", ".join(others) or "nothing")


def config_from(data: bytes, manifest: Manifest, name: str) -> Config:
    """Read the configuration of an image, and check it. Raises ImageTrouble."""
    try:
        found = msgspec.json.decode(data, type=Config)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ImageTrouble(
            Kind.BROKEN, f"The configuration of {name} cannot be read: {error}."
        ) from error
    if found.os != "linux" or found.architecture != architecture():
        raise _other(name, f"{found.os}/{found.architecture}")
    count = len(manifest.layers)
    if count != len(found.rootfs.diff_ids):
        raise ImageTrouble(
            Kind.BROKEN,
            f"{name} lists {count} layers in its manifest, and {len(found.rootfs.diff_ids)} in "
            "its configuration.",
        )
    if not 0 < count <= MOST_LAYERS:
        raise ImageTrouble(
            Kind.UNFIT,
            f"{name} has {count} layers, and 1 to {MOST_LAYERS} can be mounted.",
            "Build it with fewer steps.",
        )
    if found.config is not None:
        _check_size(found.config, name)
    for layer in manifest.layers:
        kind = layer.media_type
        if kind.endswith("encrypted") or "foreign" in kind or "nondistrib" in kind:
            raise ImageTrouble(
                Kind.UNFIT,
                f"{name} has a layer of a kind that is not unpacked here: {kind[:_SHOWN]}.",
                "Push it with its layers plain, or packed with gzip or zstd.",
            )
    return Config(config=found.config, rootfs=found.rootfs)


def _check_size(wishes: Wishes, name: str) -> None:
    """Refuse what no program could be given; all of it is kept in memory."""
    words = (*(wishes.env or ()), *(wishes.entrypoint or ()), *(wishes.cmd or ()))
    if sum(len(word.encode(errors="replace")) + 1 for word in words) > MOST_WORDS:
        raise ImageTrouble(
            Kind.UNFIT,
            f"{name} has more than {MOST_WORDS >> 10} KiB of variables and commands.",
        )
    if any("\0" in word for word in words):
        raise ImageTrouble(
            Kind.BROKEN, f"{name} has a NUL in a variable or a command, which ends it."
        )


def _other(name: str, built_for: str) -> ImageTrouble:
    return ImageTrouble(
        Kind.UNFIT,
        f"{name} is built for {built_for[:_SHOWN]}; this machine is linux/{architecture()}.",
    )


def architecture() -> str:
    """Name this machine's kind as images do."""
    machine = os.uname().machine
    return ARCHITECTURES.get(machine, machine)

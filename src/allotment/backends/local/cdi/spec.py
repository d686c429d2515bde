"""A CDI specification: what a container needs besides the files of its devices. Pure.

https://github.com/cncf-tags/container-device-interface, SPEC.md, versions 0.3 to 0.8. What is
not understood makes the whole file unusable, as the specification demands: a part of what a
driver needs is worse than nothing. Of hooks, those are understood that every vendor's generator
writes; they are carried out by us, and no program that a file names is ever run.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Final

import msgspec
from msgspec import Meta

_VERSIONS: Final = ("0.3.", "0.4.", "0.5.", "0.6.", "0.7.", "0.8.")
_MOST: Final = 4096
Text = Annotated[str, Meta(max_length=_MOST, pattern=r"\A[^\0\n]*\Z")]
Path = Annotated[str, Meta(max_length=_MOST, pattern=r"\A/[^\0\n]*\Z")]
Id = Annotated[int, Meta(ge=0, le=2**32 - 2)]


class BadSpec(Exception):
    """The file is not to be used; the text says why."""


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    pass


class DeviceNode(_Strict, frozen=True):
    """A device file. What it is like is as on the host."""

    path: Path
    host_path: str = ""
    type: str = ""
    major: int = -1
    minor: int = -1
    file_mode: int = 0
    permissions: str = ""
    uid: int = 0
    gid: int = 0


class SpecMount(_Strict, frozen=True):
    """A file or folder of the host, and where it is to be."""

    host_path: Path
    container_path: Path
    type: str = ""
    options: tuple[Text, ...] = ()


class Hook(_Strict, frozen=True):
    """A program that an OCI runtime would run."""

    hook_name: str
    path: Path
    args: tuple[Text, ...] = ()
    env: tuple[Text, ...] = ()
    timeout: int | None = None


class ContainerEdits(_Strict, frozen=True):
    """What is changed of a container."""

    env: tuple[Text, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[SpecMount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    additional_gids: tuple[Id, ...] = msgspec.field(name="additionalGids", default=())


class SpecDevice(_Strict, frozen=True):
    """A device that has a name, and what it needs."""

    name: Text
    container_edits: ContainerEdits
    annotations: dict[str, str] = {}


class Spec(_Strict, frozen=True):
    """A file. `container_edits` are for each container with any of its devices."""

    cdi_version: str
    kind: Text
    devices: tuple[SpecDevice, ...]
    container_edits: ContainerEdits = ContainerEdits()
    annotations: dict[str, str] = {}


class Bind(msgspec.Struct, frozen=True):
    """What is mounted for a task: a path of the host, at a path in the image."""

    source: str
    at: str
    write: bool


class Edits(msgspec.Struct, frozen=True):
    """What a task's devices need in its image."""

    env: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    binds: tuple[Bind, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    """What links lead to, and where they are made."""
    folders: tuple[str, ...] = ()
    """In which the linker is to find libraries."""
    gids: tuple[int, ...] = ()
    undone: tuple[str, ...] = ()
    """Hooks that are not carried out."""


def spec_of(plain: object) -> Spec:
    """Read what a file says. Raises BadSpec."""
    try:
        spec = msgspec.convert(plain, Spec)
    except msgspec.ValidationError as error:
        raise BadSpec(str(error)) from error
    if not spec.cdi_version.startswith(_VERSIONS):
        raise BadSpec(f"version {spec.cdi_version[:20]} of CDI is not understood")
    for edits in (spec.container_edits, *(device.container_edits for device in spec.devices)):
        for trouble in _troubles(edits):
            raise BadSpec(trouble)
    return spec


def _troubles(edits: ContainerEdits) -> Iterator[str]:
    for node in edits.device_nodes:
        if node.host_path not in ("", node.path) or not node.path.startswith("/dev/"):
            yield f"device node {node.path} is not at its path on the host, in /dev"
        if ".." in node.path.split("/"):
            yield f"device node {node.path} has `..` in its path"
        if node.permissions not in ("", "rw", "rwm"):
            yield f"device node {node.path} wants permissions {node.permissions[:20]}"
    for mount in edits.mounts:
        if mount.type not in ("", "none", "bind"):
            yield f"mount {mount.container_path} is of type {mount.type[:20]}"
        if _is_systems(mount.container_path):
            yield f"mount {mount.container_path} lies where every task has its own"
    for variable in edits.env:
        if variable.find("=") < 1:
            yield f"env: {variable[:80]} is not a variable with a value"


def _is_systems(path: str) -> bool:
    parts = [part for part in path.split("/") if part]
    return not parts or ".." in parts or parts[0] in ("proc", "sys", "dev")


def device_of(specs: Sequence[Spec], file: str) -> tuple[Spec, SpecDevice] | None:
    """Return the device whose file this is, of the first specification that has one.

    One that stands for several (`all`) has more files than one that is alone.
    """
    for spec in specs:
        found = [
            device
            for device in spec.devices
            if any(node.path == file for node in device.container_edits.device_nodes)
        ]
        if found:
            key = min(
                found, key=lambda each: (len(each.container_edits.device_nodes), each.name)
            )
            return spec, key
    return None


def edits_of(specs: Sequence[Spec], files: Sequence[str]) -> Edits | None:
    """Return what devices need, named by their files; None where no specification has one."""
    chosen = [pair for file in files if (pair := device_of(specs, file)) is not None]
    if not chosen:
        return None
    used: list[ContainerEdits] = []
    for spec, device in chosen:
        if spec.container_edits not in used:
            used.append(spec.container_edits)
        used.append(device.container_edits)
    return merged(used)


def merged(used: Sequence[ContainerEdits]) -> Edits:
    """Put edits together; of two variables of one name the later holds."""
    env = dict(word.split("=", 1) for edits in used for word in edits.env)
    hooks = [hook for edits in used for hook in edits.hooks]
    links: list[tuple[str, str]] = []
    folders: list[str] = []
    undone: list[str] = []
    for hook in hooks:
        verb, *words = _words(hook) or [hook.path]
        if verb == "create-symlinks":
            links += [pair for word in _given(words, "--link") if (pair := _link(word))]
        elif verb == "update-ldcache":
            folders += [each for each in _given(words, "--folder") if not _is_systems(each)]
        else:
            undone.append(verb)
    return Edits(
        tuple(f"{name}={value}" for name, value in env.items()),
        _each(node.path for edits in used for node in edits.device_nodes),
        tuple({bind.at: bind for edits in used for bind in _binds(edits)}.values()),
        tuple(dict.fromkeys(links)),
        _each(folders),
        tuple(dict.fromkeys(gid for edits in used for gid in edits.additional_gids if gid)),
        _each(undone),
    )


def _each(words: Iterator[str] | Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))


def _binds(edits: ContainerEdits) -> list[Bind]:
    return [
        Bind(mount.host_path, mount.container_path, "ro" not in mount.options)
        for mount in edits.mounts
    ]


def _words(hook: Hook) -> list[str]:
    """Return what a hook is told: `nvidia-cdi-hook VERB …`, `nvidia-ctk hook VERB …`."""
    words = list(hook.args[1:])
    return words[1:] if words[:1] == ["hook"] else words


def _given(words: Sequence[str], name: str) -> list[str]:
    """Return the values of an option that may be given several times, in their order."""
    found: list[str] = []
    for before, word in pairwise(("", *words)):
        if before == name:
            found.append(word)
        elif word.startswith(f"{name}="):
            found.append(word.removeprefix(f"{name}="))
    return found


def _link(word: str) -> tuple[str, str] | None:
    """Read `TARGET::LINK`; None for a link where every task has its own files."""
    target, _, link = word.partition("::")
    if not target or not link.startswith("/") or _is_systems(link):
        return None
    return target, link

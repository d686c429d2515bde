"""Names of images: `registry/name:tag@digest`, as they are written everywhere."""

import ipaddress
import re
from typing import Final

import msgspec

HUB: Final = "docker.io"
_HUB_HOST: Final = "registry-1.docker.io"
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_REGISTRY: Final = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[::1\])(?::(\d{{1,5}}))?")
_LAST_PORT: Final = 65535
_REPOSITORY: Final = re.compile(r"[a-z0-9]+(?:(?:\.|__?|-+|/)[a-z0-9]+)*")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST: Final = 512


class BadReference(ValueError):
    """A name that no image can have; the text says why."""


class Reference(msgspec.Struct, frozen=True):
    """An image in a registry. `digest` names its very bytes; '' where only a tag is known."""

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def place(self) -> str:
        """Return where it lies, whichever version."""
        return f"{self.registry}/{self.repository}"

    @property
    def wanted(self) -> str:
        """Return what to ask the registry for."""
        return self.digest or self.tag

    @property
    def exact(self) -> str:
        """Name its bytes, and where they lie."""
        return f"{self.place}@{self.digest}"

    @property
    def is_near(self) -> bool:
        """Whether its registry is on this machine: only there it may be without TLS."""
        host = self.registry.rpartition(":")[0] if ":" in self.registry else self.registry
        try:
            return ipaddress.ip_address(host.strip("[]")).is_loopback
        except ValueError:
            return host == "localhost"

    @property
    def base(self) -> str:
        """Return the address of its repository's API."""
        host = _HUB_HOST if self.registry == HUB else pinned(self.registry)
        return f"{'http' if self.is_near else 'https'}://{host}/v2/{self.repository}"

    def at(self, digest: str) -> "Reference":
        """Return the same name with a digest."""
        return msgspec.structs.replace(self, digest=digest)

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.place}{tag}{digest}"


def pinned(place: str) -> str:
    """Return a host with its port; `localhost` as the one address that is meant by it."""
    host, colon, port = place.partition(":")
    return f"127.0.0.1{colon}{port}" if host.lower() == "localhost" else place


def has_registry(name: str) -> bool:
    """Whether what stands before the first slash of a name is a registry."""
    first, slash, _ = name.partition("/")
    return bool(slash) and (first == "localhost" or any(mark in first for mark in ".:"))


def parse(text: str) -> Reference:
    """Read a name. Without a registry it is Docker's; without a tag, `latest`.

    Raises BadReference.
    """
    if len(text) > _LONGEST:
        raise BadReference(f"is longer than {_LONGEST} characters")
    name, at, digest = text.partition("@")
    if at and not DIGEST.fullmatch(digest):
        raise BadReference(
            "has an @ that no digest follows: @sha256: and 64 hexadecimal digits"
        )
    registry, _, path = name.partition("/") if has_registry(name) else (HUB, "", name)
    path, colon, tag = path.partition(":")
    if registry == HUB and "/" not in path:
        path = f"library/{path}"
    written = _REGISTRY.fullmatch(registry)
    if not written or int(written[1] or 0) > _LAST_PORT:
        raise BadReference(f"has a registry that cannot be one: {registry}")
    if not _REPOSITORY.fullmatch(path):
        raise BadReference(
            "is not the name of an image: registry/name:tag, in lower-case letters"
        )
    if colon and not _TAG.fullmatch(tag):
        raise BadReference(f"has a tag that cannot be one: {tag}")
    return Reference(registry, path, tag or ("" if digest else "latest"), digest)

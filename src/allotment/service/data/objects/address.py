"""Where an object store may be, and connections to it that lead nowhere else.

A store is reached with TLS; without it only on this machine, and only where its address says
so. One elsewhere leads to no address of loopback, and to no special one, whatever its name
means by the time it is asked. The connection is made with its user's rights: rules of the host
that let only some users out of it hold for the service, too.
"""

import ipaddress
import re
import socket
import ssl
from functools import cache
from http.client import HTTPConnection
from typing import Any, Final
from urllib.parse import urlsplit

from allotment.rights.user import User, rights_of
from allotment.service.data.objects.trouble import Kind, StoreTrouble
from allotment.service.paced import PATIENCE_S, PlainConnection, SecureConnection

_LONGEST: Final = 512
_LAST_PORT: Final = 65535
_MOST_TRIED: Final = 4
"""Addresses of one name: it could have thousands, none of which answers."""
_OF_CLOUDS: Final = ipaddress.ip_network("fd00:ec2::/32")
"""Where a machine of Amazon's asks for its own keys, besides 169.254.169.254."""
_HOST: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9a-fA-F:.]+\]")


class BadAddress(ValueError):
    """An address that no store can have; the text says why."""


def checked(endpoint: str) -> str:
    """Return an address as it is kept: scheme, host, port. Raises BadAddress."""
    if len(endpoint) > _LONGEST or not endpoint.isascii():
        raise BadAddress("is not an address")
    try:
        parts = urlsplit(endpoint)
        port = parts.port
    except ValueError as error:
        raise BadAddress("is not an address") from error
    if parts.scheme not in {"http", "https"}:
        raise BadAddress("does not begin with https://")
    if "@" in parts.netloc:
        raise BadAddress("has a name or password in it: keys are in your own file")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise BadAddress("has more than a host and a port in it")
    host = parts.netloc.rpartition(":")[0] if port is not None else parts.netloc
    if not _HOST.fullmatch(host) or not (port is None or 0 < port <= _LAST_PORT):
        raise BadAddress("has no host, or no port, that can be one")
    if parts.scheme == "http" and not is_near(host):
        raise BadAddress("is without TLS, which only a store on this machine may be")
    return f"{parts.scheme}://{parts.netloc.lower()}"


def is_near(host: str) -> bool:
    """Whether a host says that it is this machine."""
    host = host.strip("[]").lower()
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def connection(endpoint: str, user: User | None) -> HTTPConnection:
    """Return a connection to a store, which is made when it is first used."""
    parts = urlsplit(endpoint)
    if parts.scheme == "http":
        made: HTTPConnection = PlainConnection(parts.netloc, timeout=PATIENCE_S)
    else:
        made = SecureConnection(parts.netloc, timeout=PATIENCE_S, context=_tls())

    def connect(to: tuple[str, int], *_: Any, **__: Any) -> socket.socket:
        return _connected(*to, user)

    made._create_connection = connect  # type: ignore[attr-defined]  # noqa: SLF001 - there is no other way to give it one
    return made


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _connected(host: str, port: int, user: User | None) -> socket.socket:
    """Connect to the first address of a host that answers. Raises OSError, StoreTrouble."""
    near, failed = is_near(host), OSError("it has no address")
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, address in found[:_MOST_TRIED]:
        if not _may_be(str(address[0]), near=near):
            what = "not this machine" if near else "this machine's own, or a special one"
            raise StoreTrouble(
                Kind.BROKEN, f"{host} leads to the address {address[0]}, which is {what}."
            )
        with rights_of(user):
            made = socket.socket(family, kind, protocol)
        try:
            made.settimeout(PATIENCE_S)
            made.connect(address)
        except OSError as error:
            made.close()
            failed = error
        else:
            return made
    raise failed


def _may_be(text: str, *, near: bool) -> bool:
    """Whether an address may be that of a store; `near` for one that says it is here.

    Of those that are special, none: among them is what tells machines of clouds their keys.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    address = mapped or address
    if near:
        return address.is_loopback
    return not (
        address in _OF_CLOUDS
        or address.is_loopback
        or address.is_unspecified
        or address.is_link_local
        or address.is_multicast
        or address.is_reserved
    )

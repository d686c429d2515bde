"""Whether a host is this machine, however it is written."""

import ipaddress
import socket
from typing import Final

_OF_THIS_MACHINE: Final = (
    "localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback",
)  # fmt: skip


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself, however it is written."""
    host = host.strip("[]").rstrip(".").lower()
    if host in _OF_THIS_MACHINE or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            address = ipaddress.ip_address(socket.inet_aton(host))  # 127.1
        except (OSError, ValueError):
            return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    address = mapped or address
    return address.is_loopback or address.is_unspecified

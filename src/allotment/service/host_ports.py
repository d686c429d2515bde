"""Asks this host whether a TCP port is free, before an attempt is told to use it."""

import socket


def port_is_free(port: int) -> bool:
    """Whether the port can be bound, as a rendezvous would do. Takes about ten microseconds."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("", port))
        except OSError:
            return False
    return True

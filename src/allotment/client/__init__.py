"""The Python client: what `allot` itself uses, and what a notebook or a script can.

    from allotment import Client

    with Client() as client:
        job = client.submit({"name": "hello", "command": "echo hello"})
        print(client.wait(job.id).state)

docs/guide/python.md has more.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from allotment.client.address import Address
    from allotment.client.client import Client
    from allotment.client.errors import ApiError, Refused, Unreachable, Unreadable
    from allotment.client.follow import LogLine
    from allotment.service.selector import Selector

__all__ = [
    "Address", "ApiError", "Client", "LogLine", "Refused", "Selector", "Unreachable",
    "Unreadable",
]  # fmt: skip

_WHERE = {
    "Address": "address", "Client": "client", "LogLine": "follow", "Selector": "request",
}  # fmt: skip


def __getattr__(name: str) -> object:
    """Import what is asked for, and not an HTTP client for whoever wants its errors only."""
    if name not in __all__:
        raise AttributeError(f"module 'allotment.client' has no attribute {name!r}")
    return getattr(import_module(f"allotment.client.{_WHERE.get(name, 'errors')}"), name)

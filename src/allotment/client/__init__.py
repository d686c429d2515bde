"""The Python client: what `allot` itself uses, and what a notebook or a script can.

    from allotment import Client

    with Client() as client:
        job = client.submit({"name": "hello", "command": "echo hello"})
        print(client.wait(job.id).state)

docs/guide/python.md has more.
"""

from allotment.client.address import Address
from allotment.client.client import Client
from allotment.client.errors import ApiError, Refused, Unreachable, Unreadable
from allotment.client.follow import LogLine

__all__ = ["Address", "ApiError", "Client", "LogLine", "Refused", "Unreachable", "Unreadable"]

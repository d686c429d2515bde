"""What a kubelet and drivers of devices speak: gRPC over sockets, and the few messages that
tests need of it, as protobuf has them."""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes import BUILD, WHY

PLACES = (BUILD / "python", Path("~/.cache/allotment-k8s-1.36/python").expanduser())
GRPC = next((place for place in PLACES if place.exists()), PLACES[0])
"""Where grpcio is, which nothing else needs."""
Calls = Mapping[str, Callable[[bytes], bytes]]
Streams = Mapping[str, Callable[[bytes], Iterator[bytes]]]


def skip_without_grpc() -> None:
    """Skip a test where a driver cannot speak with a kubelet."""
    if not (GRPC / "grpc").exists():
        pytest.skip(f"{WHY}; missing: pip install --target {GRPC} grpcio")


def grpc() -> Any:
    """Return the library that is found outside the checkout."""
    if str(GRPC) not in sys.path:
        sys.path.append(str(GRPC))
    return importlib.import_module("grpc")


def served(at: Path, service: str, calls: Calls, streams: Streams) -> Any:
    """Answer calls at a socket; return the server."""
    lib = grpc()
    handlers = {
        name: lib.unary_unary_rpc_method_handler(lambda asked, _, call=call: call(asked))
        for name, call in calls.items()
    }
    handlers |= {
        name: lib.unary_stream_rpc_method_handler(lambda asked, _, call=call: call(asked))
        for name, call in streams.items()
    }
    server = lib.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((lib.method_handlers_generic_handler(service, handlers),))
    server.add_insecure_port(f"unix://{at}")
    server.start()
    return server


def message(*words: bytes | str) -> bytes:
    """Return a message with these as its first fields."""
    return b"".join(field(number, word) for number, word in enumerate(words, 1))


def field(number: int, value: bytes | str) -> bytes:
    """Return a field of a message."""
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    said = bytearray()
    while value > 127:
        said.append(value & 127 | 128)
        value >>= 7
    return bytes([*said, value])


def fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield each field: its number, and its bytes, or those of a number."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        size = varint()
        if key & 7 == 0:
            yield key >> 3, bytes([size]).strip(b"\0")
            continue
        yield key >> 3, data[at : at + size]
        at += size

"""How long a service takes to answer while something goes on."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.cluster import RealCluster


@contextmanager
def answering(service: RealCluster, path: str = "/v1/jobs") -> Iterator[list[float]]:
    """Ask a service again and again; yield how many seconds each answer took."""
    took: list[float] = []
    ended = threading.Event()

    def ask() -> None:
        while not ended.wait(0.05):
            began = time.monotonic()
            service.get(path)
            took.append(time.monotonic() - began)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield took
    finally:
        ended.set()
        thread.join()

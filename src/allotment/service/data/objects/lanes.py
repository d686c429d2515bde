"""The same work over several connections to a store at a time."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from allotment.service.data.objects.bucket import Stopped

T = TypeVar("T")

LANES: Final = 4
"""For what is put. Of each connection at most a piece is in memory."""


def taken(left: "deque[T]") -> Iterator[T]:
    """Yield what is left, until nothing is; other threads take of the same."""
    while True:
        try:
            one = left.popleft()
        except IndexError:
            return
        yield one


def in_lanes(
    lanes: int, work: Callable[[Callable[[], bool]], None], is_wanted: Callable[[], bool]
) -> None:
    """Do work in several threads, each told by a function whether to go on.

    Where one fails the others stop, and what it raised is raised: of several errors the first
    that is not Stopped. Raises Stopped where it is not wanted any more.
    """
    failed: list[BaseException] = []

    def goes_on() -> bool:
        return not failed and is_wanted()

    def lane() -> None:
        try:
            work(goes_on)
        except BaseException as error:  # noqa: BLE001 - told below
            failed.append(error)

    threads = [threading.Thread(target=lane, name="lane", daemon=True) for _ in range(lanes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise next((each for each in failed if not isinstance(each, Stopped)), failed[0])
    if not is_wanted():
        raise Stopped

"""Links to nodes without a wire, over which files of the service's come."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from types import SimpleNamespace
from typing import Any, Protocol

from allotment.backends.pilot.file_messages import KeptOp, ListedOp, PutKept, TakeFiles


class Keeps(Protocol):
    """What keeps such files on a node."""

    @property
    def do(self) -> Callable[[Any], object]: ...


class Straight:
    """A link of which the node does at once what it is asked."""

    def __init__(self, node: Keeps, name: str = "n1") -> None:
        self._node = node
        self.hello = SimpleNamespace(node=name)
        self.asked: list[KeptOp | ListedOp] = []
        self.changed: list[str] = []
        """What was told of nodes that may have other data than before."""

    async def call(self, op: KeptOp | ListedOp, *_: object, **_more: object) -> object:
        self.asked.append(op)
        return self._node.do(op)

    @property
    def sizes(self) -> list[int]:
        """Return how large the pieces were that were sent."""
        return [len(op.data) for op in self.asked if isinstance(op, PutKept | TakeFiles)]


class Held(Straight):
    """A link over which pieces come only when they are let go."""

    def __init__(self, node: Keeps, name: str = "n1") -> None:
        super().__init__(node, name)
        self.is_reached, self.go = asyncio.Event(), asyncio.Event()

    async def call(self, op: KeptOp | ListedOp, *_: object, **_more: object) -> object:
        if isinstance(op, PutKept | TakeFiles):
            self.is_reached.set()
            await self.go.wait()
        return await super().call(op)


def overtaken(
    slow: Held,
    works: Iterable[Coroutine[Any, Any, None]],
    is_there: Callable[[], bool],
) -> None:
    """Check that the second of two works is done while the first waits for a link."""

    async def both() -> None:
        first, other = works
        waits = asyncio.create_task(first)
        await slow.is_reached.wait()
        await asyncio.wait_for(other, 10)
        assert not is_there()
        slow.go.set()
        await waits

    asyncio.run(both())
    assert is_there()

"""Work that may never return."""

import asyncio
import threading

import pytest

from allotment.service.threads import Threads


def test_a_user_whose_work_does_not_return_holds_up_nobody_else() -> None:
    free = threading.Event()

    async def story() -> None:
        threads = Threads("t", each=2)
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await threads.run("alice", lambda: free.wait(60), 0.01)
        with pytest.raises(TimeoutError):  # both of hers are busy still
            await threads.run("alice", lambda: 1, 0.01)
        assert await threads.run("bob", lambda: 2, 60) == 2
        waiting = asyncio.create_task(threads.run("alice", lambda: 3, 60))
        await asyncio.sleep(0)
        free.set()
        assert await waiting == 3
        with pytest.raises(ZeroDivisionError):
            await threads.run("alice", lambda: 1 // 0, 60)
        assert (
            await asyncio.gather(*(threads.run("c", lambda: 4, 60) for _ in range(9)))
            == [4] * 9
        )

    asyncio.run(story())


def test_who_gives_up_waiting_leaves_the_turn_to_the_next() -> None:
    free = threading.Event()

    async def story() -> None:
        threads = Threads("t", each=1)
        first = asyncio.create_task(threads.run("a", lambda: free.wait(60), 60))
        await asyncio.sleep(0)
        second = asyncio.create_task(threads.run("a", lambda: 2, 60))
        third = asyncio.create_task(threads.run("a", lambda: 3, 60))
        await asyncio.sleep(0)
        second.cancel()
        free.set()
        assert await third == 3
        assert await first is True
        with pytest.raises(asyncio.CancelledError):
            await second
        assert await threads.run("a", lambda: 4, 60) == 4

    asyncio.run(story())

"""Turns go round among users, and nobody takes more than its share."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from allotment.service.fair_queue import FairQueue


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


async def queued(queue: FairQueue, *users: str) -> tuple[list[str], list[asyncio.Task[None]]]:
    """Let users ask for a turn each, one after the other; tell in what order they get it."""
    began: list[str] = []

    async def one(who: str) -> None:
        await queue.turn(who)
        began.append(who)

    tasks: list[asyncio.Task[None]] = []
    for who in users:
        tasks.append(asyncio.ensure_future(one(who)))
        await asyncio.sleep(0)
    return began, tasks


def test_a_user_that_asks_for_much_waits_for_itself() -> None:
    async def story() -> None:
        queue = FairQueue(lambda: 2, total=2)
        began, tasks = await queued(queue, "a", "a", "a", "a", "a", "b", "c", "b")
        assert began == ["a", "a"]
        for count in range(3, 9):
            queue.leave(began[count - 3])
            await asyncio.sleep(0)
            assert len(began) == count
        assert began == ["a", "a", "a", "b", "c", "a", "b", "a"]
        await asyncio.gather(*tasks)

    run(story())


def test_a_user_at_its_own_bound_lets_others_pass() -> None:
    async def story() -> None:
        queue = FairQueue(lambda: 1, total=3)
        began, tasks = await queued(queue, "a", "a", "b")
        assert began == ["a", "b"]
        assert queue.waiting("a") == 1
        queue.leave("a")
        await asyncio.gather(*tasks)
        assert began == ["a", "b", "a"]

    run(story())


def test_one_that_is_cancelled_waits_no_more_and_leaves_nothing() -> None:
    async def story() -> None:
        queue = FairQueue(lambda: 1)
        began, tasks = await queued(queue, "a", "a", "a")
        tasks[1].cancel()
        queue.leave("a")
        await asyncio.wait({tasks[2]})
        assert began == ["a", "a"]
        queue.leave("a")
        assert not queue.busy

    run(story())


def test_a_turn_that_comes_as_it_is_cancelled_goes_on_to_the_next() -> None:
    async def story() -> None:
        queue = FairQueue(lambda: 1)
        began, tasks = await queued(queue, "a", "b", "a")
        queue.leave("a")
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        queue.leave("b")
        assert not queue.busy
        assert began == ["a", "b"]

    run(story())

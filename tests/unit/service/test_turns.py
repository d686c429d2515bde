"""Long work on the event loop takes turns, one a round."""

import asyncio

import pytest

from allotment.service.turns import Turns
from tests.support.patience import PATIENCE_S


def test_whoever_works_long_takes_turns_with_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("allotment.service.turns.TURN_S", 0)
    done: list[str] = []

    async def work(turns: Turns, who: str) -> list[int]:
        found: list[int] = []
        async for part in turns.over(range(3), lambda number: done.append(who) or number):
            assert len(part) == 1
            found += part
        return found

    async def other() -> None:
        for _ in range(50):
            done.append(".")
            await asyncio.sleep(0)

    async def story() -> None:
        turns = Turns()
        found = await asyncio.gather(work(turns, "a"), work(turns, "b"), other())
        assert found[:2] == [[0, 1, 2], [0, 1, 2]]

    asyncio.run(story())
    told = "".join(done)
    assert told.replace(".", "") == "ababab"
    assert "ab" not in told
    assert "ba" not in told


def test_what_is_done_soon_takes_one_turn() -> None:
    async def story() -> list[list[int]]:
        return [part async for part in Turns().over(range(3), lambda number: number)]

    assert asyncio.run(story()) == [[0, 1, 2]]


def test_who_gives_up_leaves_the_turn_to_others() -> None:
    async def story() -> None:
        turns = Turns()

        async def work() -> int:
            return sum([len(part) async for part in turns.over(range(3), lambda n: n)])

        first, second = asyncio.ensure_future(work()), asyncio.ensure_future(work())
        await asyncio.sleep(0)
        first.cancel()
        assert await asyncio.wait_for(second, PATIENCE_S) == 3

    asyncio.run(story())

"""Steps that a service takes again and again."""

import asyncio

import pytest
from structlog.testing import capture_logs

from allotment.service.forever import forever
from tests.support.patience import PATIENCE_S


def test_a_step_that_fails_is_told_once_and_the_next_is_taken() -> None:
    taken: list[int] = []
    enough = asyncio.Event()

    async def step() -> None:
        taken.append(len(taken))
        if len(taken) == 6:
            enough.set()
        if len(taken) in (2, 3, 5):
            raise ValueError("no")

    async def story() -> None:
        going = asyncio.create_task(forever(step, 0, "counting"))
        async with asyncio.timeout(PATIENCE_S):
            await enough.wait()
        assert not going.done()
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going

    with capture_logs() as told:
        asyncio.run(story())
    assert [line["what"] for line in told] == ["counting", "counting"]

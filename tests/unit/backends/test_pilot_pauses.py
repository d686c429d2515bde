"""A gang over several nodes is suspended whatever runners answer; orders keep their turn."""

import asyncio
from collections.abc import Callable
from functools import wraps
from pathlib import Path

import pytest

from allotment.backends.local.backend import LocalBackend
from allotment.backends.pilot import messages as m
from allotment.backends.pilot import pauses
from allotment.backends.pilot.pauses import Pauses
from allotment.model.ids import JobId, TaskKey
from tests.unit.backends.test_pilot_distrust import OWN, Story, a_link

PEER = TaskKey(OWN.job, OWN.attempt, type(OWN.index)(OWN.index + 1))


def run(story: Story) -> Callable[..., None]:
    """Make a test of a coroutine function."""

    @wraps(story)
    def test(*args: object, **named: object) -> None:
        asyncio.run(story(*args, **named))

    return test


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0.005)


@run
async def test_what_a_runner_refuses_is_asked_again_until_all_are_frozen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pauses, "REFUSED_S", 0.01)
    frozen = list[bool | None]()
    refusals = iter([m.Fault(0, "not now")])

    def one(op: m.Op) -> object:
        return m.Fault(0, "no") if isinstance(op, m.AskRanks) else None

    def other(op: m.Op) -> object:
        if isinstance(op, m.Freeze):
            frozen.append(op.frees)
            return next(refusals, None)
        return []

    async with a_link(one) as here, a_link(other) as there:
        work = Pauses(lambda _: {here: [OWN], there: [PEER]})
        await work.freeze([OWN, PEER], 1)
        await until(lambda: len(frozen) == 2)
        await work.close()
    assert frozen == [False, False]


@run
async def test_a_later_order_goes_on_after_an_earlier_one_that_waits(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path)
    job, ended = JobId(1), asyncio.Event()
    left = backend._leave_off  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    under_way = backend._suspending  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]

    async def reluctant() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await ended.wait()

    async def forever() -> None:
        await asyncio.sleep(60)

    async def freeze() -> None:
        await left(job)
        under_way[job] = asyncio.create_task(forever())

    under_way[job] = asyncio.create_task(reluctant())
    await asyncio.sleep(0)
    freezing = asyncio.create_task(freeze())
    await asyncio.sleep(0)
    thawing = asyncio.create_task(left(job))
    await asyncio.sleep(0)
    ended.set()
    await asyncio.gather(freezing, thawing)
    assert not under_way, "the suspension that came first is left off by the order after it"

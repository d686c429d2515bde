"""The images of several engines as those of one: each has a store of its own, or none."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from allotment.model.engines import Ability
from allotment.model.errors import Code, Rejected
from allotment.service.image_view import ImageRow, ImageView
from allotment.service.ports import Backend, ImageStore, ImageWish, Imaging

NOT_THERE = frozenset({Code.NOT_SUPPORTED, Code.NOT_FOUND})
"""How an engine refuses what is asked of an image that it does not keep."""
T = TypeVar("T")


class ImagesOfAll:
    """Asks all engines that have images. `engines_for` gives those that may run a job."""

    def __init__(self, engines_for: Callable[[str], Mapping[str, Backend]]) -> None:
        self._engines_for = engines_for

    async def resolve(self, wish: ImageWish) -> str:
        # With none its engine fetches images by itself, or refuses them.
        return await self._first(wish, lambda store: store.resolve(wish), wish.reference)

    async def command(self, wish: ImageWish) -> tuple[str, ...]:
        return await self._first(wish, lambda store: store.command(wish), ())

    async def _first(
        self, wish: ImageWish, ask: Callable[[ImageStore], Coroutine[Any, Any, T]], without: T
    ) -> T:
        """Return what the first engine says that may run the job and can run images."""
        refusals: list[Rejected] = []
        for engine in self._fetching(wish.engine):
            try:
                return await ask(engine.images())
            except Rejected as refusal:
                if refusal.code is not Code.NOT_SUPPORTED:
                    raise
                refusals.append(refusal)  # Another may run images, where this one cannot.
        if refusals:
            raise refusals[0]
        return without

    async def inspect(self, wish: ImageWish) -> ImageView:
        return _least_there(await self._ask_each(lambda store: store.inspect(wish)))

    async def warm(self, wish: ImageWish) -> ImageView:
        return _least_there(await self._ask_each(lambda store: store.warm(wish)))

    async def rows(self, uid: int | None) -> Sequence[ImageRow]:
        found = await self._ask_each(lambda store: store.rows(uid))
        return [row for rows in found for row in rows]

    async def remove(self, image: str) -> None:
        await self._ask_each(lambda store: store.remove(image))

    async def _ask_each(self, ask: Callable[[ImageStore], Coroutine[Any, Any, T]]) -> list[T]:
        """Return what engines with images answer, but those that keep none, or not this one.

        Raises Rejected.
        """

        async def asked(engine: Imaging) -> T:
            return await ask(engine.images())

        engines = self._fetching()
        if not engines:
            raise Rejected(Code.NOT_SUPPORTED, "No engine here can run images.")
        answers = await asyncio.gather(*map(asked, engines), return_exceptions=True)
        refusals = [each for each in answers if isinstance(each, BaseException)]
        for each in refusals:
            if not (isinstance(each, Rejected) and each.code in NOT_THERE):
                raise each
        found = [each for each in answers if not isinstance(each, BaseException)]
        if not found:
            raise refusals[0]
        return found

    def _fetching(self, named: str = "") -> list[Imaging]:
        """Return those of the engines for a job that fetch images by us: each has a store."""
        return [
            engine
            for engine in self._engines_for(named).values()
            if Ability.IMAGES in engine.abilities and isinstance(engine, Imaging)
        ]


def _least_there(views: Sequence[ImageView]) -> ImageView:
    """Return the view with most to fetch: an image is here once all engines have it."""
    return max(views, key=lambda view: (not view.is_here, view.to_fetch))

"""What several engines answer together about images: each has a store of its own, or none."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from allotment.backends.router import Router
from allotment.backends.router_images import ImagesOfAll
from allotment.model.content import Content, ContentKind
from allotment.model.engines import Ability
from allotment.model.errors import Code, Rejected
from allotment.model.ids import NodeId
from allotment.service.image_view import ImageRow, ImageView
from allotment.service.ports import Having, ImageWish
from tests.support.fake_backend import FakeBackend

WISH = ImageWish("h/bb:1", "ann", "/home/ann")


class Keeps(FakeBackend):
    """Has an image, or refuses all that is asked of it by a code."""

    def __init__(self, to_fetch: int = 0, refuses: Code | None = None) -> None:
        super().__init__()
        self.abilities = self.abilities | {Ability.IMAGES}
        self._to_fetch, self._refuses = to_fetch, refuses
        self.removed: list[str] = []

    def _check(self) -> None:
        if self._refuses is not None:
            raise Rejected(self._refuses, f"It says {self._refuses}.")

    def images(self) -> "Keeps":
        return self

    async def resolve(self, wish: ImageWish) -> str:
        self._check()
        return f"{wish.reference}@{self._to_fetch}"

    async def command(self, wish: ImageWish) -> tuple[str, ...]:
        self._check()
        return wish.reference, str(self._to_fetch)

    async def inspect(self, wish: ImageWish) -> ImageView:
        self._check()
        return ImageView(wish.reference, "", not self._to_fetch, (), self._to_fetch)

    async def warm(self, wish: ImageWish) -> ImageView:
        return await self.inspect(wish)

    async def rows(self, uid: int | None) -> Sequence[ImageRow]:
        self._check()
        return [ImageRow("h/bb:1", "", 1, 1, uid or 0, in_use=False)]

    async def remove(self, image: str) -> None:
        self._check()
        self.removed.append(image)


def together(*engines: FakeBackend) -> Router:
    return Router({f"e{n}": engine for n, engine in enumerate(engines)}, lambda: ())


class Telling(FakeBackend):
    """Tells what its nodes have."""

    def __init__(self, there: dict[Content, Having]) -> None:
        super().__init__()
        self._there = there

    def nodes_with(self, contents: Sequence[Content]) -> Mapping[Content, Having]:
        return {each: self._there[each] for each in contents if each in self._there}


def test_nodes_of_all_engines_have_what_is_asked_for_and_those_that_tell_nothing_none() -> None:
    torch, jax = (Content(ContentKind.IMAGE, name) for name in ("torch:1", "jax:1"))
    one, two = (frozenset({NodeId(n)}) for n in (1, 2))
    there = together(
        Telling({torch: Having(one), jax: Having()}),
        FakeBackend(),
        Telling({torch: Having(two, 9), jax: Having(two, 3)}),
        Telling({torch: Having()}),
    )
    expected = {torch: Having(one | two, 9), jax: Having(two, 3)}
    assert there.nodes_with((torch, jax)) == expected
    assert there.nodes_with((torch, jax))[jax].nodes is two, "it is the same set"
    assert together(FakeBackend()).nodes_with((torch,)) == {}


ELSEWHERE = Keeps(refuses=Code.NOT_SUPPORTED)


def test_an_image_is_here_once_all_engines_that_keep_images_have_it() -> None:
    for ask in (ImagesOfAll.inspect, ImagesOfAll.warm):
        router = together(Keeps(), FakeBackend(), Keeps(7), ELSEWHERE)
        assert asyncio.run(ask(router.images(), WISH)).to_fetch == 7
        assert asyncio.run(ask(together(Keeps(), ELSEWHERE).images(), WISH)).is_here


def test_what_all_engines_keep_is_listed() -> None:
    rows = asyncio.run(together(Keeps(), ELSEWHERE, Keeps()).images().rows(None))
    assert len(rows) == 2


def test_an_image_is_removed_wherever_it_is() -> None:
    one, other = Keeps(), Keeps()
    router = together(one, Keeps(refuses=Code.NOT_FOUND), other)
    asyncio.run(router.images().remove("h/bb:1"))
    assert one.removed == other.removed == ["h/bb:1"]


@pytest.mark.parametrize("code", [Code.NOT_FOUND, Code.NOT_SUPPORTED])
def test_what_no_engine_does_is_refused(code: Code) -> None:
    with pytest.raises(Rejected, match=f"It says {code}"):
        asyncio.run(together(Keeps(refuses=code), FakeBackend()).images().remove("h/bb:1"))


def test_what_keeps_one_engine_from_it_is_told_whatever_others_say() -> None:
    router = together(Keeps(), Keeps(refuses=Code.CONFLICT))
    with pytest.raises(Rejected, match="It says conflict"):
        asyncio.run(router.images().remove("h/bb:1"))


def test_the_engine_of_a_job_resolves_its_image() -> None:
    router = together(Keeps(1), Keeps(2), FakeBackend())
    asked = [ImageWish("i", "ann", "/h", engine=name) for name in ("", "e0", "e1", "e2")]
    found = [asyncio.run(router.images().resolve(wish)) for wish in asked]
    assert found == ["i@1", "i@1", "i@2", "i"]


def test_an_engine_that_runs_no_images_now_keeps_no_job_from_another() -> None:
    assert asyncio.run(together(ELSEWHERE, Keeps(2)).images().resolve(WISH)).endswith("@2")
    with pytest.raises(Rejected, match="It says not_supported"):
        asyncio.run(together(ELSEWHERE, FakeBackend()).images().resolve(WISH))
    with pytest.raises(Rejected, match="It says forbidden"):
        asyncio.run(together(Keeps(refuses=Code.FORBIDDEN), Keeps(2)).images().resolve(WISH))


def test_the_first_engine_that_can_tells_the_command_of_an_image() -> None:
    router = together(FakeBackend(), ELSEWHERE, Keeps(7), Keeps(8))
    assert asyncio.run(router.images().command(WISH)) == ("h/bb:1", "7")
    # An engine without a store of its own may know it still.
    assert asyncio.run(together(FakeBackend()).images().command(WISH)) == ()
    with pytest.raises(Rejected):
        asyncio.run(together(ELSEWHERE).images().command(WISH))

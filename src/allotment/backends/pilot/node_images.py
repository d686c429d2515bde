"""Images on the nodes of an engine: each fetches what runs there, into a store of its own.

The service asks the registry what a name means, and whether its user may have it. Passwords
are read where the users' homes are, and go to a node with what is to be started there.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import msgspec

from allotment.backends.local.images.images import Images
from allotment.backends.local.images.trouble import ImageTrouble, Kind
from allotment.backends.pilot import image_messages as im
from allotment.backends.pilot.asking import MOST
from allotment.backends.pilot.link import Link
from allotment.backends.pilot.messages import Isolation
from allotment.model.errors import BackendError, Code, Rejected
from allotment.model.image_names import parse
from allotment.service.image_view import ImageLayer, ImageRow, ImageView
from allotment.service.ports import GangLaunch, ImageWish

MOST_WORDS = 500
MOST_ROWS = 10_000
"""Of what one node says that it has."""
NOBODY = "No node is held now, and each keeps its own images."
WHEN_HELD = "A node is held while jobs run there; it fetches what they need by itself."


class NodeImages:
    """Asks registries, and the nodes that are held."""

    def __init__(
        self,
        images: Images,
        links: Callable[[], Sequence[Link]],
        changed: Callable[[Iterable[str]], None],
    ) -> None:
        """`changed` is told of nodes that may keep other images than before."""
        self._images = images
        self._links = links
        self._changed = changed

    @property
    def room(self) -> int:
        """Return how many bytes a node may keep."""
        return self._images.limit()

    async def with_login(self, gang: GangLaunch, links: Iterable[Link]) -> GangLaunch:
        """Return a launch, for some nodes, with what its image is asked for.

        Raises ImageTrouble.
        """
        if gang.image_wish is None:
            return gang
        wish = await self._images.with_login(gang.image_wish)
        _keep_from_strangers(wish, links)
        return msgspec.structs.replace(gang, image_wish=wish)

    async def resolve(self, wish: ImageWish) -> str:
        """Return the name with its present digest. Raises Rejected."""
        links = self._links()
        if links and not any(_can(link) for link in links):
            why = "; ".join(dict.fromkeys(_why_not(link) for link in links))
            hint = "An administrator can put the engine's `folder` on the nodes' own disks."
            raise Rejected(
                Code.NOT_SUPPORTED, f"No node that is held runs images: {why}.", hint
            )
        return await self._images.resolve(wish)

    async def command(self, wish: ImageWish) -> tuple[str, ...]:
        """Return the image's own entry point and command. Raises Rejected."""
        return await self._images.command(wish)

    async def inspect(self, wish: ImageWish) -> ImageView:
        """Return what an image consists of; it is here once all held nodes have it.

        Raises Rejected.
        """
        view = await self._images.inspect(wish)
        links = self._links()
        told = await self._ask(links, im.ListImages(None)) if links else []
        is_here = bool(told) and all(_has(each, view) for each in told)
        # What the service's own store has is of no use to a node.
        layers = tuple(ImageLayer(layer.digest, layer.size) for layer in view.layers)
        to_fetch = 0 if is_here else sum(layer.size for layer in layers)
        told = told if is_here else []
        rows = [row for each in told for row in each.rows if row.digest == view.digest]
        return msgspec.structs.replace(
            view,
            is_here=is_here,
            layers=layers,
            to_fetch=to_fetch,
            bytes=max((row.bytes for row in rows if can_be(row)), default=0),
            alone=max((row.alone for row in rows if can_be(row)), default=0),
        )

    async def warm(self, wish: ImageWish) -> ImageView:
        """Have all nodes that are held fetch an image. Raises Rejected."""
        images = self._images
        exact = msgspec.structs.replace(wish, reference=await images.resolve(wish))
        try:
            exact = await images.with_login(exact)
            links = [link for link in self._up() if _can(link)] or self._up()
            _keep_from_strangers(exact, links)
        except ImageTrouble as trouble:
            raise trouble.refusal() from trouble
        for told in await self._ask(links, im.WarmImage(exact, self.room)):
            _check(told)
        return await self.inspect(exact)

    async def rows(self, uid: int | None) -> Sequence[ImageRow]:
        """List what any held node keeps."""
        found: dict[tuple[str, str], ImageRow] = {}
        for told in await self._ask(self._links(), im.ListImages(uid)):
            for row in told.rows[:MOST_ROWS]:
                if not can_be(row):
                    continue
                key = row.image, row.digest
                found[key] = _both(found[key], row) if key in found else row
        return list(found.values())

    async def remove(self, image: str) -> None:
        """Remove an image from all nodes that are held. Raises Rejected."""
        told = await self._ask(self._up(), im.RemoveImage(image))
        for each in told:
            if each.code != Code.NOT_FOUND.value:
                _check(each)
        if all(each.code for each in told):
            _check(told[0])

    def _up(self) -> Sequence[Link]:
        if links := self._links():
            return links
        # As what an engine does not keep: others may have it.
        raise Rejected(Code.NOT_FOUND, NOBODY, WHEN_HELD)

    async def _ask(self, links: Sequence[Link], op: im.ImageOp) -> list[im.ImagesTold]:
        """Return the answers of the nodes that give one. Raises Rejected where none does."""
        answers = await asyncio.gather(
            *(link.call(op, im.ImagesTold) for link in links), return_exceptions=True
        )
        if not isinstance(op, im.ListImages):
            self._changed(link.hello.node for link in links)
        told = [each for each in answers if isinstance(each, im.ImagesTold)]
        for each in answers:
            if not isinstance(each, im.ImagesTold | BackendError):
                raise each
            if isinstance(each, BackendError) and not told:
                raise Rejected(Code.UNAVAILABLE, f"{each}.", "Try again.") from each
        return told


def _keep_from_strangers(wish: ImageWish, links: Iterable[Link]) -> None:
    """Raise ImageTrouble where a password would go to who listens on a node's loopback.

    That may be anybody's job. On this machine it is the registry that its user logged in to.
    """
    if not wish.login or not parse(wish.reference).is_near:
        return
    away = [link.hello.node for link in links if not link.is_on_this_machine]
    if away:
        raise ImageTrouble(
            Kind.DENIED,
            f"{wish.reference} is on another machine for node {away[0]}, which is not sent "
            "your password for it.",
            "Name the registry by a host name that nodes reach, with TLS; or log out of it.",
        )


def why_no_images(isolation: Isolation) -> str:
    """Return why a node runs no images; '' where it does."""
    return isolation.missing.get("images", "")[:MOST_WORDS]


def _why_not(link: Link) -> str:
    isolation = link.hello.isolation
    return (
        why_no_images(isolation)
        if isolation is not None
        else "its pilot does not say what it can"
    )


def _can(link: Link) -> bool:
    return not _why_not(link)


def _has(told: im.ImagesTold, view: ImageView) -> bool:
    return any(row.digest == view.digest for row in told.rows)


def can_be(row: ImageRow) -> bool:
    """Whether what a node says can be: it may be in the hands of somebody else."""
    numbers = row.bytes, row.alone, row.used_at
    return len(row.image) <= MOST_WORDS and all(0 <= each <= MOST for each in numbers)


def _both(one: ImageRow, other: ImageRow) -> ImageRow:
    """Return what is said of an image that is on two nodes."""
    return msgspec.structs.replace(
        one,
        bytes=max(one.bytes, other.bytes),
        alone=max(one.alone, other.alone),
        used_at=max(one.used_at, other.used_at),
        in_use=one.in_use or other.in_use,
    )


def _check(told: im.ImagesTold) -> None:
    """Raise what a node refused."""
    if told.code:
        raise refused_by_node(told.code, told.message, told.hint)


def refused_by_node(code: str, message: str, hint: str) -> Rejected:
    """Return a refusal of a node, in as many words as we take."""
    known = Code(code) if code in {each.value for each in Code} else Code.UNAVAILABLE
    return Rejected(known, message[:MOST_WORDS], hint[:MOST_WORDS])

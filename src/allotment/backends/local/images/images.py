"""Images for the service: names become digests, rights are asked for, what runs is fetched.

Rights are the registry's: each user is known there by its own password, and what it says is
believed for a few minutes. An image that is in the store already is no exception, nor is one
that is named by its digest.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from allotment.backends.local.images import store as st
from allotment.backends.local.images.credentials import basic_of
from allotment.backends.local.images.fetching import Fetch, Found, Stopped, look
from allotment.backends.local.images.helper import LoginHelpers
from allotment.backends.local.images.inside import Files, pythons
from allotment.backends.local.images.registry import Registry
from allotment.backends.local.images.store import Image, Store
from allotment.backends.local.images.trouble import ImageTrouble, Kind, Unreachable
from allotment.model.errors import Code, Rejected
from allotment.model.image_names import BadReference, Reference, parse
from allotment.service.image_view import ImageLayer, ImageRow, ImageView
from allotment.service.ports import ImagePython, ImageWish
from allotment.service.threads import Threads

BELIEVED_S: Final = 300.0
"""How long a registry's word that somebody may read something counts."""
SILENT_S: Final = 4 * 3600.0
"""And how long where the registry is down meanwhile."""
PATIENCE_S: Final = 60.0
"""For a question."""
LONGEST_S: Final = 24 * 3600.0
"""For an image to come."""
ANSWERED_S: Final = 10.0
"""How long a submission waits for an image that it has to look into."""
TOLD_S: Final = 2.0
"""How often whoever fetches ahead hears how far it is."""
MOST_WARMED: Final = 8
"""How many images are fetched ahead for a user at a time."""
_MOST_REMEMBERED: Final = 10_000
"""Of rights."""
_MOST_FOUND: Final = 200
"""Of what registries say of images: each up to some 150 KiB."""
T = TypeVar("T")


class Ready(msgspec.Struct, frozen=True):
    """An image to be run. `hold` is an open descriptor that keeps it in the store."""

    image: Image
    record: str
    layers: tuple[str, ...]
    """Names of folders, topmost first."""
    hold: int
    pull_ms: tuple[int, int] | None = None
    """When it was fetched, from when to when; None where it was there."""
    unpack_ms: tuple[int, int] | None = None


class _Shared:
    """A fetch that several may wait for. It ends when nobody does any more.

    It asks with the password of the user it is for.
    """

    def __init__(self, uid: int) -> None:
        self.uid = uid
        self.waiting = 0
        self.fetch: Fetch | None = None
        self.began = self.ended = 0.0
        self.done: asyncio.Task[None] | None = None


class Images:
    """All there is to do with images on this machine. `limit` is the store's, in bytes."""

    def __init__(self, state_dir: Path, limit: Callable[[], int]) -> None:
        self._store = Store(state_dir)
        self.limit = limit
        self._asking = Threads("registry", each=4, total=16)
        self._logins = Threads("logins", each=1, total=16)
        self._helpers = LoginHelpers(str(state_dir))
        self._fetching = Threads("images", each=1, total=3)
        self._reading = Threads("store", each=2, total=4)
        self._rights: dict[tuple[int, str], float] = {}
        """When it was said last that a user may read the image of that exact name."""
        self._found: dict[str, Found] = {}
        self._own: dict[tuple[int, str], _Shared] = {}
        """Each user's fetches; until its turn comes, only its user waits for one."""
        self._coming: dict[str, _Shared] = {}
        """Fetches that are under way, by exact name: whoever may read the image may join."""
        self._warming: dict[tuple[int, str], asyncio.Task[None]] = {}
        """What users fetch ahead."""

    @property
    def store(self) -> Store:
        """Return where they are kept."""
        return self._store

    async def start(self) -> None:
        """Make the store ready; what a service that was killed left of it goes."""
        await asyncio.to_thread(self._store.prepare)

    # ── names and rights ────────────────────────────────────────────────────────────

    async def resolve(self, wish: ImageWish) -> str:
        """Return the name of an image with the digest it has now. Raises Rejected.

        It is this user's to read, and can run here.
        """
        reference = _parsed(wish.reference)
        try:
            exact = await self._allowed(reference, wish)
            if exact.exact not in self._found and not await self._is_here(exact):
                await self._look(exact, wish)
        except ImageTrouble as trouble:
            raise trouble.refusal() from trouble
        return str(exact)

    async def command(self, wish: ImageWish) -> tuple[str, ...]:
        """Return the image's own entry point and command. Raises Rejected."""
        try:
            found = await self._look(_parsed(wish.reference), wish)
        except ImageTrouble as trouble:
            raise trouble.refusal() from trouble
        wishes = found.config.config
        own = (*(wishes.entrypoint or ()), *(wishes.cmd or ())) if wishes else ()
        if not own or not own[0].strip():
            raise Rejected(
                Code.BAD_SPEC,
                f"command: is missing, and {wish.reference} has neither an entry point nor a "
                "command.",
                "Write what to run: `command: python train.py`, or with `allot run`: -- python "
                "train.py.",
            )
        return own

    async def _allowed(self, reference: Reference, wish: ImageWish) -> Reference:
        """Return the very image of a name, which the user may read. Raises ImageTrouble."""
        if self._was_allowed(reference, wish, BELIEVED_S):
            return reference
        try:
            exact = reference.at(await self._ask(wish, partial(_digest, reference)))
        except ImageTrouble as trouble:
            if trouble.kind in {Kind.DENIED, Kind.GONE}:
                self._rights.pop((_uid(wish), reference.exact), None)
            raise
        key = _uid(wish), exact.exact
        self._rights.pop(key, None)
        while len(self._rights) >= _MOST_REMEMBERED:
            del self._rights[next(iter(self._rights))]
        self._rights[key] = time.monotonic()
        return exact

    def _was_allowed(self, reference: Reference, wish: ImageWish, within_s: float) -> bool:
        """Whether the registry said not long ago that a user may read these bytes."""
        said = self._rights.get((_uid(wish), reference.exact))
        return said is not None and time.monotonic() - said < within_s

    async def _look(self, exact: Reference, wish: ImageWish) -> Found:
        if (known := self._found.get(exact.exact)) is not None:
            return known
        found = await self._ask(wish, partial(_looked, exact))
        while len(self._found) >= _MOST_FOUND:
            del self._found[next(iter(self._found))]
        self._found[exact.exact] = found
        return found

    async def _is_here(self, exact: Reference) -> bool:
        return await asyncio.to_thread(self._store.image, exact) is not None

    async def _ask(self, wish: ImageWish, question: Callable[[ImageWish], T]) -> T:
        """Ask a registry, with what the user logs in with. Raises ImageTrouble."""
        asking = await self.with_login(wish)
        try:
            return await self._asking.run(_uid(wish), partial(question, asking), PATIENCE_S)
        except TimeoutError:
            raise ImageTrouble(
                Kind.AWAY,
                f"The registry of {wish.reference} did not answer in {PATIENCE_S:.0f} s.",
            ) from None
        except ImageTrouble as trouble:
            if trouble.kind is Kind.DENIED:
                self._helpers.forget(wish, parse(wish.reference).registry)
                if not asking.login:
                    await self.with_login(wish, is_needed=True)  # May know why there is none.
            raise

    async def with_login(self, wish: ImageWish, *, is_needed: bool = False) -> ImageWish:
        """Return the wish with what its user logs in with, for any machine to ask with.

        Raises ImageTrouble.
        """
        if wish.login is not None:
            return wish
        registry = parse(wish.reference).registry
        look = partial(basic_of, wish, registry, self._helpers, is_needed=is_needed)
        try:
            login = await self._logins.run(_uid(wish), look, PATIENCE_S)
        except TimeoutError:
            why = (
                f"The home of {wish.user}, where its passwords are, or the credential helper "
                "that has them does not answer."
            )
            raise ImageTrouble(Kind.AWAY, why) from None
        return msgspec.structs.replace(wish, login=login)

    # ── running ─────────────────────────────────────────────────────────────────────

    async def ready(self, wish: ImageWish) -> Ready:
        """Return an image to be run, fetched if need be. Raises ImageTrouble or Stopped."""
        exact = parse(wish.reference)
        try:
            exact = await self._allowed(exact, wish)
        except Unreachable:
            # It was this user's some hours ago, and nobody says that it is not.
            if not self._was_allowed(exact, wish, SILENT_S):
                raise
            if not await self._is_here(exact):
                raise
        pull = unpack = None
        while (held := await self._hold(exact, _uid(wish))) is None:
            # Another may have broken off what both waited for.
            with contextlib.suppress(Stopped):
                pull, unpack = await self._come(exact, wish)
        image, hold = held
        record = f"{st.FOLDER}/made/{st.image_name(exact)}.json"
        layers = st.layer_names(image)
        return Ready(image, record, layers, hold, pull, unpack)

    async def _hold(self, exact: Reference, uid: int) -> tuple[Image, int] | None:
        """Keep an image that a user uses, while the descriptor is open; None without it."""
        work = asyncio.to_thread(self._held, exact, uid)
        held = asyncio.get_running_loop().create_task(work)
        try:
            return await asyncio.shield(held)
        except asyncio.CancelledError:
            held.add_done_callback(_let_go)
            raise

    def _held(self, exact: Reference, uid: int) -> tuple[Image, int] | None:
        hold = self._store.hold(exact)
        if hold is None:
            return None
        try:
            image = self._store.image(exact)
            if image is not None:
                self._store.note_user(exact, uid)
                return image, hold
        except BaseException:
            os.close(hold)
            raise
        os.close(hold)
        return None

    async def _come(
        self, exact: Reference, wish: ImageWish
    ) -> tuple[tuple[int, int], tuple[int, int]]:
        """Wait until an image is there; say when it was fetched, and when it was unpacked."""
        uid = _uid(wish)
        other = self._coming.get(exact.exact)
        if other is not None and other.uid != uid:
            # What fails for its user, with its password, need not fail for this one.
            with contextlib.suppress(ImageTrouble, Stopped):
                return await _arrival(other)
        shared = self._own.get((uid, exact.exact))
        if shared is None:
            shared = self._own[uid, exact.exact] = _Shared(uid)
            work = self._fetch(exact, wish, shared)
            shared.done = asyncio.get_running_loop().create_task(work)
        return await _arrival(shared)

    async def _fetch(self, exact: Reference, wish: ImageWish, shared: _Shared) -> None:
        loop = asyncio.get_running_loop()
        try:
            shared.began = time.time()
            found = await self._look(exact, wish)
            registry = await self._ask(wish, partial(_registry, exact))
            shared.fetch = fetch = Fetch(self._store, registry, found, self.limit())
            if shared.waiting <= 0:
                raise Stopped

            def work() -> None:
                loop.call_soon_threadsafe(self._has_turn, exact, shared)
                fetch.run()

            await self._fetching.run(shared.uid, work, LONGEST_S)
            shared.ended = time.time()
        except TimeoutError:
            if shared.fetch is not None:
                shared.fetch.stop.set()
            raise ImageTrouble(
                Kind.AWAY, f"{exact} was not fetched in {LONGEST_S / 3600:.0f} hours."
            ) from None
        finally:
            self._own.pop((shared.uid, exact.exact), None)
            if self._coming.get(exact.exact) is shared:
                del self._coming[exact.exact]

    def _has_turn(self, exact: Reference, shared: _Shared) -> None:
        if shared.done is None or shared.done.done():
            return
        self._coming.setdefault(exact.exact, shared)

    # ── for people ──────────────────────────────────────────────────────────────────

    async def warm(self, wish: ImageWish) -> ImageView:
        """Fetch an image ahead; answer when it is there, or a little later. Raises Rejected."""
        exact = msgspec.structs.replace(wish, reference=await self.resolve(wish))
        await self._wait_for(exact, TOLD_S)
        return await self.inspect(exact)

    async def _wait_for(self, exact: ImageWish, patience_s: float = ANSWERED_S) -> None:
        """Fetch an image ahead, and wait for it a little. Raises Rejected."""
        warming = self._warmed(exact)
        await asyncio.wait([warming], timeout=patience_s)
        if warming.done() and not warming.cancelled():
            try:
                warming.result()
            except ImageTrouble as trouble:
                raise trouble.refusal() from trouble
            except Stopped:
                why = "The fetch was interrupted."
                raise Rejected(Code.UNAVAILABLE, why, "Try again.") from None

    async def pythons_in(self, wish: ImageWish) -> list[ImagePython]:
        """Return the Pythons that an image has; it is fetched if need be. Raises Rejected."""
        exact = parse(await self.resolve(wish))
        held = await self._hold(exact, _uid(wish))
        if held is None:
            await self._wait_for(msgspec.structs.replace(wish, reference=str(exact)))
            held = await self._hold(exact, _uid(wish))
        if held is None:
            raise Rejected(
                Code.UNAVAILABLE,
                f"{exact} is being fetched, and what fits its Python is known only then.",
                "Submit it again in a while; `allot image pull IMAGE` waits until it is here.",
            )
        image, hold = held
        try:
            look = partial(pythons, Files(self._store.places(image)), _path_in(image))
            return await self._reading.run(_uid(wish), look, PATIENCE_S)
        except TimeoutError:
            raise Rejected(
                Code.UNAVAILABLE,
                f"It took longer than {PATIENCE_S:.0f} s to look for a Python in {exact}.",
                "Try again later; the disk, or many requests of others, may slow it down now.",
            ) from None
        finally:
            os.close(hold)

    def _warmed(self, exact: ImageWish) -> "asyncio.Task[None]":
        """Begin to fetch ahead, or join what has begun. Raises Rejected.

        It ends by itself, whether or not anybody still waits for it.
        """
        uid = _uid(exact)
        key = (uid, exact.reference)
        warming = self._warming.get(key)
        if warming is not None:
            return warming
        if sum(who == uid for who, _ in self._warming) >= MOST_WARMED:
            raise Rejected(
                Code.TOO_MANY,
                f"{MOST_WARMED} images are being fetched ahead for you, which is the limit.",
                "Wait until one is there: `allot image ls`.",
            )
        warming = asyncio.get_running_loop().create_task(self._warm(exact))
        self._warming[key] = warming
        warming.add_done_callback(_heard)
        warming.add_done_callback(lambda _: self._warming.pop(key, None))
        return warming

    async def _warm(self, exact: ImageWish) -> None:
        ready = await self.ready(exact)
        os.close(ready.hold)

    async def close(self) -> None:
        """Break off what users fetch ahead."""
        warming = list(self._warming.values())
        for each in warming:
            each.cancel()
        await asyncio.gather(*warming, return_exceptions=True)

    async def inspect(self, wish: ImageWish) -> ImageView:
        """Return what an image consists of, and what it would add. Raises Rejected."""
        reference = _parsed(wish.reference)
        try:
            exact = await self._allowed(reference, wish)
            found = await self._look(exact, wish)
        except ImageTrouble as trouble:
            raise trouble.refusal() from trouble
        view = await self._reading.run(
            _uid(wish), partial(self._view, exact, found, wish), PATIENCE_S
        )
        own = self._own.get((_uid(wish), exact.exact))
        under_way = self._coming.get(exact.exact, own)
        if view.is_here or under_way is None or under_way.fetch is None:
            return view
        came = min(under_way.fetch.came, view.to_fetch)
        return msgspec.structs.replace(view, fetched=came)

    def _view(self, exact: Reference, found: Found, wish: ImageWish) -> ImageView:
        others = [
            image
            for image, _ in self._store.images()
            if (image.place, image.digest) != (exact.place, exact.digest)
        ]
        uid = None if wish.sees_all else _uid(wish)
        named = {image.reference for image in self._seen_by(uid, others)}
        layers: list[ImageLayer] = []
        here: dict[str, ImageLayer] = {}
        for descriptor, diff_id in found.pairs:
            layer = ImageLayer(descriptor.digest, descriptor.size)
            known = self._store.layer(diff_id)
            if known is not None and (exact.registry, layer.digest) in known.sources:
                having = [image.reference for image in others if diff_id in image.layers]
                names = tuple(sorted(named.intersection(having)))
                layer = ImageLayer(layer.digest, layer.size, known.bytes, len(having), names)
                here[diff_id] = layer
            layers.append(layer)
        sizes = [(layer.unpacked or 0, layer.shared_with) for layer in here.values()]
        wishes = found.config.config
        return ImageView(
            image=str(exact),
            digest=exact.digest,
            is_here=self._store.image(exact) is not None,
            layers=tuple(layers),
            to_fetch=sum(layer.size for layer in layers if layer.unpacked is None),
            bytes=sum(size for size, _ in sizes),
            alone=sum(size for size, shared in sizes if not shared),
            entrypoint=(wishes.entrypoint or ()) if wishes else (),
            cmd=(wishes.cmd or ()) if wishes else (),
            env=(wishes.env or ()) if wishes else (),
            workdir=(wishes.workdir or "") if wishes else "",
        )

    async def rows(self, uid: int | None) -> list[ImageRow]:
        """List what is in the store: of a user what that has used, with None all."""
        return await self._reading.run(uid, partial(self._rows, uid), PATIENCE_S)

    def _rows(self, uid: int | None) -> list[ImageRow]:
        used_at = dict(self._store.images())
        uses = [each for image in used_at for each in set(image.layers)]
        found: list[ImageRow] = []
        for image in self._seen_by(uid, used_at):
            layers = [self._store.layer(each) for each in set(image.layers)]
            sizes = {layer.diff_id: layer.bytes for layer in layers if layer is not None}
            alone = sum(size for each, size in sizes.items() if uses.count(each) == 1)
            found.append(
                ImageRow(
                    image=image.reference,
                    digest=image.digest,
                    bytes=sum(sizes.values()),
                    alone=alone,
                    used_at=_ms(used_at[image]),
                    in_use=self._store.is_in_use(image),
                )
            )
        return found

    def _seen_by(self, uid: int | None, images: Iterable[Image]) -> list[Image]:
        """Return those of some images that a user has used, with None all."""
        return [image for image in images if uid is None or self._store.is_known_to(image, uid)]

    async def remove(self, text: str) -> None:
        """Remove an image from the store. Raises Rejected."""
        reference = _parsed(text)
        work = partial(self._removed, reference)
        found, used = await self._reading.run("remove", work, PATIENCE_S)
        if not found:
            raise Rejected(
                Code.NOT_FOUND, f"{text} is not in the store.", "See `allot image ls`."
            )
        if used:
            raise Rejected(
                Code.CONFLICT, f"A task uses {text}.", "Wait until it has ended, or cancel it."
            )

    def _removed(self, reference: Reference) -> tuple[int, int]:
        """Remove what has a name; say how many had, and how many of them are in use."""
        meant = [
            image
            for image, _ in self._store.images()
            if image.place == reference.place
            and (
                image.digest == reference.digest
                if reference.digest
                else parse(image.reference).tag == reference.tag
            )
        ]
        return len(meant), sum(not self._store.remove(image) for image in meant)


async def _arrival(shared: _Shared) -> tuple[tuple[int, int], tuple[int, int]]:
    """Wait until a fetch has ended; say when it fetched, and when it unpacked."""
    assert shared.done is not None
    async with _waiting(shared):
        await asyncio.shield(shared.done)
    assert shared.fetch is not None
    last = shared.fetch.last_byte_at
    return (_ms(shared.began), _ms(last)), (_ms(last), _ms(shared.ended))


@asynccontextmanager
async def _waiting(shared: _Shared) -> AsyncGenerator[None]:
    shared.waiting += 1
    try:
        yield
    finally:
        shared.waiting -= 1
        if not shared.waiting and shared.fetch is not None:
            shared.fetch.stop.set()
        if not shared.waiting and shared.done is not None and not shared.done.done():
            shared.done.add_done_callback(_heard)


def _let_go(held: "asyncio.Task[tuple[Image, int] | None]") -> None:
    if not held.cancelled() and held.exception() is None and (found := held.result()):
        os.close(found[1])


def _heard(done: "asyncio.Task[None]") -> None:
    with contextlib.suppress(Exception, asyncio.CancelledError):
        done.exception()


def _parsed(text: str) -> Reference:
    try:
        return parse(text)
    except BadReference as error:
        raise Rejected(
            Code.BAD_SPEC, f"image: {text[:200]} {error}.", "Write it as registry/name:tag."
        ) from error


def _registry(reference: Reference, wish: ImageWish) -> Registry:
    return Registry(reference, wish.login or "")


def _digest(reference: Reference, wish: ImageWish) -> str:
    return _registry(reference, wish).digest()


def _looked(exact: Reference, wish: ImageWish) -> Found:
    return look(_registry(exact, wish), exact.digest)


def _path_in(image: Image) -> str:
    own = dict(word.split("=", 1) for word in image.env if "=" in word)
    return own.get("PATH", "")


def _uid(wish: ImageWish) -> int:
    return wish.identity.uid if wish.identity is not None else os.geteuid()


def _ms(seconds: float) -> int:
    return int(seconds * 1000)

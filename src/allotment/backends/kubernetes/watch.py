"""Keeps in step with the objects of one kind: a list, then what changes, for ever."""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

import msgspec
import structlog

from allotment.backends.http import Quiet
from allotment.backends.kubernetes.client import GONE, Client, Denied
from allotment.backends.kubernetes.objects import Thing, read
from allotment.model.errors import BackendError

log = structlog.get_logger("allot.kubernetes")

T = TypeVar("T", bound=Thing)
WATCH_S = 300
RESYNC_S = 600.0
"""How often all is listed again, though nothing seems to be missed."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0


class _Bare(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Marked(msgspec.Struct, frozen=True):
    metadata: _Bare = _Bare()
    code: int = 0
    message: str = ""


class _Pages(Generic[T]):
    """What came of a list so far, and the token that its next page goes by: all pages are of
    one moment."""

    def __init__(self) -> None:
        self.found: list[T] = []
        self.token = ""


class Watch(Generic[T]):
    """Tells what there is whenever it lists, and each change after that."""

    def __init__(
        self,
        client: Client,
        path: str,
        kind: type[T],
        replace: Callable[[list[T]], None],
        change: Callable[[T, bool], None],
    ) -> None:
        self._client, self._path, self._kind = client, path, kind
        self._replace, self._change = replace, change
        self.refused = ""
        """Why it may not be listed; '' where it may."""
        self.listed = asyncio.Event()
        """It was listed, or it may not be."""
        self._version = ""
        """The newest that was seen."""
        self._pages = _Pages[T]()
        """Of the list that is under way: where a page does not come, it is asked for again."""
        self._until = 0.0
        self._pause = FIRST_PAUSE_S

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            await self.run_until_refused()
            await asyncio.sleep(self._longer_pause())

    async def run_until_refused(self) -> None:
        """List, and go on until it may not be listed or watched."""
        self._begin_anew()
        while True:
            try:
                if not self._version or monotonic() >= self._until:
                    await self._list()
                await self._follow()
                self._pause = FIRST_PAUSE_S
            except Quiet:  # that nothing is new is no trouble
                self._pause = FIRST_PAUSE_S
            except Denied as error:
                self._begin_anew()
                if error.status != GONE and error.status < 500:
                    self._note_refused(str(error))
                    return
                self._longer_pause()  # what changed meanwhile is not kept there any more
            except BackendError:  # away: it goes on from where it was
                self._longer_pause()
            except Exception:
                log.exception("a watch is begun again", path=self._path)
                self._begin_anew()
                self._pause = LONGEST_PAUSE_S
            await asyncio.sleep(self._pause)

    def _begin_anew(self) -> None:
        self._version, self._pages = "", _Pages[T]()

    def _longer_pause(self) -> float:
        self._pause = min(self._pause * 2, LONGEST_PAUSE_S)
        return self._pause

    def _note_refused(self, why: str) -> None:
        if why != self.refused:
            self.refused = why
            log.warning("this may not be watched", path=self._path, why=why)
        self.listed.set()

    async def _list(self) -> None:
        pages = self._pages
        while True:
            page = await self._client.page(self._path, pages.token)
            pages.found += [each for raw in page.items or () if (each := read(raw, self._kind))]
            pages.token = page.metadata.next
            if not pages.token:
                break
        self.refused, self._pages = "", _Pages[T]()
        self._replace(pages.found)
        self.listed.set()
        self._version = page.metadata.resource_version
        self._until = monotonic() + RESYNC_S

    async def _follow(self) -> None:
        """Follow changes while they come."""
        async with self._client.watch(self._path, self._version, WATCH_S) as changes:
            async for change in changes:
                self._take(change.type, change.object)

    def _take(self, type_: str, data: msgspec.Raw) -> None:
        found = None if type_ in ("ERROR", "BOOKMARK") else read(data, self._kind)
        if found is not None:
            self._change(found, type_ == "DELETED")
            self._version = found.metadata.resource_version or self._version
            return
        marked = msgspec.json.decode(data, type=_Marked)
        if type_ == "ERROR":
            raise Denied(marked.code or GONE, f"Kubernetes: {marked.message}")
        self._version = marked.metadata.resource_version or self._version

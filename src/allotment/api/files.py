"""The content of a file of a job or a dataset, as it goes over the wire."""

import asyncio
from urllib.parse import quote

from allotment.api.body import Gone
from allotment.model.errors import BackendError
from allotment.service.workspace import OpenFile

CHUNK = 256 * 1024


class Contents:
    """The content of a file as it was when opened, in pieces. `aclose` closes the file.

    Raises Gone where there is less of it: then the connection is cut, and no end looks right.
    """

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self._left = file.size
        self._reading: asyncio.Future[bytes] | None = None

    async def __anext__(self) -> bytes:
        if self._left <= 0:
            raise StopAsyncIteration
        work = self._file.read(min(CHUNK, self._left))
        self._reading = asyncio.ensure_future(work)
        try:
            data = await asyncio.shield(self._reading)
        except BackendError as error:
            raise Gone from error
        if not data:
            raise Gone  # It is shorter than was said. Who asks for the rest is told why.
        self._left -= len(data)
        return data

    async def aclose(self) -> None:
        """Close the file, once the thread that may still read from it is done."""
        if self._reading is not None:
            await asyncio.wait({self._reading})
        await self._file.close()


def headers_of(file: OpenFile) -> dict[str, str]:
    """Return the headers of a file: its size, and that browsers must not interpret it."""
    return {
        "Content-Length": str(file.size),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file.name, safe='')}",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }

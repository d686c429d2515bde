"""What the devices of a task need in its image: by what CDI says, and with a layer for it."""

import os
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from allotment.backends.local.cdi.found import Specifications
from allotment.backends.local.cdi.layer import DriverLayers
from allotment.backends.local.cdi.spec import Edits
from allotment.backends.local.images.images import Ready
from allotment.backends.local.images.store import Store
from allotment.model.errors import BackendError
from allotment.service.threads import Threads

_PATIENCE_S: Final = 180.0


class Drivers(msgspec.Struct, frozen=True):
    """What the task's devices need, and the layer that has the places for it."""

    edits: Edits
    layer: str
    made_ms: tuple[int, int] | None = None
    """When it was made, from when to when; None where it was there."""


class DriversInImages:
    """Finds it, and has the layer made where an image has none yet."""

    def __init__(self, store: Store, specifications: Specifications) -> None:
        self._layers = DriverLayers(store)
        self._specifications = specifications
        self._turn = threading.Lock()
        self._threads = Threads("drivers", each=1, total=4)

    async def of(self, uid: int, files: Sequence[str], ready: Ready) -> Drivers | None:
        """Return what a task needs that has these device files; None where nothing says so.

        An image that takes long keeps its user's tasks waiting, and nobody else's. Raises
        ImageTrouble, BackendError.
        """
        if not files:
            return None
        try:
            return await self._threads.run(uid, partial(self._of, files, ready), _PATIENCE_S)
        except TimeoutError:
            raise BackendError(
                f"the image did not have its drivers after {_PATIENCE_S:.0f} s"
            ) from None

    def _of(self, files: Sequence[str], ready: Ready) -> Drivers | None:
        began = time.time()
        with self._turn:
            edits = self._specifications.edits(files)
        if edits is None:
            return None
        # While a thread waits for a layer its image may not go, though nobody waits for it.
        held = os.dup(ready.hold)
        try:
            layer, is_new = self._layers.layer(ready, edits)
        finally:
            os.close(held)
        span = (int(began * 1000), max(int(began * 1000) + 1, int(time.time() * 1000)))
        return Drivers(edits, layer, span if is_new else None)

"""Steps of starting a task that the service takes itself."""

import time

from allotment.model.events import Phase
from allotment.model.quantity import Instant, Millis


def took(name: str, began: float) -> tuple[Phase, ...]:
    """Return a step that is over now; it began at a time of the machine's clock."""
    ms = int((time.time() - began) * 1000)
    return (Phase(name, Instant(int(began * 1000)), Millis(ms)),)

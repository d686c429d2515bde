"""A first wish to a service: where none runs, one is started for it."""

import os
from collections.abc import Callable
from typing import TypeVar

from allotment.cli.output import talk
from allotment.client import Client, Unreachable

T = TypeVar("T")


def asked_first(client: Client, state: str, ask: Callable[[Client], T]) -> T:
    """Ask a service; start one in the state folder first if none answers there.

    A service that ALLOT_URL names is not started.
    """
    try:
        return ask(client)
    except Unreachable:
        if os.environ.get("ALLOT_URL") and not state:
            raise
    from allotment.cli.daemon import folder_of, start  # noqa: PLC0415 - rarely needed
    from allotment.wiring.options import Options  # noqa: PLC0415

    folder = folder_of(state)
    health = start(Options(folder))
    talk(f"No service was running, so one was started (state in {health.state_dir}).")
    talk("It stays for the next job; `allot down` stops it.")
    with Client(state=str(folder)) as started:
        return ask(started)

"""Submitting so that nobody stays in doubt: always with a key, and asking until it is known."""

import time
import uuid

from allotment.cli.output import talk
from allotment.client import Client, Refused
from allotment.client.request import JobText
from allotment.model.errors import Code
from allotment.service.views import Submitted

ASK_FOR_S = 60.0
"""How long to ask again; then the person does."""
ASK_EVERY_S = 1.0


def new_key() -> str:
    """Return a new key for one submission."""
    return uuid.uuid4().hex


def submit_surely(
    client: Client, job: JobText, key: str, *, form: str = "auto", held: bool = False
) -> Submitted:
    """Submit a job; while it is uncertain whether it was taken, ask. Raises ApiError."""
    end = time.monotonic() + ASK_FOR_S
    told = False
    while True:
        try:
            return client.submit(job, key=key, form=form, held=held)
        except Refused as error:
            if error.code != Code.UNCERTAIN or time.monotonic() > end:
                raise
            if not told:
                talk(f"{error.message}")
                talk(f"Asking again for {ASK_FOR_S:.0f} s. {error.hint}")
            told = True
        time.sleep(ASK_EVERY_S)

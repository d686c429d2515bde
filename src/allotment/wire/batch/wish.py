"""What is known of a batch script besides its text."""

from collections.abc import Mapping

import msgspec


class Submitter(msgspec.Struct, frozen=True):
    """From where a script is submitted: what only that side knows."""

    folder: str = ""
    host: str = ""
    script: str = ""
    """The name of its file."""
    environ: Mapping[str, str] | None = None
    args: tuple[str, ...] = ()


class BatchWish(msgspec.Struct, frozen=True):
    """Who submits a script, and what they said beside it."""

    by: Submitter = Submitter()
    options: tuple[str, ...] = ()
    """As words of a command line; they win over those of the script."""
    ignored: tuple[str, ...] = ()
    """Names of options that are only warned of."""

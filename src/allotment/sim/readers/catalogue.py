"""Every trace format there is. A new one is a new file and a line here."""

from allotment.sim.readers import (
    acme,
    gavel,
    helios,
    muri,
    openb,
    pai,
    philly,
    philly_sia,
    sacct,
    simple,
    spot,
    tiresias,
)
from allotment.sim.readers.formats import Format
from allotment.sim.readers.source import Text
from allotment.sim.readers.table import header_of
from allotment.sim.trace import BadTrace

FORMATS: dict[str, Format] = {
    module.FORMAT.name: module.FORMAT
    for module in (
        philly_sia,
        simple,
        philly,
        helios,
        acme,
        pai,
        openb,
        spot,
        sacct,
        gavel,
        muri,
        tiresias,
    )
}
"""By name; the first that recognises a file reads it."""


def format_named(name: str) -> Format:
    """Look up a format. BadTrace names the nearest that exist."""
    if name in FORMATS:
        return FORMATS[name]
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), FORMATS, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise BadTrace(f"unknown trace format {name!r}: {hint}known: {', '.join(FORMATS)}")


def format_of(text: Text) -> Format:
    """Return the format of a text by its first lines. BadTrace says what it looks like."""
    for known in FORMATS.values():
        if known.tells(text.head):
            return known
    if "ustar" in text.head[257:265]:
        raise BadTrace(f"{text.name}: a tar archive; unpack it and name the trace inside")
    if "\0" in text.head or text.head.count("\ufffd") > len(text.head) // 20:
        raise BadTrace(
            f"{text.name}: not text; a trace is text, plain or compressed with gzip or zstd"
        )
    raise BadTrace(f"{text.name}: no known format starts like this; {_nearest(text.head)}")


def _nearest(head: str) -> str:
    """Return which format shares most columns with a header, and which it lacks."""
    header = header_of(head)
    lacking = {
        name: [column for column in known.columns if column not in header]
        for name, known in FORMATS.items()
        if known.columns
    }
    name = min(lacking, key=lambda name: len(lacking[name]) / len(FORMATS[name].columns))
    if len(lacking[name]) * 2 > len(FORMATS[name].columns):
        return f"known: {', '.join(FORMATS)}; if it is one of these, name it as the format"
    return f"nearest is {name}, whose header also has {', '.join(lacking[name])}"

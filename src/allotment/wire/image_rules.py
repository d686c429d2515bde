"""Rules for images as a configuration writes them: `registry.example.org/vision/*`."""

from typing import Annotated, Final

from pydantic import PlainValidator

from allotment.model.image_names import DIGEST, HUB, BadReference, has_registry, parse
from allotment.model.image_rules import ANYWHERE, BELOW, ImageRule
from allotment.wire.amiss import Amiss
from allotment.wire.text import shown
from allotment.wire.words import read_word

_STANDS_IN: Final = "x"
"""For what `*` may be, to read the rest."""


def read_image_rule(value: object) -> ImageRule:
    """Read a rule. Raises Amiss."""
    text = read_word(value)
    place, at, digest = text.partition("@")
    if at and not DIGEST.fullmatch(digest):
        raise Amiss(
            f"{shown(text)} has an @ that no digest follows",
            "a digest is sha256: and 64 hexadecimal digits, in lower-case letters",
        )
    if place == ANYWHERE:
        if not digest:
            hint = "take `images` out to allow every image; *@sha256:… allows some bytes"
            raise Amiss("* would allow every image", hint)
        return ImageRule(ANYWHERE, digest)
    return ImageRule(_place(place, text), digest)


def _place(place: str, text: str) -> str:
    registry, slash, path = place.partition("/")
    if not (slash and has_registry(place)):
        bare = place.partition(":")[0]
        hub = f"{HUB}/{bare}" if slash else f"{HUB}/library/{bare}"
        raise Amiss(
            f"{shown(text)} names no registry",
            f"of Docker Hub write {hub}; for all of a registry registry.example.org/*",
        )
    below = path == ANYWHERE or path.endswith(BELOW)
    plain = path.removesuffix(ANYWHERE) + _STANDS_IN if below else path
    if ANYWHERE in registry or ANYWHERE in plain:
        raise Amiss(
            f"{shown(text)} has a * that is not the whole of its last part",
            "write registry.example.org/vision/*, which is all below that path",
        )
    if ":" in path:
        raise Amiss(
            f"{shown(text)} has a tag, which says nothing of the bytes",
            "take the tag out, or name a digest: registry.example.org/vision/torch@sha256:…",
        )
    try:
        name = parse(f"{registry.lower()}/{plain}")
    except BadReference as error:
        hint = "write it like registry.example.org/vision/torch, the path in lower-case letters"
        raise Amiss(f"{shown(text)} {error}", hint) from error
    if not below:
        return name.place
    return f"{name.registry}/{path}"


Image = Annotated[ImageRule, PlainValidator(read_image_rule, json_schema_input_type=str)]

"""Which images the jobs of a tenant may name: rules that its administrator writes."""

from collections.abc import Sequence
from typing import Final

import msgspec

from allotment.model.image_names import BadReference, Reference, parse

ANYWHERE: Final = "*"
BELOW: Final = "/*"


class ImageRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """One repository, all below a path, or some bytes wherever they lie.

    A rule says nothing of tags: whoever may push moves them, and a name may have a tag and the
    digest of something else.
    """

    place: str
    """`registry/repository`, `registry/path/*`, `registry/*`, or `*`; the registry in small
    letters."""
    digest: str = ""
    """The only bytes that are meant; '' for all that lie there."""

    def allows(self, image: Reference) -> bool:
        """Whether an image is meant. One that is named without its digest may be any bytes."""
        if self.digest and self.digest != image.digest:
            return False
        return self.covers(image)

    def covers(self, image: Reference) -> bool:
        """Whether an image lies where the rule says, whatever its digest."""
        if self.place == ANYWHERE:
            return True
        place = f"{image.registry.lower()}/{image.repository}"
        if self.place.endswith(BELOW):
            return place.startswith(self.place.removesuffix(ANYWHERE))
        return place == self.place

    def __str__(self) -> str:
        return f"{self.place}@{self.digest}" if self.digest else self.place


def may_name(rules: Sequence[ImageRule], image: str) -> bool:
    """Whether rules allow an image, named as jobs name it; without rules all is allowed."""
    if not rules:
        return True
    try:
        name = parse(image)
    except BadReference:
        return False
    return any(rule.allows(name) for rule in rules)


def needs_digest(rules: Sequence[ImageRule], image: str) -> bool:
    """Whether rules may allow an image that they do not, if it is named by its digest."""
    try:
        name = parse(image)
    except BadReference:
        return False
    return not name.digest and any(rule.covers(name) for rule in rules)

"""Words of the command line to values, without a validation library where none is needed.

Typer converts every value, defaults included, with pydantic. Importing that takes longer
than all the rest of `allot ps`, and most of our values are texts and defaults, which need
no conversion. Those pass here; anything else goes Typer's way. There is no public door for
this, so one function of its inside is wrapped; a test sees to it that `allot ps` stays free
of pydantic and that wrong values are still told.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, cast

import typer.core
from typer import Context


class Parameter(Protocol):
    """The part of Typer's parameters that is used here."""

    multiple: bool
    nargs: int


class Descriptor(Protocol):
    """What Typer knows of a parameter's type."""

    annotation: object


class Coercion(Protocol):
    """What Typer asks to convert a value."""

    def coerce(self, value: object, param: Parameter, ctx: Context) -> object: ...


Build = Callable[[Descriptor], Coercion]

PLAIN: tuple[type, ...] = (str, bool, int, float)
"""Types whose values, where they are of that type already, are passed."""


class AsItIs:
    """Passes values that are what they should be already."""

    def __init__(self, descriptor: Descriptor, build: Build) -> None:
        self._descriptor = descriptor
        self._build = build

    def coerce(self, value: object, param: Parameter, ctx: Context) -> object:
        """Return the value, converted Typer's way only if it must be."""
        many = param.multiple or param.nargs == -1
        if value is None:
            return () if many else None
        wanted = self._descriptor.annotation
        if many and wanted == list[str] and isinstance(value, (list, tuple)):
            return list(cast("Sequence[str]", value))
        if any(wanted is kind and isinstance(value, kind) for kind in PLAIN):
            return value
        return self._build(self._descriptor).coerce(value, param, ctx)


def install() -> None:
    """Make Typer pass what needs no conversion. Without effect on a Typer built otherwise."""
    build: Build | None = getattr(typer.core, "build_runtime_param", None)
    if build is None or getattr(build, "quick", False):
        return

    def quick(descriptor: Descriptor) -> Coercion:
        return AsItIs(descriptor, build)

    quick.quick = True  # pyright: ignore[reportFunctionMemberAccess]
    typer.core.build_runtime_param = quick  # pyright: ignore

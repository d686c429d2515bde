"""What help shows in the place of a value: what to type there, and not of which type it is."""

import typer
from typer.core import TyperArgument, TyperOption


def show_words() -> None:
    """Have help pages name values by words: `--tenant TENANT` in place of `--tenant <str>`.

    The library has no setting for it.
    """
    TyperArgument.display_type_rich = _nothing  # pyright: ignore
    TyperOption.display_type_rich = _word  # pyright: ignore


def _nothing(argument: TyperArgument, ctx: typer.Context) -> None:  # noqa: ARG001 - the library's
    """An argument's name says it already."""


def _word(option: TyperOption, ctx: typer.Context) -> str:
    if option.metavar is not None:
        return option.metavar
    kind = option.type_descriptor
    if kind.is_choice:
        return option.display_type(ctx).strip("<>")
    if kind.is_path:
        return "FILE"
    if kind.is_ranged or kind.annotation is int:
        return "N"
    return max(option.opts, key=len).lstrip("-").upper()

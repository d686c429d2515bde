"""Grids of parameters: one job of an array for each combination of values."""

import re
from collections.abc import Mapping
from math import prod
from typing import TypeAlias

import msgspec

from allotment.model.spec import JobSpec, TaskRole

Grid: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Each parameter with its values. The last one changes fastest."""

Parameters: TypeAlias = tuple[tuple[str, str], ...]

PLACE = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""Where a command wants a value: `{lr}`. `${lr}` is the shell's."""


def combinations(grid: Grid) -> int:
    """Return how many jobs a grid makes."""
    return prod(len(values) for _, values in grid)


def parameters_of(grid: Grid, index: int) -> Parameters:
    """Return the values of the index-th job."""
    found: list[tuple[str, str]] = []
    for name, values in reversed(grid):
        index, place = divmod(index, len(values))
        found.append((name, values[place]))
    return tuple(reversed(found))


def with_parameters(spec: JobSpec, parameters: Parameters) -> JobSpec:
    """Put values into a job: as variables of its tasks, and for `{name}` in its commands."""
    values = dict(parameters)
    return msgspec.structs.replace(
        spec,
        env=(*spec.env, *parameters),
        roles=tuple(_filled_in(role, values) for role in spec.roles),
    )


def _filled_in(role: TaskRole, values: Mapping[str, str]) -> TaskRole:
    def fill(text: str) -> str:
        return PLACE.sub(lambda found: values.get(found[1], found[0]), text)

    command = role.command
    filled = fill(command) if isinstance(command, str) else tuple(map(fill, command))
    return msgspec.structs.replace(role, command=filled)

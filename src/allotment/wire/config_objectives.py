"""The service objectives of a tenant, as a configuration has them."""

import re
from fractions import Fraction
from typing import Annotated

from pydantic import Field, PlainValidator

from allotment.model.objectives import PPM, Objectives
from allotment.wire.amiss import Amiss, not_a
from allotment.wire.amounts import write_duration
from allotment.wire.fields import Duration
from allotment.wire.job_shape import Shape
from allotment.wire.text import shown
from allotment.wire.tree import Plain

PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,4})?) ?%")
HINT = "write it like 99.5%"


def read_percent(value: object) -> int:
    """Read a share above 0 % and up to 100 %, to the ten-thousandth, in millionths."""
    found = PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if not found:
        raise not_a("a percentage", value, HINT)
    ppm = Fraction(found[1]) * PPM / 100
    if not 0 < ppm <= PPM:
        raise Amiss(f"must be more than 0% and at most 100%, not {shown(value)}", HINT)
    return ppm.numerator


def write_percent(ppm: int) -> str:
    """Write millionths exactly: 99.5%."""
    return f"{ppm // 10_000}.{ppm % 10_000:04d}".rstrip("0").rstrip(".") + "%"


class ObjectivesShape(Shape):
    """The objectives of a tenant; what is left out is not measured."""

    guarantee_back_within: Duration | None = Field(default=None, examples=["2min"])
    wait_within_guarantee: Duration | None = Field(default=None, examples=["10min"])
    availability: Annotated[int, PlainValidator(read_percent)] | None = Field(
        default=None, examples=["99.5%"]
    )


def objectives_of(shape: ObjectivesShape) -> Objectives:
    """Return the objectives as values."""
    return Objectives(
        shape.guarantee_back_within, shape.wait_within_guarantee, shape.availability
    )


def objectives_to_wire(objectives: Objectives) -> dict[str, Plain]:
    """Return objectives as they are written; what has no target is left out."""
    lengths = {
        "guarantee_back_within": objectives.guarantee_back_ms,
        "wait_within_guarantee": objectives.wait_ms,
    }
    found: dict[str, Plain] = {
        key: write_duration(length) for key, length in lengths.items() if length is not None
    }
    if objectives.availability_ppm is not None:
        found["availability"] = write_percent(objectives.availability_ppm)
    return found

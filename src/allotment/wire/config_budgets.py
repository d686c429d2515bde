"""A tenant's budgets of GPU-hours: as written, as values, and what does not add up."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field, PlainValidator, model_validator

from allotment.model.budget import FOREVER, Budget, Every
from allotment.model.quantity import SECOND, WallTime
from allotment.wire import words
from allotment.wire.amiss import Amiss, not_a
from allotment.wire.amounts import read_hours, write_hours
from allotment.wire.fields import NameOrNone, Truth
from allotment.wire.job_shape import Shape
from allotment.wire.problems import Finding, nearest
from allotment.wire.text import shown
from allotment.wire.tree import Place, Plain

PERIODS = tuple(every.value for every in Every if every is not Every.NEVER)


def read_every(value: object) -> Every:
    """Read how often a budget is renewed."""
    if value not in PERIODS:
        raise not_a("day, week or month", value, "for one period, write from and until")
    return Every(str(value))


def read_date(value: object) -> WallTime:
    """Read a date, or a date and time, in ms since the epoch; of UTC if it names no zone."""
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        found = None
    if found is None:
        raise not_a("a date", value, "write it like 2026-10-01 or 2026-10-01T12:00")
    at = found if found.tzinfo else found.replace(tzinfo=UTC)
    if not 1970 < at.year < 9999:
        raise Amiss(f"{shown(value)} is too far away", "write a year from 1971 to 9998")
    return WallTime(int(at.timestamp()) * SECOND)


def write_date(at: WallTime) -> str:
    """Write an instant as `read_date` takes it."""
    text = datetime.fromtimestamp(at // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return text.removesuffix("T00:00:00Z")


Hours = Annotated[int, PlainValidator(read_hours, json_schema_input_type=float)]
Date = Annotated[WallTime, PlainValidator(read_date, json_schema_input_type=str)]


class BudgetShape(Shape):
    """GPU-hours that may be used in a day, week or month, or until some day."""

    soft: Hours | None = Field(default=None, examples=["4000"])
    hard: Hours | None = Field(default=None, examples=["5000"])
    every: Annotated[Every, PlainValidator(read_every)] | None = Field(
        default=None, examples=["month"]
    )
    begin: Date | None = Field(default=None, alias="from", examples=["2026-10-01"])
    until: Date | None = Field(default=None, examples=["2027-01-01"])
    queue: NameOrNone = Field("", examples=["nightly"])
    user: Annotated[str, PlainValidator(words.read_user)] | None = Field(
        default=None, examples=["alice"]
    )
    each_user: Truth = False

    @model_validator(mode="after")
    def _makes_sense(self) -> "BudgetShape":
        if self.soft is None and self.hard is None:
            raise Amiss("is missing", "add hard: 5000, soft: 4000, or both", at=("hard",))
        if self.soft is not None and self.hard is not None and self.soft > self.hard:
            raise Amiss("is more than `hard`", "warn before it is used up", at=("soft",))
        if self.every is None and self.until is None:
            raise Amiss("is missing", "add every: month, or until: 2027-01-01", at=("every",))
        if self.every is not None and (self.until is not None or self.begin is not None):
            at = "until" if self.until is not None else "from"
            raise Amiss("is given beside `every`", "keep one of the two", at=(at,))
        if self.begin is not None and self.until is not None and self.begin >= self.until:
            raise Amiss("is not before `until`", "exchange them", at=("from",))
        if self.user is not None and self.each_user:
            raise Amiss(
                "is given beside `user`", "name one user, or mean each", at=("each_user",)
            )
        return self


def budgets_of(shapes: Iterable[BudgetShape]) -> tuple[Budget, ...]:
    """Return the budgets as values."""
    return tuple(
        Budget(
            every=shape.every or Every.NEVER,
            soft=shape.soft or 0,
            hard=shape.hard or 0,
            queue=shape.queue,
            user=shape.user or "",
            each_user=shape.each_user,
            begin=shape.begin or WallTime(0),
            end=shape.until or FOREVER,
        )
        for shape in shapes
    )


def budgets_to_wire(budgets: Sequence[Budget]) -> list[Plain]:
    """Write budgets; what is not said is left out."""
    return [_written(budget) for budget in budgets]


def _written(budget: Budget) -> dict[str, Plain]:
    return {
        **({"soft": write_hours(budget.soft)} if budget.soft else {}),
        **({"hard": write_hours(budget.hard)} if budget.hard else {}),
        **({"every": budget.every.value} if budget.every is not Every.NEVER else {}),
        **({"from": write_date(budget.begin)} if budget.begin else {}),
        **({"until": write_date(budget.end)} if budget.end < FOREVER else {}),
        **({"queue": budget.queue} if budget.queue else {}),
        **({"user": budget.user} if budget.user else {}),
        **({"each_user": True} if budget.each_user else {}),
    }


def wrong_budgets(
    name: str, shapes: Sequence[BudgetShape], queues: Sequence[str]
) -> Iterator[Finding]:
    """Return a problem for each budget of a queue that is not there, or given twice."""
    seen: dict[object, int] = {}
    for at, (shape, budget) in enumerate(zip(shapes, budgets_of(shapes), strict=True)):
        place: Place = ("tenants", name, "budgets", at)
        if shape.queue and shape.queue not in queues:
            hint = nearest(shape.queue, list(queues), what="queues")
            yield (*place, "queue"), f"tenant {name} has no queue {shape.queue}", hint
        first = seen.setdefault(budget.scope, at)
        if first != at:
            message = f"is of the same jobs and time as budgets[{first}]"
            yield place, message, "make one of them, with soft and hard"

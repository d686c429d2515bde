"""From when until when something differs, as it is written; for pydantic."""

from pydantic import Field, model_validator

from allotment.wire.amiss import Amiss
from allotment.wire.config_budgets import Date
from allotment.wire.job_shape import Shape

DATES = frozenset({"begin", "until"})


class PeriodShape(Shape):
    """What differs from one date to another; each key stands for that of its owner."""

    begin: Date | None = Field(default=None, alias="from", examples=["2026-12-01"])
    until: Date | None = Field(default=None, examples=["2026-12-15T18:00"])

    @model_validator(mode="after")
    def _makes_sense(self) -> "PeriodShape":
        if self.begin is None and self.until is None:
            hint = "add from: 2026-12-01, until: 2026-12-15T18:00, or both"
            raise Amiss("is missing", hint, at=("from",))
        if self.begin is not None and self.until is not None and self.begin >= self.until:
            raise Amiss("is not before `until`", "exchange them", at=("from",))
        if not self.says:
            raise Amiss("changes nothing", "add guaranteed: {gpu: 4}, or the like")
        return self

    @property
    def says(self) -> dict[str, object]:
        """Return the values that change, by key."""
        return {key: getattr(self, key) for key in self.model_fields_set - DATES}

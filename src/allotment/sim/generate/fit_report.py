"""The table that says how well a synthetic workload fits: rows, verdicts, plain words.

What counts as what:

  measure            good        fair
  KS, TV             ≤ 0.05      ≤ 0.15      of all jobs are elsewhere
  mean               ≤ 0.25      ≤ 1.00      one exceeds the other by 25 %, by double

Means of heavy-tailed amounts hang on few jobs, hence their wider bounds.
"""

from enum import StrEnum
from math import isfinite

import msgspec

from allotment.model.quantity import show_milli, show_millis


class Measure(StrEnum):
    """How two distributions were compared."""

    KS = "KS"
    TV = "TV"
    MEAN = "mean"
    """By how much the greater mean exceeds the smaller."""


class Verdict(StrEnum):
    """Whether a distance matters."""

    GOOD = "good"
    FAIR = "fair"
    POOR = "poor"


class Unit(StrEnum):
    """What figures count."""

    MILLIS = "ms"
    MILLI = "thousandths of a device"
    PLAIN = ""


GOOD_UP_TO = {Measure.KS: 0.05, Measure.TV: 0.05, Measure.MEAN: 0.25}
FAIR_UP_TO = {Measure.KS: 0.15, Measure.TV: 0.15, Measure.MEAN: 1.0}


class Figures(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A distribution in four figures, or a single one."""

    mean: float
    p50: int | None = None
    p90: int | None = None
    p99: int | None = None


class FitRow(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One property of the two workloads."""

    name: str
    measure: Measure
    distance: float
    """0 is the same; what else it means depends on the measure."""
    verdict: Verdict
    unit: Unit = Unit.PLAIN
    real: Figures | None = None
    """None for kinds (tenants, hours …), which have no mean."""
    synthetic: Figures | None = None

    def cells(self) -> tuple[str, ...]:
        """One text for each of `FitReport.HEADER`."""
        shown = [
            _shown(figure, self.unit)
            for name in ("mean", "p50", "p90", "p99")
            for figure in (getattr(self.real, name, None), getattr(self.synthetic, name, None))
        ]
        pairs = [
            f"{real} / {made}" if real else ""
            for real, made in zip(shown[::2], shown[1::2], strict=True)
        ]
        distance = _distance(self.measure, self.distance)
        return self.name, self.verdict.value, distance, *pairs


HEADER = ("what", "fit", "distance", "mean", "p50", "p90", "p99")
"""Titles of the columns; the last four are real / synthetic."""


class FitReport(msgspec.Struct, frozen=True, gc=False):
    """How well a synthetic workload fits, property by property."""

    real_jobs: int
    synthetic_jobs: int
    rows: tuple[FitRow, ...]
    notes: tuple[str, ...] = ()

    def row(self, name: str) -> FitRow:
        """Find a row by its name; KeyError when there is none."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def cells(self) -> list[tuple[str, ...]]:
        """Return the table as texts, `HEADER` first."""
        return [HEADER, *(row.cells() for row in self.rows)]

    def lines(self) -> list[str]:
        """Return the table as aligned lines of text, with units and notes."""
        table = self.cells()
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return [
            f"real: {self.real_jobs} jobs; synthetic: {self.synthetic_jobs} jobs "
            "(figures are real / synthetic)",
            *("  ".join(map(str.ljust, row, widths)).rstrip() for row in table),
            *(f"note: {note}" for note in self.notes),
        ]


def verdict_on(measure: Measure, distance: float) -> Verdict:
    """Judge a distance; the bounds stand at the head of this module."""
    if distance <= GOOD_UP_TO[measure]:
        return Verdict.GOOD
    return Verdict.FAIR if distance <= FAIR_UP_TO[measure] else Verdict.POOR


def _shown(figure: float | None, unit: Unit) -> str:
    if figure is None:
        return ""
    if unit is Unit.MILLIS:
        return show_millis(round(figure))
    if unit is Unit.MILLI:
        return show_milli(round(figure))
    return f"{figure:.2f}"


def _distance(measure: Measure, distance: float) -> str:
    if measure is not Measure.MEAN:
        return f"{measure.value} {distance:.3f}"
    return f"{distance:.0%} apart" if isfinite(distance) else "one is 0"

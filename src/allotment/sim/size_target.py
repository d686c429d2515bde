"""Targets of `allot sim size`: `p90_queue_delay<=30min and utilization>=0.5`."""

import operator
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches

import msgspec

from allotment.metrics.summary import (
    Fairness,
    Sla,
    Summary,
    WaitParts,
    is_of_completed,
)
from allotment.model.quantity import show_millis
from allotment.sim.bad import BadScenario
from allotment.sim.settings import BadSetting, read_length

JOINED = re.compile(r",|\band\b")
CONDITION = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(<=|>=|<|>)\s*(.+?)\s*")
COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
}  # fmt: skip

RISES = (
    "completed", "throughput_jobs_per_h", "fairness.jain", "sla.started_in_time", "sla.fair",
    "sla.both",
)  # fmt: skip
"""What a larger cluster makes more of; of all else it makes less, or leaves it as it is."""

NESTED: Mapping[str, type[msgspec.Struct]] = {
    "fairness": Fairness, "sla": Sla, "wait_causes": WaitParts,
}  # fmt: skip


class BadTarget(BadScenario):
    """A target that cannot be read: what, and how to write it."""


def _numbers() -> dict[str, str]:
    """List the metrics by every name they go by: with and without the unit."""
    fields = [
        f"{above}.{name}" for above, kind in NESTED.items() for name in kind.__struct_fields__
    ]
    fields = [name for name in fields if not name.startswith("sla.target")]
    fields += [
        field.name for field in msgspec.structs.fields(Summary) if field.type in (int, float)
    ]
    return {name: field for field in fields for name in (field, field.removesuffix("_s"))}


METRICS: Mapping[str, str] = _numbers()


class Condition(msgspec.Struct, frozen=True):
    """One bound. `bound` is in the unit of the metric: seconds, a share, a number."""

    metric: str
    """The field of `Summary`, as `fairness.jain`."""
    sign: str
    bound: float
    text: str
    """As it was written."""

    @property
    def eased_by_size(self) -> bool:
        """Whether more nodes help to meet it; else they are in its way."""
        return (self.metric in RISES) == (self.sign[0] == ">")

    @property
    def limit(self) -> str:
        """Sign and bound, as they were written."""
        return self.text[self.text.index(self.sign) :]

    def value(self, summary: Summary) -> float | None:
        """Return the metric's value; None where it is of completed jobs and there is none."""
        return value_of(summary, self.metric)

    def met(self, summary: Summary) -> bool:
        """Whether a run meets it. What has no value meets nothing."""
        value = self.value(summary)
        return value is not None and COMPARE[self.sign](value, self.bound)

    def missed(self, summary: Summary) -> str:
        """Return what a run that misses it has instead."""
        name, value = self.metric.removesuffix("_s"), self.value(summary)
        if value is None:
            return f"no job completes, so there is no {name}"
        return f"{name} is {shown(self.metric, value)} and not {self.limit}"


def value_of(summary: Summary, metric: str) -> float | None:
    """Return a metric's value; None where it is of completed jobs and there is none."""
    if not summary.completed and is_of_completed(metric):
        return None
    found: object = summary
    for name in metric.split("."):
        found = getattr(found, name)
    assert isinstance(found, int | float)
    return found


def read_target(text: str) -> tuple[Condition, ...]:
    """Read conditions joined by `,` or `and`. Raises BadTarget."""
    parts = JOINED.split(text)
    if not text.strip():
        raise BadTarget(f"--target is empty. {HOW}")
    return tuple(_condition(part) for part in parts)


HOW = "Write METRIC<=VALUE or METRIC>=VALUE, such as 'p90_queue_delay<=30min'."


def _condition(text: str) -> Condition:
    match = CONDITION.fullmatch(text)
    if match is None:
        raise BadTarget(f"--target: {text.strip()!r} is not a condition. {HOW}")
    name, sign, value = match.groups()
    metric = METRICS.get(name)
    if metric is None:
        plain = sorted({known.removesuffix("_s") for known in METRICS})
        near = get_close_matches(name, plain, 3, 0.5)
        hint = f"Near: {', '.join(near)}." if near else f"There are: {', '.join(plain)}."
        raise BadTarget(f"--target: there is no metric {name!r}. {hint}")
    bound = _seconds(value) if metric.endswith("_s") else _number(value)
    return Condition(metric, sign, bound, text.strip())


def _seconds(text: str) -> float:
    try:
        return read_length(text) / 1000
    except BadSetting as error:
        raise BadTarget(f"--target: {error}") from error


def _number(text: str) -> float:
    share = text.endswith("%")
    try:
        value = float(text.removesuffix("%"))
    except ValueError as error:
        raise BadTarget(
            f"--target: {text!r} is neither a number nor a share such as 50%."
        ) from error
    if value != value or abs(value) == float("inf"):
        raise BadTarget(f"--target: {text!r} is not a finite number.")
    return value / 100 if share else value


SHARES = ("utilization", "fragmentation", "stranded")


def shown(metric: str, value: float | None) -> str:
    """Write a value of a metric with its unit; a dash where there is none."""
    if value is None:
        return "–"
    if metric.endswith("_s"):
        return show_millis(round(value * 1000))
    if metric in SHARES:
        return f"{value:.1%}"
    return f"{value:,.3f}".rstrip("0").rstrip(".")

"""What protects running jobs from more urgent ones of their tenant, as it is written."""

from typing import Annotated, Protocol

import msgspec
from pydantic import PlainValidator, model_validator

from allotment.model.quantity import HOUR, Millis
from allotment.model.spec import GiveWay
from allotment.model.tenancy import PreemptRules, Tenant
from allotment.wire import amounts
from allotment.wire.amiss import Amiss
from allotment.wire.amounts import write_duration
from allotment.wire.fields import DurationOrNone
from allotment.wire.job_shape import Shape
from allotment.wire.tree import Plain

MOST_EVICTIONS = 1_000_000


def read_evictions(value: object) -> int:
    """Read how many jobs may lose their share within an interval."""
    return amounts.read_whole(value, 0, MOST_EVICTIONS)


class PreemptRulesShape(Shape):
    """What protects running jobs; 0 sets no bound."""

    min_run: DurationOrNone = Millis(0)
    evictions: Annotated[int, PlainValidator(read_evictions, json_schema_input_type=int)] = 0
    lost_gpu_time: DurationOrNone = Millis(0)
    per: DurationOrNone = Millis(HOUR)
    starved: DurationOrNone = Millis(0)
    short: DurationOrNone = Millis(0)

    @model_validator(mode="after")
    def _some_time(self) -> "PreemptRulesShape":
        if not self.per:
            raise Amiss(
                "must be more than 0", "write it like 30min; left out it is 1h", ("per",)
            )
        return self


def rules_of(shape: PreemptRulesShape) -> PreemptRules:
    """Return the rules in the model's form."""
    return PreemptRules(
        shape.min_run,
        shape.evictions,
        shape.lost_gpu_time,
        shape.per,
        shape.starved,
        shape.short,
    )


def rules_to_wire(tenant: Tenant) -> dict[str, Plain]:
    """Return how a tenant's jobs are preempted, as it is written, without defaults."""
    rules, way = tenant.preempt_rules, tenant.on_eviction
    written: dict[str, Plain] = {"on_eviction": way.value} if way is not GiveWay.REQUEUE else {}
    if rules != PreemptRules():
        written["preempt_rules"] = {
            "min_run": write_duration(rules.min_run_ms),
            "evictions": rules.evictions,
            "lost_gpu_time": write_duration(rules.lost_device_ms),
            "per": write_duration(rules.per_ms),
            "starved": write_duration(rules.starved_ms),
            "short": write_duration(rules.short_ms),
        }
    return written


class Ruled(Protocol):
    """The keys of a tenant about preemption of its jobs."""

    preempt_rules: PreemptRulesShape | None
    on_eviction: GiveWay


def with_rules(tenant: Tenant, own: Ruled, common: PreemptRulesShape) -> Tenant:
    """Return a tenant with its own rules, or else the common ones."""
    rules = rules_of(common if own.preempt_rules is None else own.preempt_rules)
    return msgspec.structs.replace(tenant, preempt_rules=rules, on_eviction=own.on_eviction)

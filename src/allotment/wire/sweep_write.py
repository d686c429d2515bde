"""A sweep back into the form of job files."""

from allotment.model.sweeps import Axis, Goal, Range, Scale, Sweep
from allotment.wire.amounts import write_duration, write_hours
from allotment.wire.tree import Plain


def sweep_to_wire(sweep: Sweep) -> dict[str, Plain]:
    """Write a sweep; keys at their default are left out. Read again it is the same."""
    written: dict[str, Plain] = {
        "parameters": {name: _axis(axis) for name, axis in sweep.space}
    }
    if sweep.draws:
        written[sweep.sampler.value] = {
            "count": sweep.draws,
            **({"seed": sweep.seed} if sweep.seed is not None else {}),
        }
    if sweep.metric:
        written["metric"] = sweep.metric
    if sweep.goal is not Goal.MINIMIZE:
        written["goal"] = sweep.goal.value
    if (rule := sweep.halving) is not None:
        rungs: list[Plain] = [
            write_duration(rung) if rule.by_time else rung for rung in rule.rungs
        ]
        written["halving"] = {"rungs": rungs, "eta": rule.eta}
    if sweep.gpu_hours:
        written["gpu_hours"] = write_hours(sweep.gpu_hours)
    if sweep.cpu_hours:
        written["cpu_hours"] = write_hours(sweep.cpu_hours)
    return written


def _axis(axis: Axis) -> Plain:
    if not isinstance(axis, Range):
        return list(axis)
    if axis.scale is Scale.INT:
        return {axis.scale.value: [int(axis.low), int(axis.high)]}
    return {axis.scale.value: [axis.low, axis.high]}

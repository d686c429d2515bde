"""The label by which the trials of sweeps are found: `allot ps --label sweep=NAME`."""

import msgspec

from allotment.model.spec import JobSpec

LABEL = "sweep"


def labelled(spec: JobSpec) -> JobSpec:
    """Return a job with the label of its sweep, unless its user put one of this key."""
    if LABEL in dict(spec.labels):
        return spec
    return msgspec.structs.replace(spec, labels=(*spec.labels, (LABEL, spec.name)))

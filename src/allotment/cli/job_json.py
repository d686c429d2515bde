"""One job for programs: the columns of `allot ps` at the top, everything else beside them."""

import msgspec

from allotment.service.views import JobView


def as_object(job: JobView) -> dict[str, object]:
    """Return a job as one flat object: `id`, `name`, `state` …, `spec`, `attempts` …"""
    whole: dict[str, object] = msgspec.to_builtins(job)
    row = msgspec.to_builtins(job.row)
    return {**row, **{key: value for key, value in whole.items() if key != "row"}}

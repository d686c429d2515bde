"""What an engine cannot do is refused when it is asked for, and so never planned."""

from allotment.model import commands as c
from allotment.model.errors import Code, Rejected
from allotment.model.quantity import DEVICE, show_millis
from allotment.model.spec import NEVER, Checkpoint, GiveWay, JobSpec
from allotment.service.ports import Backend, Limited


def check_able(command: c.AnyCommand, backend: Backend) -> None:
    """Raise Rejected where a command asks for what the engine cannot do."""
    match command:
        case c.SuspendJob():
            _check_suspends(backend)
        case c.SubmitJob(spec=spec) | c.EditJob(spec=spec):
            _check_spec(spec, backend)
        case _:
            pass


def _check_spec(spec: JobSpec, backend: Backend) -> None:
    if spec.on_eviction is GiveWay.SUSPEND:
        _check_suspends(backend)
    _check_time(spec, backend)
    parts = (role.resources.gpu_milli % DEVICE for role in spec.roles)
    if not backend.divides and any(parts):
        raise Rejected(
            Code.NOT_SUPPORTED,
            f"On {backend.name} a task has whole GPUs only.",
            "Ask for a whole number of GPUs.",
        )


def _check_time(spec: JobSpec, backend: Backend) -> None:
    """Raise Rejected where a job wants to run for longer than its engine allows."""
    limit = backend.time_limit() if isinstance(backend, Limited) else None
    grace_ms = (spec.checkpoint or Checkpoint()).grace_ms
    if limit is None or spec.max_run_ms == NEVER:
        return
    if spec.max_run_ms + grace_ms <= limit.most_ms:
        return
    raise Rejected(
        Code.NOT_SUPPORTED,
        f"{limit.where} lets a job run for {show_millis(limit.most_ms)} at most; this one asks "
        f"for {show_millis(spec.max_run_ms)}, and then {show_millis(grace_ms)} of grace.",
        "Ask for less (max_run_time), and save checkpoints; or have the limit raised there.",
    )


def _check_suspends(backend: Backend) -> None:
    if not backend.suspends:
        raise Rejected(
            Code.NOT_SUPPORTED,
            f"On {backend.name} a suspended job keeps its GPUs: no other could run there.",
            "Let it save and come back: `on_eviction: requeue`, or cancel it.",
        )

"""A spec back into the native form: what `show --json`, `clone` and the API give.

Reading what was written gives the same spec, secrets aside. `array` and its slice are not
part of it: a job that is read belongs to no array until it is submitted as one.
"""

import msgspec

from allotment.model.data_use import DataUse
from allotment.model.dependencies import choices
from allotment.model.environment import Environment
from allotment.model.spec import (
    NEVER,
    Arch,
    Batch,
    Checkpoint,
    Completion,
    Dependency,
    Dialect,
    JobSpec,
    Port,
    TaskRole,
)
from allotment.wire.amounts import write_duration, write_milli, write_size
from allotment.wire.tree import Plain
from allotment.wire.words import REDACTED

Written = dict[str, Plain]
USUAL_COMPLETION = Completion()


def job_to_wire(spec: JobSpec, *, redact: bool = True) -> Written:
    """Write a spec in the native form; keys at their default are left out.

    With `redact`, and only then, it may be shown: every secret is `***`.
    """
    secrets: dict[str, Plain] = {
        name: REDACTED if redact else value for name, value in spec.secrets
    }
    return {
        "name": spec.name,
        "tenant": spec.tenant,
        "queue": spec.queue,
        "priority": spec.priority,
        **({"weight": spec.weight} if spec.weight > 1 else {}),
        **_unless(image=spec.image, env=dict(spec.env), secrets=secrets),
        "roles": {role.name: _role(role) for role in spec.roles},
        **_unless(data=_data(spec), code=_code(spec), output=spec.output_dir, save=spec.save),
        **({"environment": _environment(spec.environment)} if spec.environment else {}),
        **_unless(workdir=spec.workdir, retry=spec.retry),
        **_limit("max_run_time", spec.max_run_ms),
        **_limit("max_queue_time", spec.max_queue_ms),
        **_limit("deadline", spec.deadline_ms),
        **({"checkpoint": _checkpoint(spec.checkpoint)} if spec.checkpoint else {}),
        **_unless(depends_on=[_needed(choice) for choice in choices(spec.depends_on)]),
        **_length("hold_on_failure", spec.hold_on_failure_ms),
        **({} if spec.preemptible else {"preemptible": False}),
        **_unless(
            on_eviction=spec.on_eviction.value,
            within=spec.within,
            prefer=spec.prefer,
            pin=spec.pin,
            engine=spec.engine,
            opportunistic=spec.opportunistic,
            mpi=spec.mpi.value,
            labels=dict(spec.labels),
        ),
        **({} if spec.dialect is Dialect.NATIVE else {"dialect": spec.dialect.value}),
        **({"batch": _batch(spec.batch)} if spec.batch else {}),
    }


def _unless(**parts: Plain) -> Written:
    """Leave out what is empty or 0."""
    return {key: part for key, part in parts.items() if part}


def _limit(key: str, length: int) -> Written:
    return {} if length == NEVER else {key: write_duration(length)}


def _length(key: str, length: int) -> Written:
    return {key: write_duration(length)} if length else {}


def _role(role: TaskRole) -> Written:
    words: Plain = role.command if isinstance(role.command, str) else list(role.command)
    return {
        "count": _count(role),
        **_unless(command=words),
        **_unless(resources=_resources(role)),
        **({} if role.arch is Arch.ANY else {"arch": role.arch.value}),
        **_unless(ports=[_port(port) for port in role.ports]),
        **({} if role.retry is None else {"retry": role.retry}),
        **_unless(completion=_completion(role.completion)),
        **({"groups": {"size": role.group, "within": role.group_within}} if role.group else {}),
    }


def _count(role: TaskRole) -> Plain:
    if not role.least:
        return role.count
    return {"min": role.least, "max": role.count, **_unless(elastic=role.elastic)}


def _resources(role: TaskRole) -> Written:
    """Write what its owner named; what the service chose, it chooses again."""
    need = role.resources
    named = {"cpu": write_milli(need.cpu_milli), "memory": write_size(need.memory)}
    for part in role.by_default:
        named.pop(part, None)
    return {
        **named,
        **_unless(gpu=write_milli(need.gpu_milli), gpu_type=list(role.gpu_types)),
        **({"gpu_memory": write_size(need.gpu_memory)} if need.gpu_memory else {}),
        **({"disk": write_size(need.disk)} if need.disk else {}),
    }


def _port(port: Port) -> Written:
    return {"label": port.label, **_unless(begin=port.begin), "count": port.count}


def _completion(completion: Completion) -> Written:
    if completion == USUAL_COMPLETION:
        return {}
    wanted = completion.min_succeeded
    return {
        "min_failed": completion.min_failed if completion.min_failed > 0 else "never",
        **({} if wanted is None else {"min_succeeded": wanted}),
    }


def _checkpoint(checkpoint: Checkpoint) -> Written:
    return {
        **_unless(dir=checkpoint.dir),
        **_length("every", checkpoint.every_ms),
        "keep": checkpoint.keep,
        "signal": checkpoint.signal,
        "grace": write_duration(checkpoint.grace_ms),
        **_unless(save=checkpoint.save),
        **({"driver": True} if checkpoint.driver else {}),
    }


def _code(spec: JobSpec) -> Plain:
    code = spec.code
    if code is None:
        return spec.code_dir
    return {
        **_unless(take=code.folder, bundle=code.bundle, commit=code.commit),
        **_unless(branch=code.branch, changed=code.changed, difference=code.difference),
    }


def _data(spec: JobSpec) -> Plain:
    if not spec.data:
        return spec.data_dir
    return {str(use): _used(use) for use in spec.data}


def _used(use: DataUse) -> Plain:
    if not (use.write or use.digest):
        return use.at
    return {"at": use.at, **_unless(write=use.write, digest=use.digest)}


def _environment(asked: Environment) -> Written:
    lines: Plain = asked.file or list(asked.requirements)
    return _unless(python=asked.python, requirements=lines, key=asked.key, lock=asked.lock)


def _batch(batch: Batch) -> Written:
    return {
        "tasks": batch.tasks,
        **_unless(args=list(batch.args), output=batch.output, error=batch.error),
        **_unless(input=batch.input, append=batch.append),
        **_length("warn", batch.warn_ms),
        **_unless(warn_script=batch.warn_script, requeue_on=list(batch.requeue_on)),
        **_unless(variables=dict(batch.variables)),
    }


def _needed(choice: tuple[Dependency, ...]) -> Written:
    if not choice[0].any_of:
        return _dependency(choice[0])
    return {"any_of": [_dependency(need) for need in choice]}


def _dependency(dependency: Dependency) -> Written:
    return {"job": dependency.ref or dependency.job, "end": dependency.end.value}


def job_to_json(spec: JobSpec) -> bytes:
    """Write a spec, secrets and all, as the body of a submission."""
    return msgspec.json.encode(job_to_wire(spec, redact=False))

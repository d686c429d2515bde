"""The classic JSON form of a job, into a spec; what cannot be kept becomes a warning."""

from collections.abc import Iterator

from pydantic import ValidationError

from allotment.model.errors import Problem
from allotment.model.quantity import Resources
from allotment.model.spec import Completion, Dialect, JobSpec, Port, TaskRole
from allotment.wire.amounts import MOST_RETRIES
from allotment.wire.classic_shape import (
    ALWAYS,
    EVEN_AFTER_SUCCESS,
    NEVER,
    UNUSED,
    UNUSED_IN_ROLE,
    ClassicJob,
    ClassicRole,
)
from allotment.wire.job_file import JobFile
from allotment.wire.job_shape import left_out
from allotment.wire.job_sums import excess
from allotment.wire.problems import Finding, in_order, problem_at, problems_of, raise_all
from allotment.wire.tree import Place, Plain, Tree


def read_classic(
    plain: Plain, tree: Tree | None, *, source: str, problems: tuple[Problem, ...] = ()
) -> JobFile:
    """Read the classic form. `problems` are what reading the text has found already.

    Raises BadInput with everything that is wrong.
    """
    try:
        job = ClassicJob.model_validate(plain)
    except ValidationError as error:
        raise_all([*problems, *problems_of(error, ClassicJob, tree)], source)
        raise
    names = _names(job)
    spec = _spec(job, names)
    found = [*_same_names(names), *_too_large(spec)]
    raise_all([*problems, *(problem_at(tree, *finding) for finding in found)], source)
    warnings = in_order(problem_at(tree, *finding) for finding in _warnings(job, names))
    return JobFile(spec, warnings)


# ── names ───────────────────────────────────────────────────────────────────────────────


def _names(job: ClassicJob) -> tuple[str, ...]:
    """Return every role a name; those without get one that is free."""
    taken = {role.name for role in job.roles}
    names: list[str] = []
    for index, role in enumerate(job.roles):
        name, suffix = role.name or f"role{index}", 1
        while not role.name and name in taken:
            suffix += 1
            name = f"role{index}-{suffix}"
        taken.add(name)
        names.append(name)
    return tuple(names)


def _same_names(names: tuple[str, ...]) -> Iterator[Finding]:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            place: Place = ("taskRoles", index, "name")
            yield place, f"{name} is the name of another task role", "choose another name"
        seen.add(name)


# ── what fields alone cannot say ────────────────────────────────────────────────────────


def _too_large(spec: JobSpec) -> Iterator[Finding]:
    if found := excess(spec):
        yield ("taskRoles",), *found


def _warnings(job: ClassicJob, names: tuple[str, ...]) -> Iterator[Finding]:
    for key, why in UNUSED.items():
        if _given(job, key):
            yield (key,), f"is ignored: {why}", ""
    yield from _retry_warning(job.retry)
    if job.gpu_types and not any(role.gpu for role in job.roles):
        yield ("gpuType",), "is ignored: no task role asks for a GPU", "add gpuNumber"
    for index, role in enumerate(job.roles):
        place: Place = ("taskRoles", index)
        if not role.name:
            yield place, f"has no name, so it is called {names[index]}", "give it a name"
        for at, message, hint in _role_warnings(role):
            yield (*place, *at), message, hint


def _given(shape: ClassicJob | ClassicRole, alias: str) -> bool:
    """Whether a key is there with a value that says something."""
    for name, field in type(shape).model_fields.items():
        if field.alias == alias or name == alias:
            return bool(getattr(shape, name))
    return False


def _retry_warning(retry: int) -> Iterator[Finding]:
    if retry == ALWAYS:
        message = f"-1 asks for retries without end: up to {MOST_RETRIES:,} are made"
        yield ("retryCount",), message, "write the number of retries you want"
    elif retry == EVEN_AFTER_SUCCESS:
        message = (
            "-2 asks to run again even after success: only failures are retried, "
            f"up to {MOST_RETRIES:,} times"
        )
        yield ("retryCount",), message, "write the number of retries you want"


def _role_warnings(role: ClassicRole) -> Iterator[Finding]:
    for key, why in UNUSED_IN_ROLE.items():
        if _given(role, key):
            yield (key,), f"is ignored: {why}", ""
    if role.min_failed == NEVER:
        yield ("minFailedTaskCount",), "-1 means that no failure ends the job", ""
    elif role.min_failed is not None and role.min_failed > role.count:
        message = f"is more than the {role.count} tasks there are, so no failure ends the job"
        yield ("minFailedTaskCount",), message, "write -1 if you mean that"
    if role.min_succeeded == NEVER:
        message = "-1 means that the job ends when all its tasks have ended"
        yield ("minSucceededTaskCount",), message, ""


# ── to the model ────────────────────────────────────────────────────────────────────────


def _spec(job: ClassicJob, names: tuple[str, ...]) -> JobSpec:
    roles = zip(names, job.roles, strict=True)
    return JobSpec(
        name=job.name,
        tenant=job.tenant,
        roles=tuple(_role(name, role, job.gpu_types) for name, role in roles),
        image=job.image,
        env=tuple(job.env.items()),
        data_dir=job.data,
        code_dir=job.code,
        output_dir=job.output,
        retry=job.retry if job.retry >= 0 else MOST_RETRIES,
        dialect=Dialect.CLASSIC,
    )


def _role(name: str, role: ClassicRole, gpu_types: tuple[str, ...]) -> TaskRole:
    return TaskRole(
        name=name,
        count=role.count,
        command=role.command,
        resources=Resources(gpu_milli=role.gpu, cpu_milli=role.cpu, memory=role.memory),
        gpu_types=gpu_types if role.gpu else (),
        ports=tuple(Port(port.label, port.begin, port.count) for port in role.ports),
        completion=_completion(role),
        by_default=left_out(role),
    )


def _completion(role: ClassicRole) -> Completion:
    """Translate the minima: 0 failures never decide, None waits for all tasks to end."""
    min_failed = 1 if role.min_failed is None else max(role.min_failed, 0)
    min_succeeded = None if role.min_succeeded == NEVER else role.min_succeeded
    return Completion(min_failed, min_succeeded)

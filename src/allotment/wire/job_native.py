"""The native form of a job, into a spec.

Two ways in, one result. `read_native` takes a tree with lines and says all that is wrong.
`read_native_json` takes JSON that is expected to be right, as from our own client, and
gives up silently (None) on anything unusual, to be read again by the other.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeGuard

import msgspec
from pydantic import ValidationError

from allotment.model.code import CodeBundle
from allotment.model.data_use import DataUse, reference_of
from allotment.model.environment import Environment
from allotment.model.errors import Problem
from allotment.model.grid import PLACE, combinations
from allotment.model.ids import JobId
from allotment.model.quantity import Millis, Resources
from allotment.model.spec import (
    MPI_SLOTS,
    Batch,
    Checkpoint,
    Completion,
    Dependency,
    Dialect,
    EndKind,
    JobSpec,
    Mpi,
    Port,
    TaskRole,
)
from allotment.model.sweeps import Axis, Range
from allotment.wire.job_file import JobFile
from allotment.wire.job_shape import (
    AlternativeShape,
    BatchShape,
    CheckpointShape,
    CodeShape,
    CountShape,
    DataShape,
    DependencyShape,
    EnvironmentShape,
    JobShape,
    PortShape,
    ResourcesShape,
    RoleShape,
    SecretFrom,
    left_out,
)
from allotment.wire.job_sums import excess
from allotment.wire.problems import Finding, in_order, problem_at, problems_of, raise_all
from allotment.wire.text import shown
from allotment.wire.tree import Place, Plain, Tree

ONE_ROLE = frozenset({"command", "count", "resources", "arch", "ports", "completion", "groups"})
"""Keys of a role that may stand at the top of a job that has only one."""

MAIN = "main"
"""The name of that role."""

SLOTS = re.compile(r"[1-9][0-9]{0,6}")
"""How many ranks a worker of an MPIJob may have, in its variables."""


def read_native(
    plain: Plain,
    tree: Tree | None,
    *,
    source: str,
    environ: Mapping[str, str] | None,
    problems: tuple[Problem, ...] = (),
) -> JobFile:
    """Read the native form. `problems` are what reading the text has found already.

    Raises BadInput with everything that is wrong.
    """
    found = [*problems, *_at(tree, _misshapen(plain))]
    try:
        shape = JobShape.model_validate(plain)
    except ValidationError as error:
        raise_all([*found, *problems_of(error, JobShape, tree)], source)
        raise
    secrets, unresolved = _secrets(shape, environ)
    job = _job_file(shape, secrets, in_order(_at(tree, _doubtful(shape))))
    wrong = [*unresolved, *_too_large(job), *_unfit(shape)]
    raise_all([*found, *_at(tree, wrong)], source)
    return job


def read_native_json(body: bytes) -> JobFile | None:
    """Read a correct job fast; None when the careful reader must have a look."""
    try:
        shape = JobShape.model_validate_json(body)
        UNIQUE_KEYS.decode(body.decode())  # after pydantic, which bounds the nesting
    except ValueError:  # pydantic's and json's are both of this kind
        return None
    secrets, unresolved = _secrets(shape, None)
    if unresolved or _doubtful(shape) or _misshapen(_outline(shape)):
        return None
    if _unfit(shape):
        return None
    job = _job_file(shape, secrets, ())
    return None if _too_large(job) else job


def _refuse_doubles(pairs: list[tuple[str, object]]) -> None:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError


UNIQUE_KEYS = json.JSONDecoder(object_pairs_hook=_refuse_doubles)
"""Only checks: pydantic would take the last of two equal keys and drop the other."""


NO_COMMAND = "add command: python train.py, or an image, which may have a command of its own"


# ── what fields alone cannot say ────────────────────────────────────────────────────────


def _misshapen(plain: Plain) -> list[Finding]:
    """Check which keys stand together."""
    if not isinstance(plain, dict):
        return []
    found: list[Finding] = []
    if "roles" in plain:
        hint = "move it into the role it is for, or take `roles` out"
        found += [
            ((key,), "cannot be used with `roles`", hint) for key in plain if key in ONE_ROLE
        ]
    found += [(at, "is missing, so there is nothing to run", NO_COMMAND) for at in _bare(plain)]
    env, secrets = plain.get("env"), plain.get("secrets")
    if isinstance(env, dict) and isinstance(secrets, dict):
        found += [
            (("secrets", key), "is in `env` too", "keep one of the two")
            for key in secrets
            if key in env
        ]
    sweep = plain.get("sweep")
    parameters = sweep.get("parameters") if isinstance(sweep, dict) else None
    for where, which in (("grid", plain.get("grid")), ("sweep.parameters", parameters)):
        found += _set_twice(where, which, env, secrets)
    return found


def _set_twice(where: str, parameters: Plain, env: Plain, secrets: Plain) -> list[Finding]:
    """Find variables of a job that are parameters, too."""
    by = where.partition(".")[0]
    if not isinstance(parameters, dict):
        return []
    return [
        ((place, key), f"is in `{where}` too", f"the {by} sets it: remove it there")
        for place, names in (("env", env), ("secrets", secrets))
        if isinstance(names, dict)
        for key in names
        if key in parameters
    ]


def _bare(plain: Mapping[str, Plain]) -> Iterator[tuple[str, ...]]:
    """Name the commands that are missing; an image may have one of its own."""
    if plain.get("image"):
        return
    roles = plain.get("roles")
    if roles is None and plain.get("command") is None:
        yield ("command",)
    for name, role in roles.items() if isinstance(roles, dict) else ():
        if isinstance(role, dict) and role.get("command") is None:
            yield "roles", name, "command"


def _outline(shape: JobShape) -> Plain:
    """Return the keys of a job as far as `_misshapen` looks."""
    outline: dict[str, Plain] = {
        key: None for key in shape.model_fields_set if getattr(shape, key) is not None
    }
    outline["image"] = shape.image
    if shape.command is not None:
        outline["command"] = ""
    if shape.roles is not None:
        outline["roles"] = {
            name: {} if role.command is None else {"command": ""}
            for name, role in shape.roles.items()
        }
    outline["env"] = dict.fromkeys(shape.env)
    outline["secrets"] = dict.fromkeys(shape.secrets)
    outline["grid"] = dict.fromkeys(shape.grid)
    if shape.sweep is not None:
        outline["sweep"] = {"parameters": dict.fromkeys(shape.sweep.parameters)}
    return outline


def _roles(shape: JobShape) -> Mapping[str, RoleShape | JobShape]:
    return {MAIN: shape} if shape.roles is None else shape.roles


def _secrets(
    shape: JobShape, environ: Mapping[str, str] | None
) -> tuple[tuple[tuple[str, str], ...], list[Finding]]:
    """Fetch the secrets that are given by reference."""
    values: list[tuple[str, str]] = []
    found: list[Finding] = []
    for name, secret in shape.secrets.items():
        if not isinstance(secret, SecretFrom):
            values.append((name, secret))
        elif environ is not None and _is_text(value := environ.get(secret.from_env)):
            values.append((name, value))
        else:
            found.append((("secrets", name, "from_env"), *_not_set(secret.from_env, environ)))
    return tuple(values), found


def _is_text(value: str | None) -> TypeGuard[str]:
    """Whether a variable is set, to something that can be sent on."""
    return value is not None and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _not_set(variable: str, environ: Mapping[str, str] | None) -> tuple[str, str]:
    if environ is None:
        return (
            "is looked up where the file is; the service does not see your environment",
            "submit the file with `allot submit`, or give the secret itself",
        )
    if variable in environ:
        return f"{shown(variable)} holds bytes that are not UTF-8 text", "encode it, as base64"
    return f"{shown(variable)} is not set in your environment", "export it, then submit again"


def _parameters_of(job: JobFile) -> int:
    """Return how many bytes its parameters add to each of its jobs at most."""
    space = job.sweep.space if job.sweep is not None else job.grid
    if not space:
        return 0
    commands = (role.command for role in job.spec.roles)
    texts = (each if isinstance(each, str) else "\0".join(each) for each in commands)
    places = Counter(name for text in texts for name in PLACE.findall(text))
    return sum(
        (2 + places[name]) * (len(name) + _longest(axis))  # As a variable, in its array too.
        for name, axis in space
    )


def _longest(axis: Axis) -> int:
    return 0 if isinstance(axis, Range) else max(len(value.encode()) for value in axis)


def _too_large(job: JobFile) -> list[Finding]:
    found = excess(job.spec, job.copies, _parameters_of(job))
    place: Place = ("grid",) if job.grid else ("array",) if job.copies > 1 else ("roles",)
    place = ("sweep",) if job.sweep is not None else place
    return [(place, *found)] if found else []


def _unfit(shape: JobShape) -> list[Finding]:
    return [*_varying_before_others(shape), *_no_slots(shape)]


def _no_slots(shape: JobShape) -> list[Finding]:
    """Find a number of ranks in the variables of an MPIJob that no host file can have."""
    slots = shape.env.get(MPI_SLOTS, "1")
    if shape.dialect is not Dialect.MPI_JOB or SLOTS.fullmatch(slots):
        return []
    hint = "take it out: it is as `slotsPerWorker` says"
    return [
        (("env", MPI_SLOTS), f"{shown(slots)} is not the number of ranks of a worker", hint)
    ]


def _varying_before_others(shape: JobShape) -> list[Finding]:
    """Find roles of no fixed number of tasks that others come after: ranks would have gaps."""
    names = list(shape.roles or ())
    return [
        (
            ("roles", name, "count"),
            f"may vary only in the last role, and {names[-1]} comes after it",
            "write this role last, or give one number",
        )
        for name in names[:-1]
        if shape.roles and isinstance(shape.roles[name].count, CountShape)
    ]


def _doubtful(shape: JobShape) -> list[Finding]:
    """Find what may be meant as it is, and probably is not."""
    found: list[Finding] = []
    for name, role in _roles(shape).items():
        place: Place = ("completion", "min_failed")
        if shape.roles is not None:
            place = ("roles", name, *place)
        if role.completion.min_failed > role.most:
            message = (
                f"is more than the {role.most} tasks there are, so no failure ends the job"
            )
            found.append((place, message, "write `never` if you mean that"))
    return found


def _at(tree: Tree | None, findings: list[Finding]) -> list[Problem]:
    return [problem_at(tree, place, message, hint) for place, message, hint in findings]


# ── to the model ────────────────────────────────────────────────────────────────────────


def _job_file(
    shape: JobShape, secrets: tuple[tuple[str, str], ...], warnings: tuple[Problem, ...]
) -> JobFile:
    copies, cap = (shape.array.count, shape.array.max_running) if shape.array else (1, 0)
    indices = shape.array.indices if shape.array else ()
    copies = combinations(shape.axes) if shape.grid else len(indices) or copies
    sweep = shape.sweep.sweep if shape.sweep is not None else None
    if shape.sweep is not None:
        copies = shape.sweep.trials
    spec = _spec(shape, secrets)
    return JobFile(spec, warnings, copies, cap, shape.axes, indices, sweep=sweep)


def _spec(shape: JobShape, secrets: tuple[tuple[str, str], ...]) -> JobSpec:
    return JobSpec(
        name=shape.name,
        tenant=shape.tenant,
        roles=tuple(_role(name, role, shape.mpi) for name, role in _roles(shape).items()),
        queue=shape.queue,
        priority=shape.priority,
        weight=shape.weight,
        image=shape.image,
        env=tuple(shape.env.items()),
        secrets=secrets,
        workdir=shape.workdir,
        data_dir=shape.data if isinstance(shape.data, str) else "",
        data=() if isinstance(shape.data, str) else tuple(_data(shape.data)),
        code_dir=shape.code if isinstance(shape.code, str) else "",
        environment=_environment(shape.environment) if shape.environment else None,
        code=None if isinstance(shape.code, str) else _code(shape.code),
        output_dir=shape.output,
        save=shape.save,
        retry=shape.retry,
        max_run_ms=Millis(shape.max_run_time),
        max_queue_ms=Millis(shape.max_queue_time),
        deadline_ms=Millis(shape.deadline),
        checkpoint=_checkpoint(shape.checkpoint) if shape.checkpoint else None,
        depends_on=tuple(_dependencies(shape.depends_on)),
        hold_on_failure_ms=Millis(shape.hold_on_failure),
        preemptible=shape.preemptible,
        on_eviction=shape.on_eviction,
        within=shape.within,
        prefer=shape.prefer,
        pin=shape.pin,
        engine=shape.engine,
        mpi=shape.mpi,
        opportunistic=shape.opportunistic,
        dialect=shape.dialect,
        labels=tuple(shape.labels.items()),
        batch=_batch(shape.batch) if shape.batch else None,
    )


def _role(name: str, role: RoleShape | JobShape, mpi: Mpi) -> TaskRole:
    # The others only hold a place for the ranks that the first starts.
    enough = role.completion.min_succeeded or (1 if mpi is Mpi.MPIRUN else None)
    return TaskRole(
        name=name,
        count=role.most,
        command=role.command or "",
        resources=_resources(role.resources),
        gpu_types=role.resources.gpu_type,
        arch=role.arch,
        ports=_ports(role.ports),
        # A job's own `retry` stands for all its roles; only a role in `roles` overrides it.
        retry=role.retry if type(role) is RoleShape else None,
        completion=Completion(role.completion.min_failed, enough),
        group=role.groups.size if role.groups else 0,
        group_within=role.groups.within if role.groups else "",
        least=0 if isinstance(role.count, int) else role.needed,
        elastic=False if isinstance(role.count, int) else role.count.elastic,
        by_default=left_out(role.resources),
    )


def _resources(need: ResourcesShape) -> Resources:
    return Resources(
        gpu_milli=need.gpu,
        cpu_milli=need.cpu,
        memory=need.memory,
        disk=need.disk,
        gpu_memory=need.gpu_memory,
    )


def _ports(ports: Mapping[str, int] | list[PortShape]) -> tuple[Port, ...]:
    if isinstance(ports, list):
        return tuple(Port(port.label, port.begin, port.count) for port in ports)
    return tuple(Port(label, 0, count) for label, count in ports.items())


def _checkpoint(shape: CheckpointShape) -> Checkpoint:
    return Checkpoint(
        shape.dir, shape.every, shape.keep, shape.signal, shape.grace, shape.save, shape.driver
    )


def _code(shape: CodeShape) -> CodeBundle:
    return CodeBundle(
        bundle=shape.bundle,
        folder=shape.take,
        commit=shape.commit,
        branch=shape.branch,
        changed=shape.changed,
        difference=shape.difference,
    )


def _data(shapes: Mapping[str, str | DataShape]) -> Iterator[DataUse]:
    for name, shape in shapes.items():
        named = reference_of(name)
        assert named is not None
        given = DataShape(at=shape) if isinstance(shape, str) else shape
        yield DataUse(
            tenant=named.tenant,
            name=named.name,
            version=named.version,
            at=given.at,
            write=given.write,
            digest=given.digest,
        )


def _environment(shape: EnvironmentShape) -> Environment:
    named = shape.requirements
    return Environment(
        python=shape.python,
        requirements=() if isinstance(named, str) else tuple(named),
        key=shape.key,
        lock=shape.lock,
        file=named if isinstance(named, str) else "",
    )


def _batch(shape: BatchShape) -> Batch:
    return Batch(
        tasks=shape.tasks,
        args=tuple(shape.args),
        output=shape.output,
        error=shape.error,
        input=shape.input,
        append=shape.append,
        warn_ms=shape.warn,
        warn_script=shape.warn_script,
        requeue_on=tuple(shape.requeue_on),
        variables=tuple(shape.variables.items()),
    )


def _dependencies(items: list[int | str | DependencyShape]) -> Iterator[Dependency]:
    """Return what is to be waited for.

    A number by itself may be that of a whole array, and so may one in quotes.
    """
    group = 0
    for item in items:
        if not isinstance(item, DependencyShape):
            yield _whole(item)
        elif item.job is not None:
            yield _one(item.job, item.end)
        else:
            group += 1
            for each in item.any_of:
                need = (
                    _one(each.job, each.end)
                    if isinstance(each, AlternativeShape)
                    else _whole(each)
                )
                yield msgspec.structs.replace(need, any_of=group)


def _whole(ref: int | str) -> Dependency:
    return _named(str(ref), EndKind.SUCCESS)


def _one(ref: int | str, end: EndKind) -> Dependency:
    """Read a reference beside which stands how it must have ended: a number is one job."""
    return Dependency(JobId(ref), end) if isinstance(ref, int) else _named(ref, end)


def _named(ref: str, end: EndKind) -> Dependency:
    return Dependency(JobId(int(ref) if ref.isdecimal() else 0), end, ref=ref)

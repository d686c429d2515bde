"""A draft into a job: sums up what its tasks need together, and says what does not agree."""

import msgspec

from allotment.model.errors import Problem
from allotment.model.quantity import DEVICE, MIB, SECOND, Millis, Resources, show_bytes
from allotment.model.spec import (
    REQUEUE_CODE,
    USUAL,
    Batch,
    Checkpoint,
    Dialect,
    JobSpec,
    TaskRole,
)
from allotment.wire.amiss import Amiss
from allotment.wire.amounts import MOST_BYTES, MOST_EACH, MOST_TASKS
from allotment.wire.batch.draft import Draft
from allotment.wire.batch.export import Exported, exported
from allotment.wire.batch.values import read_job_name
from allotment.wire.batch.wish import Submitter
from allotment.wire.job_file import JobFile
from allotment.wire.job_sums import excess
from allotment.wire.problems import in_order

ROLE = "batch"
KILL_WAIT_MS = Millis(30 * SECOND)
"""How long processes have after the signal to end: Slurm's KillWait as it comes."""


class Need(msgspec.Struct, frozen=True):
    """What all tasks of a job need together, on its node."""

    tasks: int
    cpus: int
    gpus: int
    memory: int
    """0 where nothing was said of it."""
    cpus_named: bool


class Told(msgspec.Struct):
    """The problems and warnings found while a job was put together."""

    problems: list[Problem] = []
    warnings: list[Problem] = []

    def refuse(self, draft: Draft, option: str, message: str, hint: str = "") -> None:
        """Note a problem about an option."""
        self.problems.append(Problem(message, *_at(draft, option), hint))

    def warn(self, draft: Draft, option: str, message: str, hint: str = "") -> None:
        """Note a warning about an option."""
        self.warnings.append(Problem(message, *_at(draft, option), hint))


def _at(draft: Draft, option: str) -> tuple[str, int]:
    known = option.lstrip("-") in draft.lines
    return (option if known else ""), draft.lines.get(option.lstrip("-"), 0)


def assemble(text: str, draft: Draft, dialect: Dialect, by: Submitter, told: Told) -> JobFile:
    """Return the job of a draft. Contradictions are noted in `told`."""
    need = need_of(draft, told)
    passed_on = _environment(draft, by, told)
    batch = _batch(draft, need, by)
    spec = JobSpec(
        name=_name(draft, by, told),
        tenant=draft.tenant,
        roles=(_role(text, draft, need, told),),
        queue=draft.queue or "default",
        priority=draft.priority,
        env=tuple(passed_on.env.items()),
        secrets=tuple(passed_on.secrets.items()),
        workdir=_folder(draft, by),
        retry=draft.retry,
        max_run_ms=draft.limit_ms,
        checkpoint=_checkpoint(draft),
        depends_on=draft.depends_on,
        on_eviction=draft.on_eviction,
        labels=tuple(draft.labels.items()),
        dialect=dialect,
        batch=batch,
    )
    copies = len(draft.indices) or 1
    if found := excess(spec, copies):
        told.problems.append(Problem(*_with_hint(found)))
    return JobFile(
        spec,
        in_order(told.warnings),
        copies,
        draft.max_running,
        indices=draft.indices,
        held=draft.is_held,
        waits=draft.waits,
    )


def _with_hint(found: tuple[str, str]) -> tuple[str, str, int, str]:
    message, hint = found
    return message, "", 0, hint


# ── how much ────────────────────────────────────────────────────────────────────────────


def need_of(draft: Draft, told: Told) -> Need:
    """Sum up tasks, CPUs, devices and memory, as Slurm does for one node."""
    gpus = _gpus(draft, told)
    tasks = _tasks(draft, gpus)
    if draft.gpus_per_task is not None and not draft.gpus:
        gpus = max(gpus, draft.gpus_per_task * tasks)
    _one_node(draft, told)
    per_task = draft.cpus_per_task or 1
    cpus = max(tasks * per_task, draft.least_cpus or 0)
    if draft.cpus_per_gpu is not None:
        cpus = max(cpus, draft.cpus_per_gpu * gpus)
    cpus = 1 if draft.overcommits else cpus
    for what, amount in (("CPUs", cpus), ("GPUs", gpus)):
        if amount > MOST_EACH:
            told.problems.append(Problem(f"its tasks need {amount:,} {what} in all"))
    named = bool(draft.lines.keys() & CPU_OPTIONS)
    return Need(tasks, cpus, gpus, _memory(draft, cpus, gpus, told), named)


CPU_OPTIONS = frozenset({
    "ntasks", "ntasks-per-node", "cpus-per-task", "cpus-per-gpu", "mincpus", "overcommit",
    "ntasks-per-gpu", "tasks-per-node", "n",
})  # fmt: skip


def _gpus(draft: Draft, told: Told) -> int:
    """Return how many devices are on its one node."""
    per_node, in_all = draft.gpus_per_node, draft.gpus
    if per_node is not None and in_all is not None and per_node != in_all:
        told.refuse(
            draft, "--gpus", f"are {in_all} on one node, of which each has {per_node}",
            "keep one of the two",
        )  # fmt: skip
    gpus = max(per_node or 0, in_all or 0)
    if draft.tasks_per_gpu and draft.tasks and not gpus:
        gpus = -(-draft.tasks // draft.tasks_per_gpu)
    return gpus


def _tasks(draft: Draft, gpus: int) -> int:
    if draft.tasks is not None:
        return draft.tasks
    if draft.tasks_per_node is not None:
        return draft.tasks_per_node
    if draft.gpus_per_task and gpus:
        return max(1, gpus // draft.gpus_per_task)
    if draft.tasks_per_gpu and gpus:
        return draft.tasks_per_gpu * gpus
    return 1


SEVERAL_NODES = (
    "its script and srun run on one node; a job file starts tasks on several: `count: N` "
    "(docs/guide/batch-scripts.md)"
)


def _one_node(draft: Draft, told: Told) -> None:
    """Refuse a job that needs several nodes."""
    if draft.nodes is not None and draft.nodes[0] > 1:
        message = f"asks for {draft.nodes[0]} nodes, and a batch script has one here"
        told.refuse(draft, "--nodes", message, SEVERAL_NODES)
    elif draft.nodes is None and (draft.tasks or 0) > (draft.tasks_per_node or MOST_TASKS):
        message = f"are {draft.tasks} at {draft.tasks_per_node} a node: on several nodes"
        told.refuse(draft, "--ntasks", message, SEVERAL_NODES)


def _memory(draft: Draft, cpus: int, gpus: int, told: Told) -> int:
    given = [
        (option, amount)
        for option, amount in (
            ("--mem", draft.memory),
            ("--mem-per-cpu", draft.memory_per_cpu and draft.memory_per_cpu * cpus),
            ("--mem-per-gpu", draft.memory_per_gpu and draft.memory_per_gpu * gpus),
        )
        if amount is not None
    ]
    if len(given) > 1:
        names = " and ".join(option for option, _ in given)
        told.refuse(draft, given[1][0], f"{names} exclude each other", "keep one of them")
    amount = given[0][1] if given else 0
    if draft.memory_per_gpu and not gpus:
        told.refuse(draft, "--mem-per-gpu", "is for each GPU, and the job has none")
    if amount > MOST_BYTES:
        told.refuse(draft, given[0][0], f"makes {show_bytes(amount)}, which no machine has")
    return min(amount, MOST_BYTES)


# ── the parts of the job ────────────────────────────────────────────────────────────────


def _role(text: str, draft: Draft, need: Need, told: Told) -> TaskRole:
    memory = need.memory or USUAL.memory * need.cpus
    left_out: list[str] = []
    if not need.cpus_named:
        left_out.append("cpu")
    if not need.memory:
        if need.cpus == 1:
            left_out.append("memory")
        told.warnings.append(
            Problem(
                f"no memory is asked for: the job gets at most {show_bytes(memory)}, which is "
                f"{USUAL.memory // MIB} MiB for each CPU",
                hint="ask for what it needs: a job that uses more is ended",
            )
        )
    if draft.gpu_types and not need.gpus:
        message = "names a type of GPU, and the job asks for none"
        told.refuse(draft, "--constraint", message, "add --gres=gpu:1")
    return TaskRole(
        name=ROLE,
        count=1,
        command=text,
        resources=Resources(
            gpu_milli=need.gpus * DEVICE,
            cpu_milli=need.cpus * 1000,
            memory=memory,
            disk=draft.disk,
            gpu_memory=draft.gpu_memory,
        ),
        gpu_types=draft.gpu_types,
        arch=draft.arch,
        by_default=tuple(left_out),
    )


def _name(draft: Draft, by: Submitter, told: Told) -> str:
    wanted = draft.name or by.script or "sbatch"
    try:
        name = read_job_name(wanted)
    except Amiss as amiss:
        told.refuse(draft, "--job-name", amiss.message, amiss.hint)
        return ROLE
    if name != wanted:
        told.warn(draft, "--job-name", f"the job is called {name}: that is a name here")
    return name


def _folder(draft: Draft, by: Submitter) -> str:
    if not draft.folder or draft.folder.startswith("/") or not by.folder:
        return draft.folder or by.folder
    return f"{by.folder.rstrip('/')}/{draft.folder}"


def _checkpoint(draft: Draft) -> Checkpoint:
    """Return the warning before its end: the signal it asks for, then TERM, then an end."""
    if not draft.signal:
        return Checkpoint(signal="TERM", grace_ms=KILL_WAIT_MS)
    grace = Millis(draft.signal_ms + KILL_WAIT_MS)
    return Checkpoint(signal=draft.signal, grace_ms=grace)


def _batch(draft: Draft, need: Need, by: Submitter) -> Batch:
    return Batch(
        tasks=need.tasks,
        args=by.args,
        output=draft.output or "",
        error=draft.error or "",
        input=draft.input,
        append=draft.append,
        warn_ms=draft.signal_ms if draft.signal else Millis(0),
        warn_script=draft.signals_script,
        requeue_on=(*draft.requeue_on, REQUEUE_CODE),
        variables=tuple(draft.variables.items()),
    )


def _environment(draft: Draft, by: Submitter, told: Told) -> Exported:
    """Return what is passed on of the submitter's environment, and what was set."""
    asks = "export" in draft.lines and draft.export not in ("NONE", "NIL")
    if asks and by.environ is None:
        message = "passes nothing on: the service does not see your environment"
        told.warn(draft, "--export", message, "submit the script with `allot submit`")
    try:
        found = exported(draft.export, by.environ or {})
    except Amiss as amiss:
        told.refuse(draft, "--export", amiss.message, amiss.hint)
        return Exported()
    for name in found.missing:
        told.warn(draft, "--export", f"{name} is not set in your environment, nor in the job's")
    return msgspec.structs.replace(found, env=found.env | draft.environment)

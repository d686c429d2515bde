"""`#SBATCH` scripts of Slurm: the options of sbatch, and what becomes of each.

The table has every option of sbatch 22.05 and 26.11. `docs/guide/batch-scripts.md` says the
same in words, and a test compares the two.
"""

import re
from collections.abc import Iterable, Sequence
from functools import partial

from allotment.model.errors import Problem
from allotment.model.quantity import SECOND, Millis
from allotment.model.spec import Dialect
from allotment.wire.amiss import Amiss, not_a
from allotment.wire.amounts import MOST_TASKS
from allotment.wire.batch.assemble import Told, assemble
from allotment.wire.batch.dependencies import read_dependencies
from allotment.wire.batch.draft import Draft
from allotment.wire.batch.export import read_export
from allotment.wire.batch.options import (
    Option,
    OptionTable,
    Read,
    Takes,
    read_options,
    refused,
    silently,
    with_words,
    without_effect,
)
from allotment.wire.batch.readers import (
    NO_TUNING,
    ONE_SIZE,
    hold,
    label,
    no,
    no_requeue,
    requeue,
    sets,
    step_of,
    wait,
)
from allotment.wire.batch.script import Word, directives
from allotment.wire.batch.values import (
    read_count,
    read_job_name,
    read_megabytes,
    read_signal_name,
    read_time_limit,
)
from allotment.wire.batch.wish import Submitter
from allotment.wire.indices import read_indices
from allotment.wire.job_file import JobFile
from allotment.wire.problems import raise_all
from allotment.wire.words import ARCHES, PRIORITIES, read_line, read_name, read_path

MARKS = ("#SBATCH", "#SLURM")

# ── who and where ───────────────────────────────────────────────────────────────────────


def _job_name(draft: Draft, value: str) -> None:
    read_job_name(value)
    draft.name = draft.variables["SLURM_JOB_NAME"] = value


def _account(draft: Draft, value: str) -> None:
    draft.tenant = draft.variables["SLURM_JOB_ACCOUNT"] = _name(value, "account", "tenant")


def _name(value: str, option: str, what: str) -> str:
    """Read the name of what stands for something of Slurm's."""
    try:
        return read_name(value)
    except Amiss as amiss:
        variable = f"SBATCH_{option.upper()}"
        hint = f"name the {what} by {variable} in your environment, or use --ignore {option}"
        raise Amiss(f"{amiss.message}, and it is that of a {what} here", hint) from None


def _partition(draft: Draft, value: str) -> str | None:
    first, _, others = value.partition(",")
    draft.queue = draft.variables["SLURM_JOB_PARTITION"] = _name(first, "partition", "queue")
    return f"names several: only queue {first} is used" if others else None


def _qos(draft: Draft, value: str) -> str | None:
    draft.variables["SLURM_JOB_QOS"] = read_line(value)
    if value not in PRIORITIES:
        return f"is not a priority here ({', '.join(PRIORITIES)}): the job has priority normal"
    draft.priority = PRIORITIES[value]
    return None


def _nice(draft: Draft, value: str) -> str | None:
    if value.startswith("-"):
        raise Amiss("asks to go before others", "ask for it with --set priority=high")
    if read_count(value or "100", 0, 2**31) == 0:
        return None
    draft.priority = PRIORITIES["low"]
    return "becomes priority low: there are no finer amounts"


GPU_FEATURE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\|[A-Za-z0-9][A-Za-z0-9._-]*)*")


def _constraint(draft: Draft, value: str) -> None:
    plain = value.strip("[]()")
    if plain.lower() in ARCHES:
        draft.arch = ARCHES[plain.lower()]
    elif GPU_FEATURE.fullmatch(plain):
        draft.gpu_types = tuple(dict.fromkeys(plain.split("|")))
    else:
        raise Amiss(
            "is more than one type of GPU or several of which any will do",
            "write a100, or a100|h100; nodes have no features here",
        )


# ── how much ────────────────────────────────────────────────────────────────────────────

NODES = re.compile(r"([0-9]{1,9})(k?)(?:-([0-9]{1,9})(k?))?")


def _nodes(draft: Draft, value: str) -> None:
    found = NODES.fullmatch(value)
    if found is None:
        raise not_a("a number of nodes", value, "write 1, or 1-4 for one at least")
    least = int(found[1]) * (1024 if found[2] else 1)
    most = int(found[3]) * (1024 if found[4] else 1) if found[3] else least
    if not least or most < least:
        raise not_a("a number of nodes", value, "write 1, or 1-4 for one at least")
    draft.nodes = (least, most)


_A_NUMBER = partial(read_count, least=1, most=MOST_TASKS)
_tasks = sets("tasks", _A_NUMBER, "SLURM_NTASKS", "SLURM_NPROCS")
_tasks_per_node = sets("tasks_per_node", _A_NUMBER, "SLURM_NTASKS_PER_NODE")
_tasks_per_gpu = sets("tasks_per_gpu", _A_NUMBER, "SLURM_NTASKS_PER_GPU")
_cpus_per_task = sets("cpus_per_task", read_count, "SLURM_CPUS_PER_TASK")
_cpus_per_gpu = sets("cpus_per_gpu", read_count, "SLURM_CPUS_PER_GPU")


def _overcommit(draft: Draft, value: str) -> None:
    draft.overcommits = True
    draft.variables["SLURM_OVERCOMMIT"] = "1"


def _mem(draft: Draft, value: str) -> None:
    draft.memory = read_megabytes(value)
    if not draft.memory:
        raise Amiss(f"{ONE_SIZE}: no node's memory is taken as a whole", "write --mem=64G")
    draft.variables["SLURM_MEM_PER_NODE"] = _in_megabytes(draft.memory)


def _mem_per(what: str) -> Read:
    def read(draft: Draft, value: str) -> None:
        amount = _more_than_0(read_megabytes(value))
        setattr(draft, f"memory_per_{what}", amount)
        draft.variables[f"SLURM_MEM_PER_{what.upper()}"] = _in_megabytes(amount)

    return read


def _more_than_0(amount: int) -> int:
    if not amount:
        raise Amiss("must be more than 0", "write it like 4G")
    return amount


def _in_megabytes(amount: int) -> str:
    return str(max(1, amount >> 20))


GRES = re.compile(r"(?:gres[:/])?gpu(?::([A-Za-z][A-Za-z0-9._-]*))?(?:[:=]([0-9]{1,9}))?")
ONE_TYPE = "one type for all GPUs of a job: gpu:a100:2"


SOCKETS = re.compile(r"\(S:[0-9,-]+\)$")


def _gres(draft: Draft, value: str) -> None:
    value = SOCKETS.sub("", value)
    if value in ("none", "NONE"):
        return
    parts = value.split(",")
    for part in parts:
        if not part.startswith(("gpu", "gres:gpu", "gres/gpu")):
            raise Amiss(
                f"`{part[:40]}` is not a GPU, and nodes have nothing else here", ONE_TYPE
            )
    if len(parts) > 1:
        raise Amiss("asks for GPUs of several types at once", ONE_TYPE)
    found = GRES.fullmatch(value)
    if found is None:
        raise not_a("a number of GPUs", value, "write gpu:2 or gpu:a100:2")
    _take_type(draft, found[1])
    draft.gpus_per_node = read_count(found[2] or "1", 0)


def _take_type(draft: Draft, kind: str | None) -> None:
    if kind:
        draft.gpu_types = (kind,)


COUNTED = re.compile(r"(?:([A-Za-z][A-Za-z0-9._-]*):)?([0-9]{1,9})")


def _counted_gpus(draft: Draft, value: str) -> int:
    if "," in value:
        raise Amiss("asks for GPUs of several types at once", "write 2 or a100:2")
    found = COUNTED.fullmatch(SOCKETS.sub("", value))
    if found is None:
        raise not_a("a number of GPUs", value, "write 2 or a100:2")
    _take_type(draft, found[1])
    return read_count(found[2], 0)


def _gpus(field: str) -> Read:
    def read(draft: Draft, value: str) -> None:
        setattr(draft, field, _counted_gpus(draft, value))
        draft.variables[f"SLURM_{field.upper()}"] = value

    return read


# ── when ────────────────────────────────────────────────────────────────────────────────


def _array(draft: Draft, value: str) -> None:
    written, percent, most = value.partition("%")
    draft.indices = read_indices(written)
    draft.max_running = read_count(most, 0, MOST_TASKS) if percent else 0
    draft.variables |= {
        "SLURM_ARRAY_TASK_COUNT": str(len(draft.indices)),
        "SLURM_ARRAY_TASK_MIN": str(draft.indices[0]),
        "SLURM_ARRAY_TASK_MAX": str(draft.indices[-1]),
        "SLURM_ARRAY_TASK_STEP": str(step_of(draft.indices)),
    }


def _dependency(draft: Draft, value: str) -> None:
    draft.depends_on = read_dependencies(value)
    draft.variables["SLURM_JOB_DEPENDENCY"] = value


def _begin(draft: Draft, value: str) -> None:
    if value != "now":
        raise Amiss(
            "asks for a start at some time, and a job here starts when there is room",
            "submit it then (at, cron), or hold it: allot submit --held; allot release",
        )


SIGNAL = re.compile(r"(?:([RB]+):)?([A-Za-z0-9]{1,12})(?:@([0-9]{1,5}))?")
USUAL_WARNING_S = 60


def _signal(draft: Draft, value: str) -> str | None:
    found = SIGNAL.fullmatch(value)
    if found is None:
        raise not_a("a signal and seconds", value, "write USR1@120 or B:USR1@120")
    draft.signal = read_signal_name(found[2])
    draft.signal_ms = Millis(int(found[3] or USUAL_WARNING_S) * SECOND)
    draft.signals_script = "B" in (found[1] or "")
    return "R: has no effect: no reservation is overlapped" if "R" in (found[1] or "") else None


def _kill_on_invalid_dep(draft: Draft, value: str) -> str | None:
    return None if value == "yes" else "has no effect: such a job fails, and says why"


# ── files and environment ───────────────────────────────────────────────────────────────


def _open_mode(draft: Draft, value: str) -> None:
    if not value or not ("append".startswith(value) or "truncate".startswith(value)):
        raise not_a("append or truncate", value)
    draft.append = value.startswith("a")


def _export(draft: Draft, value: str) -> None:
    read_export(value)
    draft.export = value
    draft.variables["SLURM_EXPORT_ENV"] = value


# ── mail ────────────────────────────────────────────────────────────────────


def _mail_type(draft: Draft, value: str) -> str | None:
    return None if value.upper() == "NONE" else "has no effect: no mail is sent"


# ── the table ───────────────────────────────────────────────────────────────────────────

NOTHING, PERHAPS = Takes.NOTHING, Takes.PERHAPS
ONE_NODE = without_effect("a script has one node")
NOT_CHOSEN = without_effect("sockets, cores and threads are not chosen")
NAMED_NODES = "names nodes; a job here names its needs instead"
NO_CONTAINER = refused("asks for a container, and tasks run on the machine itself")
ASKS_ONLY = refused("only asks when it would start", "allot submit --dry-run tells it")
ON_COMMAND_LINE = refused("belongs on the command line, not in a script", "take it out")


OPTIONS: tuple[Option, ...] = (
    Option("account", _account, "the tenant of that name", "A"),
    Option("acctg-freq", without_effect("use is measured anyway"), ""),
    Option("array", _array, "such as 0-15%4", "a"),
    Option("batch", ONE_NODE, ""),
    no("bb", "asks for a burst buffer, and there are none"),
    no("bbf", "asks for a burst buffer, and there are none"),
    Option("begin", _begin, "now", "b"),
    Option("chdir", sets("folder", read_path), "a folder", "D"),
    no("cluster-constraint", "chooses among clusters, and there is one"),
    no("cluster", "names another cluster"),
    no("clusters", "names another cluster", "M"),
    Option("comment", label("comment"), "a text"),
    Option("consolidate-segments", ONE_NODE, "", takes=NOTHING),
    Option("constraint", _constraint, "a type of GPU: a100|h100", "C"),
    Option("container", NO_CONTAINER, ""),
    Option("container-id", NO_CONTAINER, ""),
    Option("contiguous", ONE_NODE, "", takes=NOTHING),
    Option("core-spec", NOT_CHOSEN, "", "S"),
    Option("cores-per-socket", NOT_CHOSEN, ""),
    Option("cpu-freq", NO_TUNING, ""),
    Option("cpus-per-gpu", _cpus_per_gpu, "a number"),
    Option("cpus-per-task", _cpus_per_task, "a number", "c"),
    no("deadline", "ends a job that cannot end in time, and nothing does that here"),
    Option("delay-boot", NO_TUNING, ""),
    Option("dependency", _dependency, "such as afterok:12", "d"),
    Option("distribution", ONE_NODE, "", "m"),
    Option("error", sets("error", read_line), "a file name", "e"),
    no("exclude", NAMED_NODES, "x"),
    no("exclusive", f"{ONE_SIZE}: GPUs, CPUs, memory", takes=PERHAPS),
    Option("export", _export, "such as ALL,NAME=value"),
    no("export-file", "takes variables of a file, and none is read"),
    Option("extra", without_effect("nodes are not chosen by it"), ""),
    Option("extra-node-info", NOT_CHOSEN, "", "B"),
    Option("get-user-env", without_effect("it gets what --export says"), "", takes=PERHAPS),
    no("gid", "runs a job as another group"),
    Option("gpu-bind", without_effect("srun gives tasks their GPUs in order"), ""),
    Option("gpu-freq", NO_TUNING, ""),
    Option("gpus", _gpus("gpus"), "such as 2 or a100:2", "G"),
    Option("gpus-per-node", _gpus("gpus_per_node"), "such as 2 or a100:2"),
    no("gpus-per-socket", "counts GPUs by sockets, which are not chosen here"),
    Option("gpus-per-task", _gpus("gpus_per_task"), "such as 1 or a100:1"),
    Option("gres", _gres, "such as gpu:2 or gpu:a100:2"),
    Option("gres-flags", NOT_CHOSEN, ""),
    Option("help", ON_COMMAND_LINE, "", "h", NOTHING),
    Option("hint", NOT_CHOSEN, ""),
    Option("hold", hold, "", "H", NOTHING),
    Option("ignore-pbs", silently, "", takes=NOTHING),
    Option("input", sets("input", read_line), "a file name", "i"),
    Option("job-name", _job_name, "a name", "J"),
    Option("kill-on-invalid-dep", _kill_on_invalid_dep, "yes"),
    no("licenses", "counts licences, which Allotment does not support", "L"),
    Option("mail-type", _mail_type, "a kind"),
    Option("mail-user", without_effect("no mail is sent"), ""),
    no("mcs-label", "sets a security label, and there are none"),
    Option("mem", _mem, "such as 16G"),
    Option("mem-bind", NOT_CHOSEN, ""),
    Option("mem-per-cpu", _mem_per("cpu"), "such as 4G"),
    Option("mem-per-gpu", _mem_per("gpu"), "such as 32G"),
    Option("mem-update", without_effect("its limit stays as it is"), ""),
    Option("mincpus", sets("least_cpus", partial(read_count, least=0)), "a number"),
    Option("network", NO_TUNING, ""),
    Option("nice", _nice, "an amount", takes=PERHAPS),
    Option("no-kill", ONE_NODE, "", "k", PERHAPS),
    Option("no-requeue", no_requeue, "", takes=NOTHING),
    no("nodefile", NAMED_NODES, "F"),
    no("nodelist", NAMED_NODES, "w"),
    Option("nodes", _nodes, "a number", "N"),
    Option("ntasks", _tasks, "a number", "n"),
    Option("ntasks-per-core", NOT_CHOSEN, ""),
    Option("ntasks-per-gpu", _tasks_per_gpu, "a number"),
    Option("ntasks-per-node", _tasks_per_node, "a number"),
    Option("ntasks-per-socket", NOT_CHOSEN, ""),
    Option("oom-kill-step", without_effect("out of memory, a job fails"), "", takes=PERHAPS),
    Option("open-mode", _open_mode, "append or truncate"),
    Option("output", sets("output", read_line), "a file name", "o"),
    Option("overcommit", _overcommit, "", "O", NOTHING),
    Option("oversubscribe", without_effect("a job shares no GPU"), "", "s", NOTHING),
    Option("parsable", silently, "", takes=NOTHING),
    Option("partition", _partition, "a queue", "p"),
    Option("power", NO_TUNING, ""),
    Option("prefer", without_effect("nodes have no features"), ""),
    no("priority", "is a number of Slurm's; with --set priority=… it has one of ours"),
    Option("profile", without_effect("use is measured anyway"), ""),
    Option("propagate", without_effect("limits are the service's"), "", takes=PERHAPS),
    Option("qos", _qos, "low, normal or high", "q"),
    Option("quiet", silently, "", "Q", NOTHING),
    no("reboot", "asks for a reboot of its nodes", takes=NOTHING),
    Option("requeue", requeue, "", takes=PERHAPS),
    Option("reservation", without_effect("a job may use those made for its user"), ""),
    no("resources", "asks for hierarchical resources, and there are none"),
    Option("resv-ports", without_effect("MASTER_PORT is reserved"), "", takes=PERHAPS),
    Option("runtime", NO_CONTAINER, ""),
    Option("segment", ONE_NODE, ""),
    Option("signal", _signal, "such as B:USR1@120"),
    Option("sockets-per-node", NOT_CHOSEN, ""),
    Option("spread-job", ONE_NODE, "", takes=NOTHING),
    Option("spread-segments", ONE_NODE, "", takes=NOTHING),
    Option("stepmgr", ONE_NODE, "", takes=NOTHING),
    Option("switches", ONE_NODE, ""),
    Option("tasks-per-node", _tasks_per_node, "a number"),
    Option("test-only", ASKS_ONLY, "", takes=NOTHING),
    Option("thread-spec", NOT_CHOSEN, ""),
    Option("threads-per-core", NOT_CHOSEN, ""),
    Option("time", sets("limit_ms", read_time_limit), "such as 1:30:00 or 2-12", "t"),
    Option("time-min", without_effect("its limit is that of --time"), ""),
    Option("tmp", sets("disk", read_megabytes), "such as 50G"),
    Option("tres-bind", NOT_CHOSEN, ""),
    no("tres-per-task", "says --cpus-per-task and --gpus-per-task in another way"),
    no("uid", "runs a job as another user"),
    Option("usage", ON_COMMAND_LINE, "", takes=NOTHING),
    Option("use-min-nodes", ONE_NODE, "", takes=NOTHING),
    Option("verbose", silently, "", "v", NOTHING),
    Option("version", ON_COMMAND_LINE, "", "V", NOTHING),
    Option("wait", wait, "", "W", NOTHING),
    Option("wait-all-nodes", ONE_NODE, ""),
    Option("wckey", label("wckey"), "a word"),
    Option("wrap", refused("stands for a script, and this is one", "take it out"), ""),
)  # fmt: skip

TABLE = OptionTable(OPTIONS, dashes="--")

VARIABLES = {
    "array-inx": "array", "burst-buffer": "bb", "cpu-freq-req": "cpu-freq",
    "mem-per-node": "mem", "req-switch": "switches", "timelimit": "time",
    "segment-size": "segment",
}  # fmt: skip
"""Variables such as SBATCH_TIMELIMIT whose options are called otherwise."""

NOT_OPTIONS = frozenset({"debug", "wait4switch", "exit-error"})


def read_slurm(
    text: str,
    source: str,
    by: Submitter,
    options: Sequence[str] = (),
    ignored: Iterable[str] = (),
) -> JobFile:
    """Read a script. `options` win over SBATCH_* variables, and those over its own.

    Raises BadInput with all problems.
    """
    found = directives(text, MARKS)
    draft, told = Draft(), Told([*found.problems], [*found.warnings])
    words = [*_without_hetjobs(found.words, told)]
    given = with_words(TABLE, list(TABLE.given(words)), _of_environment(by, told))
    given = with_words(TABLE, given, [Word(option) for option in options])
    problems, warnings = read_options(TABLE, given, draft, ignored)
    told.problems += problems
    told.warnings += warnings
    draft.output = draft.output or ("slurm-%A_%a.out" if draft.indices else "slurm-%j.out")
    if draft.signal and 0 <= draft.limit_ms <= draft.signal_ms:
        told.warn(draft, "--signal", "comes at once: the time limit is not longer than that")
    where = {"SLURM_SUBMIT_DIR": by.folder, "SLURM_SUBMIT_HOST": by.host}
    draft.variables |= {name: value for name, value in where.items() if value}
    job = assemble(text, draft, Dialect.SLURM, by, told)
    raise_all(told.problems, source)
    return job


def _without_hetjobs(words: Iterable[Word], told: Told) -> Iterable[Word]:
    for word in words:
        if word.text in ("hetjob", "packjob"):
            message = "begins another part of a heterogeneous job, and a script is one job here"
            told.problems.append(Problem(message, "hetjob", word.line))
            return
        yield word


def _of_environment(by: Submitter, told: Told) -> Iterable[Word]:
    """Return the options that variables such as SBATCH_PARTITION stand for."""
    for variable, value in sorted((by.environ or {}).items()):
        name = variable.removeprefix("SBATCH_").lower().replace("_", "-")
        name = VARIABLES.get(name, name)
        if name == variable.lower().replace("_", "-") or name in NOT_OPTIONS:
            continue
        option = TABLE.by_name.get(name)
        if option is None:
            message = (
                f"{variable} in your environment is not an option of sbatch, and is not read"
            )
            told.warnings.append(Problem(message))
        elif option.takes is Takes.NOTHING:
            if value.lower() in ("", "yes") or (value.isdecimal() and int(value)):
                yield Word(f"--{name}")
        else:
            yield Word(f"--{name}={value}" if value else f"--{name}")

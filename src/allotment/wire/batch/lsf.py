"""`#BSUB` scripts of LSF and OpenLava: the options of bsub, and what becomes of each.

The table has the options of bsub 10.1. `docs/guide/batch-scripts.md` says the same in words,
and a test compares the two. Lines count wherever they stand in a script.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from allotment.model.errors import Problem
from allotment.model.ids import JobId
from allotment.model.quantity import HOUR, KIB, MINUTE, Millis
from allotment.model.spec import NEVER, Dependency, Dialect, EndKind
from allotment.wire.amiss import Amiss, not_a
from allotment.wire.amounts import MOST_BYTES, MOST_TASKS
from allotment.wire.batch.assemble import Told, assemble
from allotment.wire.batch.draft import Draft
from allotment.wire.batch.export import read_export
from allotment.wire.batch.options import (
    Given,
    Option,
    OptionTable,
    Takes,
    read_options,
    silently,
    with_words,
    without_effect,
)
from allotment.wire.batch.readers import (
    NO_MAIL,
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
from allotment.wire.batch.values import in_reach, read_count, read_job_name, read_signal_name
from allotment.wire.batch.wish import Submitter
from allotment.wire.fields import REF
from allotment.wire.indices import read_indices
from allotment.wire.job_file import JobFile
from allotment.wire.labels import read_value as read_label
from allotment.wire.problems import raise_all
from allotment.wire.text import shown
from allotment.wire.words import read_line, read_name, read_path

MARKS = ("#BSUB",)
SHELL = "#!/bin/sh\n"
"""What runs a script that names no interpreter."""

# ── who and where ───────────────────────────────────────────────────────────────────────

JOB_NAME = re.compile(r"([^\[\]%]*)(?:\[([0-9,:-]+)\])?(?:%([0-9]{1,7}))?")


def _job_name(draft: Draft, value: str) -> str | None:
    found = JOB_NAME.fullmatch(value)
    if found is None or not (found[1] or found[2]):
        raise not_a("the name of a job", value, "write train, or train[1-10]%4 for an array")
    name = found[1] or "array"
    draft.name = read_job_name(name)
    draft.variables["LSB_JOBNAME"] = name
    if found[2]:
        draft.indices = read_indices(found[2])
        if not draft.indices[0]:
            raise Amiss("has the index 0, and indices begin with 1", "write train[1-10]")
        draft.max_running = int(found[3] or 0)
        draft.variables |= {
            "LSB_JOBINDEX_STEP": str(step_of(draft.indices)),
            "LSB_JOBINDEX_END": str(draft.indices[-1]),
        }
    if draft.name != name:
        return f"the job is called {draft.name}: that is a name here"
    return None


def _queue(draft: Draft, value: str) -> str | None:
    first, *others = value.split() or [""]
    draft.queue = draft.variables["LSB_QUEUE"] = read_name(first)
    return f"names several: only queue {first} is used" if others else None


def _project(draft: Draft, value: str) -> None:
    draft.labels["project"] = read_label(value)
    draft.variables["LSB_PROJECT_NAME"] = value


# ── how much ────────────────────────────────────────────────────────────────────────────

TASKS = re.compile(r"([0-9]{1,7})(?:,([0-9]{1,7}))?")
ONE_HOST = "its script runs on one host; a job file starts tasks on several"


def _tasks(draft: Draft, value: str) -> None:
    found = TASKS.fullmatch(value)
    if found is None:
        raise not_a("a number of tasks", value, "write 4, or 2,8")
    draft.tasks = read_count(found[1], 1, MOST_TASKS)


def _nnodes(draft: Draft, value: str) -> None:
    if read_count(value) != 1:
        raise Amiss(f"asks for {value} nodes, and a batch script has one here", ONE_HOST)


SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)(?:([KMGTP])B?)?", re.IGNORECASE)
UNITS = {"K": KIB, "M": KIB**2, "G": KIB**3, "T": KIB**4, "P": KIB**5}


def _size(value: str, unit: str) -> int:
    found = SIZE.fullmatch(value)
    if found is None:
        raise not_a("an amount of memory", value, "write it like 16GB")
    amount = int(float(found[1]) * UNITS[(found[2] or unit).upper()])
    if not 0 < amount <= MOST_BYTES:
        raise Amiss(f"{value} is 0, or more than any machine has", "write it like 16GB")
    return amount


def _memory_limit(draft: Draft, value: str) -> str | None:
    amount = _size(value, "K")
    if draft.variables.pop(RESERVED_MEMORY, ""):
        draft.variables[RESERVED_MEMORY] = "1"
        return None
    draft.memory = amount
    return None if value[-1:].isalpha() else "counts KB, as LSF does where nothing else is set"


RESERVED_MEMORY = "LSB_JOB_MEMORY"
"""Set while options are read: `rusage[mem=…]` goes before `-M`."""

SECTION = re.compile(r"\s*(select|rusage|span|order|same|cu|affinity)\s*\[([^\]]*)\]", re.I)
COMPARED = re.compile(r"(?:mem|maxmem|tmp|swp|swap|ncpus|ngpus\w*|ut|r15s|r1m|r15m)\s*[<>=]")


def _requirements(draft: Draft, value: str) -> str | None:
    """Read what a host must have: the sections of `-R`."""
    warnings: list[str] = []
    at = 0
    while at < len(value.rstrip()):
        found = SECTION.match(value, at)
        if found is None:
            warnings.append(_selected(value[at:].strip()))
            break
        name, text = found[1].lower(), found[2]
        if name == "rusage":
            warnings += _usage(draft, text)
        elif name == "span":
            _span(draft, text)
        elif name == "select":
            warnings.append(_selected(text))
        else:
            warnings.append(f"{name}[…] has no effect: there is one host")
        at = found.end()
    return "; ".join(filter(None, warnings)) or None


def _selected(text: str) -> str:
    parts = [part.strip() for part in re.split(r"&&|\|\||[()]", text) if part.strip()]
    if all(COMPARED.match(part) or part in ("type==any", "type==local") for part in parts):
        return "select[…] has no effect: a job gets what it asks for with rusage and -gpu"
    raise Amiss(
        f"chooses hosts by {shown(text)}, and hosts have no such names here",
        "or submit it with --ignore R, and say what it needs with --set",
    )


USED = re.compile(r"(\w+)\s*=\s*([^,:/\s]+)(?:/(\w+))?(?:\s*:\s*(?:duration|decay)\s*=\s*\w+)*")


def _usage(draft: Draft, text: str) -> Iterator[str]:
    for part in filter(None, map(str.strip, re.split(r"[,:](?=\s*\w+\s*=)", text))):
        found = USED.fullmatch(part)
        if found is None:
            raise not_a("what a job uses", part, "write rusage[mem=16GB]")
        name, amount, unit = found.groups()
        if name == "mem":
            yield _reserve(draft, _size(amount, "M"), unit)
        elif name in ("ngpus", "ngpus_physical", "ngpus_excl_p", "ngpus_shared"):
            draft.gpus_per_node = read_count(amount, 0)
        elif name in ("tmp", "scratch"):
            draft.disk = _size(amount, "M")
        elif name not in ("duration", "decay"):
            raise Amiss(f"reserves {shown(name)}, which nodes do not have here", "take it out")


def _reserve(draft: Draft, amount: int, unit: str | None) -> str:
    if unit in ("task", "slot"):
        draft.memory, draft.memory_per_cpu = None, amount
        draft.variables[RESERVED_MEMORY] = "1"
        return ""
    draft.memory, draft.memory_per_cpu = amount, None
    draft.variables[RESERVED_MEMORY] = "1"
    if unit is None:
        return (
            "mem counts for the whole job; where your site counts it for each slot, write /task"
        )
    return ""


def _span(draft: Draft, text: str) -> None:
    found = re.fullmatch(r"\s*(hosts|ptile)\s*=\s*([0-9]{1,7})\s*", text)
    if found is None:
        raise Amiss(f"span[{text[:40]}] is not known here", "write span[hosts=1]")
    if found[1] == "hosts" and found[2] != "1":
        raise Amiss(f"asks for {found[2]} hosts, and a batch script has one here", ONE_HOST)
    if found[1] == "ptile":
        draft.tasks_per_node = read_count(found[2], 1, MOST_TASKS)


GPU_PARTS_WITHOUT_EFFECT = frozenset({
    "mode", "mps", "j_exclusive", "aff", "block", "gpack", "gvendor", "gtile", "gi", "ci",
    "glink", "nvlink",
})  # fmt: skip


def _gpu(draft: Draft, value: str) -> str | None:
    draft.gpus_per_node = 1
    unused: list[str] = []
    for part in filter(None, map(str.strip, value.split(":"))):
        name, equals, text = part.partition("=")
        if name == "num" and equals:
            number, _, unit = text.partition("/")
            draft.gpus_per_node = read_count(number)
            if unit == "task":
                draft.gpus_per_node, draft.gpus_per_task = None, int(number)
        elif name == "gmodel" and equals:
            draft.gpu_types = (read_line(text.partition("-")[0]),)
        elif name == "gmem" and equals:
            draft.gpu_memory = _size(text, "M")
        elif name in GPU_PARTS_WITHOUT_EFFECT:
            if name not in ("mode", "j_exclusive") and text not in ("no", "any"):
                unused.append(name)
        elif part != "-":
            raise not_a("a requirement of GPUs", part, 'write -gpu "num=2:gmodel=A100"')
    return f"{', '.join(unused)}: has no effect" if unused else None


# ── when ────────────────────────────────────────────────────────────────────────────────

RUN_LIMIT = re.compile(r"(?:([0-9]{1,6}):)?([0-9]{1,8})(?:/\S*)?")


def _length(value: str) -> Millis:
    found = RUN_LIMIT.fullmatch(value)
    if found is None:
        raise not_a("a length of time", value, "write minutes, or hours:minutes")
    return in_reach(int(found[1] or 0) * HOUR + int(found[2]) * MINUTE, value)


def _warning_time(draft: Draft, value: str) -> None:
    draft.signal_ms = max(Millis(0), _length(value))


CONDITION = re.compile(r"(?:(\w+)\s*\(\s*(.*?)\s*\)|(.+?))")
ENDS = {"done": EndKind.SUCCESS, "ended": EndKind.ANY}


def _dependency(draft: Draft, value: str) -> None:
    either = "||" in value
    if either and "&&" in value:
        raise Amiss("has both && and ||, and only one of them may be used", DEPEND)
    parts = re.split(r"\|\||&&", value)
    draft.depends_on = tuple(_condition(part.strip(), int(either)) for part in parts)


DEPEND = "write done(12) && ended(13)"


def _condition(text: str, any_of: int) -> Dependency:
    found = CONDITION.fullmatch(text)
    kind, job = (found[1] or "done", found[2] or found[3]) if found else ("", "")
    if kind not in ENDS:
        raise Amiss(f"waits for {shown(text)}, and a job can wait for done and ended", DEPEND)
    job = job.strip("\"'")
    if not REF.fullmatch(job) or "*" in job:
        raise not_a("a job", job, DEPEND)
    number = int(job) if job.isdecimal() and len(job) < 19 else 0
    return Dependency(JobId(number), ENDS[kind], any_of, job)


def _begin(draft: Draft, value: str) -> None:
    raise Amiss(
        "asks for a start at some time, and a job here starts when there is room",
        "or submit it with --ignore b",
    )


def _requeue_codes(draft: Draft, value: str) -> None:
    codes = value.split()
    if not codes or not all(code.isdecimal() for code in codes):
        raise not_a("a list of exit codes", value, 'write -Q "99 100"')
    draft.requeue_on = tuple(read_count(code, 1, 255) for code in codes)


# ── files and environment ───────────────────────────────────────────────────────────────


def _output(draft: Draft, value: str) -> None:
    draft.output, draft.append = read_line(value), True
    draft.variables["LSB_OUTPUTFILE"] = value


def _new_output(draft: Draft, value: str) -> None:
    _output(draft, value)
    draft.append = False


def _error(draft: Draft, value: str) -> None:
    draft.error = read_line(value)
    draft.variables["LSB_ERRORFILE"] = value


def _env(draft: Draft, value: str) -> None:
    parts = [part.strip() for part in value.split(",") if part.strip()]
    if any(part.startswith("~") for part in parts):
        raise Amiss("leaves variables out, and all or some by name are passed on", "-env all")
    words = {"all": "ALL", "none": "NONE"}
    export = ",".join(words.get(part, part) for part in parts) or "NONE"
    read_export(export)
    draft.export = export


# ── the table ───────────────────────────────────────────────────────────────────────────

NOTHING = Takes.NOTHING
UNLIMITED = without_effect("limits of single processes are not set")
INTERACTIVE = "asks for a terminal; allot exec gives one in a running job"


OPTIONS: tuple[Option, ...] = (
    Option("J", _job_name, "such as train[1-10]%4"),
    Option("Jd", label("comment"), "a text"),
    Option("q", _queue, "a queue"),
    Option("G", sets("tenant", read_name), "a tenant"),
    Option("P", _project, "a word"),
    Option("g", label("group"), "a path"),
    Option("n", _tasks, "a number"),
    Option("nnodes", _nnodes, "1"),
    Option("R", _requirements, 'such as "span[hosts=1] rusage[mem=16GB]"'),
    Option("M", _memory_limit, "such as 16GB"),
    Option("gpu", _gpu, 'such as "num=2"'),
    Option("W", sets("limit_ms", _length), "such as 12:30"),
    Option("wt", _warning_time, "minutes"),
    Option("wa", sets("signal", read_signal_name), "a signal"),
    Option("w", _dependency, "such as done(12)"),
    Option("b", _begin, "a time"),
    Option("Q", _requeue_codes, "exit codes"),
    Option("r", requeue, "", takes=NOTHING),
    Option("rn", no_requeue, "", takes=NOTHING),
    Option("H", hold, "", takes=NOTHING),
    Option("K", wait, "", takes=NOTHING),
    Option("o", _output, "a file name"),
    Option("oo", _new_output, "a file name"),
    Option("e", _error, "a file name"),
    Option("eo", _error, "a file name"),
    Option("i", sets("input", read_line), "a file name"),
    Option("is", sets("input", read_line), "a file name"),
    Option("cwd", sets("folder", read_path), "a folder"),
    Option("env", _env, 'such as "all, LR=0.1"'),
    Option("hl", silently, "", takes=NOTHING),
    Option("ti", silently, "", takes=NOTHING),
    Option("B", NO_MAIL, "", takes=NOTHING),
    Option("N", NO_MAIL, "", takes=NOTHING),
    Option("Ne", NO_MAIL, "", takes=NOTHING),
    Option("u", NO_MAIL, ""),
    Option("notify", NO_MAIL, ""),
    *(Option(name, UNLIMITED, "") for name in ("C", "c", "D", "F", "S", "T", "v", "p")),
    Option("ul", UNLIMITED, "", takes=NOTHING),
    Option("We", without_effect("run times are learnt from earlier jobs"), ""),
    Option("L", without_effect("the first line of the script names its interpreter"), ""),
    Option("a", without_effect("no programs are run around a job"), ""),
    Option("ar", without_effect("jobs have a fixed size"), "", takes=NOTHING),
    *(Option(name, NO_TUNING, "") for name in (
        "alloc_flags", "core_isolation", "freq", "network", "smt", "jsm", "ln_mem", "ln_slots",
        "cn_mem", "cn_cu", "stage", "csm", "ext", "mig",
    )),
    Option("step_cgroup", NO_TUNING, ""),
    Option("rcacct", without_effect("use is measured anyway"), ""),
    no("x", ONE_SIZE, takes=NOTHING),
    no("m", "names hosts; a job here names its needs instead"),
    no("hostfile", "names hosts; a job here names its needs instead"),
    no("U", "names a reservation of LSF's; users of one here need not name it"),
    *(no(name, INTERACTIVE, takes=NOTHING) for name in (
        "I", "Ip", "Is", "IS", "ISp", "ISs", "IX", "XF", "tty",
    )),
    no("app", "names a profile, and there are none"),
    no("sla", "names a service class, and there are none"),
    no("sp", "is a priority of LSF's; with --set priority=… it has one of ours"),
    no("E", "runs a program before the job; put it into the script"),
    no("Ep", "runs a program after the job; put it into the script"),
    no("f", "copies files, and all are on one machine"),
    no("k", "takes checkpoints of processes; docs/guide/checkpoints.md says how jobs save"),
    no("t", "ends a job at some time; -W limits how long it runs"),
    no("s", "asks for another signal when it is suspended"),
    *(no(name, "limits how long it waits; use --set max_queue_time=…") for name in (
        "ptl", "eptl",
    )),
    *(no(name, "is not supported here") for name in (
        "Lp", "data", "datagrp", "clusters", "outdir", "pack", "jsdl", "jsdl_strict", "json",
        "yaml", "jobaff", "rnc",
    )),
    no("datachk", "is not supported here", takes=NOTHING),
    no("Zs", "spools the script, as is always done", takes=NOTHING),
    no("h", "belongs on the command line, not in a script", takes=NOTHING),
    no("V", "belongs on the command line, not in a script", takes=NOTHING),
)  # fmt: skip


class BsubTable(OptionTable):
    """Options of one dash and a whole name (`-gpu num=2`); `-n4` has its value attached."""

    def find(self, name: str) -> Option | None:
        return self.by_name.get(name)

    def given(self, words: Iterable[Word]) -> Iterator[Given | Problem]:
        rest = deque(words)
        while rest:
            word = rest.popleft()
            name = word.text[1:]
            if not word.text.startswith("-") or not name:
                yield self.no_option(word)
            elif name in self.by_name:
                yield self._named(self.by_name[name], word, rest)
            elif (option := self.by_name.get(name[:1])) and option.takes is Takes.VALUE:
                yield Given(option, name[1:], word.line)
            else:
                yield self.unknown(word.text, name, word.line)

    def _named(self, option: Option, word: Word, rest: deque[Word]) -> Given | Problem:
        if option.takes is Takes.NOTHING:
            return Given(option, "", word.line)
        return self.with_next(option, word, rest)


TABLE = BsubTable(OPTIONS, dashes="-")


def read_lsf(
    text: str,
    source: str,
    by: Submitter,
    options: Sequence[str] = (),
    ignored: Iterable[str] = (),
) -> JobFile:
    """Read a script. `options` win over its own. Raises BadInput with all problems."""
    script = text if text.startswith("#!") else SHELL + text
    found = directives(text, MARKS, anywhere=True)
    draft, told = Draft(), Told([*found.problems], [*found.warnings])
    given = with_words(TABLE, TABLE.given(found.words), [Word(option) for option in options])
    problems, warnings = read_options(TABLE, _by_name(given), draft, ignored)
    told.problems += problems
    told.warnings += warnings
    draft.variables.pop(RESERVED_MEMORY, None)
    draft.output = draft.output or draft.error
    if (draft.tasks or 1) > (draft.tasks_per_node or MOST_TASKS):
        message = f"span[ptile={draft.tasks_per_node}] makes several hosts of -n {draft.tasks}"
        told.problems.append(Problem(message, "-R", draft.lines.get("R", 0), ONE_HOST))
    draft.tasks_per_node = None
    if draft.signal and draft.limit_ms == NEVER:
        told.warn(draft, "-wa", "comes at an eviction alone: there is no run limit (-W)")
    where = {"LS_SUBCWD": by.folder, "LSB_SUB_HOST": by.host}
    draft.variables |= {name: value for name, value in where.items() if value}
    job = assemble(script, draft, Dialect.LSF, by, told)
    raise_all(told.problems, source)
    return job


def _by_name(given: Iterable[Given | Problem]) -> list[Given | Problem]:
    """Put `-R` before `-M`, which says less of the memory that a job needs."""
    return sorted(given, key=lambda each: isinstance(each, Given) and each.option.name == "M")

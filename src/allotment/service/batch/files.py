"""Which files a batch script runs with: itself, its plan, and the programs it may call."""

import json
import os
import sys
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path

import msgspec

from allotment.engine.records import JobRecord
from allotment.model.spec import NEVER, Batch, Dialect, JobSpec
from allotment.service.batch.tools import patterns
from allotment.service.batch.variables import Nodes

FOLDER = "batch"
"""Below the folder of an attempt."""

HOSTS = "hosts"
"""A line for each process, as LSB_DJOB_HOSTFILE has it."""

NAMES = {Dialect.SLURM: "slurm_script", Dialect.LSF: "lsf_script"}
TOOLS = {
    Dialect.SLURM: {"srun": "srun", "scontrol": "scontrol"},
    Dialect.LSF: {},
}
"""Programs that a script may call, each with the module that has its `main`."""

LIBRARY = "lib/allotment/service/batch/tools"
"""Where the modules lie, so that they find each other as they do here."""

WRAPPER = """\
#!{python} -IS
import sys
sys.path.insert(0, {library!r})
from allotment.service.batch.tools.{module} import main
main()
"""
"""No shell stands between: it would drop functions that bash passes on."""

ANY_PYTHON = "/usr/bin/env -S python3"


class File(msgspec.Struct, frozen=True):
    """One file. `mode` is as chmod has it."""

    text: str
    mode: int = 0o444
    is_private: bool = False
    """Whether nobody but the job's user may read it."""


def tools_folder(root: str) -> str:
    """Return the folder of the programs, below a state folder; each version has its own."""
    return f"{root}/tools/{_version()}"


def batch_argv(root: str, attempt_folder: str) -> tuple[str, ...]:
    """Return the command of a task that runs a script."""
    return (f"{tools_folder(root)}/run", f"{attempt_folder}/{FOLDER}")


def batch_path(root: str, dialect: Dialect) -> str:
    """Return the folder of the programs that a script may call."""
    return f"{tools_folder(root)}/{dialect.value}"


def hosts_path(attempt_folder: str) -> str:
    """Return the file that has a line for each process."""
    return f"{attempt_folder}/{FOLDER}/{HOSTS}"


def tool_files(root: str) -> Mapping[str, File]:
    """Return the programs, by their paths below their folder."""
    library = f"{tools_folder(root)}/lib"
    made = {"run": File(_wrapper("run", library), 0o555)}
    for dialect, programs in TOOLS.items():
        for program, module in programs.items():
            made[f"{dialect.value}/{program}"] = File(_wrapper(module, library), 0o555)
    return made | {f"{LIBRARY}/{name}": File(text) for name, text in _library().items()}


def batch_files(job: JobRecord, batch: Batch, nodes: Nodes, user: str) -> Mapping[str, File]:
    """Return the files of an attempt, by their paths below its folder."""
    spec = job.running_as
    name = NAMES.get(spec.dialect, "script")
    plan = json.dumps(_plan(job, spec, batch, nodes, user) | {"script": name})
    made = {
        f"{FOLDER}/{name}": File(str(spec.roles[0].command), 0o500, is_private=True),
        f"{FOLDER}/plan.json": File(plan, 0o400, is_private=True),
    }
    if spec.dialect is Dialect.LSF:
        node = nodes[job.attempts[-1].slots[0].node].name
        made[f"{FOLDER}/{HOSTS}"] = File(f"{node}\n" * batch.tasks)
    return made


def _plan(
    job: JobRecord, spec: JobSpec, batch: Batch, nodes: Nodes, user: str
) -> dict[str, object]:
    """Return what the program is told that runs the script."""
    array = spec.array
    known = patterns.PatternValues(
        job=job.id,
        array=array.parent if array else job.id,
        member=array.index if array else None,
        name=dict(batch.variables).get("SLURM_JOB_NAME", spec.family),
        node=nodes[job.attempts[-1].slots[0].node].name,
        user=user,
        restarts=len(job.attempts) - 1,
    )
    expand = patterns.EXPAND[spec.dialect.value]
    return {
        "args": list(batch.args),
        "output": expand(batch.output, known),
        "error": expand(batch.error, known),
        "input": expand(batch.input, known),
        "append": batch.append,
        "signal": spec.checkpoint.signal if spec.checkpoint else "TERM",
        "warn_ms": batch.warn_ms,
        "warn_script": batch.warn_script,
        "limit_ms": 0 if spec.max_run_ms == NEVER else spec.max_run_ms,
        "dialect": spec.dialect.value,
    }


def _wrapper(module: str, library: str) -> str:
    return WRAPPER.format(module=module, library=library, python=_python())


@cache
def _python() -> str:
    """Return our own Python if any user can run it, else whichever there is."""
    own = Path(sys.executable).resolve()
    is_open = all(each.stat().st_mode & 0o001 for each in (own, *own.parents))
    return str(own) if is_open or os.geteuid() != 0 else ANY_PYTHON


@cache
def _library() -> Mapping[str, str]:
    folder = Path(__file__).parent / "tools"
    return {path.name: path.read_text("utf-8") for path in sorted(folder.glob("*.py"))}


@cache
def _version() -> str:
    texts = "".join((WRAPPER, _python(), *_library().values()))
    return sha256(texts.encode()).hexdigest()[:16]

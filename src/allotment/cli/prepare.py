"""A job file made ready to be sent: checked here, where its lines are known.

What is sent is the file itself where that says all, so that the service keeps its reader's
warnings with the job; and the same job in the native form where something was filled in
here: relative paths, secrets, changes.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec

from allotment.cli.output import Failed
from allotment.client.packages import read_packages
from allotment.model.errors import Problem
from allotment.model.spec import JobSpec
from allotment.wire.indices import write_indices
from allotment.wire.job import BatchWish, Form, JobFile, apply_set, job_to_wire, read_job
from allotment.wire.sweep_write import sweep_to_wire
from allotment.wire.tree import Plain

PATHS = ("data_dir", "code_dir", "output_dir", "workdir")


class Prepared(msgspec.Struct, frozen=True):
    """What to send, and what its reader had to say."""

    body: bytes | dict[str, object]
    form: str
    warnings: tuple[Problem, ...]
    held: bool = False
    waits: bool = False
    """Whether the file asks to be waited for."""
    script: str = ""
    """The job file that a batch script became; nothing where it was none."""


def prepare(  # noqa: PLR0913, PLR0917 - all that a job file is made ready from
    data: bytes,
    source: str,
    folder: Path,
    form: str,
    changes: Sequence[str],
    environ: Mapping[str, str],
    grid: Mapping[str, object] | None = None,
    batch: BatchWish | None = None,
) -> Prepared:
    """Read a job file, and fill in what only this side knows. Raises BadInput.

    `grid` has parameters that are added to the file's own, or replace them; `batch` is what the
    command line adds to a batch script.
    """
    if form not in tuple(Form):
        raise Failed(f"There is no form {form}.", f"Forms: {', '.join(Form)}.")
    job = read_job(data, source=source, form=Form(form), environ=environ, batch=batch)
    spec = job.spec
    if changes:
        spec = apply_set(spec, changes)
    spec = with_requirements(with_absolute_paths(spec, folder), folder)
    if (
        job.warnings
        and not job.held
        and spec == job.spec
        and not (spec.secrets or spec.batch or spec.code or spec.environment or grid)
    ):
        return Prepared(data, form, job.warnings)
    more = _more_jobs(job, grid)
    body: dict[str, object] = {**job_to_wire(spec, redact=False), **more}
    script = ""
    if spec.batch is not None:
        from allotment.wire.config_text import config_text  # noqa: PLC0415 - rarely needed

        script = config_text({**job_to_wire(spec), **more})
    return Prepared(body, "auto", job.warnings, job.held, job.waits, script)


def with_requirements(spec: JobSpec, folder: Path) -> JobSpec:
    """Return the spec with the requirements in the file that it names."""
    asked = spec.environment
    if asked is None or not asked.file:
        return spec
    python, lines = read_packages(folder / Path(asked.file).expanduser(), asked.python)
    read = msgspec.structs.replace(asked, file="", requirements=lines, python=python)
    return msgspec.structs.replace(spec, environment=read)


def _more_jobs(job: JobFile, grid: Mapping[str, object] | None) -> dict[str, Plain]:
    """Write what makes several jobs of one."""
    if job.sweep is not None and grid:
        raise Failed("--grid is not for a sweep.", "Use `allot sweep submit FILE --param …`.")
    if job.sweep is not None:
        sweep = sweep_to_wire(job.sweep)
        return {"sweep": sweep, "array": {"max_running": job.max_running}}
    if job.grid or grid:
        axes: dict[str, Plain] = {name: list(values) for name, values in job.grid}
        axes |= cast("dict[str, Plain]", grid or {})
        return {"grid": axes, "array": {"max_running": job.max_running}}
    if job.indices:
        indices = write_indices(job.indices)
        return {"array": {"indices": indices, "max_running": job.max_running}}
    if job.copies > 1:
        return {"array": {"count": job.copies, "max_running": job.max_running}}
    return {}


def with_absolute_paths(spec: JobSpec, folder: Path) -> JobSpec:
    """Return the spec with paths that are relative to a folder, or to `~`, made absolute."""
    found = {
        name: str(folder / Path(path).expanduser())
        for name in PATHS
        if (path := getattr(spec, name)) and not path.startswith("/")
    }
    if spec.code is not None:
        found.pop("workdir", None)  # It is below the folder that is taken.
        if not spec.code.bundle:
            taken = str(folder / Path(spec.code.folder).expanduser())
            spec = msgspec.structs.replace(
                spec, code=msgspec.structs.replace(spec.code, folder=taken)
            )
    return msgspec.structs.replace(spec, **found)

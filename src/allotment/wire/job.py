"""Job files and request bodies into specs, and back. This is the door to `wire` for jobs.

Parsers are imported when first used: a command that reads no job does not pay for them.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeGuard

from allotment.model.errors import BadInput, Problem
from allotment.model.spec import JobSpec
from allotment.wire.batch.wish import BatchWish
from allotment.wire.job_file import Form, JobFile
from allotment.wire.job_write import job_to_json, job_to_wire
from allotment.wire.parse import tree_of
from allotment.wire.text import text_of
from allotment.wire.tree import Table, Tree, plain_of

__all__ = [
    "BatchWish",
    "Form",
    "JobFile",
    "apply_set",
    "is_batch_script",
    "job_schema",
    "job_to_json",
    "job_to_wire",
    "read_job",
    "read_job_json",
]

REQUEST = "job"
"""How a request body is called in messages."""


def read_job(
    data: bytes,
    *,
    source: str,
    form: Form = Form.AUTO,
    environ: Mapping[str, str] | None = None,
    batch: BatchWish | None = None,
) -> JobFile:
    """Read a job in any form. `source` names the file in messages.

    `environ` resolves secrets given as `{from_env: NAME}`; without it they are a problem.
    `batch` has what is known besides of a batch script.
    Raises BadInput with everything that is wrong, each with its line.
    """
    text = text_of(data, source)
    if read_script := _script_reader(text, form):
        wish = batch or BatchWish()
        return read_script(text, source, wish.by, wish.options, wish.ignored)
    if form is Form.AUTO and (together := _documents(text, source)) is not None:
        return together
    tree, problems = tree_of(text, source, as_json=form is Form.CLASSIC)
    if form is Form.AUTO and _is_foreign(tree):
        from allotment.wire.foreign.kinds import read_foreign

        return read_foreign(plain_of(tree), tree, source, problems)
    if form is Form.CLASSIC or (form is Form.AUTO and _is_classic(tree, source)):
        from allotment.wire.job_classic import read_classic

        return read_classic(plain_of(tree), tree, source=source, problems=problems)
    from allotment.wire.job_native import read_native

    return read_native(plain_of(tree), tree, source=source, environ=environ, problems=problems)


def _documents(text: str, source: str) -> JobFile | None:
    """Read objects of Kubernetes in one file that are a job together; None for anything else.
    Raises BadInput."""
    if "\n---" not in text or "apiVersion" not in text:
        return None
    from allotment.wire.foreign.kinds import read_foreign, read_train_job_with
    from allotment.wire.yaml_reader import documents_of, read_yaml

    found: list[Table] = []
    for part in documents_of(text):
        tree, problems = read_yaml(part, source)
        if not _is_foreign(tree):
            return None
        if problems:
            raise BadInput(problems, source)
        found.append(tree)
    if len(found) == 1:
        return read_foreign(plain_of(found[0]), found[0], source, ())
    return read_train_job_with(found, source)


def is_batch_script(data: bytes) -> bool:
    """Whether a file is a script with directives of a batch system. Any other may be YAML."""
    return data.startswith(b"#") and batch_form(data.decode("utf-8", "replace")) is not None


def batch_form(text: str) -> Form | None:
    """Return the form of a script by its first directive; None where it has none."""
    found = DIRECTIVE.search(text) if text.startswith("#") else None
    form = DIRECTIVES[found[1]] if found else None
    return form if text.startswith("#!") or form is Form.LSF else None


DIRECTIVE = re.compile(r"^#(SBATCH|BSUB)(?=\s)", re.MULTILINE)
DIRECTIVES = {"SBATCH": Form.SLURM, "BSUB": Form.LSF}


def _script_reader(text: str, form: Form) -> Callable[..., JobFile] | None:
    if form is Form.AUTO:
        form = batch_form(text) or form
    if form is Form.SLURM:
        from allotment.wire.batch.slurm import read_slurm

        return read_slurm
    if form is Form.LSF:
        from allotment.wire.batch.lsf import read_lsf

        return read_lsf
    return None


def read_job_json(body: bytes) -> JobFile:
    """Read the body of a submission: the native form as JSON, fast when it is right.

    The answer is `read_job`'s for the same JSON, errors included; what is not JSON is not
    tried as YAML, which takes longer than a request may.
    """
    from allotment.wire.job_native import read_native, read_native_json

    text = text_of(body, REQUEST)
    job = read_native_json(body)
    if job is not None:
        return job
    from allotment.wire.json5_reader import read_json5

    tree, problems = read_json5(text, REQUEST)
    return read_native(plain_of(tree), tree, source=REQUEST, environ=None, problems=problems)


def apply_set(spec: JobSpec, changes: Sequence[str]) -> JobSpec:
    """Return the spec with changes such as `roles.worker.count=4` made; see `job_set`."""
    from allotment.wire.job_set import apply_set as change

    return change(spec, changes)


def job_schema() -> dict[str, object]:
    """Return the JSON schema of the native form."""
    from allotment.wire.job_shape import job_schema as schema

    return schema()


def _is_foreign(tree: Tree) -> TypeGuard[Table]:
    """Whether a file is an object of Kubernetes."""
    return isinstance(tree, Table) and {"apiVersion", "kind"} <= tree.entries.keys()


def _is_classic(tree: Tree, source: str) -> bool:
    if not isinstance(tree, Table):
        return False
    if entry := tree.entries.get("protocolVersion"):
        message = "this is an OpenPAI v2 job, and only v1 is read"
        hint = "write it in the native form: docs/guide/job-spec.md"
        raise BadInput((Problem(message, "protocolVersion", entry.line, hint),), source)
    return "taskRoles" in tree.entries or "jobName" in tree.entries

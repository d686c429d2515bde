"""Changes to a spec as a user types them: `roles.worker.count=4`, `env.LR=0.1`."""

from collections.abc import Sequence

import msgspec

from allotment.model.errors import BadInput, Problem
from allotment.model.spec import JobSpec
from allotment.wire.amiss import Amiss
from allotment.wire.job_native import ONE_ROLE, read_native
from allotment.wire.job_write import job_to_wire
from allotment.wire.text import CONTROL, MOST_BYTES, plain_word
from allotment.wire.tree import AS_WRITTEN, Plain, plain_of
from allotment.wire.yaml_reader import read_yaml, scalar_of

SOURCE = "--set"
TEXTS = AS_WRITTEN | {"name", "image", "data", "code", "output", "workdir"}
"""Below or at these keys a value is text, whatever it looks like."""

LONGEST_PATH = 1024
EXAMPLE = "write it like roles.worker.count=4, priority=high or env.LR=0.1"


def apply_set(spec: JobSpec, changes: Sequence[str]) -> JobSpec:
    """Return the spec with these changes made, checked like a file.

    KEY=VALUE each; an empty value takes the key out, back to its default, except in `env`
    and `secrets`. Raises BadInput with everything that is wrong.
    """
    written = job_to_wire(spec, redact=False)
    problems: list[Problem] = []
    for change in changes:
        try:
            _set(written, change, spec)
        except Amiss as amiss:
            problems.append(
                Problem(amiss.message, plain_word(change.split("=")[0]), 0, amiss.hint)
            )
    for key in ("array", "grid", "sweep"):
        if key in written:
            hint = f"submit a file with `{key}` in it"
            problems.append(Problem("belongs to a submission, not to a job", key, 0, hint))
    if problems:
        raise BadInput(tuple(problems), SOURCE)
    changed = read_native(written, None, source=SOURCE, environ=None).spec
    return msgspec.structs.replace(changed, array=spec.array)


def _set(written: Plain, change: str, spec: JobSpec) -> None:
    path, equals, text = change.partition("=")
    if not equals or not path:
        raise Amiss("is not a change", EXAMPLE)
    if len(path) > LONGEST_PATH or len(text) > MOST_BYTES:
        raise Amiss("is too long", "change the job file instead, and submit it")
    steps = _in_full(path.split("."), spec)
    node = written
    while len(steps) > 1:
        node, steps = _into(node, steps)
    _put(node, steps[0], _value(path.split("."), text))


def _in_full(steps: list[str], spec: JobSpec) -> list[str]:
    """Let the keys of the only role stand at the top, as they may in a file."""
    first, *_ = steps
    if first not in ONE_ROLE:
        return steps
    if len(spec.roles) != 1:
        names = ", ".join(role.name for role in spec.roles)
        raise Amiss("could be meant for any role", f"write roles.NAME.…; the roles are {names}")
    return ["roles", spec.roles[0].name, *steps]


def _into(node: Plain, steps: list[str]) -> tuple[Plain, list[str]]:
    """Follow one key, which may itself have dots in it; missing maps are made."""
    if isinstance(node, list):
        return node[_index(node, steps[0])], steps[1:]
    if not isinstance(node, dict):
        raise Amiss("goes into a value that has no keys", EXAMPLE)
    for taken in range(len(steps) - 1, 0, -1):
        key = ".".join(steps[:taken])
        if key in node:
            return node[key], steps[taken:]
    return node.setdefault(steps[0], {}), steps[1:]


def _put(node: Plain, step: str, value: Plain) -> None:
    if isinstance(node, list):
        node[_index(node, step)] = value
    elif not isinstance(node, dict):
        raise Amiss("goes into a value that has no keys", EXAMPLE)
    elif value is None:
        node.pop(step, None)
    else:
        node[step] = value


def _index(items: list[Plain], step: str) -> int:
    if step.isdecimal() and len(step) < 7 and int(step) < len(items):
        return int(step)
    raise Amiss(
        f"there is no item `{plain_word(step)}`", f"the items are 0 to {len(items) - 1}"
    )


def _value(path: list[str], text: str) -> Plain:
    """Read a value: a list or map as in YAML, a text as it stands, anything else as a word."""
    if CONTROL.search(text):
        raise Amiss("has a control character", "take it out")
    is_free = path[0] in ("env", "secrets") and len(path) > 1
    if not text:
        return "" if is_free else None
    if text[0] in "[{" and not is_free:
        try:
            tree, problems = read_yaml(text, SOURCE)
        except BadInput as error:
            if path[-1] == "command":  # a shell line may start with `[ -f`
                return text
            problem = error.problems[0]
            raise Amiss(problem.message, problem.hint) from error
        if problems:
            raise Amiss(problems[0].message, problems[0].hint)
        return plain_of(tree, under=path[-1])
    return text if TEXTS & {path[0], path[-1]} else scalar_of(text)

"""What is known only when a task starts, such as its address: names for it in a job's texts.

A file written for Kubernetes may name such a thing anywhere in a command or a variable. What
reads the file writes `$(allotment.NAME)` there; for each task the service fills it in.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final

from allotment.model.spec import Dialect, JobSpec

Known = Callable[[str], str | None]
"""Returns a thing by its name; None where there is no such thing."""

OPENING: Final = "$(allotment."
FILLED_IN: Final = frozenset({
    Dialect.PYTORCH_JOB, Dialect.TF_JOB, Dialect.MPI_JOB, Dialect.BATCH_JOB,
    Dialect.TRAIN_JOB, Dialect.JOB_SET, Dialect.FRAMEWORK,
})  # fmt: skip
"""The dialects in whose texts such names mean anything."""
NAMED = re.compile(r"\$\(allotment\.([A-Za-z0-9_.-]+)\)")


def later(name: str) -> str:
    """Return what stands for a thing until a task starts."""
    return f"{OPENING}{name})"


def fill(text: str, known: Known | None) -> str:
    """Return a text with what is known put in. For a variable that there is not, `$(NAME)`
    stays, as in Kubernetes. Where nothing is known by name, the text stays as it is."""
    if known is None or OPENING not in text:
        return text

    def put(found: re.Match[str]) -> str:
        value = known(found[1])
        return f"$({found[1]})" if value is None else value

    return NAMED.sub(put, text)


def characters_to_fill(spec: JobSpec) -> int:
    """Count the characters of all texts that are made anew for each task. O(its texts)."""
    if spec.dialect not in FILLED_IN:
        return 0
    of_each = _length(value for _, value in spec.env)
    return sum(
        role.count
        * (of_each + _length([role.command] if isinstance(role.command, str) else role.command))
        for role in spec.roles
    )


def _length(texts: Iterable[str]) -> int:
    return sum(len(text) for text in texts if OPENING in text)

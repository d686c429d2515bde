"""Names of output files as batch systems write them: `slurm-%j.out`, `out.%J.%I`."""

import re
from collections.abc import Callable
from typing import NamedTuple


class PatternValues(NamedTuple):
    """What patterns may name. `member` is None outside of arrays; `step` in a script."""

    job: int
    array: int
    member: int | None
    name: str
    node: str
    user: str
    restarts: int = 0
    step: int | None = None
    task: int = 0


NO_INDEX = 4294967294
"""What Slurm writes for %a where there is no array."""
_SLURM = re.compile(r"%(\d*)([%AabJjNnrstuxS])")
_MOST_DIGITS = 10


def expand_slurm(pattern: str, known: PatternValues) -> str:
    """Put values in a pattern of Slurm's. A pattern with `\\\\` in it stays as it is."""
    if "\\" in pattern:
        return pattern.replace("\\", "")
    index = NO_INDEX if known.member is None else known.member
    step = "batch" if known.step is None else str(known.step)
    numbers = {
        "A": known.array, "a": index, "b": index % 10, "j": known.job, "n": 0,
        "r": known.restarts, "t": known.task,
    }  # fmt: skip
    words = {
        "%": "%", "N": known.node, "u": known.user, "x": known.name, "s": step,
        "J": str(known.job) if known.step is None else f"{known.job}.{step}",
    }  # fmt: skip

    def value(found: re.Match[str]) -> str:
        if found[2] in numbers:
            return str(numbers[found[2]]).zfill(min(int(found[1] or 0), _MOST_DIGITS))
        return words.get(found[2], found[0])

    return _SLURM.sub(value, pattern)


def expand_lsf(pattern: str, known: PatternValues) -> str:
    """Put values in a pattern of LSF's: %J is the job, %I its index, 0 if it has none."""
    index = known.member or 0
    return pattern.replace("%J", str(known.array)).replace("%I", str(index))


EXPAND: dict[str, Callable[[str, PatternValues], str]] = {
    "slurm": expand_slurm,
    "lsf": expand_lsf,
}

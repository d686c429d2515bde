"""Write docs/guide/exit-codes.md from the dictionaries that `diagnose` uses."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from allotment.engine import exit_codes as codes
from allotment.engine.log_patterns import PYTHON_EXCEPTION, RAISED, STRONG, WEAK
from allotment.engine.log_scan import LogPattern
from allotment.engine.signals import BY_SIGNAL
from allotment.model.diagnosis import Diagnosis

PAGE = Path(__file__).parent.parent / "docs" / "guide" / "exit-codes.md"
HEAD = """\
# Why a task failed

<!-- Written by `make docs` from src/allotment/engine; do not edit. -->

`allot show JOB` shows a diagnosis for each failed task: a stable code, the cause, the
responsible side (the user, the platform or the hardware), whether another try may help, advice,
and the evidence. The most certain source wins:

1. the task's limits and its machine;
2. our own order to stop it, which explains everything after it;
3. exit codes 126 and 127, which no retry can change;
4. the last 64 KiB of its output;
5. its exit code or signal.

The column "retried" says:

- **never**: the task would end in the same way, so the job's `retry` is not used;
- **platform**: not the job's fault; retried up to the platform's own limit, without using up
  its `retry`;
- **unknown**: another try may help; retried up to the job's `retry`.

A program that ends with exit code 0 has succeeded, and gets no diagnosis. After the warning
signal a program may save a checkpoint and end with 85, so that `allot show` can tell this from
a crash. `memory_refused` is never retried if the task has a memory limit.
"""
COLUMNS = ("code", "cause", "responsible", "retried", "what to do")


def page() -> str:
    """Return the whole page as Markdown."""
    limits = (
        codes.OUT_OF_MEMORY,
        codes.DISK_LIMIT,
        codes.PIDS_LIMIT,
        codes.PLATFORM_ERROR,
        codes.FOLDER_AWAY,
        codes.LOST,
    )
    exits = {**codes.BY_CODE, **codes.PERMANENT}
    return "\n".join(
        [
            HEAD,
            *section("Limits and machines", COLUMNS, map(cells, limits)),
            *section("After an order to stop", COLUMNS, map(cells, codes.BY_STOP.values())),
            *section(
                "Exit codes",
                ("exit", *COLUMNS),
                ((str(number), *cells(exits[number])) for number in sorted(exits)),
            ),
            "Any other code is treated like 1; 128 + n is signal n, as shells report it.",
            "",
            *section(
                "Signals",
                ("signal", "exit", *COLUMNS),
                (
                    (f"{signal.name} ({number})", str(128 + number), *cells(signal.diagnosis))
                    for number, signal in sorted(BY_SIGNAL.items())
                ),
            ),
            *patterns("Output that proves the cause", STRONG),
            *patterns("The exception that ended a Python program", RAISED),
            f"Any other exception is `{PYTHON_EXCEPTION.code}`.",
            "",
            *patterns("Output that counts if nothing better is known", WEAK),
        ]
    )


def cells(diagnosis: Diagnosis) -> tuple[str, ...]:
    return (
        f"`{diagnosis.code}`",
        diagnosis.cause,
        diagnosis.owner,
        diagnosis.retry,
        diagnosis.advice,
    )


def patterns(title: str, these: Sequence[LogPattern]) -> list[str]:
    rows = ((*cells(each.diagnosis), f"`{each.example}`") for each in these)
    return section(title, (*COLUMNS, "a line that shows it"), rows)


def section(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [_row(columns), _row(["---"] * len(columns)), *map(_row, rows)]
    return [f"## {title}", "", *lines, ""]


def _row(items: Sequence[str]) -> str:
    return "| " + " | ".join(item.replace("|", "\\|") for item in items) + " |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

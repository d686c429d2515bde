"""Write docs/lifecycle.md from the transition tables, so that the pictures cannot lie."""

import ast
import inspect
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from allotment.model import lifecycle
from allotment.model.lifecycle import ATTEMPT, JOB, TASK, Lifecycle

PAGE = Path(__file__).parent.parent / "docs" / "lifecycle.md"
HEAD = """\
# The life of jobs, attempts and tasks

<!-- Written by `make docs` from src/allotment/model/lifecycle.py; do not edit. -->

A job keeps its id through every retry. Each try is an attempt, and an attempt has one task for
each member of the gang. An arrow is an event. If no arrow with an event leaves a state, the
event cannot happen in that state.
"""

S = TypeVar("S", bound=StrEnum)


def page() -> str:
    """Return the whole page as Markdown."""
    return "\n".join([HEAD, section(JOB), section(ATTEMPT), section(TASK)])


def section(life: Lifecycle[S]) -> str:
    """Draw one table: a state diagram, then what each state means and where it leads."""
    states = list(type(life.initial))
    said = state_docs(type(life.initial))
    rows = [
        f"| **{state}** | {said.get(state, '')} | {', '.join(_ways_out(life, state)) or '—'} |"
        for state in states
    ]
    head = ["| state | meaning | leads to |", "|---|---|---|"]
    return "\n".join([f"## {life.name}", "", *diagram(life), "", *head, *rows, ""])


def diagram(life: Lifecycle[S]) -> list[str]:
    """Draw the transitions, one arrow for all events between the same two states."""
    arrows: dict[tuple[S, S], list[str]] = {}
    for (state, event), target in life.items():
        arrows.setdefault((state, target), []).append(event.__name__)
    return [
        "```mermaid",
        "stateDiagram-v2",
        f"    [*] --> {life.initial}",
        *(f"    {a} --> {b}: {' / '.join(events)}" for (a, b), events in arrows.items()),
        *(f"    {state} --> [*]" for state in type(life.initial) if state in life.final),
        "```",
    ]


def _ways_out(life: Lifecycle[S], state: S) -> list[str]:
    targets = [target for (source, _), target in life.items() if source is state]
    return list(dict.fromkeys(targets))


def state_docs(states: type[StrEnum]) -> dict[str, str]:
    """Read the string under each member, which Python itself throws away; in one line each."""
    module = ast.parse(inspect.getsource(lifecycle))
    body = next(
        node.body
        for node in module.body
        if isinstance(node, ast.ClassDef) and node.name == states.__name__
    )
    said: dict[str, str] = {}
    for member, after in pairwise(body):
        match member, after:
            case (
                ast.Assign(targets=[ast.Name(name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                said[states[name]] = " ".join(text.split())
            case _:
                pass
    return said


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

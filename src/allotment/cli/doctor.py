"""`allot doctor`: is everything in order, and what to do where it is not."""

import shutil
import sys
import textwrap
from collections.abc import Sequence

import typer

from allotment.cli.daemon import folder_of
from allotment.cli.doctor_checks import findings
from allotment.cli.doctor_finding import Finding, Level
from allotment.cli.options import AsJson, StateFolder
from allotment.cli.output import paint, say, say_json, talk

INDENT = " " * 17
STYLES = {
    Level.OK: "green",
    Level.NOTE: "cyan",
    Level.WARN: "bold yellow",
    Level.BAD: "bold red",
}


def doctor(state: StateFolder = "", as_json: AsJson = False) -> None:
    """Check this machine, its isolation and GPUs, the service and its database.

    The exit code is 1 if something necessary is broken, not for a note or a warning.

    Examples:
      allot doctor
      allot doctor --state /tmp/try --json
    """
    tell_findings(findings(folder_of(state)), as_json=as_json)


def tell_findings(found: Sequence[Finding], *, as_json: bool) -> None:
    """Print findings. Raises Exit where something needed is broken."""
    if as_json:
        say_json(found)
    else:
        for finding in found:
            for line in lines_of(finding):
                say(line)
    if any(finding.level is Level.BAD for finding in found):
        talk("Something needed is broken: see the lines marked `bad`.")
        raise typer.Exit(1)


def lines_of(finding: Finding) -> list[str]:
    """Return one finding as lines: level, subject, what was found; below it what to do."""
    stream = sys.stdout
    head = paint(finding.level.ljust(4), STYLES[finding.level], stream)
    first, *more = _wrapped(finding.text)
    lines = [f"{head}  {finding.subject:<10} {first}"]
    lines += [f"{INDENT}{line}" for line in more]
    if finding.advice:
        first, *more = _wrapped(finding.advice, 2)
        lines.append(f"{INDENT}{paint('→', 'bold', stream)} {first}")
        lines += [f"{INDENT}  {line}" for line in more]
    return lines


def _wrapped(text: str, indent: int = 0) -> list[str]:
    """Break lines to fit a terminal; nothing is broken where nobody looks."""
    if not sys.stdout.isatty():
        return text.split("\n")
    room = max(20, shutil.get_terminal_size().columns - len(INDENT) - indent)
    return [part for line in text.split("\n") for part in textwrap.wrap(line, room) or [""]]

"""The command line: finds the module of a verb, and turns errors into words and exit codes.

A verb's module is imported when the verb is used, not before: `allot ps` does not pay for
`allot exec`.

Exit codes: 0 done; 1 refused or failed; 2 wrongly called; 3 no service answers; 130
interrupted. `run`, `wait` and `exec` give the job's or command's own.
"""

import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated, NoReturn

import typer

from allotment import __version__
from allotment.cli.habits import habit
from allotment.cli.output import BadFile, Failed, error_as_json, say, tell, tell_bad_input
from allotment.cli.placeholders import show_words
from allotment.cli.quick import install
from allotment.client.errors import ApiError, Unreachable
from allotment.model.errors import AllotmentError, BadInput

FAILED, MISUSED, UNREACHABLE, INTERRUPTED = 1, 2, 3, 130

JOBS, CLUSTER, SERVICE, TRIAL = "Jobs", "The cluster", "The service", "Trying out"

VERBS: dict[str, tuple[str, str]] = {
    "run": ("run", JOBS),
    "submit": ("submit", JOBS),
    "ps": ("ps", JOBS),
    "top": ("top", JOBS),
    "show": ("show", JOBS),
    "why": ("why", JOBS),
    "eta": ("eta", JOBS),
    "logs": ("logs", JOBS),
    "wait": ("wait", JOBS),
    "outputs": ("outputs", JOBS),
    "exec": ("enter", JOBS),
    "cancel": ("steer", JOBS),
    "hold": ("steer", JOBS),
    "release": ("steer", JOBS),
    "suspend": ("steer", JOBS),
    "resume": ("steer", JOBS),
    "retry": ("steer", JOBS),
    "note": ("note", JOBS),
    "edit": ("change", JOBS),
    "clone": ("change", JOBS),
    "sweep": ("sweep", JOBS),
    "code": ("code", JOBS),
    "events": ("events", JOBS),
    "nodes": ("cluster", CLUSTER),
    "pools": ("pools", CLUSTER),
    "tenants": ("cluster", CLUSTER),
    "queues": ("queues", CLUSTER),
    "cells": ("cells", CLUSTER),
    "health": ("health", CLUSTER),
    "fairness": ("fairness", CLUSTER),
    "stats": ("stats", CLUSTER),
    "usage": ("usage", CLUSTER),
    "objectives": ("objectives", CLUSTER),
    "drain": ("cluster", CLUSTER),
    "undrain": ("cluster", CLUSTER),
    "image": ("image", CLUSTER),
    "env": ("env", CLUSTER),
    "data": ("data", CLUSTER),
    "models": ("models", CLUSTER),
    "reservations": ("reservations", CLUSTER),
    "reserve": ("reservations", CLUSTER),
    "unreserve": ("reservations", CLUSTER),
    "up": ("up", SERVICE),
    "down": ("down", SERVICE),
    "doctor": ("doctor", SERVICE),
    "kubernetes": ("kubernetes", SERVICE),
    "backup": ("keep", SERVICE),
    "restore": ("keep", SERVICE),
    "config": ("config", SERVICE),
    "demo": ("demo", SERVICE),
    "sim": ("sim", TRIAL),
}
"""Verb → module of this package, and the heading it stands under."""

Verb = Callable[..., object]


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run `allot` with these arguments, and end the process."""
    words = list(sys.argv[1:] if argv is None else argv)
    _have_streams()
    _print_anything()
    install()
    try:
        if (unknown := habit(words, VERBS)) is not None:
            raise unknown
        app = build(_wanted(words))
        try:
            app(words, prog_name="allot")
        finally:
            print(end="", flush=True)  # while a fault of it can still be told
    except BrokenPipeError:
        _print_no_more()
        sys.exit(FAILED)
    except AllotmentError as error:
        sys.exit(_report(error, as_json="--json" in _own(words)))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        _print_no_more()
        where = f"{error.filename}: " if error.filename else ""
        sys.exit(_report(Failed(f"{where}{error.strerror or error}"), as_json=False))
    sys.exit(0)


def _have_streams() -> None:
    """Open what we were started without (`>&-`), before a socket takes its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


def _print_anything() -> None:
    """Let no file name or output of a job break us where the terminal cannot show it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _print_no_more() -> None:
    """Let the interpreter's last flush not fail where nobody reads, or no more fits."""
    try:
        print(end="", flush=True)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _report(error: AllotmentError, *, as_json: bool) -> int:
    if not isinstance(error, (ApiError, BadInput)):
        error = Failed(str(error))
    if as_json:
        error_as_json(error)
    elif isinstance(error, BadInput):
        tell_bad_input(error)
    else:
        tell(error)
    if isinstance(error, (Failed, BadFile)):
        return error.exit_code
    return UNREACHABLE if isinstance(error, Unreachable) else FAILED


def _own(words: list[str]) -> list[str]:
    """Return the words that are ours, not those of the command after `--`."""
    return words[: words.index("--")] if "--" in words else words


def _wanted(words: list[str]) -> list[str]:
    """List the verbs that may be needed: one if it is plain which, else all."""
    completing = os.environ.get("COMP_WORDS", "").split()[1:2]
    named = words[:1] or completing
    return named if named and named[0] in VERBS else list(VERBS)


def build(verbs: Sequence[str]) -> typer.Typer:
    """Make the command line with these verbs."""
    show_words()
    app = typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        invoke_without_command=True,
        context_settings={"help_option_names": []},
    )
    app.callback()(_top)
    for name in verbs:
        module, _ = VERBS[name]
        found: Verb | typer.Typer = getattr(import_module(f"allotment.cli.{module}"), name)
        _add(app, name, found)
    return app


def _add(app: typer.Typer, name: str, verb: Verb | typer.Typer) -> None:
    """Add one verb; its docstring is the help page, examples last."""
    if isinstance(verb, typer.Typer):
        app.add_typer(verb, name=name, context_settings=HELP)
        return
    text, _, examples = (verb.__doc__ or "").partition("Examples:")
    app.command(
        name,
        help=text.strip(),
        epilog=_epilog(examples),
        context_settings=HELP,
    )(verb)


def _epilog(examples: str) -> str:
    lines = [line.strip() for line in examples.strip().splitlines() if line.strip()]
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines) if lines else ""


def _top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    help_: Annotated[bool, typer.Option("--help", "-h", help="Show this page.")] = False,
) -> None:
    if version:
        say(f"allot {__version__}")
    elif help_ or context.invoked_subcommand is None:
        say(overview())
    else:
        return
    raise typer.Exit


def overview() -> str:
    """Write the page that `allot --help` shows: every verb in a line."""
    lines = ["Usage: allot VERB [OPTIONS] …", "", *ABOUT]
    for heading in (JOBS, CLUSTER, SERVICE, TRIAL):
        lines += ["", f"{heading}:"]
        for name, (module, its) in VERBS.items():
            if its == heading:
                found = getattr(import_module(f"allotment.cli.{module}"), name)
                lines += _entry(name, _summary(found))
    return "\n".join([*lines, "", *CODES])


def _entry(name: str, summary: str) -> list[str]:
    """Write a verb and what it does, wrapped at words where the screen is narrow."""
    from textwrap import wrap  # noqa: PLC0415 - for this page only

    width = max(len(verb) for verb in VERBS)
    first = f"  {name:<{width}}  "
    room = max(40, get_terminal_size().columns)
    return wrap(summary, room, initial_indent=first, subsequent_indent=" " * len(first))


def _summary(verb: Verb | typer.Typer) -> str:
    text = verb.info.help if isinstance(verb, typer.Typer) else verb.__doc__
    return str(text or "").strip().partition("\n")[0]


ABOUT = (
    "Run deep-learning jobs of many teams on shared machines.",
    "",
    "  allot run -- python train.py     run a command; starts a service if none runs",
    "  allot submit job.yaml            submit a job file",
    "  allot ps                         list running and waiting jobs",
    "",
    "JOB is an id, a unique prefix of an id or name, a name, or `last`.",
    "`allot VERB --help` shows options and examples; `--json` prints for programs.",
)
HELP = {"help_option_names": ["--help", "-h"]}
CODES = (
    "Exit codes: 0 done, 1 refused or failed, 2 wrong options, 3 no service answers,",
    "130 interrupted; `run`, `wait` and `exec` end with the exit code of the job.",
)

"""How every verb on jobs chooses them: by reference, or by what they are.

`choosing` gives a verb the same options, and one value in their place: what was chosen.
"""

import inspect
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from allotment.cli.options import complete_job, complete_tenant
from allotment.cli.output import Failed
from allotment.cli.words import count, plain
from allotment.client import Client
from allotment.model.lifecycle import JobState
from allotment.service.selector import Selector, Steered, Verb

REFS_HELP = (
    "An id, a unique prefix of an id or name, a name, or `last`; of an array all of it, or "
    "a part: '8[3]', '8[12-49]', '8[1,5-9]', '8[failed]'. A pod that others made on "
    "Kubernetes is NAMESPACE/POD."
)

Refs = Annotated[
    list[str] | None,
    typer.Argument(metavar="JOB", help=REFS_HELP, autocompletion=complete_job),
]
Mine = Annotated[bool, typer.Option("--mine", "-m", help="Only your own.")]
All = Annotated[bool, typer.Option("--all", help="Jobs of all users.")]
User = Annotated[str, typer.Option(help="Of this user.")]
Name = Annotated[str, typer.Option(metavar="PATTERN", help="By name: 'train-*'.")]
Tenant = Annotated[str, typer.Option(help="Of this tenant.", autocompletion=complete_tenant)]
States = Annotated[
    list[str] | None,
    typer.Option(
        "--state", "--in", "-i", metavar="STATE",
        help="In this state (repeatable); or the service's state folder.",
        show_default=False,
    ),
]  # fmt: skip
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="KEY[=VALUE]", help="With this label. Repeatable."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")]


class Choice(msgspec.Struct, frozen=True):
    """What was chosen, of which service."""

    jobs: Selector
    folder: str = ""
    """The state folder of the service to talk to."""
    yes: bool = False


OPTIONS: tuple[tuple[str, Any, object], ...] = (
    ("refs", Refs, None),
    ("mine", Mine, False),
    ("all_", All, False),
    ("user", User, ""),
    ("name", Name, ""),
    ("tenant", Tenant, ""),
    ("states", States, None),
    ("labels", Labels, None),
)
ASKING: tuple[tuple[str, Any, object], ...] = (*OPTIONS, ("yes", Yes, False))


def choosing(
    options: Sequence[tuple[str, Any, object]],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a verb, whose first parameter is a Choice, take these options in its place."""

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        names = [name for name, _, _ in options]

        @wraps(verb)
        def called(**given: Any) -> None:
            choice = chosen(**{name: given.pop(name) for name in names})
            verb(choice, **given)

        by_name = inspect.Parameter.KEYWORD_ONLY
        parameters = [
            inspect.Parameter(name, by_name, default=default, annotation=kind)
            for name, kind, default in options
        ]
        own = list(inspect.signature(verb).parameters.values())[1:]
        parameters += [one.replace(kind=by_name) for one in own]
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {one.name: one.annotation for one in parameters}
        del called.__wrapped__  # type: ignore[attr-defined]
        return called

    return decorate


def chosen(  # noqa: PLR0913 - one argument an option
    *,
    refs: Sequence[str] | None = None,
    mine: bool = False,
    all_: bool = False,
    user: str = "",
    name: str = "",
    tenant: str = "",
    states: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    yes: bool = False,
) -> Choice:
    """Make a choice of what was given. Raises Failed where that does not go together."""
    wanted, folder = states_and_folder(states or ())
    if mine and (all_ or user):
        raise Failed("--mine cannot be used with --all or --user.", "Keep one of them.")
    jobs = Selector(
        refs=tuple(refs or ()), mine=mine, all=all_, user=user, name=name, tenant=tenant,
        states=wanted, labels=tuple(labels or ()),
    )  # fmt: skip
    return Choice(jobs, folder, yes)


def states_and_folder(words: Sequence[str]) -> tuple[tuple[JobState, ...], str]:
    """Distinguish states of jobs from the state folder of a service: `--state` takes both."""
    states: list[JobState] = []
    folders: list[str] = []
    for word in words:
        name = word.lower().replace("-", "_")
        if name in tuple(JobState):
            states.append(JobState(name))
        elif "/" in word or Path(word).is_dir():
            folders.append(word)
        else:
            raise Failed(
                f"There is no state {word}, and no folder of that name.",
                f"States: {', '.join(JobState)}.",
            )
    if len(folders) > 1:
        raise Failed(f"Two state folders are named: {' and '.join(folders)}.", "Name one.")
    return tuple(states), folders[0] if folders else ""


def must_choose(choice: Choice) -> None:
    """Raise Unchosen where nothing at all was named."""
    if not (choice.jobs.names_jobs or choice.jobs.filters):
        raise Unchosen(
            "No job is named.",
            "Name jobs, or choose them: --mine, --all, --user, --name, --tenant, --state, "
            "--label.",
        )


class Unchosen(Failed):
    """A verb was called without any job."""

    exit_code = 2


def agreed(client: Client, verb: Verb, choice: Choice) -> Selector:
    """Return the jobs to act on; where they are many and not named, ask first.

    Just those that were counted are given, whatever comes in between.
    """
    if choice.yes or choice.jobs.names_jobs:
        return choice.jobs
    counted = client.steer(verb, choice.jobs, only_count=True)
    if counted.count > 1:
        _ask(verb, counted, choice)
    return Selector(ids=counted.ids)


def _ask(verb: Verb, counted: Steered, choice: Choice) -> None:
    whose = "" if choice.jobs.all or choice.jobs.user else " of yours"
    what = f"{count(counted.count, 'job')}{whose} ({shown_ids(counted.ids)})"
    if not sys.stdin.isatty():
        raise Failed(
            f"This would {verb} {what}, and there is no terminal to ask you.",
            "List them with `allot ps` and the same options, then add --yes.",
        )
    if counted.left:
        typer.echo(f"Left unchanged: {in_states(counted.left)}.", err=True)
    if not typer.confirm(f"{verb.capitalize()} {what}?", err=True):
        raise Failed("Nothing was done.")


MOST_RANGES = 8


def shown_ids(ranges: Sequence[tuple[int, int]]) -> str:
    """Write ranges of ids: `8-10, 12`."""
    words = [str(a) if a == b else f"{a}-{b}" for a, b in ranges[:MOST_RANGES]]
    return ", ".join(words) + (" …" if len(ranges) > MOST_RANGES else "")


def in_states(states: dict[str, int]) -> str:
    """Write how many jobs are in which states: `3 running, 5 queued`."""
    order = [state.value for state in JobState]
    known = sorted(states.items(), key=lambda item: order.index(item[0]))
    return ", ".join(f"{number:,} {plain(state)}" for state, number in known)

"""`allot demo`: three teams' training jobs on this machine."""

from importlib import import_module

import typer


def demo(
    context: typer.Context,
) -> None:
    """Run three teams' training jobs on this machine, and show who gets what.

    Takes about a minute. Uses a service of its own, which ends with it.

    Examples:
      allot demo
    """
    # By name: the demo stands beside the command line, neither imports the other.
    story = import_module("allotment.demo.story")
    raise typer.Exit(story.main(context.args))

"""`allot demo`: three teams' training jobs on this machine."""

from importlib import import_module

import typer


def demo() -> None:
    """Run three teams' training jobs on this machine, and show who gets what.

    Takes about a minute. Uses a service of its own, which ends with it. Exits with 0 only if
    all it shows really happened.

    Examples:
      allot demo
    """
    # By name: the demo stands beside the command line, neither imports the other.
    raise typer.Exit(import_module("allotment.demo.story").main())

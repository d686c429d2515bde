"""`allot demo`: three teams' training jobs on this machine."""

from importlib import import_module

import typer


def demo() -> None:
    """Run three teams' training jobs on this machine, and show what each gets.

    It takes about a minute, and uses its own service, which ends with it. The exit code is 0
    only if everything it shows really happened.

    Examples:
      allot demo
    """
    # By name: the demo stands beside the command line, neither imports the other.
    raise typer.Exit(import_module("allotment.demo.story").main())

"""The command line `allot`: a client of the service like any other."""


def main() -> None:
    """Run the command line."""
    from allotment.cli.app import main as run  # noqa: PLC0415 - shell completion starts here

    run()

"""The command line `allot`: a client of the service like any other."""

import gc


def main() -> None:
    """Run the command line."""
    # What is imported is never garbage: to look for some takes a tenth of a short command.
    gc.set_threshold(50_000)
    from allotment.cli.app import main as run  # noqa: PLC0415 - shell completion starts here

    run()

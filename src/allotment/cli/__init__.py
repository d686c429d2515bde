"""The command line `allot`: a client of the service like any other."""

import gc


def main() -> None:
    """Run the command line."""
    # What is imported is never garbage: to look for some takes a tenth of a short command.
    gc.set_threshold(100_000)
    from allotment.cli.app import main as run  # noqa: PLC0415 - shell completion starts here

    try:
        run()
    finally:
        gc.freeze()  # Nor need garbage be looked for in what ends with the process.

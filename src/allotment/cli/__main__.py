"""`python -m allotment.cli`, where `allot` itself is not on PATH."""

from allotment.cli import main

main()

"""`python -m tests.mutants --count 30 --seed 1`: the share of mutants that some test kills.

Exits with 1 if fewer than nine in ten are killed. `--unseen` tries none: it lists every place
to which no test comes so that its mutant would do something else. That takes one run of the
tests; `--only core/caps.py` keeps to some sources.
"""

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import pytest

from tests.mutants.mutate import mutants
from tests.mutants.trial import Drawn, Trial

ROOT = Path(__file__).resolve().parents[2]
MUTATED = ("core", "engine", "explain")
UNITS = ("core", "engine", "explain", "policies", "service", "sim", "metrics")
TESTS = (*(f"tests/unit/{name}" for name in UNITS), "tests/golden", "tests/property")

OPTIONS = ("-q", "-s", "-p", "no:cacheprovider", "-W", "ignore:Module already imported")


def main(arguments: Sequence[str]) -> int:
    """Draw mutants, run the tests on each, print what becomes of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="sources whose path has this in it")
    parser.add_argument("--unseen", action="store_true", help="list what no test can kill")
    parser.add_argument("tests", nargs="*", default=[str(ROOT / name) for name in TESTS])
    args = parser.parse_args(arguments)
    places = [place for place in every_place() if args.only in place.file]
    random.Random(args.seed).shuffle(places)
    drawn = (place for place in places if place.mutant.is_source)
    trial = Trial(
        places if args.unseen else [*islice(drawn, args.count)], trying=not args.unseen
    )
    status = pytest.main([*OPTIONS, *args.tests], plugins=[trial])
    if not trial.verdicts:
        return status
    alive = sorted(str(each) for each in trial.verdicts if each.lives)
    count = len(trial.verdicts)
    print(
        f"{count - len(alive)} of {count} mutants killed (seed {args.seed})", *alive, sep="\n"
    )
    return int(len(alive) * 10 > count)


def every_place() -> Iterator[Drawn]:
    """Return every mutant there is."""
    sources = ROOT / "src/allotment"
    for path in sorted(path for name in MUTATED for path in (sources / name).rglob("*.py")):
        for mutant in mutants(path.read_text()):
            yield Drawn(path, mutant)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

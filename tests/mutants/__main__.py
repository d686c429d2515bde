"""`python -m tests.mutants --count 30 --seed 1`: the share of mutants that some test kills.

Exits with 1 if fewer than nine in ten are killed.
"""

import argparse
import random
import sys
from collections.abc import Sequence
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
    parser.add_argument("tests", nargs="*", default=[str(ROOT / name) for name in TESTS])
    args = parser.parse_args(arguments)
    trial = Trial(draw(random.Random(args.seed), args.count))
    status = pytest.main([*OPTIONS, *args.tests], plugins=[trial])
    if not trial.verdicts:
        return status
    alive = [str(each) for each in trial.verdicts if each.lives]
    count = len(trial.verdicts)
    print(
        f"{count - len(alive)} of {count} mutants killed (seed {args.seed})", *alive, sep="\n"
    )
    return int(len(alive) * 10 > count)


def draw(rng: random.Random, count: int) -> list[Drawn]:
    """Return so many mutants, each place as likely as any other."""
    sources = ROOT / "src/allotment"
    paths = sorted(path for name in MUTATED for path in (sources / name).rglob("*.py"))
    places = [Drawn(path, mutant) for path in paths for mutant in mutants(path.read_text())]
    return rng.sample(places, min(count, len(places)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

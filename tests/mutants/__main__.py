"""`python -m tests.mutants --count 30 --seed 1`: the share of mutants that some test kills.

Each is made in a copy of the sources. The pure tests run from those that are fastest to those
that look at most; the first that fails kills it. Exits 1 if fewer than nine in ten are killed.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.mutants.mutate import Mutant, mutants

ROOT = Path(__file__).resolve().parents[2]
MUTATED = ("core", "engine", "explain")
ROUNDS = (
    ("tests/unit/core", "tests/unit/engine", "tests/unit/explain", "tests/unit/policies"),
    ("tests/golden/corpus", "tests/golden/test_determinism.py", "tests/golden/hived"),
    ("tests/unit/service", "tests/unit/sim", "tests/unit/metrics", "tests/golden"),
    ("tests/property",),
)
LONGEST_S = 900
"""Of one round; a mutant that makes a test run for ever is killed by it."""


class Drawn(NamedTuple):
    """A mutant of one file."""

    path: Path
    """Relative to the sources."""
    mutant: Mutant

    def __str__(self) -> str:
        before, after = (" ".join(text.split()) for text in self.mutant[1:3])
        return f"{self.path}:{self.mutant.line}: {before}  →  {after}"


def main(arguments: Sequence[str]) -> int:
    """Draw mutants, run the tests on each, print those that live."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args(arguments)
    drawn = draw(random.Random(args.seed), args.count)
    with ThreadPoolExecutor(args.workers) as pool:
        lives = list(pool.map(partial(_survives), drawn))
    alive = [each for each, lived in zip(drawn, lives, strict=True) if lived]
    killed = len(drawn) - len(alive)
    print(f"{killed} of {len(drawn)} mutants killed (seed {args.seed})")
    for each in alive:
        print(f"  alive: {each}")
    return int(killed * 10 < len(drawn) * 9)


def draw(rng: random.Random, count: int) -> list[Drawn]:
    """Return so many mutants, each place as likely as any other."""
    sources = ROOT / "src/allotment"
    paths = sorted(path for name in MUTATED for path in (sources / name).rglob("*.py"))
    places = [
        Drawn(path.relative_to(sources), mutant)
        for path in paths
        for mutant in mutants(path.read_text())
    ]
    return rng.sample(places, min(count, len(places)))


def _survives(drawn: Drawn) -> bool:
    """Whether no test fails on a mutant."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder)
        for name in ("src", "tests"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("*.pyc"))
        for name in ("pyproject.toml", "docs", "README.md"):
            (copy / name).symlink_to(ROOT / name)
        (copy / "src/allotment" / drawn.path).write_text(drawn.mutant.text)
        lives = all(_passes(copy, tests) for tests in ROUNDS)
    print(f"{'ALIVE ' if lives else 'killed'} {drawn}", flush=True)
    return lives


def _passes(copy: Path, tests: Sequence[str]) -> bool:
    there = [name for name in tests if (copy / name).exists()]
    try:
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *there],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return run.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

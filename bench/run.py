"""Run the benchmarks, print their figures, compare them with the recorded ones.

    python -m bench.run [--record] [--strict] [WORD …]

Every other module of this folder that defines `main() -> list[Figure]` is a benchmark, run
in a process of its own so that none warms up another. A WORD picks those whose name has it.
Exits 1 when a benchmark breaks; with --strict also when a figure misses its target, or is
more than 20 % worse than recorded on the same machine.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bench.figures import Figure, Run
from bench.machine import this_machine
from bench.tables import figure_lines, markdown

FOLDER = Path(__file__).parent
RECORDED = FOLDER / "recorded.json"
PAGE = FOLDER.parent / "docs" / "benchmarks.md"
RUN_ONE = """
import importlib, pathlib, sys, msgspec
figures = importlib.import_module(f"bench.{sys.argv[1]}").main()
pathlib.Path(sys.argv[2]).write_bytes(msgspec.json.encode(figures))
"""


def benchmarks(words: Sequence[str]) -> list[str]:
    """List the benchmarks whose name has one of the words; all when there are none."""
    names = sorted(
        path.stem
        for path in FOLDER.glob("*.py")
        if "\ndef main() -> list[Figure]:" in path.read_text(encoding="utf-8")
    )
    return [name for name in names if not words or any(word in name for word in words)]


def measure(name: str) -> tuple[Figure, ...]:
    """Run one benchmark in a fresh process. Raises CalledProcessError when it breaks."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "figures.json"
        command = [sys.executable, "-c", RUN_ONE, name, str(answer)]
        subprocess.run(command, cwd=FOLDER.parent, check=True)
        return msgspec.json.decode(answer.read_bytes(), type=tuple[Figure, ...])


def recorded() -> Run | None:
    if not RECORDED.exists():
        return None
    return msgspec.json.decode(RECORDED.read_bytes(), type=Run)


def record(run: Run, before: Run | None) -> None:
    """Keep these figures; those of benchmarks that were not run now stay if comparable."""
    if before and before.machine == run.machine:
        run = msgspec.structs.replace(run, figures=before.figures | run.figures)
    RECORDED.write_bytes(msgspec.json.format(msgspec.json.encode(run)) + b"\n")
    PAGE.write_text(markdown(run), encoding="utf-8")
    print(f"recorded in {RECORDED.name} and docs/{PAGE.name}")


def _measure_all(names: Sequence[str], before: Run | None) -> tuple[Run, int, int]:
    """Return run, how many benchmarks broke, and how many figures are not as they should."""
    figures: dict[str, tuple[Figure, ...]] = {}
    broken = poor = 0
    for name in names:
        print(f"\n{name}", flush=True)
        try:
            figures[name] = measure(name)
        except subprocess.CalledProcessError as error:
            print(f"  broke: exit {error.returncode}")
            broken += 1
            continue
        old = before.figures.get(name, ()) if before else ()
        for line, good in figure_lines(figures[name], old):
            print(f"  {line}")
            poor += not good
    date = datetime.now(UTC).date().isoformat()
    return Run(date, "make bench", this_machine(), figures), broken, poor


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench", description="Measure Allotment.")
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--strict", action="store_true")
    options = parser.parse_args(argv)

    machine, before = this_machine(), recorded()
    same = before is not None and before.machine == machine
    print(f"machine: {machine}\ncommand: {' '.join(['python -m bench.run', *sys.argv[1:]])}")
    if before and not same:
        print(f"recorded on another machine, {before.machine}: not compared")
    names = benchmarks(options.words)
    run, broken, poor = _measure_all(names, before if same else None)
    if options.record and not broken:
        record(run, before)
    print(f"\n{len(names)} benchmarks, {broken} broken, {poor} figures to look at")
    return 1 if broken or (options.strict and poor) else 0


if __name__ == "__main__":
    sys.exit(main())

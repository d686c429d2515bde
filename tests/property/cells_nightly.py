"""`python -m tests.property.cells_nightly --operations 500000`: many histories over cells.

Draws moves at random, the same for the same seed, and reports what broke. The book of cells
and the whole state are audited after every k-th move (`--every`), and at the end of each
history, when the log is folded anew too and every decision in it is looked at by itself.
Exits 1 if anything broke; `--seed N --histories 1` runs a history again.
"""

import argparse
import random
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing import Pool

import msgspec

from allotment.model.errors import InvariantViolated
from allotment.model.tenancy import Preempt, QueueOrder
from tests.property.cells_moves import ALL_MOVES, Moves, Table
from tests.property.cells_world import Plan


class Outcome(msgspec.Struct, frozen=True):
    """What became of one history."""

    seed: int
    operations: int
    jobs: int
    events: int
    crash: str = ""
    audit: str = ""


def history(seed: int, length: int, every: int, table: Table = ALL_MOVES) -> Outcome:
    """Make one history of so many moves."""
    rng = random.Random(seed)
    plan = Plan(
        preempt=rng.choice(list(Preempt)),
        borrow=rng.random() < 0.8,
        order=rng.choice(list(QueueOrder)),
    )
    moves = Moves(plan, every)
    crash = wrong = ""
    try:
        for name in rng.choices(
            list(table), [weight for weight, _ in table.values()], k=length
        ):
            choices = table[name][1]
            getattr(moves, name)(**{key: rng.choice(some) for key, some in choices.items()})
        moves.finish()
    except InvariantViolated:
        wrong = traceback.format_exc(limit=-6)
    except Exception:
        crash = traceback.format_exc(limit=-8)
    state = moves.world.state
    return Outcome(seed, moves.made, state.next_job - 1, state.seq, crash, wrong)


def _one(task: tuple[int, int, int]) -> Outcome:
    return history(*task)


def histories(options: argparse.Namespace) -> Iterator[Outcome]:
    """Make histories, in several processes, in the order in which they get done."""
    count = options.histories or -(-options.operations // options.length)
    tasks = [(options.seed + at, options.length, options.every) for at in range(count)]
    if options.processes == 1:
        yield from map(_one, tasks)
        return
    with Pool(options.processes) as pool:
        yield from pool.imap_unordered(_one, tasks)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="cells_nightly")
    parser.add_argument("--operations", type=int, default=500_000)
    parser.add_argument("--length", type=int, default=400, help="moves of a history")
    parser.add_argument("--histories", type=int, default=0, help="instead of --operations")
    parser.add_argument("--every", type=int, default=5, help="audit after so many moves")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(argv)

    began = time.perf_counter()
    done = jobs = events = crashes = flaws = 0
    for outcome in histories(options):
        done += outcome.operations
        jobs += outcome.jobs
        events += outcome.events
        crashes += bool(outcome.crash)
        flaws += bool(outcome.audit)
        if outcome.crash or outcome.audit:
            print(f"seed {outcome.seed}, move {outcome.operations}:")
            print(outcome.crash or outcome.audit, flush=True)
    took = time.perf_counter() - began
    print(
        f"{done:,} operations, {jobs:,} jobs, {events:,} events, audited after every "
        f"{options.every}: {crashes} crashes, {flaws} audit failures, {took:.0f} s"
    )
    return 1 if crashes or flaws else 0


if __name__ == "__main__":
    sys.exit(main())

"""`allot sim generate`: a synthetic workload, like a real one."""

from typing import TYPE_CHECKING, Annotated

import typer

from allotment.cli.options import AsJson
from allotment.cli.output import say, say_json, talk
from allotment.cli.sim_options import Seed, told_as_misuse
from allotment.model.quantity import show_millis

if TYPE_CHECKING:
    from allotment.wiring.generate import Made

EXAMPLES = (
    "\b\nExamples:\n"
    "  allot sim generate --jobs 10000 --out jobs.csv\n"
    "  allot sim generate --like philly.csv.zst --jobs 5000 --seed 7 --out like.csv\n"
    "  allot sim generate --jobs 100000 --load 0.8 --cluster 64x8 --out busy.csv"
)


def generate(  # noqa: PLR0913, PLR0917 - a flag each
    out: Annotated[
        str, typer.Option("--out", metavar="FILE.csv", help="Where to write the jobs.")
    ],
    jobs: Annotated[
        int, typer.Option("--jobs", metavar="N", help="How many to make, at most 100 million.")
    ] = 10_000,
    like: Annotated[
        str,
        typer.Option(
            "--like",
            metavar="FILE",
            help="The trace to imitate; otherwise Microsoft's Philly.",
        ),
    ] = "",
    model: Annotated[
        str,
        typer.Option(
            "--model", metavar="FILE.json", help="Instead, a model that --keep-model wrote."
        ),
    ] = "",
    keep_model: Annotated[
        str,
        typer.Option(
            "--keep-model",
            metavar="FILE.json",
            help="Write the model of the trace: numbers that you can edit.",
        ),
    ] = "",
    load: Annotated[
        float | None,
        typer.Option(
            "--load",
            metavar="X",
            help="How busy the jobs keep --cluster while they arrive: 0.8 uses 80% of its "
            "device-time. Otherwise they arrive at the rate of the trace.",
        ),
    ] = None,
    cluster: Annotated[
        str,
        typer.Option("--cluster", metavar="16x8|FILE", help="The cluster for --load."),
    ] = "",
    seed: Seed = 0,
    format: Annotated[
        str, typer.Option("--format", metavar="NAME", help="The format of --like.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Make a random workload that resembles a real one.

    Its sizes, run times, tenants, endings and its rhythm of days and weeks are those of a
    trace; the output says how well they fit. The same seed makes the same jobs.
    """
    from allotment.wiring.generate import Wish, make  # noqa: PLC0415 - a whole world, only here

    with told_as_misuse():
        made = make(
            Wish(
                out=out,
                jobs=jobs,
                seed=seed,
                like=like,
                format=format,
                model=model,
                keep_model=keep_model,
                load=load,
                cluster=cluster,
            )
        )
    if as_json:
        say_json(made)
        return
    if made.fit is not None:
        for line in made.fit.lines():
            say(line)
    left = made.written.left_out
    talk(f"{out}: {made.written.jobs:,} jobs" + (f", {left:,} left out" if left else "") + ".")
    for line in load_lines(made):
        talk(line)


def load_lines(made: "Made") -> list[str]:
    """Return which load the jobs come to, and what was done for it."""
    found = made.reached
    if found is None:
        return []
    span = show_millis(made.span_ms)
    lines = [
        f"Load {found.load:.3g} between first and last submission, {span}; lower after that."
    ]
    if found.cut:
        longest = show_millis(found.longest_ms)
        runs = "1 run was" if found.cut == 1 else f"{found.cut:,} runs were"
        lines.append(
            f"{runs} cut to {longest}, half of that time: with more jobs, longer runs stay."
        )
    if found.too_large:
        many = found.too_large > 1
        jobs = f"{found.too_large:,} jobs are" if many else "1 job is"
        they = "they never run there and do" if many else "it never runs there and does"
        lines.append(f"{jobs} larger than the cluster: {they} not count.")
    return lines

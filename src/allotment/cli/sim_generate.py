"""`allot sim generate`: a synthetic workload, like a real one."""

from typing import Annotated

import typer

from allotment.cli.options import AsJson
from allotment.cli.output import say, say_json, talk
from allotment.cli.sim_options import Format, Seed, told_as_misuse

EXAMPLES = (
    "\b\nExamples:\n"
    "  allot sim generate --jobs 10000 --out jobs.csv\n"
    "  allot sim generate --like philly.csv.zst --jobs 5000 --seed 7 --out like.csv\n"
    "  allot sim generate --jobs 100000 --load 0.8 --cluster 64x8 --out busy.csv"
)


def generate(  # noqa: PLR0913, PLR0917 - a flag each
    out: Annotated[str, typer.Option("--out", metavar="FILE.csv", help="Where to write it.")],
    jobs: Annotated[int, typer.Option("--jobs", metavar="N", help="How many.")] = 10_000,
    like: Annotated[
        str, typer.Option("--like", metavar="FILE", help="A trace to be like; else Philly's.")
    ] = "",
    model: Annotated[
        str, typer.Option("--model", metavar="FILE.json", help="A model kept before.")
    ] = "",
    keep_model: Annotated[
        str, typer.Option("--keep-model", metavar="FILE.json", help="Keep the fitted model.")
    ] = "",
    load: Annotated[
        float | None,
        typer.Option("--load", metavar="X", help="Device-time asked for, of what there is."),
    ] = None,
    cluster: Annotated[
        str, typer.Option("--cluster", metavar="16x8|FILE", help="What --load is of.")
    ] = "",
    seed: Seed = 0,
    format: Format = "",
    as_json: AsJson = False,
) -> None:
    """Make a workload by chance, with the sizes, run times and rhythm of a real one."""
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

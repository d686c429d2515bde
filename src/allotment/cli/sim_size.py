"""`allot sim size`: how many nodes a workload needs."""

from typing import Annotated

import typer

from allotment.cli.options import AsJson
from allotment.cli.output import Failed, say_json, warn
from allotment.cli.sim_options import (
    Format,
    Misused,
    PolicyName,
    Rates,
    Report,
    Seed,
    Set,
    TraceFile,
    Workers,
    processes,
    told_as_misuse,
)

MOST_NODES = 10_000

EXAMPLES = (
    "\b\nExamples:\n"
    "  allot sim size --trace j.csv --node 8xA100 --target 'p90_queue_delay<=30min'\n"
    "  allot sim size --trace jobs.csv --node 4 --policy las2d \\\n"
    "    --target 'avg_jct<=2h and utilization>=50%' --price-per-device-hour 2.10"
)


def size(  # noqa: PLR0913, PLR0917 - a flag each
    trace: TraceFile,
    node: Annotated[
        str, typer.Option("--node", metavar="8xA100|8", help="One node: devices, and type.")
    ],
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="METRIC<=VALUE",
            help="The target; several are joined by `,` or `and`.",
        ),
    ],
    policy: PolicyName = "fifo",
    set_: Set = None,
    seed: Seed = 0,
    format: Format = "",
    throughputs: Rates = "",
    most: Annotated[
        int, typer.Option("--most", metavar="N", help="Never try more nodes.")
    ] = MOST_NODES,
    price: Annotated[
        float,
        typer.Option(
            "--price-per-device-hour", metavar="P", help="Show costs, in your currency."
        ),
    ] = 0.0,
    workers: Workers = 0,
    report: Report = "",
    as_json: AsJson = False,
) -> None:
    """Find how many nodes of a type a workload needs to meet a target.

    The trace is played on clusters of many sizes. A target limits any number of
    `allot sim run --json`, with or without its `_s`: p90_queue_delay<=30min, avg_jct<=2h,
    utilization>=0.5, fairness.jain>=0.9. The output is the curve over the sizes tried; the
    smallest size that meets the target is marked.
    """
    # A whole world: `allot sim run` does not pay for it.
    from allotment.cli import sim_size_words as words  # noqa: PLC0415
    from allotment.sim.size_target import read_target  # noqa: PLC0415
    from allotment.wiring import sim as world  # noqa: PLC0415
    from allotment.wiring import sizing  # noqa: PLC0415
    from allotment.wiring.outputs import Outputs  # noqa: PLC0415

    with told_as_misuse():
        wanted = world.Wanted(trace, "", policy, tuple(set_ or ()), seed, format, throughputs)
        outputs = Outputs({"--report": report}, wanted.reads())
        conditions = read_target(target)
        if most < 1:
            raise Misused("--most: at least one node must be allowed.")
        if not 0 <= price < float("inf"):
            raise Misused("--price-per-device-hour: a price is a number from 0 up.")
        scenario = sizing.scenario_of(wanted, node)
        count = processes(workers)
        found = sizing.find_size(
            scenario,
            node,
            conditions,
            most,
            count,
            lambda size, run: words.on_the_way(size, run, conditions),
        )
        if report and found.chosen:
            sizes = sorted({max(found.curve[0][0], found.chosen - 1), found.chosen})
            drawn = scenario.to_draw()
            runs = sizing.play_sizes(drawn, node, sizes, count, lambda _size, _run: None)
            outputs.write({"--report": lambda file: world.write_report(file, runs)})
    for warning in scenario.warnings():
        warn(warning)
    costs = words.Costs(scenario, price)
    if as_json:
        say_json(words.machine_form(scenario, node, conditions, found, costs))
    else:
        words.in_words(scenario, node, conditions, found, costs)
    if found.odd:
        sizes = ", ".join(f"{size:,}" for size in found.odd)
        side = "more" if found.least else "fewer"
        warn(f"With {side} nodes it is missed again: {sizes}. Delay does not fall strictly.")
    if not found.chosen:
        raise Failed(found.why)

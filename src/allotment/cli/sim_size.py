"""`allot sim size`: how many nodes a workload needs."""

import os
from pathlib import Path
from typing import Annotated

import typer

from allotment.cli.options import AsJson
from allotment.cli.output import Failed, paint, say, say_json, talk, warn
from allotment.cli.sim_options import (
    Format,
    Misused,
    Rates,
    Report,
    Seed,
    Set,
    TraceFile,
    told_as_misuse,
)
from allotment.cli.table import Column, print_table
from allotment.metrics.summary import Summary
from allotment.model.quantity import HOUR, SECOND
from allotment.sim.outcome import Run
from allotment.sim.scenario import Scenario
from allotment.sim.size import MOST_NODES, Sizing, nodes_of
from allotment.sim.size_target import Condition, read_target, shown

EXAMPLES = (
    "\b\nExamples:\n"
    "  allot sim size --trace jobs.csv --node 8xA100 --target 'p90_queue_delay<=30min'\n"
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
            help="What must hold; several joined by `,` or `and`.",
        ),
    ],
    policy: Annotated[str, typer.Option("--policy", metavar="NAME")] = "fifo",
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
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", help="Processes; 0: one for each CPU.")
    ] = 0,
    report: Report = "",
    as_json: AsJson = False,
) -> None:
    """Say how many nodes of a type a workload needs to meet a target.

    The trace is played on clusters of many sizes. Every number that `allot sim run --json`
    gives can be bounded, with or without its `_s`: p90_queue_delay<=30min, avg_jct<=2h,
    utilization>=0.5, fairness.jain>=0.9. Shown is the curve over the sizes tried; the
    smallest that will do is marked.
    """
    from allotment.wiring import sim as world  # noqa: PLC0415 - a whole world, only here
    from allotment.wiring import sizing  # noqa: PLC0415

    with told_as_misuse():
        conditions = read_target(target)
        if most < 1:
            raise Misused("--most: at least one node must be allowed.")
        if not 0 <= price < float("inf"):
            raise Misused("--price-per-device-hour: a price is a number from 0 up.")
        wanted = world.Wanted(trace, "", policy, tuple(set_ or ()), seed, format, throughputs)
        scenario = sizing.scenario_of(wanted, node)
        count = workers if workers > 0 else len(os.sched_getaffinity(0))
        found = sizing.find_size(
            scenario,
            node,
            conditions,
            most,
            count,
            lambda size, run: _told(size, run, conditions),
        )
        if report and found.chosen:
            sizes = sorted({max(found.curve[0][0], found.chosen - 1), found.chosen})
            runs = sizing.play_sizes(scenario, node, sizes, count, lambda _size, _run: None)
            world.write_report(Path(report), runs)
    for warning in scenario.trace.warnings:
        warn(warning)
    costs = _Costs(scenario, price)
    if as_json:
        say_json(_machine_form(scenario, node, conditions, found, costs))
    else:
        _tell(conditions, found, costs)
        if found.chosen:
            say(paint(_answer(node, conditions, found), "bold"))
    if found.odd:
        sizes = ", ".join(f"{size:,}" for size in found.odd)
        side = "more" if found.least else "fewer"
        warn(f"With {side} nodes it is missed again: {sizes}. Delay does not fall strictly.")
    if not found.chosen:
        raise Failed(found.why)


def _told(size: int, run: Run, conditions: tuple[Condition, ...]) -> None:
    assert run.summary is not None, "a finished run has a summary"
    values = ", ".join(
        f"{_plain(condition)} {shown(condition.metric, condition.value(run.summary))}"
        for condition in conditions
    )
    talk(f"{nodes_of(size)}: {values}; {run.wall_s:.1f} s")


class _Costs:
    """What a cluster of some nodes costs."""

    def __init__(self, scenario: Scenario, price: float) -> None:
        self.price = price
        self.devices = len(scenario.nodes[0].devices)

    def an_hour(self, nodes: int) -> float:
        return nodes * self.devices * self.price

    def whole(self, nodes: int, summary: Summary) -> float:
        """Give the cost from the first submission to the last end."""
        return self.an_hour(nodes) * summary.makespan_s * SECOND / HOUR


def _answer(node: str, conditions: tuple[Condition, ...], found: Sizing) -> str:
    texts = " and ".join(condition.text for condition in conditions)
    kind = "least" if found.least else "most"
    return f"{nodes_of(found.chosen)} of {node}: the {kind} that meet {texts}."


def _tell(conditions: tuple[Condition, ...], found: Sizing, costs: _Costs) -> None:
    if not found.curve:
        return
    extra = list({condition.metric: condition for condition in conditions}.values())
    columns = [
        Column(""),
        Column("nodes", right=True),
        Column("devices", rank=3, right=True),
        *(Column(_plain(condition), right=True) for condition in extra),
    ]
    own = {condition.metric for condition in extra}
    general = [
        (name, metric)
        for name, metric in (("mean wait", "avg_queue_delay_s"), ("utilization", "utilization"))
        if metric not in own
    ]
    columns += [Column(name, rank=2, right=True) for name, _ in general]
    if costs.price:
        columns += [Column("cost/h", rank=1, right=True), Column("cost", rank=1, right=True)]
    rows: list[list[str]] = []
    for nodes, summary in found.curve:
        met = all(condition.met(summary) for condition in conditions)
        mark = "→" if nodes == found.chosen else "✓" if met else "✗"
        row = [mark, f"{nodes:,}", f"{nodes * costs.devices:,}"]
        row += [shown(each.metric, each.value(summary)) for each in extra]
        row += [shown(metric, getattr(summary, metric)) for _, metric in general]
        if costs.price:
            row += [f"{costs.an_hour(nodes):,.2f}", f"{costs.whole(nodes, summary):,.2f}"]
        rows.append(row)
    print_table(columns, rows)


def _plain(condition: Condition) -> str:
    return condition.metric.removesuffix("_s")


def _machine_form(
    scenario: Scenario,
    node: str,
    conditions: tuple[Condition, ...],
    found: Sizing,
    costs: _Costs,
) -> dict[str, object]:
    curve: list[dict[str, object]] = []
    for nodes, summary in found.curve:
        cost = (
            {
                "cost_per_h": costs.an_hour(nodes),
                "cost": costs.whole(nodes, summary),
            }
            if costs.price
            else {}
        )
        curve.append(
            {
                "nodes": nodes,
                "devices": nodes * costs.devices,
                "met": all(condition.met(summary) for condition in conditions),
                **{each.metric: each.value(summary) for each in conditions},
                "avg_queue_delay_s": summary.avg_queue_delay_s,
                "utilization": summary.utilization,
                "makespan_s": summary.makespan_s,
                **cost,
            }
        )
    return {
        "nodes": found.chosen or None,
        "node": node,
        "policy": scenario.policy,
        "target": [condition.text for condition in conditions],
        "answer": ("least" if found.least else "most") if found.chosen else "none",
        "why": found.why,
        "missed_again": found.odd,
        "trace": scenario.trace.source,
        "trace_digest": scenario.trace.digest,
        "dropped": dict(scenario.trace.dropped),
        "seed": scenario.seed,
        "curve": curve,
    }  # fmt: skip

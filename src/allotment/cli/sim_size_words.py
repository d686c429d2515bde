"""How many nodes a workload needs: for people, and for programs."""

from allotment import __version__
from allotment.cli.output import paint, say, talk
from allotment.cli.sim_words import BOUND, completed_of
from allotment.cli.table import Column, print_table
from allotment.metrics.summary import Summary
from allotment.model.quantity import HOUR, SECOND
from allotment.sim.outcome import Run
from allotment.sim.scenario import Scenario
from allotment.sim.settings import chosen
from allotment.sim.size import Sizing, nodes_of
from allotment.sim.size_target import Condition, shown, value_of


def on_the_way(size: int, run: Run, conditions: tuple[Condition, ...]) -> None:
    """Report one size that was played."""
    values = ", ".join(
        f"{_plain(condition)} {shown(condition.metric, condition.value(run.summary))}"
        for condition in conditions
    )
    talk(f"{nodes_of(size)}: {values}; {run.wall_s:.1f} s")


class Costs:
    """What a cluster of some nodes costs."""

    def __init__(self, scenario: Scenario, price: float) -> None:
        self.price = price
        self.devices = len(scenario.nodes[0].devices)

    def an_hour(self, nodes: int) -> float:
        """Return the cost of an hour, whether used or not."""
        return nodes * self.devices * self.price

    def whole(self, nodes: int, summary: Summary) -> float:
        """Return the cost from the first submission to the last end."""
        return self.an_hour(nodes) * summary.makespan_s * SECOND / HOUR


def _answer(node: str, conditions: tuple[Condition, ...], found: Sizing) -> str:
    texts = " and ".join(condition.text for condition in conditions)
    kind = "least" if found.least else "most"
    return f"{nodes_of(found.chosen)} of {node}: the {kind} that meet {texts}."


def in_words(
    scenario: Scenario,
    node: str,
    conditions: tuple[Condition, ...],
    found: Sizing,
    costs: Costs,
) -> None:
    """Print the curve, and the answer if there is one."""
    if found.curve:
        _print_curve(conditions, found, costs)
    if found.chosen:
        say(paint(_answer(node, conditions, found), "bold"))
        summary = dict(found.curve)[found.chosen]
        if summary.completed < summary.jobs:
            say(f"  There {completed_of(summary)}. Means are over completed jobs.")
    if found.curve and scenario.is_clairvoyant():
        say(f"  {scenario.policy} is clairvoyant: {BOUND}.")


def _print_curve(conditions: tuple[Condition, ...], found: Sizing, costs: Costs) -> None:
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
        row += [shown(metric, value_of(summary, metric)) for _, metric in general]
        if costs.price:
            row += [f"{costs.an_hour(nodes):,.2f}", f"{costs.whole(nodes, summary):,.2f}"]
        rows.append(row)
    print_table(columns, rows)


def _plain(condition: Condition) -> str:
    return condition.metric.removesuffix("_s")


def machine_form(
    scenario: Scenario,
    node: str,
    conditions: tuple[Condition, ...],
    found: Sizing,
    costs: Costs,
) -> dict[str, object]:
    """Return what `--json` prints: the answer, and the curve."""
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
                "jobs": summary.jobs,
                "completed": summary.completed,
                **{each.metric: each.value(summary) for each in conditions},
                "avg_queue_delay_s": value_of(summary, "avg_queue_delay_s"),
                "utilization": summary.utilization,
                "makespan_s": summary.makespan_s,
                **cost,
            }
        )
    return {
        "nodes": found.chosen or None,
        "node": node,
        "policy": scenario.policy,
        "clairvoyant": scenario.is_clairvoyant(),
        "settings": dict(chosen(scenario.settings)),
        "target": [condition.text for condition in conditions],
        "answer": ("least" if found.least else "most") if found.chosen else "none",
        "why": found.why,
        "missed_again": found.odd,
        "trace": scenario.trace.source,
        "trace_digest": scenario.trace.digest,
        "dropped": dict(scenario.trace.dropped),
        "seed": scenario.seed,
        "version": __version__,
        "curve": curve,
    }  # fmt: skip

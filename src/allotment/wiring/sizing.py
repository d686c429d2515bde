"""A workload played on clusters of many sizes."""

from collections.abc import Callable, Sequence

import msgspec

from allotment.sim.cluster import cluster_of
from allotment.sim.outcome import Run
from allotment.sim.scenario import Scenario
from allotment.sim.settings import read_settings
from allotment.sim.size import (
    BadSize,
    Range,
    Sizing,
    busy_nodes,
    check_node,
    find,
    hopeless,
    least_nodes,
    nodes_of,
)
from allotment.sim.size_target import Condition
from allotment.sim.trace import TraceJob
from allotment.wiring.parallel import run_all
from allotment.wiring.sim import Wanted, check_levels
from allotment.wiring.sim import scenario as read_scenario

Told = Callable[[int, Run], None]
"""Told the number of nodes, and how it went on them."""


def scenario_of(wanted: Wanted, node: str) -> Scenario:
    """Return the scenario of one such node. Raises BadScenario."""
    check_node(node)
    check_levels(
        read_settings(wanted.settings),
        (),
        "Sizes are searched one node at a time, without racks: leave it out, or compare "
        "clusters with `allot sim run --cluster 64x8/4`.",
    )
    return read_scenario(msgspec.structs.replace(wanted, cluster=f"1x{node}"))


def play_sizes(
    scenario: Scenario, node: str, sizes: Sequence[int], workers: int, told: Told
) -> list[Run]:
    """Run a scenario on each of these numbers of nodes, in parallel."""
    scenarios = [
        msgspec.structs.replace(scenario, nodes=cluster_of(f"{size}x{node}")) for size in sizes
    ]
    return run_all(
        scenarios,
        workers,
        lambda place, run: told(sizes[place], run),
        lambda _place, _come: None,
    )


def find_size(
    scenario: Scenario,
    node: str,
    conditions: Sequence[Condition],
    most: int,
    workers: int,
    told: Told,
) -> Sizing:
    """Return how many nodes meet the conditions. Raises BadScenario."""
    jobs, one = _jobs(scenario), scenario.nodes[0]
    low = least_nodes(jobs, one)
    if low > most:
        raise BadSize(
            f"The largest job needs {nodes_of(low)}, and no more than {most:,} are allowed. "
            "Raise --most, or choose a node with more devices."
        )
    chances = scenario.settings
    if scenario.rates is None and not (chances.job_failure or chances.mtbf_ms):
        why = hopeless(jobs, conditions)
        if why:
            return Sizing(0, True, (), why=why)
    guess = min(max(low, busy_nodes(jobs, one)), most)

    def play(sizes: Sequence[int]) -> list[Run]:
        return play_sizes(scenario, node, sizes, workers, told)

    return find(play, conditions, Range(low, most, guess, workers))


def _jobs(scenario: Scenario) -> tuple[TraceJob, ...]:
    jobs = scenario.trace.jobs
    if not jobs:
        raise BadSize(f"{scenario.trace.source} has no jobs, so nothing is needed for them.")
    return jobs

"""What a simulation takes of a configuration file, and says of the rest."""

from allotment.sim.scenario import Scenario
from allotment.sim.trace import Trace
from allotment.wiring.cluster_file import cluster_in

FILE = b"""
nodes: [{name: n1, cpu: 8, memory: 32GiB, gpu: {type: A, count: 8}}]
tenants:
  vision: {guaranteed: {gpu: 4}, queues: {papers: {limit: {gpu: 2}}, night: {order: skip}}}
  nlp: {guaranteed: {gpu: 2}}
  speech: {queues: {default: {limit: {gpu: 1}}}}
"""


def warnings(file: bytes) -> tuple[str, ...]:
    nodes, owners = cluster_in(file, "own.yaml")
    trace = Trace("jobs.csv", "simple", "", (), warnings=("no row ends",))
    return Scenario(trace, nodes, owners=owners).warnings()


def test_queues_that_are_left_out_are_named() -> None:
    first, second = warnings(FILE)
    assert first == "no row ends"
    assert second.startswith("own.yaml: the queues of vision, speech are left out")


def test_nothing_is_said_where_nothing_is_left_out() -> None:
    plain = b"\n".join(line for line in FILE.splitlines() if b"queues" not in line)
    assert warnings(plain) == ("no row ends",)

"""HiveD's configurations, as its recorded runs started with them: all legal ones are read."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from allotment.core.cells.chain import chains_of
from allotment.model.cell_quota import shapes_of, shortages
from allotment.model.errors import BadInput
from allotment.wire.config import config_to_wire, read_config
from allotment.wire.config_text import config_text
from allotment.wire.hived_config import Imported, read_hived
from allotment.wire.hived_job import read_pod_spec
from tests.golden.hived.recording import written

VECTORS = "hived-vectors/scenarios.tar.zst"
SHARED = Path(__file__).parents[3] / "shared"
pytestmark = pytest.mark.needs_shared(VECTORS)

CRASHES_THERE = {"ed_03_chain_without_quota"}
"""HiveD crashes on these legal configurations: a chain that nobody has a share of."""
NO_NODE = {"ed_16_oppo_order_dependent_failure"}
"""Recorded with a node `y` that became `true` on its way."""


WRONG_BY_ITSELF = ("Pod annotation ", "[e9(test/e9)]: opportunistic pod not supported")
"""How HiveD begins to say that a pod's annotation is wrong, whatever the cluster is."""


def scenarios() -> dict[str, list[dict[str, Any]]]:
    """Return the operations of each scenario as they are written, by name."""
    path = SHARED / VECTORS
    return {each.name: each.ops for each in written(path)} if path.exists() else {}


SCENARIOS = scenarios()
STARTS = [
    pytest.param(op["config"], op["outcome"], name, id=f"{name}-{at}")
    for name, ops in sorted(SCENARIOS.items())
    for at, op in enumerate(ops)
    if op["op"] == "init"
]


def imported(config: object) -> Imported:
    return read_hived(json.dumps(config, indent=1).encode(), source="hivedscheduler.yaml")


@pytest.mark.parametrize(("config", "outcome", "name"), STARTS)
def test_what_hived_starts_with_is_read_and_what_it_refuses_is_not(
    config: dict[str, Any], outcome: dict[str, Any], name: str
) -> None:
    if outcome["kind"] != "ok" and name not in CRASHES_THERE:
        refused(config, outcome)
        return
    found = imported(config)
    if outcome["kind"] == "ok" and name not in NO_NODE:
        assert sorted(node.name for node in found.config.nodes) == outcome["nodes"]
        theirs = {c for row in outcome["chain_search_order"].values() for c in row}
        assert set(shapes_of(found.config.topology)) == theirs
    assert shortages(found.config.topology, found.config.tenants) == ()
    chains = chains_of(found.config.topology, found.config.nodes)
    shapes = shapes_of(found.config.topology)
    assert [chain.names[::-1] for chain in chains] == [shape.types for shape in shapes.values()]
    assert {tenant.name for tenant in found.config.tenants} == set(config["virtualClusters"])
    text = config_text(found.written, "from HiveD").encode()
    again, warnings = read_config(text, source="cluster.yaml", machine=None)
    assert (again, warnings) == (found.config, ())
    full = json.dumps(config_to_wire(again)).encode()
    assert read_config(full, source="cluster.json", machine=None) == (again, ())


def refused(config: dict[str, Any], outcome: dict[str, Any]) -> None:
    """It is refused for the chain that HiveD names, with the place in HiveD's file."""
    said = re.search(r"at chain (\S+) level \d+: \d+ needed", outcome["message"])
    assert said is not None, outcome
    with pytest.raises(BadInput) as caught:
        imported(config)
    for problem in caught.value.problems:
        assert said[1] in problem.message
        assert re.search(r"add up to \d+, with room for \d+", problem.message)
        assert problem.path.startswith("virtualClusters.")
        assert problem.line > 1


def test_there_are_recordings() -> None:
    assert len(STARTS) > 50


def test_equal_sums_are_refused_with_hiveds_own_numbers() -> None:
    (start,) = SCENARIOS["ed_23_infeasible_but_equal_sum"]
    assert start["outcome"]["message"].endswith("chain NODE level 3: 2 needed, 0 available")
    with pytest.raises(BadInput, match=r"SOCKET of NODE add up to 2, with room for 0"):
        imported(start["config"])


def test_every_pod_is_read_unless_hived_finds_its_annotation_wrong() -> None:
    count = 0
    for ops in SCENARIOS.values():
        for op in ops:
            if op["op"] != "schedule":
                continue
            count += 1
            said = op["outcome"].get("message", "")
            data = json.dumps(op["pod"]["spec"]).encode()
            if op["outcome"]["kind"] == "user_error" and said.startswith(WRONG_BY_ITSELF):
                with pytest.raises(BadInput):
                    read_pod_spec(data, source="pod", name="pod", command="run")
                continue
            found = read_pod_spec(data, source="pod", name="pod", command="run").spec
            spec = op["pod"]["spec"]
            assert found.tenant == re.sub(r"[^A-Za-z0-9._-]", "-", spec["virtualCluster"])
            group = spec.get("affinityGroup") or {"members": [{"podNumber": 1}]}
            pods = sum(each["podNumber"] for each in group["members"])
            assert found.task_count == pods
    assert count > 300

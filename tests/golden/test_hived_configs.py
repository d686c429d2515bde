"""HiveD's configurations, as its recorded runs started with them: all legal ones are read."""

import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
import zstandard

from allotment.core.cells.quota import shapes_of, shortages
from allotment.model.errors import BadInput
from allotment.wire.config import config_to_wire, read_config
from allotment.wire.config_text import config_text
from allotment.wire.hived_config import Imported, read_hived

VECTORS = "hived-vectors/scenarios.tar.zst"
SHARED = Path(__file__).parents[3] / "shared"
pytestmark = pytest.mark.needs_shared(VECTORS)

CRASHES_THERE = {"ed_03_chain_without_quota"}
"""HiveD crashes on these legal configurations: a chain that nobody has a share of."""
NO_NODE = {"ed_16_oppo_order_dependent_failure"}
"""Recorded with a node `y` that became `true` on its way."""


def scenarios() -> dict[str, list[dict[str, Any]]]:
    """Give the operations that start HiveD, by scenario."""
    path = SHARED / VECTORS
    if not path.exists():
        return {}
    with path.open("rb") as packed:
        data = zstandard.ZstdDecompressor().stream_reader(packed).read()
    found: dict[str, list[dict[str, Any]]] = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as files:
        for member in files.getmembers():
            file = files.extractfile(member)
            if file is not None and member.name.endswith(".json"):
                ops = json.loads(file.read())["ops"]
                name = Path(member.name).stem
                found[name] = [op for op in ops if op["op"] == "init"]
    return found


STARTS = [
    pytest.param(op["config"], op["outcome"], name, id=f"{name}-{at}")
    for name, ops in sorted(scenarios().items())
    for at, op in enumerate(ops)
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
        chains = {c for chains in outcome["chain_search_order"].values() for c in chains}
        assert set(shapes_of(found.config.topology)) == chains
    assert shortages(found.config.topology, found.config.tenants) == ()
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
        assert re.search(r"add up to \d+, and \d+ can be had", problem.message)
        assert problem.path.startswith("virtualClusters.")
        assert problem.line > 1


def test_there_are_recordings() -> None:
    assert len(STARTS) > 50


def test_equal_sums_are_refused_with_hiveds_own_numbers() -> None:
    (start,) = scenarios()["ed_23_infeasible_but_equal_sum"]
    assert start["outcome"]["message"].endswith("chain NODE level 3: 2 needed, 0 available")
    with pytest.raises(BadInput, match=r"SOCKET of NODE add up to 2, and 0 can be had"):
        imported(start["config"])

"""`allot config`: check, import, discover, on real files."""

import json
from pathlib import Path

import pytest

from allotment.service.config_view import ConfigInForce, ConfigPlan
from tests.integration.cli.canned import Service
from tests.integration.cli.canned import json as answer
from tests.support.invoke import allot

CELLS = """\
hardware: [4 x dgx-v100 in racks of 2]
cells: {pins: [{id: own, type: dgx-v100-socket, node: n4, device: 4}]}
tenants:
  vision: {cells: {dgx-v100-rack: 1}, pins: [own]}
  nlp: {cells: {dgx-v100-rack/dgx-v100-switch: 2}}
"""
HIVED = """\
physicalCluster:
  cellTypes: {N: {childCellType: V100, childCellNumber: 4, isNodeLevel: true}}
  physicalCells: [{cellType: N, cellAddress: y}, {cellType: N, cellAddress: no}]
virtualClusters: {a: {virtualCells: [{cellType: N, cellNumber: 2}]}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(CELLS)
    return path


def test_check_tells_the_cells_and_who_is_guaranteed_what(file: Path) -> None:
    ran = allot("config", "check", file)
    assert ran.code == 0
    told = ran.err.splitlines()
    assert told[4:] == [
        "cells: 2 dgx-v100-rack of 2 dgx-v100-node of 2 dgx-v100-socket of 2 dgx-v100-switch "
        "of 2 V100",
        "tenant vision: 1 dgx-v100-rack, pinned own: 20 GPU, 640 GiB GPU memory, 100 CPU, "
        "1.2 TiB memory, 17.5 TiB disk guaranteed",
        "tenant nlp: 2 dgx-v100-switch of dgx-v100-rack: 4 GPU, 128 GiB GPU memory, 20 CPU, "
        "256 GiB memory, 3.5 TiB disk guaranteed",
        f"{file} is fine: 4 nodes, 2 tenants.",
    ]


def test_check_prints_cells_for_programs(file: Path) -> None:
    written = json.loads(allot("config", "check", file, "--json").out)
    assert written["cells"]["pins"] == [
        {"id": "own", "type": "dgx-v100-socket", "node": "n4", "device": 4}
    ]
    assert written["tenants"]["nlp"]["cells"] == {"dgx-v100-rack/dgx-v100-switch": 2}
    assert written["nodes"][3]["labels"] == {"rack": "r2"}


def test_check_refuses_what_cannot_be_had(file: Path) -> None:
    file.write_text(CELLS.replace("switch: 2", "switch: 7"))
    ran = allot("config", "check", file)
    assert ran.code == 1
    assert ran.err == (
        f"{file}:5: tenants.nlp.cells.dgx-v100-rack/dgx-v100-switch: all shares of "
        "dgx-v100-switch of dgx-v100-rack add up to 7, with room for 6 beside larger cells: "
        "1 too many (nlp 7) (lower a share, or add roots)\n"
    )


def test_import_writes_a_file_that_check_accepts(tmp_path: Path) -> None:
    source, made = tmp_path / "hived.yaml", tmp_path / "ours.yaml"
    source.write_text(HIVED)
    ran = allot("config", "import", source, "--output", made, "--cpus", 6, "--memory", "56GiB")
    assert (ran.code, ran.out) == (0, "")
    assert "6 CPUs and 56GiB are assumed for each" in ran.err
    assert ran.err.endswith(f"{source}: 2 nodes, 1 tenant.\n")
    assert 'name: "no"' in made.read_text()
    checked = allot("config", "check", made)
    assert checked.code == 0
    assert "node y: 4 GPU, 24 CPU, 224 GiB memory" in checked.err
    assert "tenant a: 2 N: 8 GPU" in checked.err


def test_import_prints_without_a_file_and_overwrites_none(tmp_path: Path) -> None:
    source = tmp_path / "hived.yaml"
    source.write_text(HIVED)
    ran = allot("config", "import", source)
    assert ran.out.startswith("# Made of hived.yaml by `allot config import`.\n\nnodes:\n  - ")
    again = allot("config", "import", source, "-o", source)
    assert (again.code, source.read_text()) == (1, HIVED)
    assert f"error: {source} is there already." in again.err


def test_import_refuses_with_the_place_in_hiveds_file(tmp_path: Path) -> None:
    source, made = tmp_path / "hived.yaml", tmp_path / "ours.yaml"
    source.write_text(HIVED.replace("cellNumber: 2}", "cellNumber: 3}"))
    ran = allot("config", "import", source, "--output", made)
    assert ran.code == 1
    assert f"{source}:4: virtualClusters.a.virtualCells[0].cellType: all shares of N" in ran.err
    assert not made.exists()


@pytest.mark.parametrize(
    "words", [("--cpus", "x"), ("--memory", "8"), ("--output",), ("nosuch", "more")]
)
def test_a_wrong_call_is_exit_code_2(words: tuple[str, ...]) -> None:
    assert allot("config", "import", "f", *words).code == 2


def test_a_file_that_is_not_there_is_told() -> None:
    ran = allot("config", "import", "/nosuch/file")
    assert ran.code == 1
    assert "error: /nosuch/file cannot be read: no such file or directory." in ran.err


def test_discover_describes_this_machine(tmp_path: Path) -> None:
    made = tmp_path / "here.yaml"
    assert allot("config", "discover", "--output", made).code == 0
    assert made.read_text() == allot("config", "discover").out
    checked = allot("config", "check", made)
    assert checked.code == 0
    assert "is fine: 1 node, 1 tenant." in checked.err
    assert "cells: 1 " in checked.err


def test_apply_replaces_only_what_was_in_force_as_it_began(
    service: Service, state: Path, file: Path
) -> None:
    service.routes["GET /v1/config"] = answer(ConfigInForce("0123456789ab", ""))
    plan = ConfigPlan("0123456789ab", "ba9876543210", applied=True)
    service.routes["POST /v1/config:apply"] = answer(plan)
    assert allot("config", "apply", file, "--state", state).code == 0
    assert allot("config", "apply", file, "--expect", "abc", "--state", state).code == 0
    sent = [json.loads(request.body)["expect"] for request in service.asked("POST")]
    assert sent == ["0123456789ab", "abc"]

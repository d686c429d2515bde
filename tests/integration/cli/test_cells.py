"""`allot cells` and `allot tenants` of a real service whose shares are cells."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import RealCluster, a_real_cluster
from tests.support.invoke import Ran, allot

CONFIG = """
nodes:
  - {names: [n1, n2], cpu: 4, memory: 2GiB, gpu: {type: V100, count: 4, virtual: true}}
cells:
  types:
    v100-socket: {of: V100, count: 2}
    v100-node: {of: v100-socket, count: 2, node: true}
  roots:
    - {type: v100-node, nodes: [n1]}
    - {type: v100-node, nodes: [n2]}
tenants:
  vision: {cells: {v100-node: 1}}
  nlp: {cells: {v100-socket: 1}}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealCluster]:
    folder = Path(tempfile.mkdtemp(prefix="cells-"))
    try:
        with a_real_cluster(folder, CONFIG) as real:
            yield real
    finally:
        shutil.rmtree(folder)


def cli(cluster: RealCluster, *words: object) -> Ran:
    return allot(*words, "--state", cluster.state)


def test_cells_from_submission_to_eviction(cluster: RealCluster, tmp_path: Path) -> None:
    job = {"name": "train", "tenant": "nlp", "command": "sleep 60", "count": 2}
    job["resources"] = {"gpu": 4, "memory": "64MiB"}
    borrower = cluster.submit(job)
    cluster.wait_for(borrower, "running")
    assert [line.split() for line in cli(cluster, "cells").out.splitlines()[1:]] == [
        ["n1", "lent", "llll", "-", "1", "ok"],
        ["n2", "lent", "llll", "-", "1", "ok"],
    ]
    one = json.loads(cli(cluster, "cells", "n1", "--json").out)
    assert one["roots"][0]["cells"][0]["users"][0]["job"] == borrower

    owner = cluster.submit({**job, "tenant": "vision", "count": 1})
    cluster.wait_for(owner, "running")
    shown = cli(cluster, "cells").out
    assert "vision" in shown
    assert "uuuu" in shown
    rows = [line.split() for line in cli(cluster, "tenants").out.splitlines()[1:]]
    assert rows == [
        ["vision", "v100-node", "1", "1", "-", "-", "-", "-", "1", "0"],
        ["nlp", "v100-socket", "1", "-", "1", "-", "-", "-", "0", "1"],
    ]
    told = cli(cluster, "why", borrower).out
    assert "It needs 2 × 4 V100, each in one v100-node. It is larger than its tenant's" in told

    target = tmp_path / "cells.html"
    assert cli(cluster, "cells", "--html", target).code == 0
    assert target.read_text().count('class="node"') == 2


def test_what_is_wrongly_asked_for_is_told(cluster: RealCluster) -> None:
    ran = cli(cluster, "cells", "--level", "row")
    assert (ran.code, "Levels: leaf, node, V100, v100-socket" in ran.err) == (1, True)
    ran = cli(cluster, "cells", "n9")
    assert (ran.code, "There is no root and no node 'n9'" in ran.err) == (1, True)
    ran = cli(cluster, "cells", "--html", "/nowhere/cells.html")
    assert (ran.code, "cannot be written" in ran.err) == (1, True)


def test_what_is_wrong_in_a_new_configuration_is_told_as_check_tells_it(
    cluster: RealCluster, tmp_path: Path
) -> None:
    file = tmp_path / "new.yaml"
    file.write_text(CONFIG.replace("v100-node: 1}", "v100-node: 3}"))
    checked = allot("config", "check", file)
    assert checked.err.startswith(f"{file}:12: tenants.vision.cells.v100-node: all shares of")
    for verb in ("plan", "apply"):
        told = cli(cluster, "config", verb, file)
        assert (told.code, told.out, told.err) == (1, "", checked.err)
    machine = json.loads(cli(cluster, "config", "plan", file, "--json").err)
    assert machine["error"]["problems"][0]["line"] == 12


def test_what_is_doubtful_in_a_new_configuration_is_told_with_its_place(
    cluster: RealCluster, tmp_path: Path
) -> None:
    file = tmp_path / "new.yaml"
    file.write_text(CONFIG.replace("    - {type: v100-node, nodes: [n2]}\n", "").replace(
        "nlp: {cells: {v100-socket: 1}}", "nlp: {}"
    ))  # fmt: skip
    told = cli(cluster, "config", "plan", file)
    assert "- cell n2: v100-node\n" in told.out
    assert f"warning: {file}:8: cells.roots: n2 lies in no cell" in told.err

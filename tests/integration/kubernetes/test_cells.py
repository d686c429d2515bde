"""Cells that the labels of a real Kubernetes' nodes make, and labels that contradict them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import until
from tests.support.kubernetes import IMAGE, MARKS, Kubernetes
from tests.support.on_kubernetes import OnKubernetes
from tests.support.on_slurm import shell

pytestmark = MARKS

RACK = "example.com/rack"
CONFIG = """\
engines:
  k8s: {{type: kubernetes, kubeconfig: {kubeconfig}, image: "{image}", labels: [{rack}]}}
{cells}
tenants: {{lab: {{cells: {{gpu-rack: 1}}}}}}
"""
LINES = (
    "    gpu-node: {of: gpu, count: 4, node: true}",
    "    gpu-rack: {of: gpu-node, count: 2, label: rack}",
)


class InRacks(OnKubernetes):
    """A service whose two nodes are a rack, as their labels say."""

    def take_cells(self) -> None:
        """Write a configuration with the cells that are found."""
        found = self.allot(
            "kubernetes",
            "cells",
            "--level",
            RACK,
            "--kubeconfig",
            str(self.kubernetes.kubeconfig),
        )
        assert "gpu-rack: 1 cell (r1)" in found.stderr
        assert all(line in found.stdout for line in LINES), found.stdout
        cells = found.stdout[found.stdout.index("cells:") :]
        text = CONFIG.format(
            kubeconfig=self.kubernetes.kubeconfig, image=IMAGE, rack=RACK, cells=cells
        )
        self.config.write_text(text)

    def label(self, node: str, rack: str) -> None:
        self.kubernetes.kubectl("label", "node", node, f"{RACK}={rack}", "--overwrite")

    def doctor(self) -> str:
        return self.allot("kubernetes", "doctor").stdout


@pytest.fixture
def racks(kubernetes: Kubernetes, folder: Path) -> Iterator[InRacks]:
    (folder / "state").mkdir()
    cluster = InRacks(folder / "state", kubernetes)
    try:
        for node in kubernetes.nodes:
            cluster.label(node, "r1")
        cluster.take_cells()
        cluster.up()
        yield cluster
    finally:
        cluster.down()
        kubernetes.kubectl("delete", "node", "n3", "--ignore-not-found")
        for node in kubernetes.nodes:
            kubernetes.kubectl("label", "node", node, f"{RACK}-")
        kubernetes.clear()


def test_a_node_whose_label_contradicts_its_cell_takes_no_work(racks: InRacks) -> None:
    first, second = racks.kubernetes.nodes
    assert "ok    cells      1 of gpu-rack" in racks.doctor()
    gang = shell("true", count=2, within="rack", resources={"gpu": 4, "cpu": 0.1})
    racks.wait_for(racks.submit(gang), "succeeded")

    racks.label(second, "r2")
    until(lambda: racks.node(second)["state"] == "drained", "the label to be heard of")
    why = (
        f"its labels say rack r2, and the cells have it in rack r1 with {first}: correct its "
        "labels, or `cells.types`"
    )
    assert why in str(racks.node(second))
    assert f"{second}: {why}" in racks.doctor()
    waits = racks.submit(gang)
    until(lambda: racks.state_of(waits) == "queued", "the gang to wait")
    assert f"Out of use are {second}" in racks.allot("why", str(waits)).stdout
    assert not racks.pods_of(waits)

    racks.label(second, "r1")
    racks.wait_for(waits, "succeeded")


def test_a_node_that_says_it_is_in_a_whole_rack_joins_without_work(racks: InRacks) -> None:
    kubernetes = racks.kubernetes
    kubernetes.add_node("n3")
    kubernetes.offer("n3", 4)
    racks.label("n3", "r1")

    def says() -> bool:
        nodes = {node["name"]: str(node) for node in racks.get("/v1/nodes")}
        return "its labels say rack r1, and r1 is whole with" in nodes.get("n3", "")

    until(says, "the new node to be told of")
    assert {node["state"] for node in racks.get("/v1/nodes") if node["name"] != "n3"} == {
        "ready"
    }  # fmt: skip


def test_a_rack_that_is_relabelled_node_by_node_stays_one(racks: InRacks) -> None:
    """Each half of it is a whole cell of a second type."""
    first, second = racks.kubernetes.nodes
    single = "    gpu-single: {of: gpu-node, count: 1, label: rack}"
    text = racks.config.read_text().replace(LINES[1], f"{LINES[1]}\n{single}")
    racks.config.write_text(text)
    applied = racks.allot("config", "apply", str(racks.config))
    assert applied.returncode == 0, applied.stderr
    seen: set[tuple[str, ...]] = set()

    def are(*names: str) -> bool:
        roots = tuple(sorted(cell["name"] for cell in racks.get("/v1/cells")["roots"]))
        seen.add(roots)
        return roots == names

    racks.label(second, "r2")
    until(lambda: racks.node(second)["state"] == "drained", "the label to be heard of")
    racks.label(first, "r2")
    until(lambda: are("r2"), "the rack to have another name")
    assert seen <= {("r1",), ("r2",)}

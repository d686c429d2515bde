"""What tenants are told of cells that broke: told as short stories over an engine."""

import pytest

from allotment.engine.lost import broken_since
from allotment.explain.lost_cells import Loss, free_if, lacking, losses
from allotment.model import commands as c
from allotment.model.cells import CellShare, CellType, PinnedCell, RootCell, Topology
from allotment.model.health import RULES, HealthReport, Source
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.quantity import MINUTE
from allotment.model.reports import NodeReport
from allotment.model.tenancy import Config, Tenant
from tests.support.builders import a_job, a_node, gpus
from tests.support.world import World


def a_rack(*tenants: Tenant, pins: tuple[PinnedCell, ...] = ()) -> Config:
    """Two nodes of two sockets of two devices, in one rack."""
    topology = Topology(
        types=(
            CellType("socket", "A100", 2),
            CellType("host", "socket", 2, is_node=True),
            CellType("rack", "host", 2),
        ),
        roots=(RootCell("rack", "r1", (NodeId(0), NodeId(1))),),
        pins=pins,
    )
    return Config((a_node(0, 4), a_node(1, 4)), tenants, topology=topology)


def owns(name: str, *shares: tuple[str, int], pins: tuple[str, ...] = ()) -> Tenant:
    return Tenant(
        name, gpus(8), cells=tuple(CellShare(kind, count) for kind, count in shares), pins=pins
    )


class Rack(World):
    def breaks(self, node: int, device: int | None = None, *, ok: bool = False) -> None:
        place = None if device is None else DeviceIndex(device)
        self.tell(HealthReport(NodeId(node), Source.PROBE, ok, place, "gpu_ecc"))

    def lost(self) -> dict[tuple[str, str], Loss]:
        cells = self.state.cluster.cells
        assert cells is not None
        found = losses(cells, broken_since(self.state))
        return {(loss.tenant, loss.type): loss for loss in found}


@pytest.fixture
def rack() -> Rack:
    return Rack(a_rack(owns("vision", ("host", 1)), owns("nlp", ("socket", 2))))


def test_healthy_hardware_costs_nobody_anything(rack: Rack) -> None:
    rack.submit(a_job().gpus(4))
    rack.cycle()
    assert rack.lost() == {}


def test_a_cell_that_is_held_is_named_with_what_broke_and_since_when(rack: Rack) -> None:
    job = rack.submit(a_job().gpus(4))
    rack.cycle()
    rack.runs(job)
    began = rack.now
    rack.breaks(0, 3)
    rack.wait(MINUTE)
    rack.breaks(0, 2)
    loss = rack.lost()["vision", "host"]
    (broken,) = loss.broken
    assert (broken.cell, broken.node, broken.leaves, broken.since) == ("r1/0", 0, 2, began)
    assert (loss.missing, loss.count, loss.since) == (0, 1, began)
    assert set(rack.lost()) == {("vision", "host")}


def test_what_nobody_holds_is_short_for_all_together_before_it_is_for_one(rack: Rack) -> None:
    began = rack.now
    rack.breaks(0, 0)
    lost = rack.lost()
    assert set(lost) == {("nlp", "socket")}
    assert (lost["nlp", "socket"].missing, lost["nlp", "socket"].shared) == (0, 1)
    assert lost["nlp", "socket"].since == began
    rack.wait(MINUTE)
    rack.breaks(1, 0)
    lost = rack.lost()
    assert (lost["vision", "host"].missing, lost["vision", "host"].shared) == (1, 1)
    assert lost["vision", "host"].since == rack.now, "one more was there until now"
    assert ("nlp", "socket") not in lost, "of two nodes without a whole one, it has a socket"


def test_borrowers_lose_nobody_anything(rack: Rack) -> None:
    for _ in range(2):
        rack.submit(a_job().of("nlp").gpus(4))
    rack.cycle()
    assert rack.lost() == {}


def test_what_heals_is_lost_no_longer(rack: Rack) -> None:
    rack.breaks(0, 0)
    rack.breaks(0, 0, ok=True)
    assert rack.lost()
    rack.wait(RULES.heal_ms)
    assert rack.lost() == {}


def test_drained_and_lost_nodes_count_since_they_are(rack: Rack) -> None:
    began = rack.now
    rack.do(c.DrainNode(NodeId(0)))
    rack.wait(MINUTE)
    rack.tell(NodeReport(NodeId(1), alive=False))
    lost = rack.lost()
    assert lost["vision", "host"].missing == 1
    assert lost["vision", "host"].since == rack.now
    assert lost["nlp", "socket"].missing == 2
    assert lost["nlp", "socket"].since == rack.now
    rack.tell(NodeReport(NodeId(1), alive=True))
    assert rack.lost()["nlp", "socket"].shared == 2
    assert rack.lost()["nlp", "socket"].since == began


def test_a_pinned_cell_is_lost_though_nobody_uses_it() -> None:
    pin = PinnedCell("own", "socket", NodeId(1), 2)
    rack = Rack(a_rack(owns("vision", ("host", 1)), owns("nlp", pins=("own",)), pins=(pin,)))
    rack.breaks(1, 3)
    loss = rack.lost()["nlp", "socket"]
    assert (loss.pin, loss.broken[0].cell, loss.missing) == ("own", "r1/1/1", 0)


def test_what_is_lacking_is_dealt_from_the_top(rack: Rack) -> None:
    assert rack.state.cluster.cells is not None
    (chain,) = rack.state.cluster.cells.chains
    assert lacking(chain, [0, 0, 0, 1], [0, 2, 1, 0]) == [0, 0, 0, 0]
    assert lacking(chain, [1, 1, 1, 0], [0, 2, 1, 0]) == [0, 1, 0, 0]
    assert lacking(chain, [1, 1, 0, 0], [0, 2, 1, 0]) == [0, 1, 1, 0]


def test_free_cells_are_counted_as_the_book_counts_them(rack: Rack) -> None:
    job = rack.submit(a_job().of("nlp").gpus(2))
    rack.cycle()
    rack.runs(job)
    rack.breaks(1, 3)
    assert rack.state.cluster.cells is not None
    (space,) = rack.state.cluster.cells.spaces
    assert free_if(space, space.broken) == space.count


def test_cells_that_broke_and_cells_that_are_missing_count_together() -> None:
    rack = Rack(a_rack(owns("vision", ("host", 2))))
    job = rack.submit(a_job().gpus(4))
    rack.cycle()
    rack.runs(job)
    held = rack.state.cluster.gangs[job].slots[0].node
    rack.breaks(held, 3)
    rack.breaks(1 - held, 0)
    loss = rack.lost()["vision", "host"]
    assert (len(loss.broken), loss.missing, loss.count) == (1, 1, 2)


def test_where_times_are_not_asked_for_none_is_told(rack: Rack) -> None:
    rack.breaks(0, 0)
    rack.breaks(1, 0)
    cells = rack.state.cluster.cells
    assert cells is not None
    found = losses(cells, None)
    assert [(loss.tenant, loss.type, loss.missing) for loss in found] == [("vision", "host", 1)]
    assert {loss.since for loss in found} == {0}
    assert {loss.since for loss in losses(cells, {})} == {0}

"""How many cells tenants lose to what breaks: told as short stories over an engine."""

import pytest

from allotment.explain.cell_accounts import lacking, lost_counts
from allotment.model import commands as c
from allotment.model.cells import CellShare, CellType, PinnedCell, RootCell, Topology
from allotment.model.health import RULES, HealthReport, Source
from allotment.model.ids import DeviceIndex, NodeId
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

    def lost(self) -> dict[tuple[str, str], int]:
        assert self.state.cluster.cells is not None
        return lost_counts(self.state.cluster.cells)


@pytest.fixture
def rack() -> Rack:
    return Rack(a_rack(owns("vision", ("host", 1)), owns("nlp", ("socket", 2))))


def test_healthy_hardware_costs_nobody_anything(rack: Rack) -> None:
    rack.submit(a_job().gpus(4))
    rack.cycle()
    assert rack.lost() == {}


def test_a_cell_that_is_held_is_lost_once_however_much_of_it_broke(rack: Rack) -> None:
    job = rack.submit(a_job().gpus(4))
    rack.cycle()
    rack.runs(job)
    rack.breaks(0, 3)
    assert rack.lost() == {("vision", "host"): 1}
    rack.breaks(0, 2)
    assert rack.lost() == {("vision", "host"): 1}


def test_what_nobody_holds_is_lost_to_those_who_could_not_get_it_alone(rack: Rack) -> None:
    rack.breaks(0, 0)
    assert rack.lost() == {}, "alone, each would still get all that it is guaranteed"
    rack.breaks(1, 0)
    assert rack.lost() == {("vision", "host"): 1}, "no node is whole; sockets there are"


def test_borrowers_lose_nobody_anything(rack: Rack) -> None:
    for _ in range(2):
        rack.submit(a_job().of("nlp").gpus(4))
    rack.cycle()
    assert rack.lost() == {}


def test_what_heals_is_lost_no_longer(rack: Rack) -> None:
    for ok in (False, True):
        for node in (0, 1):
            rack.breaks(node, 0, ok=ok)
    assert rack.lost()
    rack.wait(RULES.heal_ms)
    assert rack.lost() == {}


def test_drained_and_lost_nodes_count_while_they_are(rack: Rack) -> None:
    rack.do(c.DrainNode(NodeId(0)))
    assert rack.lost() == {}
    rack.tell(NodeReport(NodeId(1), alive=False))
    assert rack.lost() == {("vision", "host"): 1, ("nlp", "socket"): 2}
    rack.tell(NodeReport(NodeId(1), alive=True))
    assert rack.lost() == {}


def test_a_pinned_cell_is_lost_though_nobody_uses_it() -> None:
    pin = PinnedCell("own", "socket", NodeId(1), 2)
    rack = Rack(a_rack(owns("vision", ("host", 1)), owns("nlp", pins=("own",)), pins=(pin,)))
    rack.breaks(1, 3)
    assert rack.lost() == {("nlp", "socket"): 1}


def test_what_is_lacking_is_dealt_from_the_top(rack: Rack) -> None:
    assert rack.state.cluster.cells is not None
    (chain,) = rack.state.cluster.cells.chains
    assert lacking(chain, [0, 0, 0, 1], [0, 2, 1, 0]) == [0, 0, 0, 0]
    assert lacking(chain, [1, 1, 1, 0], [0, 2, 1, 0]) == [0, 1, 0, 0]
    assert lacking(chain, [1, 1, 0, 0], [0, 2, 1, 0]) == [0, 1, 1, 0]


def test_cells_that_broke_and_cells_that_are_missing_count_together() -> None:
    rack = Rack(a_rack(owns("vision", ("host", 2))))
    job = rack.submit(a_job().gpus(4))
    rack.cycle()
    rack.runs(job)
    held = rack.state.cluster.gangs[job].slots[0].node
    rack.breaks(held, 3)
    rack.breaks(1 - held, 0)
    assert rack.lost() == {("vision", "host"): 2}

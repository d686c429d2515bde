"""Generated histories of hardware that breaks and heals, counted and in cells."""

import os

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from allotment.core.cells.chain import Cell
from allotment.core.cells.space import Space
from allotment.engine.apply import apply
from allotment.engine.state import State
from allotment.explain.cell_accounts import lacking, lost_counts
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.cells import CellShare, CellType, RootCell, Topology
from allotment.model.diagnosis import Diagnosis, Owner, RetryClass
from allotment.model.health import RULES, HealthReport, Source
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.reasons import Reason
from allotment.model.tenancy import Config, QueueOrder
from tests.property.test_histories import PICK, TENANTS, Histories, gpus_of
from tests.support.builders import POLICIES, a_config, a_tenant
from tests.support.world import World

ECC = Diagnosis("gpu_ecc", "A GPU's memory is faulty.", Owner.HARDWARE, RetryClass.PLATFORM)
NODES = st.integers(0, 2)
PLACES = st.sampled_from([None, 0, 1, 2, 3])
RACK = Topology(
    types=(
        CellType("pair", "A100", 2),
        CellType("host", "pair", 2, is_node=True),
        CellType("rack", "host", 3),
    ),
    roots=(RootCell("rack", "r1", tuple(NodeId(at) for at in range(3))),),
)
DEALS = ((1, 1, 2), (2, 0, 1), (0, 3, 0), (1, 0, 4), (0, 0, 0))
"""Hosts of the first tenant, pairs of the second, devices of the third."""


def in_cells(deal: tuple[int, int, int], order: QueueOrder) -> Config:
    tenants = [
        msgspec.structs.replace(
            a_tenant(name, order=order),
            guaranteed=gpus_of(devices * count),
            cells=(CellShare(kind, count),),
        )
        for name, kind, devices, count in zip(
            TENANTS, ("host", "pair", "A100"), (4, 2, 1), deal, strict=True
        )
    ]
    config = a_config(*tenants, nodes=3, devices=4)
    return msgspec.structs.replace(config, topology=RACK)


def counted_afresh(space: Space) -> list[int]:
    """Count the largest free cells, by level. O(nodes)."""
    chain = space.chain
    count = [0] * (chain.top + 1)

    def enter(cell: Cell) -> None:
        mask = chain.mask_of(cell)
        used = (space.held[node] | space.shut[node] for node in chain.nodes_of(cell))
        if not any(leaves & mask for leaves in used):
            count[cell[0]] += 1
        elif cell[0]:
            for child in chain.children(cell):
                enter((cell[0] - 1, child))

    for number in range(chain.cells[chain.top]):
        enter((chain.top, number))
    return count


class BreakingHardware(Histories):
    """Counted shares; every rule of histories, and hardware that is talked about."""

    @rule(node=NODES, place=PLACES, source=st.sampled_from(Source), ok=st.booleans(), who=PICK)
    def hear(self, node: int, place: int | None, source: Source, ok: bool, who: int) -> None:
        if source is not Source.ADMIN:
            user = f"user{who % 4}" if source is Source.JOB else ""
            device = None if place is None else DeviceIndex(place)
            said = HealthReport(NodeId(node), source, ok, device, "test", "it said so", user)
            before = len(self.world.log)
            self.world.tell(said)
            assert len(self.world.log) <= before + 1

    @rule(node=NODES, place=PLACES, ok=st.booleans())
    def declare(self, node: int, place: int | None, ok: bool) -> None:
        device = None if place is None else DeviceIndex(place)
        self.attempt(c.DeclareHealth(((NodeId(node), device),), ok, "because"))

    @rule(which=PICK)
    def fail_of_hardware(self, which: int) -> None:
        if (job := self.pick_placed(which)) is not None:
            self.world.runs(job)
            self.world.ends(job, 1, ECC)

    @rule(ms=st.sampled_from([RULES.worsen_ms, RULES.heal_ms, RULES.mend_ms]))
    def wait_long(self, ms: int) -> None:
        self.world.wait(ms)

    @rule()
    def fold(self) -> None:
        """6: the log alone makes the state. What a configuration took away is forgotten."""
        folded = State(POLICIES)
        for record in self.world.log:
            apply(folded, record)
        before = msgspec.msgpack.encode(self.world.state.image())
        assert msgspec.msgpack.encode(folded.image()) == before

    @rule()
    def automatic_means_take_no_more_than_they_may(self) -> None:
        """Of three machines of four devices it is one machine's; an administrator's word is
        beside that, and who is moved by a new configuration stays as it is."""
        out: set[tuple[int, int]] = set()
        for (node, place), how in self.world.state.health.items():
            if not how.final:
                out |= {(node, at) for at in ([place] if place >= 0 else range(4))}
        assert len(out) <= 4

    @rule()
    def nobody_loses_more_than_is_there(self) -> None:
        """What is told of lost cells is what counting afresh gives."""
        cells = self.world.state.cluster.cells
        if cells is None:
            return
        assert all(lost_counts(cells).values())
        for space in cells.spaces:
            assert counted_afresh(space) == space.count
            if not space.broken:
                guaranteed = [max(0, count) for count in space.unbound]
                assert (
                    not any(lacking(space.chain, space.count, guaranteed))
                    or min(space.unbound) < 0
                )

    def teardown(self) -> None:
        """Once all is declared well, whoever may start, starts."""
        if hasattr(self, "world"):
            for node in range(3):
                self.attempt(c.DeclareHealth(((NodeId(node), None),), ok=True))
            assert self.world.state.health == self.world.state.doubts == {}
            changes = [r.event for r in self.world.log if isinstance(r.event, e.HealthChanged)]
            for one in changes:
                assert one.was is not one.now or one.final or one.held_back
            super().teardown()


class BreakingCells(BreakingHardware):
    """The same, with shares in cells."""

    cut = (Reason.QUOTA, Reason.NEVER_FITS_NOW)

    @initialize(deal=st.sampled_from(DEALS), order=st.sampled_from(list(QueueOrder)))
    def begin(self, deal: tuple[int, int, int], order: QueueOrder) -> None:
        self.world = World(in_cells(deal, order))

    @rule(deal=st.sampled_from(DEALS))
    def reconfigure(self, deal: tuple[int, int, int]) -> None:
        self.attempt(c.ApplyConfig(in_cells(deal, QueueOrder.STRICT)))


TestBreakingHardware = BreakingHardware.TestCase
TestBreakingCells = BreakingCells.TestCase
for case in (TestBreakingHardware, TestBreakingCells):
    case.settings = settings(
        max_examples=int(os.environ.get("ALLOT_HISTORIES", "60")),
        stateful_step_count=40,
        deadline=None,
    )
del case

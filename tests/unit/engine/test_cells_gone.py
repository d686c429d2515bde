"""Cells that a new configuration takes away from under jobs, whose nodes stay."""

import msgspec
import pytest

from allotment.engine.foresee import Foresight, foresee
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Entitlement
from allotment.model.lifecycle import JobState
from allotment.model.tenancy import Config
from allotment.wire.config import read_config
from tests.support.builders import POLICIES, a_job
from tests.support.world import World

HEAD = """\
nodes:
  - {names: [a1, a2], cpu: 40, memory: 512GiB, gpu: {type: V100, count: 8}}
  - {name: b1, cpu: 24, memory: 224GiB, gpu: {type: %(b1)s, count: 4}}
cells:
  types:
    v: {of: V100, count: 8, node: true}
    v-half: {of: V100, count: 4, node: true}
    k: {of: K80, count: 4, node: true}
    k-half: {of: K80, count: 2, node: true}
    t: {of: T4, count: 4, node: true}
  roots: [%(roots)s]
tenants:
  t: {cells: {%(guaranteed)s}}
  u: {cells: {}}
"""
A1, A2, B1 = "{type: v, nodes: [a1]}", "{type: v, nodes: [a2]}", "{type: k, nodes: [b1]}"


def config(*roots: str, guaranteed: str = "v: 1", b1: str = "K80") -> Config:
    text = HEAD % {"roots": ", ".join(roots), "guaranteed": guaranteed, "b1": b1}
    return read(text)


def read(text: str) -> Config:
    return read_config(text.encode(), source="test", machine=None)[0]


class There(World):
    """A world with cells for everything."""

    def __init__(self, guaranteed: str = "v: 1") -> None:
        super().__init__(config(A1, A2, B1, guaranteed=guaranteed))

    def runs_on(self, gpus: float, kind: str, tenant: str = "t") -> JobId:
        job = self.submit(a_job().of(tenant).gpus(gpus).types(kind))
        self.cycle()
        self.runs(job)
        return job

    def becomes(self, changed: Config) -> Foresight:
        image = self.state.image()
        foreseen = foresee(_bytes(image), changed, self.state, self.now)
        assert _bytes(self.state.image()) == _bytes(image), "to look changes nothing"
        self.do(c.ApplyConfig(changed))
        self.cycle()
        again = State.from_image(self.state.image(), POLICIES)
        assert _bytes(again.image()) == _bytes(self.state.image())
        return foreseen

    def owns(self, job: JobId) -> bool:
        return self.state.cluster.gangs[job].entitlement is Entitlement.GUARANTEED


def _bytes(image: object) -> bytes:
    return msgspec.msgpack.encode(image)


def test_a_borrower_in_a_cell_that_goes_runs_on() -> None:
    world = There()
    job = world.runs_on(2, "K80")
    assert not world.owns(job)
    foreseen = world.becomes(config(A1, A2))
    assert (foreseen.refusal, foreseen.demoted) == ("", ())
    assert world.is_(job) is JobState.RUNNING
    world.becomes(config(A1, A2, B1))
    world.ends(job)
    world.cycle()


def test_a_guaranteed_job_in_a_cell_that_goes_runs_on_as_a_borrower() -> None:
    world = There()
    job = world.runs_on(8, "V100")
    assert world.owns(job)
    foreseen = world.becomes(config(A2, B1))
    assert [loss.job for loss in foreseen.demoted] == [job]
    assert world.is_(job) is JobState.RUNNING
    assert not world.owns(job)
    other = world.runs_on(8, "V100")
    assert world.owns(other)
    assert world.state.cluster.gangs[other].slots[0].node == NodeId(1)


def test_nobody_new_goes_where_no_cell_is() -> None:
    world = There()
    world.becomes(config(A1, A2))
    job = world.submit(a_job().of("t").gpus(4))
    world.cycle()
    assert {slot.node for slot in world.state.cluster.gangs[job].slots} <= {0, 1}


def test_a_job_is_its_tenants_own_again_once_its_cell_is_back() -> None:
    world = There()
    job = world.runs_on(8, "V100")
    world.becomes(config(A2, B1))
    world.becomes(config(A1, A2, B1))
    assert world.owns(job)


@pytest.mark.parametrize("devices", ["[[0, 1]]", "[[1, 2]]", "[[3, 2]]"])
def test_a_gang_that_lies_in_a_cell_in_part_borrows(devices: str) -> None:
    world = There(guaranteed="k: 1")
    job = world.runs_on(4, "K80")
    assert world.owns(job)
    half = f"{{type: k-half, nodes: [b1], devices: {devices}}}"
    foreseen = world.becomes(config(A1, A2, half, guaranteed="k-half: 1"))
    assert [loss.job for loss in foreseen.demoted] == [job]
    # Its owner may send it away.
    owner = world.submit(a_job().of("t").gpus(2).types("K80"))
    world.cycle()
    assert world.is_(job) is JobState.STOPPING
    world.ends(job, 143)
    world.cycle()
    assert world.owns(owner)


def test_a_job_that_lies_beside_a_cell_makes_room_on_its_host() -> None:
    world = There(guaranteed="k: 1")
    full = world.submit(a_job().of("t").gpus(2).types("K80").cpus(22))
    world.cycle()
    world.runs(full)
    gang = world.state.cluster.gangs[full]
    beside = sorted({0, 1, 2, 3} - set(gang.slots[0].devices))
    half = f"{{type: k-half, nodes: [b1], devices: [{beside}]}}"
    world.becomes(config(A1, A2, half, guaranteed="k-half: 1"))
    assert not world.owns(full)
    owner = world.submit(a_job().of("t").gpus(2).types("K80").cpus(12))
    world.cycle()
    assert world.is_(full) is JobState.STOPPING
    world.ends(full, 143)
    world.cycle()
    assert world.owns(owner)


def test_a_gang_over_two_chains_borrows() -> None:
    world = There(guaranteed="v: 2")
    job = world.submit(a_job().of("t").tasks(2).gpus(4).types("V100"))
    other = world.submit(a_job().of("t").tasks(2).gpus(4).types("V100"))
    world.cycle()
    wide = world.submit(a_job().of("t").tasks(2).gpus(8).types("V100"))
    for each in (job, other):
        world.runs(each)
        world.ends(each)
    world.cycle()
    assert {slot.node for slot in world.state.cluster.gangs[wide].slots} == {0, 1}
    halves = "{type: v-half, nodes: [a1], devices: [[0, 1, 2, 3]]}"
    world.becomes(config(halves, A2, B1, guaranteed="v: 1"))
    assert not world.owns(wide)
    world.becomes(config("{type: v-half, nodes: [a1], devices: [[4, 5, 6, 7]]}", A2, B1))
    world.becomes(config(A2, A1, B1, guaranteed="v: 2"))
    assert world.owns(wide)


def test_a_suspended_gang_goes_on_where_it_is_though_its_cell_is_gone() -> None:
    world = There()
    job = world.runs_on(8, "V100")
    world.do(c.SuspendJob(job))
    world.becomes(config(A2, B1))
    assert world.is_(job) is JobState.SUSPENDED
    world.do(c.ResumeJob(job))
    world.cycle()
    assert world.is_(job) is JobState.RUNNING
    assert not world.owns(job)


def test_a_reserved_place_in_a_cell_that_goes_is_dropped() -> None:
    world = There(guaranteed="v: 2")
    borrowers = [world.runs_on(8, "V100", "u") for _ in range(2)]
    wide = world.submit(a_job().of("t").tasks(2).gpus(8).types("V100"))
    world.cycle()
    assert wide in world.state.cluster.reserved
    foreseen = world.becomes(config(A2, B1, guaranteed="v: 1"))
    assert foreseen.unreserved == (wide,)
    assert wide not in world.state.cluster.reserved
    for job in borrowers:
        world.ends(job, 143)
    world.cycle()


def test_a_node_of_another_type_keeps_who_runs_there() -> None:
    world = There(guaranteed="k: 1")
    job = world.runs_on(4, "K80")
    t4 = "{type: t, nodes: [b1]}"
    foreseen = world.becomes(config(A1, A2, t4, guaranteed="t: 1", b1="T4"))
    assert foreseen.refusal == ""
    assert world.is_(job) is JobState.RUNNING


def test_a_configuration_without_cells_and_back() -> None:
    world = There(guaranteed="k: 1")
    job = world.runs_on(4, "K80")
    nodes, _, _ = (HEAD % {"roots": "", "guaranteed": "", "b1": "K80"}).partition("cells:")
    world.becomes(read(nodes + "tenants: {t: {guaranteed: {gpu: 4}}}\n"))
    assert world.is_(job) is JobState.RUNNING
    world.becomes(config(A1, A2))
    assert not world.owns(job)
    world.becomes(config(A1, A2, B1, guaranteed="k: 1"))
    assert world.owns(job)

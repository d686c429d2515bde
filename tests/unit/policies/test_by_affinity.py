"""Affinity: which node a gang goes to, whose turn it takes, and which goes where it is idle."""

from collections.abc import Sequence
from functools import partial

import pytest
from msgspec.structs import replace

from allotment.engine.engine import Engine
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model.cluster import Node
from allotment.model.gains import MoveFor
from allotment.model.ids import AttemptNo, JobId, NodeId
from allotment.model.lifecycle import JobState as S
from allotment.model.quantity import MINUTE, SECOND, Millis
from allotment.model.reports import NodeReport, PaceReport
from allotment.model.spec import Arch, GiveWay
from allotment.model.tenancy import QueueOrder, RankBy, Tenant
from allotment.policies.rescheduling.by_affinity import Residents, by_affinity
from allotment.policies.rescheduling.migrating import ran_for_long
from allotment.wiring.policies import policies as live_policies
from tests.support.builders import NOW, POLICIES, JobBuilder, a_config, a_job, a_node, a_tenant
from tests.support.world import World

SLICE = Millis(60 * SECOND)


def us(devices: float, slice_ms: Millis = SLICE, *, affine: bool = True) -> Tenant:
    tenant = a_tenant("us", devices, order=QueueOrder.SKIP)
    queues = tuple(
        replace(queue, time_slice_ms=slice_ms, rank=RankBy.ROUND_ROBIN, by_affinity=affine)
        for queue in tenant.queues
    )
    return replace(tenant, queues=queues)


class Affine(World):
    """Nodes whose queue takes turns by affinity; gangs take no time to start."""

    def __init__(
        self,
        nodes: int = 4,
        devices: int = 4,
        made: Sequence[Node] = (),
        slice_ms: Millis = SLICE,
        *,
        affine: bool = True,
    ) -> None:
        maker = partial(by_affinity, worth=ran_for_long)
        self.engine = Engine(State(replace(POLICIES, rescheduler=maker)))
        self.now, self.log, self.effects = NOW, [], []
        count = sum(len(node.devices) for node in made) or nodes * devices
        config = a_config(us(count, slice_ms, affine=affine), nodes=nodes, devices=devices)
        self.do(c.ApplyConfig(replace(config, nodes=tuple(made)) if made else config))

    def comes(self, devices: int, tasks: int = 1) -> JobId:
        """A job comes, and starts if it may."""
        return self.started(a_job().tasks(tasks).gpus(devices))

    def started(self, builder: JobBuilder) -> JobId:
        job = self.submit(builder.of("us").retry(0))
        self.cycle()
        self.all_start()
        return job

    def all_start(self) -> None:
        for job in sorted(self.state.cluster.gangs):
            if self.is_(job) is S.STARTING:
                self.runs(job)

    def later(self, ms: int) -> None:
        self.wait(ms)
        self.cycle()
        self.all_start()

    def on(self, job: JobId) -> int:
        """Return the node that a gang is on."""
        (node,) = {int(slot.node) for slot in self.state.cluster.gangs[job].slots}
        return node

    def by_node(self) -> dict[int, list[int]]:
        """Return the sizes of the gangs on each node, suspended ones too."""
        found: dict[int, list[int]] = {}
        for job, gang in sorted(self.state.cluster.gangs.items()):
            found.setdefault(self.on(job), []).append(sum(len(s.devices) for s in gang.slots))
        return found


def test_on_sixteen_devices_each_size_has_servers_of_its_own_and_load_is_balanced() -> None:
    """Four servers of four: jobs of 1, 2 and 4 devices come in turn, and more than fit."""
    world = Affine()
    first = [world.comes(size) for size in (1, 2, 4, 1, 2, 1)]
    assert world.by_node() == {0: [1, 1, 1], 1: [2, 2], 2: [4]}
    more = [world.comes(1) for _ in range(3)]
    assert world.by_node() == {0: [1] * 4, 1: [2, 2], 2: [4], 3: [1, 1]}
    world.ends(first[0])
    world.ends(first[3])
    world.ends(more[1])
    assert world.by_node() == {0: [1, 1], 1: [2, 2], 2: [4], 3: [1]}
    more += [world.comes(1), world.comes(1)]
    assert [world.on(job) for job in more[3:]] == [3, 0], "the least loaded of its own first"
    assert world.by_node() == {0: [1] * 3, 1: [2, 2], 2: [4], 3: [1, 1]}
    for _ in range(3):
        more.append(world.comes(1))
    assert world.by_node() == {0: [1] * 4, 1: [2, 2], 2: [4], 3: [1] * 4}
    # All is in use: each takes its turn where jobs of its own size are.
    late = {size: world.submit(a_job().gpus(size).of("us")) for size in (4, 2, 1)}
    world.later(SLICE)
    assert {size: world.on(job) for size, job in late.items()} == {4: 2, 2: 1, 1: 0}
    assert world.is_(first[2]) is S.SUSPENDED
    assert world.by_node() == {0: [1] * 5, 1: [2] * 3, 2: [4] * 2, 3: [1] * 4}
    another = world.submit(a_job().gpus(1).of("us"))
    world.later(0)
    assert world.on(another) == 3, "node 0 has five already"


def test_an_empty_server_comes_before_room_beside_jobs_of_another_size() -> None:
    world = Affine(nodes=2)
    world.comes(1)
    world.comes(2)
    assert world.by_node() == {0: [1], 1: [2]}
    assert world.on(world.comes(2)) == 1
    assert world.on(world.comes(2)) == 0, "better beside another size than in turns"


def test_a_server_has_the_affinity_of_the_job_that_was_there_first() -> None:
    world = Affine(nodes=2)
    one = world.comes(1)
    world.comes(4)
    two = world.comes(2)
    rescheduler = world.state.cluster.rescheduler
    assert rescheduler is not None
    residents = rescheduler.order
    assert isinstance(residents, Residents)
    assert (world.on(two), residents.affinity(NodeId(0))) == (0, 1000)
    world.ends(one)
    assert residents.affinity(NodeId(0)) == 2000
    world.ends(two)
    assert residents.affinity(NodeId(0)) == 0


def test_a_suspended_job_goes_to_devices_that_became_free() -> None:
    world = Affine(nodes=2, devices=1)
    first, second, third = world.comes(1), world.comes(1), world.comes(1)
    world.later(SLICE)
    assert (world.is_(first), world.on(third)) == (S.SUSPENDED, 0)
    world.ends(second)
    world.cycle()
    stop = world.job(first).attempts[-1].stop
    assert stop is not None
    assert stop.wanted_by == first
    world.ends(first, 143)
    world.later(0)
    assert (world.is_(first), world.on(first)) == (S.RUNNING, 1)
    assert (world.is_(third), world.job(first).used_retries) == (S.RUNNING, 0)


def test_what_leaves_its_turns_is_predicted_to_have_all_of_its_rate() -> None:
    tenant = us(2, affine=False)
    queues = tuple(replace(queue, migrates=True) for queue in tenant.queues)
    world = Affine(2, 1)
    config = a_config(replace(tenant, queues=queues), nodes=2, devices=1)
    world.do(c.ApplyConfig(config))
    first, other = world.comes(1), world.comes(1)
    late = world.started(a_job().gpus(1).weight(3))
    world.tell(PaceReport(first, AttemptNo(1), 1, 1_000))
    world.later(SLICE)
    assert (world.is_(first), world.is_(late)) == (S.SUSPENDED, S.RUNNING)
    world.ends(other)
    world.later(SECOND)
    stop = world.job(first).attempts[-1].stop
    assert stop is not None
    assert stop.gain is not None
    told = stop.gain.rate, stop.gain.expected, stop.gain.why
    assert told == (250, 1_000, MoveFor.IDLE), "one turn in four is its own"


def test_of_suspended_jobs_that_of_the_most_crowded_server_goes() -> None:
    world = Affine(nodes=3, devices=1)
    for _ in range(6):
        world.comes(1)
    world.later(SLICE)
    world.submit(a_job().gpus(1).of("us"))
    world.later(SLICE)
    world.later(SLICE)
    assert world.by_node() == {0: [1] * 3, 1: [1] * 2, 2: [1] * 2}
    gone = [job for job in world.state.cluster.gangs if world.on(job) == 2]
    for job in sorted(gone, key=lambda job: world.is_(job) is S.RUNNING):
        if world.is_(job) is S.SUSPENDED:
            world.do(c.CancelJob(job))
            world.ends(job, 143)
        else:
            world.ends(job)
    world.cycle()
    (told,) = world.state.cluster.placed.leaving
    assert world.on(told) == 0
    assert world.state.cluster.reserved[told].slots[0].node == 2
    world.ends(told, 143)
    world.later(0)
    assert (world.is_(told), world.on(told)) == (S.RUNNING, 2)


@pytest.mark.parametrize(
    "kept", [a_job().not_preemptible(), a_job().giving_way(GiveWay.CANCEL)]
)
def test_a_job_that_is_not_to_be_sent_away_keeps_its_devices(kept: JobBuilder) -> None:
    world = Affine(nodes=2, devices=1)
    first, second = world.started(kept.gpus(1)), world.comes(1)
    world.submit(a_job().gpus(1).of("us"))
    world.later(SLICE)
    world.ends(second)
    world.cycle()
    assert world.job(first).attempts[-1].stop is None


def test_a_suspended_job_stays_with_devices_of_its_type() -> None:
    world = Affine(made=(a_node(0, 1, "A100"), a_node(1, 1, "V100")))
    first, second = world.comes(1), world.comes(1)
    world.submit(a_job().gpus(1).of("us"))
    world.later(SLICE)
    assert world.is_(first) is S.SUSPENDED
    world.ends(second)
    world.cycle()
    assert world.job(first).attempts[-1].stop is None


def test_nodes_that_cannot_serve_are_no_choice() -> None:
    arm = replace(a_node(1, 4), arch=Arch.ARM64)
    world = Affine(made=(a_node(0, 4), arm, a_node(2, 4)))
    world.comes(1)
    world.do(c.DrainNode(NodeId(0)))
    plain = a_job().arch(Arch.X86_64).gpus(2)
    assert world.on(world.started(plain)) == 2


def test_what_no_server_can_hold_starts_as_ever() -> None:
    world = Affine(nodes=2)
    wide = world.comes(1, tasks=8)
    assert len({slot.node for slot in world.state.cluster.gangs[wide].slots}) == 2
    world.ends(wide)
    assert world.on(world.comes(0)) == 0


def test_a_queue_may_go_by_affinity_and_take_no_turns() -> None:
    world = Affine(nodes=2, slice_ms=Millis(0))
    world.comes(1)
    world.comes(2)
    assert world.by_node() == {0: [1], 1: [2]}
    world.comes(4)
    assert world.by_node() == {0: [1], 1: [2]}, "it waits"


def test_queues_that_say_nothing_of_it_go_by_no_affinity() -> None:
    world = Affine(nodes=2, slice_ms=Millis(0), affine=False)
    assert world.state.cluster.rescheduler is None
    turns = Affine(nodes=2, affine=False)
    turns.comes(1)
    turns.comes(2)
    assert turns.by_node() == {0: [1, 2]}


def test_when_a_server_is_lost_its_jobs_go_to_their_own_kind() -> None:
    world = Affine(nodes=3)
    world.comes(1)
    two = world.comes(2)
    world.comes(1)
    assert world.by_node() == {0: [1, 1], 1: [2]}
    world.tell(NodeReport(NodeId(0), alive=False, reason="failure"))
    world.cycle()
    world.wait(10 * MINUTE)
    world.cycle()
    world.all_start()
    assert (world.by_node(), world.on(two)) == ({1: [2], 2: [1, 1]}, 1)


def test_the_live_service_makes_it_where_a_queue_says_so() -> None:
    world = Affine(nodes=2)
    world.engine = Engine(State(live_policies()))
    world.do(c.ApplyConfig(a_config(us(8), nodes=2, devices=4)))
    world.comes(1)
    world.comes(2)
    assert world.by_node() == {0: [1], 1: [2]}

"""Who may pass a job that waits, in EASY and in conservative order, played out to the start.

Run times are in minutes and are kept. Each test plays the same twice: with a long job that
comes last and would be in the way, and without it.
"""

from collections.abc import Sequence

import msgspec
import pytest

from allotment.model import commands as c
from allotment.model.ids import JobId, NodeId
from allotment.model.lifecycle import JobState as S
from allotment.model.quantity import MINUTE, Instant
from allotment.model.reports import NodeReport
from allotment.model.tenancy import Config, QueueOrder
from tests.support.builders import JobBuilder, a_config, a_job, a_node, a_tenant
from tests.support.cells import cell_config
from tests.support.world import World

ORDERS = [QueueOrder.EASY, QueueOrder.CONSERVATIVE]
Runs = tuple[JobBuilder, int]

ONE_CELL = """\
hardware: ["4 x 8xV100 in racks of 2"]
tenants:
  vision: {{cells: {{8xV100-node: 1}}, borrow: false, queues: {{default: {{order: {}}}}}}}
  nlp: {{cells: {{8xV100-node: 2}}}}
"""
PINNED = """\
hardware: ["4 x 8xV100 in racks of 2"]
cells: {{pins: [{{id: mine, type: 8xV100-node, node: n1}}]}}
tenants:
  vision:
    cells: {{8xV100-node: 1}}
    pins: [mine]
    borrow: false
    queues: {{default: {{order: {}}}}}
  nlp: {{cells: {{8xV100-node: 1}}}}
"""
CAPPED = """\
nodes:
  - {{name: n1, cpu: 64, memory: 512GiB, gpu: {{type: A100, count: 8}}}}
  - {{name: n2, cpu: 64, memory: 512GiB, gpu: {{type: V100, count: 8}}}}
tenants:
  vision:
    guaranteed: {{gpu: 16}}
    borrow: false
    queues: {{default: {{order: {}, limit: {{gpu_by_type: {{V100: 4}}}}}}}}
"""


class Play(World):
    """A world in which jobs start, make way and end by themselves."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.begun: dict[JobId, int] = {}
        self.runs_ms: dict[JobId, int] = {}
        self.since = self.now

    def come(self, *jobs: Runs) -> list[JobId]:
        """Let jobs come one by one, each seen to before the next comes."""
        ids: list[JobId] = []
        for job, minutes in jobs:
            ids.append(self.submit(job.within(run_ms=minutes * MINUTE)))
            self.runs_ms[ids[-1]] = minutes * MINUTE
            self.settle()
        return ids

    def settle(self) -> None:
        moved = True
        while moved:
            self.cycle()
            moved = False
            for job in [*self.runs_ms]:
                if self.is_(job) is S.STARTING:
                    self.runs(job)
                    self.begun[job], moved = self.now, True
                elif self.is_(job) is S.STOPPING:
                    self.ends(job)
                    moved = True

    def starts(self, job: JobId) -> float:
        """Return the minute in which a job starts."""
        while job not in self.begun:
            running = [each for each in self.begun if self.is_(each) is S.RUNNING]
            ends = {each: self.begun[each] + self.runs_ms[each] for each in running}
            self.now = Instant(min(ends.values()))
            for each in running:
                if ends[each] == self.now:
                    self.ends(each)
            self.wait(0)
            self.settle()
        return (self.begun[job] - self.since) / MINUTE


def head_starts(config: Config, before: Sequence[Runs], head: Runs, last: Runs) -> list[float]:
    """Return when the head starts without the job that comes last, and with it."""
    found: list[float] = []
    for behind in ((), (last,)):
        play = Play(config)
        play.come(*before)
        waits = play.come(head)[0]
        play.come(*behind)
        found.append(play.starts(waits))
    return found


def gpus(devices: float) -> JobBuilder:
    return a_job().of("vision").gpus(devices).cpus(0)


def mixed(order: QueueOrder, devices: int = 32) -> Config:
    """A machine of A100 and one of H100."""
    config = a_config(a_tenant("vision", devices, order=order, borrow=False))
    nodes = (a_node(0, 8, "A100"), a_node(1, 8, "H100"))
    return msgspec.structs.replace(config, nodes=nodes)


@pytest.mark.parametrize("order", ORDERS)
def test_what_is_left_of_a_shared_device_counts(order: QueueOrder) -> None:
    config = a_config(a_tenant("vision", 2, order=order, borrow=False), devices=2)
    before = [(gpus(0.5), 1), (gpus(1), 10)]
    assert head_starts(config, before, (gpus(1), 1), (gpus(0.5), 5)) == [1, 1]


@pytest.mark.parametrize("order", ORDERS)
def test_what_is_left_of_a_shared_leaf_counts(order: QueueOrder) -> None:
    config = cell_config(ONE_CELL.format(order))
    before = [(gpus(0.5), 1), (gpus(2), 10)]
    assert head_starts(config, before, (gpus(6), 1), (gpus(1), 5)) == [1, 1]


@pytest.mark.parametrize("order", ORDERS)
def test_a_job_that_borrows_is_gone_when_the_share_is_free(order: QueueOrder) -> None:
    tenants = a_tenant("vision", 8, order=order, borrow=False), a_tenant("nlp", 0)
    borrowed = [(a_job().of("nlp").gpus(devices), 10) for devices in (4, 6)]
    before = [(gpus(4), 1), *borrowed]
    head = gpus(2).tasks(4), 1
    assert head_starts(a_config(*tenants, nodes=2), before, head, (gpus(2), 5)) == [1, 1]


@pytest.mark.parametrize("order", ORDERS)
def test_who_may_have_more_types_does_not_pass_on_the_one_left_to_it(order: QueueOrder) -> None:
    config = cell_config(CAPPED.format(order))
    before = [(gpus(4).types("V100"), 100), (gpus(4).types("A100"), 10)]
    last = gpus(4).types("V100", "A100"), 50
    assert head_starts(config, before, (gpus(8).types("A100"), 1), last) == [10, 10]


@pytest.mark.parametrize("order", ORDERS)
def test_a_gang_on_several_types_takes_no_more_than_is_to_spare(order: QueueOrder) -> None:
    before, head = [(gpus(2).types("A100"), 1)], (gpus(7).types("A100"), 1)
    assert head_starts(mixed(order), before, head, (gpus(1).tasks(9), 50)) == [1, 1]


@pytest.mark.parametrize("order", ORDERS)
def test_a_job_that_is_gone_in_time_passes_though_a_longer_one_of_its_shape_may_not(
    order: QueueOrder,
) -> None:
    play = Play(mixed(order))
    play.come((gpus(4).types("A100"), 10), (gpus(8).types("H100"), 9))
    either = gpus(4).types("A100", "H100")
    jobs = play.come((gpus(8).types("A100"), 1), (either, 50), (either, 5))
    assert [play.is_(job) for job in jobs] == [S.QUEUED, S.QUEUED, S.RUNNING]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("pinned", [True, False])
def test_pinned_cells_and_others_are_counted_apart(order: QueueOrder, pinned: bool) -> None:
    """Who waits for the one holds up nobody who has room in the others."""

    def of(devices: int, *, pin: bool) -> JobBuilder:
        return gpus(devices).pinned("mine") if pin else gpus(devices)

    play = Play(cell_config(PINNED.format(order)))
    play.come((of(8, pin=pinned), 10))
    jobs = play.come((of(8, pin=pinned), 1), (of(4, pin=not pinned), 50))
    assert [play.is_(job) for job in jobs] == [S.QUEUED, S.RUNNING]


@pytest.mark.parametrize("pin", [True, False])
def test_in_conservative_order_pinned_cells_are_promised_too(pin: bool) -> None:
    config = cell_config(PINNED.format(QueueOrder.CONSERVATIVE))
    mine = gpus(4).pinned("mine")
    before = [(gpus(8), 10), (mine, 2), (gpus(4), 1)]
    last = (mine if pin else gpus(1), 8)
    assert head_starts(config, before, (gpus(8).pinned("mine"), 1), last) == [2, 2]


def test_in_conservative_order_a_drained_pinned_cell_holds_up_no_others() -> None:
    play = Play(cell_config(PINNED.format(QueueOrder.CONSERVATIVE)))
    node = next(at for at, node in play.state.cluster.nodes.items() if node.name == "n1")
    play.do(c.DrainNode(node))
    jobs = play.come((gpus(4).pinned("mine"), 6), (gpus(4), 1), (gpus(4), 60))
    assert [play.is_(job) for job in jobs] == [S.QUEUED, S.RUNNING, S.RUNNING]


@pytest.mark.parametrize("order", ORDERS)
def test_a_job_that_waits_for_leaves_that_lie_together_is_passed_until_somebody_ends(
    order: QueueOrder,
) -> None:
    two = ONE_CELL.replace(
        "vision: {{cells: {{8xV100-node: 1}}", "vision: {{cells: {{8xV100-node: 2}}"
    )
    play = Play(cell_config(two.format(order)))
    play.come((gpus(5).tasks(2), 100))
    jobs = play.come((gpus(6), 60), (gpus(3), 1))
    assert [play.is_(job) for job in jobs] == [S.QUEUED, S.RUNNING]


# ── several types ───────────────────────────────────────────────────────────────────────

TWO_CHAINS = """\
hardware: ["4 x 1xV100 in racks of 1", "4 x 1xA100 in racks of 1"]
tenants:
  vision:
    cells: {{1xV100-node: {cells}, 1xA100-node: {cells}}}
    borrow: false
    queues: {{default: {{order: {order}}}}}
  nlp: {{}}
"""


def two_chains(order: QueueOrder, cells: int) -> Config:
    return cell_config(TWO_CHAINS.format(order=order, cells=cells))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("types", [("V100", "A100"), ()])
def test_a_job_that_passes_in_cells_goes_on_the_type_its_tenant_has_to_spare(
    order: QueueOrder, types: tuple[str, ...]
) -> None:
    play = Play(two_chains(order, 2))
    play.come((gpus(1).types("V100"), 10))
    head, last = play.come((gpus(1).tasks(2).types("V100"), 5), (gpus(1).types(*types), 60))
    assert (play.starts(last), play.starts(head)) == (0, 10)


@pytest.mark.parametrize("order", ORDERS)
def test_a_job_that_passes_in_cells_is_not_sent_to_those_of_others(order: QueueOrder) -> None:
    play = Play(two_chains(order, 2))
    play.come((gpus(1).tasks(2).types("V100"), 10))
    last = (gpus(1).types("V100", "A100"), 60)
    assert play.starts(play.come((gpus(1).tasks(2).types("V100"), 5), last)[1]) == 0


@pytest.mark.parametrize("order", ORDERS)
def test_a_gang_in_cells_waits_for_devices_of_one_type(order: QueueOrder) -> None:
    pair = gpus(1).tasks(2)
    before = [(pair.types("A100"), 10), (gpus(1).tasks(2).types("V100"), 30)]
    last = gpus(1).tasks(2).types("A100"), 60
    head = gpus(1).tasks(4), 5
    assert head_starts(two_chains(order, 4), before, head, last) == [10, 10]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("types", [("A100", "H100"), ("H100", "A100")])
def test_a_job_that_passes_takes_the_type_that_is_free_now(
    order: QueueOrder, types: tuple[str, ...]
) -> None:
    """Of the other there is enough to spare as well, but only when the first starts."""
    play = Play(mixed(order))
    play.come((gpus(8).types("A100"), 10))
    jobs = play.come((gpus(6).types("A100"), 10), (gpus(2).types(*types), 60))
    assert [play.is_(job) for job in jobs] == [S.QUEUED, S.RUNNING]


def test_in_easy_order_who_waits_for_a_drained_machine_leaves_idle_ones_to_others() -> None:
    play = Play(mixed(QueueOrder.EASY))
    play.do(c.DrainNode(next(iter(play.state.cluster.nodes))))
    jobs = play.come((gpus(8).types("A100"), 1), (gpus(1).types("H100"), 5))
    assert [play.is_(job) for job in jobs] == [S.QUEUED, S.RUNNING]


def test_in_conservative_order_a_job_that_fits_no_machine_any_longer_holds_up_none() -> None:
    tenant = a_tenant("vision", 99, order=QueueOrder.CONSERVATIVE)
    play = Play(a_config(tenant, nodes=3, devices=4))
    play.tell(NodeReport(NodeId(2), alive=False, reason="x"))
    play.come((gpus(2), 10), (gpus(4), 10), (gpus(3), 10), (gpus(4).tasks(3), 10))
    play.do(c.ApplyConfig(a_config(tenant, nodes=2, devices=4)))
    behind = play.come((gpus(1), 10))[0]
    assert behind in play.begun

"""Which waiting jobs a new configuration would keep from starting, by queue or tenant."""

import msgspec
import pytest

from allotment.engine.foresee import foresee
from allotment.model import commands as c
from allotment.model.tenancy import Config
from allotment.wire.config import read_config
from tests.support.builders import a_job
from tests.support.world import World

HEAD = "nodes: [{name: n1, cpu: 64, memory: 512GiB, gpu: {type: V100, count: 8}}]\ntenants:\n"
OTHER = "  other: {}\n"


def read(dev: str) -> Config:
    queues = f"train: {{}}, dev: {{{dev}}}"
    text = f"{HEAD}  lab: {{guaranteed: {{gpu: 8}}, queues: {{{queues}}}}}\n{OTHER}"
    return read_config(text.encode(), source="c.yaml", machine=None)[0]


@pytest.fixture
def world() -> World:
    """One of dev that runs, and of those that wait one with 1 device and one with 2."""
    world = World(read("limit: {gpu: 4}"))
    for gpus in (4, 1, 2):
        world.submit(a_job().of("lab", "dev").gpus(gpus))
    world.cycle()
    assert [job.state.waiting for job in world.state.jobs.values()] == [False, True, True]
    return world


def told(world: World, config: Config) -> dict[int, str]:
    image = msgspec.msgpack.encode(world.state.image())
    found = foresee(image, config, world.state, world.now)
    assert not found.refusal
    return {each.job: each.why for each in found.stuck}


def test_a_lower_limit_keeps_whoever_is_larger_for_ever(world: World) -> None:
    assert told(world, read("limit: {gpu: 1}")) == {
        3: "it needs 2 GPUs, and queue dev may hold 1 GPU at once"
    }


def test_a_stopped_queue_keeps_all_that_wait_in_it(world: World) -> None:
    why = "queue dev is stopped"
    assert told(world, read("limit: {gpu: 4}, state: stopped")) == {2: why, 3: why}
    assert told(world, read("limit: {gpu: 1}, state: stopped, max_jobs: 1")) == {
        2: why,
        3: "it needs 2 GPUs, and queue dev may hold 1 GPU at once",
    }


def test_a_queue_without_a_place_for_any_job_keeps_all(world: World) -> None:
    why = "it needs 1 job, and queue dev may hold 0 jobs at once"
    assert told(world, read("limit: {gpu: 4}, max_jobs: 0")) == {2: why, 3: why}


def test_the_jobs_of_a_tenant_that_goes_would_wait_for_ever(world: World) -> None:
    config = read_config((HEAD + OTHER).encode(), source="c.yaml", machine=None)[0]
    why = "tenant lab is not in the configuration"
    assert told(world, config) == {2: why, 3: why}


def test_a_job_that_is_kept_already_is_not_told_again(world: World) -> None:
    stopped = read("limit: {gpu: 4}, state: stopped")
    world.do(c.ApplyConfig(stopped))
    assert told(world, stopped) == {}
    assert told(world, read("limit: {gpu: 4}")) == {}


# ── beyond the share ────────────────────────────────────────────────────────────────────


def lab(share: str) -> Config:
    text = f"{HEAD}  lab: {{{share}}}\n{OTHER}"
    return read_config(text.encode(), source="c.yaml", machine=None)[0]


def test_a_job_that_may_not_borrow_is_kept_by_a_smaller_share() -> None:
    world = World(lab("guaranteed: {gpu: 4}"))
    world.submit(a_job().of("lab").gpus(8))  # so that the others wait
    for job in (a_job().gpus(4).not_preemptible(), a_job().gpus(7), a_job().gpus(1)):
        world.cycle()
        world.submit(job.of("lab"))
    kept = "it is larger than its tenant's cells, and "
    assert told(world, lab("guaranteed: {gpu: 2}, borrow: false")) == {
        2: f"{kept}its tenant may not borrow",
        3: f"{kept}its tenant may not borrow",
    }
    assert told(world, lab("guaranteed: {gpu: 2}")) == {
        2: f"{kept}with `preemptible: false` it may not borrow"
    }
    assert told(world, lab("guaranteed: {gpu: 4}")) == {}


CELLS = """\
nodes:
  - {names: [n1, n2], cpu: 16, memory: 64GiB, gpu: {type: V100, count: 4}}
cells:
  types:
    switch: {of: V100, count: 2}
    node: {of: switch, count: 2, node: true}
  roots: [{type: node, nodes: [n1]}, {type: node, nodes: [n2]}]
  pins: [{id: own, type: switch, node: n2, device: 2}]
tenants:
  lab: {cells: {switch: %s}, pins: [%s]}
  other: {}
"""


def in_cells(switches: int, pin: str = "own") -> Config:
    text = CELLS % (switches, pin)
    return read_config(text.encode(), source="c.yaml", machine=None)[0]


def test_a_job_that_may_not_borrow_cells_is_not_said_to_borrow() -> None:
    world = World(in_cells(2))
    held = [
        world.submit(job.of("lab"), held=True)
        for job in (
            a_job().gpus(2).pinned("own"),
            a_job().gpus(4).not_preemptible(),
            a_job().gpus(4),
        )
    ]
    image = msgspec.msgpack.encode(world.state.image())
    found = foresee(image, in_cells(1, pin=""), world.state, world.now)
    assert {each.job: each.why for each in found.stuck} == {
        held[0]: "it is pinned to own, which its tenant does not have",
        held[1]: "it is larger than its tenant's cells, and with `preemptible: false` it "
        "may not borrow",
    }
    assert found.borrowing == (held[2],)
    world.do(c.ApplyConfig(in_cells(1, pin="")))
    world.do(c.ReleaseJob(held[0]))
    world.cycle()
    assert world.why(held[0]).message == (
        "Its pinned cell is gone, and with `pin` it runs nowhere else."
    )

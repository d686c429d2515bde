"""What each tenant deserves of what there is now, and who is starved."""

import pytest
from msgspec.structs import replace

from allotment.cli.fairness import verdict
from allotment.model import commands as c
from allotment.model.ids import NodeId
from allotment.model.quantity import GIB, Resources
from allotment.model.tenancy import Config
from allotment.service.fairness import ask, weigh
from allotment.service.fairness_view import Served, TenantFairness
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.world import World

MINUTE = 60_000


def of(world: World) -> dict[str, TenantFairness]:
    return {each.tenant: each for each in weigh(ask(world.state, world.now)).tenants}


def gpus(amount: Resources) -> float:
    return amount.gpu_milli / 1000


@pytest.fixture
def config() -> Config:
    """Sixteen devices: a is guaranteed 8, b 4, c nothing."""
    return a_config(a_tenant("a", 8), a_tenant("b", 4), a_tenant("c"), nodes=2)


def test_an_idle_cluster_owes_nobody_anything(config: Config) -> None:
    for each in of(World(config)).values():
        assert (each.deserved, each.used, each.served) == (
            Resources(),
            Resources(),
            Served.EVEN,
        )
        assert (each.deserved_ppm, each.eligible, each.starved_ms) == (0, 0, 0)


def test_nobody_deserves_more_than_it_wants(config: Config) -> None:
    world = World(config)
    job = world.submit(a_job().gpus(2).of("a"))
    world.cycle()
    found = of(world)
    assert gpus(found["a"].deserved) == gpus(found["a"].used) == 2
    assert found["a"].deserved_ppm == found["a"].used_ppm == 125_000
    assert found["a"].served is Served.EVEN
    world.runs(job)
    world.ends(job)
    assert gpus(of(world)["a"].deserved) == 0


def test_a_tenant_of_twice_the_weight_deserves_twice_as_much() -> None:
    heavy = replace(a_tenant("a"), weight_milli=2000)
    world = World(a_config(heavy, a_tenant("b"), nodes=1, devices=6))
    for name in ("a", "b"):
        for _ in range(6):
            world.submit(a_job().gpus(1).of(name))
    found = of(world)
    assert (gpus(found["a"].deserved), gpus(found["b"].deserved)) == (4, 2)


def test_guarantees_are_floors_and_the_rest_is_divided(config: Config) -> None:
    """c took all that was idle; when b comes c deserves but the rest."""
    world = World(config)
    for _ in range(16):
        world.submit(a_job().gpus(1).of("c"))
    world.cycle()
    assert of(world)["c"].served is Served.EVEN
    assert gpus(of(world)["c"].borrowed) == 16
    for tenant in "ab":
        for _ in range(12):
            world.submit(a_job().gpus(1).of(tenant))
    found = of(world)
    assert {name: gpus(each.deserved) for name, each in found.items()} == {
        "a": 8,
        "b": 4,
        "c": 4,
    }
    assert {name: each.served for name, each in found.items()} == {
        "a": Served.STARVED, "b": Served.STARVED, "c": Served.OVER,
    }  # fmt: skip
    assert (found["c"].used_ppm, found["c"].deserved_ppm) == (1_000_000, 250_000)
    assert (gpus(found["a"].lent), gpus(found["b"].lent)) == (8, 4)


def test_for_how_long_it_is_starved(config: Config) -> None:
    world = World(config)
    for _ in range(4):
        world.submit(a_job().gpus(8).of("c"))
    world.cycle()
    assert (of(world)["c"].served, of(world)["c"].eligible) == (Served.EVEN, 2)
    world.submit(a_job().gpus(2).of("b"))
    world.wait(5 * MINUTE)
    world.submit(a_job().gpus(2).of("b"))
    world.wait(MINUTE)
    found = of(world)
    assert [found[name].served for name in "bc"] == [Served.STARVED, Served.OVER]
    assert (found["b"].starved_jobs, found["b"].starved_ms) == (2, 6 * MINUTE)
    assert (found["b"].starved_job, found["c"].starved_job) == (5, None)


def test_up_to_a_job_nobody_is_starved() -> None:
    """Both deserve 4; what a waits with does not fit in the rest of that."""
    world = World(a_config(a_tenant("a"), a_tenant("b")))
    world.submit(a_job().gpus(3).of("a"))
    for _ in range(5):
        world.submit(a_job().gpus(1).of("b"))
    world.cycle()
    world.submit(a_job().gpus(3).of("a"))
    found = of(world)
    assert [(gpus(found[name].used), gpus(found[name].deserved)) for name in "ab"] == [
        (3, 4),
        (5, 4),
    ]
    assert [found[name].served for name in "ab"] == [Served.UNDER, Served.OVER]
    assert found["a"].starved_ms == 0
    assert gpus(found["a"].smallest) == 3


def test_who_has_nothing_of_its_quarter_is_not_called_served() -> None:
    """Its only job is for more than it is guaranteed, and others have all there is."""
    world = World(a_config(a_tenant("a", 2), a_tenant("b", 6)))
    world.submit(a_job().gpus(8).of("b"))
    world.cycle()
    world.submit(a_job().gpus(4).of("a"))
    report = weigh(ask(world.state, world.now))
    found = {each.tenant: each for each in report.tenants}["a"]
    assert (found.used_ppm, found.deserved_ppm, found.served) == (0, 250_000, Served.UNDER)
    words = verdict(report)
    assert words[0].startswith(
        "a has 0% of the 25% it deserves: the rest is too little for its waiting "
        "jobs, the smallest of which asks for 4 GPU"
    )
    assert "Every tenant gets its share" not in " ".join(words)
    assert words[-2].startswith("No tenant is starved")


def test_what_may_not_be_evicted_deserves_the_guarantee_at_most(config: Config) -> None:
    world = World(config)
    for _ in range(2):
        world.submit(a_job().gpus(4).of("b").not_preemptible())
    world.cycle()
    found = of(world)["b"]
    assert (gpus(found.used), gpus(found.wanted), gpus(found.deserved)) == (4, 8, 4)
    assert (found.served, found.eligible) == (Served.EVEN, 1)


def test_held_and_dependent_jobs_ask_for_nothing(config: Config) -> None:
    world = World(config)
    job = world.submit(a_job().gpus(8).of("a"))
    world.do(c.HoldJob(job))
    found = of(world)["a"]
    assert (gpus(found.wanted), gpus(found.deserved), found.eligible) == (0, 0, 0)


def test_who_has_the_most_that_one_user_may_have_asks_for_no_more() -> None:
    capped = replace(a_tenant("a", 8), per_user=Resources(gpu_milli=2000))
    world = World(a_config(capped))
    for _ in range(3):
        world.submit(a_job().gpus(1).of("a"))
    assert (of(world)["a"].served, of(world)["a"].eligible) == (Served.STARVED, 3)
    world.cycle()
    found = of(world)["a"]
    assert (gpus(found.used), gpus(found.deserved), found.eligible) == (2, 2, 0)
    assert found.served is Served.EVEN


def test_who_may_not_borrow_deserves_its_guarantee_at_most() -> None:
    world = World(a_config(a_tenant("a", 2, borrow=False), a_tenant("b", 2)))
    for tenant in "ab":
        for _ in range(8):
            world.submit(a_job().gpus(1).of(tenant))
    found = of(world)
    assert (gpus(found["a"].deserved), gpus(found["b"].deserved)) == (2, 6)


def test_opportunistic_jobs_have_no_guarantee() -> None:
    world = World(a_config(a_tenant("a", 6), a_tenant("b")))
    for _ in range(8):
        world.submit(a_job().gpus(1).of("a").opportunistic())
        world.submit(a_job().gpus(1).of("b"))
    found = of(world)
    assert (gpus(found["a"].deserved), gpus(found["b"].deserved)) == (4, 4)


def test_work_on_hosts_and_work_on_devices_do_not_hinder_each_other() -> None:
    """a's CPU jobs do not take from what its GPU job deserves."""
    world = World(a_config(a_tenant("a", 4), a_tenant("b", 4)))
    world.submit(a_job().gpus(4).of("a"))
    world.submit(a_job().cpus(40).of("a"))
    world.submit(a_job().cpus(40).of("a"))
    world.submit(a_job().gpus(8).of("b"))
    found = of(world)["a"]
    assert gpus(found.deserved) == 4
    assert found.starved_jobs >= 1


def test_work_that_asks_for_no_disk_is_not_cut_where_the_disk_ran_out() -> None:
    """a may not borrow, and its disk is used up; its devices are its own all the same."""
    guaranteed = replace(a_tenant("a", 4).guaranteed, disk=100 * GIB)
    world = World(a_config(replace(a_tenant("a", borrow=False), guaranteed=guaranteed)))
    for _ in range(2):
        world.submit(a_job().gpus(1).disk(100 * GIB).of("a"))
    job = world.submit(a_job().gpus(2).of("a"))
    world.cycle()
    world.runs(job)
    assert gpus(of(world)["a"].deserved) == 3


def test_the_dominant_resource_decides() -> None:
    """By memory a has half of the machine, and that is its share."""
    world = World(a_config(a_tenant("a"), a_tenant("b")))
    job = world.submit(a_job().gpus(1).memory(256 * GIB).of("a"))
    world.cycle()
    world.runs(job)
    assert of(world)["a"].used_ppm == 500_000


def test_machines_that_take_no_work_are_not_divided(config: Config) -> None:
    world = World(config)
    world.do(c.DrainNode(NodeId(1)))
    for tenant in "bc":
        for _ in range(16):
            world.submit(a_job().gpus(1).of(tenant))
    found = weigh(ask(world.state, world.now))
    assert gpus(found.capacity) == 8
    assert [gpus(each.deserved) for each in found.tenants] == [0, 4, 4]


def test_suspended_work_wants_its_devices_back_only_when_it_is_told_to_go_on(
    config: Config,
) -> None:
    world = World(config)
    job = world.submit(a_job().gpus(8).of("a"))
    world.cycle()
    world.runs(job)
    world.do(c.SuspendJob(job))
    assert gpus(of(world)["a"].deserved) == 0
    world.do(c.ResumeJob(job))
    assert gpus(of(world)["a"].deserved) == 8


def test_a_cut_share_is_rounded_down() -> None:
    world = World(a_config(*(a_tenant(name) for name in "abc")))
    for name in "abc":
        for _ in range(8):
            world.submit(a_job().gpus(1).of(name))
    assert [each.deserved.gpu_milli for each in of(world).values()] == [2666] * 3


def test_a_tenant_that_was_removed_is_shown_while_jobs_of_it_are_here(config: Config) -> None:
    world = World(config)
    runs = world.submit(a_job().gpus(6).tasks(2).of("a"))
    world.cycle()
    world.runs(runs)
    waits = world.submit(a_job().gpus(8).of("a"))
    world.do(c.ApplyConfig(a_config(a_tenant("b", 4), nodes=2)))
    found = of(world)["a"]
    assert (gpus(found.used), gpus(found.borrowed), gpus(found.guaranteed)) == (12, 12, 0)
    assert (gpus(found.wanted), found.eligible) == (20, 1)
    world.ends(runs)
    assert gpus(of(world)["a"].used) == 0
    world.do(c.CancelJob(waits))
    assert "a" not in of(world)

"""Turns where tenants are guaranteed numbers of devices, not machines."""

from allotment.model.quantity import DEVICE, Resources
from allotment.model.tenancy import Tenant
from allotment.sim.cluster import cluster_of
from allotment.sim.run import simulate
from allotment.sim.scenario import Owners, Scenario
from allotment.sim.trace import Trace, TraceJob


def test_a_gang_goes_whose_share_is_needed_though_its_devices_are_not() -> None:
    # b is guaranteed two devices, and a large young job of its must have both. Where its old
    # job sits nobody needs the device; it has to go all the same.
    nodes = cluster_of("2x2")
    each = nodes[0].total()
    owners = Owners(tuple(Tenant(name, each, borrow=False) for name in "ab"))
    rows = (
        (0, 10_000_000, 1, "a"),
        (500_000, 10_000_000, 1, "b"),
        (1_000_000, 1_000_000, 2, "b"),
    )
    jobs = tuple(
        TraceJob(str(at), came, runs, 1, Resources(gpu_milli=devices * DEVICE), tenant)
        for at, (came, runs, devices, tenant) in enumerate(rows)
    )
    run = simulate(Scenario(Trace("t", "simple", "", jobs), nodes, "las2d", owners=owners))
    large = next(job for job in run.jobs if job.id == "2")
    old = next(job for job in run.jobs if job.id == "1")
    assert large.end_ms - large.start_ms == 1_000_000
    assert old.preemptions == 1

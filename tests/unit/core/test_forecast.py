"""What will be free when, against counting device by device at every moment."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from allotment.core.cluster import Cluster
from allotment.core.dimensions import DevicesByType, HostSums
from allotment.core.forecast import Forecast
from allotment.core.gang import Gang, ReservedPlace, Standing
from allotment.core.guarantee import guarantee_of
from allotment.core.reservations import Span
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import DEVICE, Instant, Resources
from allotment.model.tenancy import Queue, QueueOrder, Tenant
from allotment.policies.estimates.known import Known
from allotment.sim.cluster import cluster_of
from tests.unit.core.books import PLENTY, POLICIES, a_gang, a_shape, a_standing

NOW, LATEST = Instant(10), 40
NODES, DEVICES = 3, 4
BORROWED = Entitlement.OPPORTUNISTIC


def a_job(job: int, tasks: int) -> Standing:
    """So many tasks of a device and a CPU each."""
    shape = a_shape(tasks)
    (request,) = shape.requests
    need = replace(request.need, cpu_milli=1_000)
    shape = replace(shape, requests=(replace(request, need=need),))
    return replace(a_standing(job, tasks), shape=shape)


def a_full_cluster(lengths: dict[int, int | None], data: st.DataObject) -> Cluster:
    """Gangs run, borrow, leave and are to be followed by others; a node may be drained."""
    policies = replace(POLICIES, rescheduler=None, estimates=Known(lengths.get))
    tenant = Tenant("t", PLENTY, (Queue("default", QueueOrder.EASY),))
    cluster = Cluster(cluster_of(f"{NODES}x{DEVICES}"), (tenant,), policies, guarantee_of)
    for job in lengths:
        gang = a_gang(a_job(job, data.draw(st.integers(1, 3))))
        slots = cluster.ledger.find(gang.requests, policies.placing)
        if slots is None:
            continue
        gang.slots = slots
        gang.entitlement = data.draw(st.sampled_from(Entitlement))
        cluster.add(gang)
        if data.draw(st.booleans()):
            cluster.mark_leaving(gang.id)
    after = max(lengths) + 1
    for gang in list(cluster.placed.leaving.values()):
        if data.draw(st.booleans()):
            lengths[after] = data.draw(st.none() | st.integers(1, 9))
            cluster.pending.add(a_job(after, len(gang.slots)), NOW)
            place = (gang.slots, gang.needs, Entitlement.GUARANTEED, (gang.id,))
            cluster.reserve(ReservedPlace(JobId(after), *place))
            after += 1
    for node in data.draw(st.sets(st.integers(0, NODES - 1), max_size=1)):
        cluster.set_open(NodeId(node), False)
    return cluster


def end_of(cluster: Cluster, gang: Gang, evicted_at: Instant | None) -> int:
    """Return when a gang is gone; after the latest moment if that is not known."""
    assert cluster.policies.estimates is not None
    run = cluster.policies.estimates.run_ms(gang.standing)
    if gang.leaving:
        return NOW + 1
    if evicted_at is not None and gang.entitlement is BORROWED:
        return evicted_at
    return LATEST + 1 if run is None else max(NOW + 1, gang.placed_at + run)


def held_at(
    cluster: Cluster, at: Instant, evicted_at: Instant | None
) -> list[tuple[Slot, Resources]]:
    """Return what each task holds, or will by then, that is placed or has a place reserved."""
    assert cluster.policies.estimates is not None
    held = [
        each
        for gang in cluster.gangs.values()
        if end_of(cluster, gang, evicted_at) > at
        for each in zip(gang.slots, gang.needs, strict=True)
    ]
    for place in cluster.placed.reserved.values():
        run = cluster.policies.estimates.run_ms(cluster.pending[place.job])
        if run is None or NOW + max(1, run) > at:
            held += zip(place.slots, place.needs, strict=True)
    return held


@given(
    lengths=st.lists(st.none() | st.integers(0, 25), min_size=1, max_size=12),
    aside=st.dictionaries(
        st.integers(0, NODES - 1).map(NodeId),
        st.tuples(st.integers(NOW, 30), st.integers(1, 9)),
        max_size=2,
    ),
    evicted_at=st.sampled_from([None, NOW, Instant(NOW + 1)]),
    data=st.data(),
)
def test_a_timeline_is_what_counting_every_device_at_every_moment_says(
    lengths: list[int | None],
    aside: dict[NodeId, Span],
    evicted_at: Instant | None,
    data: st.DataObject,
) -> None:
    cluster = a_full_cluster(dict(enumerate(lengths, 1)), data)
    down = cluster.shut_nodes()
    spans = {node: [(begin, begin + length)] for node, (begin, length) in aside.items()}
    forecast = Forecast(cluster, NOW, down=down, aside=spans, evicted_at=evicted_at)
    devices = forecast.timeline(DevicesByType(cluster))
    hosts = forecast.timeline(HostSums(cluster))
    for at in range(NOW, LATEST):
        held = held_at(cluster, Instant(at), evicted_at)
        counted = [
            node
            for node in cluster.nodes
            if node not in down and not any(b <= at < e for b, e in spans.get(node, ()))
        ]
        used = [(slot.node, index) for slot, _ in held for index in slot.devices]
        left = [1 - used.count((node, index)) for node in counted for index in range(DEVICES)]
        left = [max(0, each) for each in left] if at == NOW else left
        assert sum(devices.at(at).values()) == DEVICE * sum(left)
        cpus = sum(cluster.nodes[node].cpu_milli for node in counted)
        busy = sum(need.cpu_milli for slot, need in held if slot.node in counted)
        assert hosts.at(at)["cpu"] == cpus - busy

"""A history replayed as the service decided gives that history again."""

from collections.abc import Iterable, Sequence
from functools import cache
from random import Random

import msgspec
import pytest

from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.ids import JobId, NodeId
from allotment.model.reasons import StopCause
from allotment.model.reports import NodeReport
from allotment.model.tenancy import Config, QueueOrder, QueueState, RankBy
from allotment.sim.history import History, history_of
from allotment.sim.outages import NodeEvent
from allotment.sim.run import simulate
from allotment.sim.scenario import Scenario
from allotment.sim.settings import BadSetting
from allotment.wiring.history import Again, replayed
from tests.support.builders import NOW, a_config, a_job, a_tenant
from tests.unit.sim.history.lived import Lived, Wish, starts

FOREVER = 1 << 50
TENANTS = {"vision": 6.0, "nlp": 3.0, "speech": 2.0, "guests": 0.0}


def a_cluster(order: QueueOrder, shares: Iterable[float] = TENANTS.values()) -> Config:
    """Twelve devices in three nodes."""
    named = zip(TENANTS, shares, strict=True)
    tenants = [a_tenant(name, share, order=order) for name, share in named]
    return a_config(*tenants, nodes=3, devices=4)


def history(lived: Lived) -> History:
    return history_of(lived.log, 0, FOREVER)


def again(found: History, policy: str = "own", **how: object) -> list[tuple[int, JobId]]:
    """Replay; give who started when, under the ids of then."""
    return played(replayed(found, Again(policy, **how)))  # type: ignore[arg-type]


def played(scenario: Scenario) -> list[tuple[int, JobId]]:
    log: list[e.Record] = []
    run = simulate(scenario, tap=log.extend)
    assert all(not job.never for job in run.jobs)
    submitted = [r for r in log if isinstance(r.event, e.JobSubmitted)]
    jobs = scenario.trace.jobs
    ids = {r.event.job: JobId(int(jobs[at].id)) for at, r in enumerate(submitted)}  # type: ignore[union-attr]
    shift = submitted[0].at - jobs[0].submit_ms
    return sorted((at - shift, ids[job]) for at, job in starts(log))


def a_life(seed: int, jobs: int = 80) -> list[Wish]:
    """Jobs of all kinds: more than twelve devices can bear at once, now and then."""
    chance = Random(seed)
    wishes: list[Wish] = []
    at = 0
    for place in range(jobs):
        at += chance.randrange(1, 2500)
        tenant = chance.choice(list(TENANTS))
        job = a_job().of(tenant).named(f"j{place}").tasks(chance.choice([1, 1, 2, 3]))
        job = job.gpus(chance.choice([0.5, 1, 1, 2, 4])).priority(chance.choice([50, 100, 200]))
        if chance.random() < 0.2:
            job = job.within(run_ms=FOREVER)
        after = [chance.randrange(place)] if place and chance.random() < 0.2 else []
        copies = chance.choice([1, 1, 1, 4])
        cap = chance.choice([0, 1, 2]) if copies > 1 else 0
        wishes.append(Wish(at, job, chance.randrange(500, 9000), copies, cap, after))
    return wishes


@cache
def a_long_one(order: QueueOrder, seed: int) -> Lived:
    """Play such a life; nobody changes it afterwards."""
    return Lived(a_cluster(order)).play(a_life(seed))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("order", list(QueueOrder))
def test_every_job_starts_when_it_did(order: QueueOrder, seed: int) -> None:
    lived = a_long_one(order, seed)
    found = history(lived)
    evictions = sum(row.preemptions for row in found.happened)
    assert evictions, "borrowers have to leave, or nothing is tried"
    assert len(found.trace.jobs) == len(lived.world.state.jobs)
    assert again(found) == lived.starts()


def test_the_shares_change_on_the_way() -> None:
    changes = [(60_000, a_cluster(QueueOrder.SKIP, (0, 0, 4, 8)))]
    lived = Lived(a_cluster(QueueOrder.SKIP), changes).play(a_life(1))
    assert again(history(lived)) == lived.starts()
    fixed = msgspec.structs.replace(
        history(lived).wishes, shares=history(lived).wishes.shares[:1]
    )
    found = msgspec.structs.replace(history(lived), wishes=fixed)
    assert again(found) != lived.starts(), "the change matters"


def an_outage() -> Lived:
    """One node is drained, another is lost, and both come back; so does a third."""
    changes = [
        (20_000, c.DrainNode(NodeId(0), "disk")),
        (31_000, NodeReport(NodeId(1), alive=False)),
        (52_000, NodeReport(NodeId(1), alive=True)),
        (70_000, c.UndrainNode(NodeId(0))),
        (90_000, c.DrainNode(NodeId(2))),
        (95_000, c.UndrainNode(NodeId(2))),
    ]
    return Lived(a_cluster(QueueOrder.SKIP), changes).play(a_life(4))


def test_nodes_are_down_when_they_were() -> None:
    lived = an_outage()
    found = history(lived)
    lost = [r for r in lived.log if isinstance(r.event, e.StopRequested)]
    assert any(r.event.cause is StopCause.NODE_LOST for r in lost)  # type: ignore[union-attr]
    assert again(found) == lived.starts()
    never = msgspec.structs.replace(found, outages=())
    assert again(never) != lived.starts(), "the outages matter"
    log: list[e.Record] = []
    simulate(replayed(found, Again("fifo", one_pool=True)), tap=log.extend)
    assert [type(r.event) for r in log if isinstance(r.event, NodeEvent)] == [
        e.NodeDrained, e.NodeLost, e.NodeRecovered, e.NodeUndrained, e.NodeDrained,
        e.NodeUndrained,
    ]  # fmt: skip
    assert replayed(found, Again("fifo", cluster="3x4")).outages == ()


def test_a_stretch_begins_with_the_nodes_as_they_stood() -> None:
    lived = an_outage()
    begin = NOW + 60_000
    found = history_of(lived.log, begin, FOREVER)
    assert [(type(each.event), each.event.node) for each in found.outages] == [
        (e.NodeDrained, 0),
        (e.NodeUndrained, 0),
        (e.NodeDrained, 2),
        (e.NodeUndrained, 2),
    ]
    assert found.outages[0].after_ms == 0
    assert found.outages[1].after_ms == NOW + 70_000 - found.trace.jobs[0].submit_ms
    assert "for a while: 2. So they are in the replay" in found.trace.warnings[-1]


def test_jobs_wait_for_the_only_node_to_come_back() -> None:
    down = NodeReport(NodeId(0), alive=False)
    changes = [(100, down), (50_000, msgspec.structs.replace(down, alive=True))]
    config = a_config(a_tenant("vision", 4), nodes=1, devices=4)
    wishes = [Wish(0, a_job().of("vision"), 1000), Wish(500, a_job().of("vision"), 1000)]
    lived = Lived(config, changes).play(wishes)
    assert again(history(lived)) == lived.starts()
    assert lived.starts()[-1][0] == NOW + 50_000


def varying() -> Lived:
    """Three jobs of 1 to 12 tasks; the second finds four devices, the third all of them."""
    big, job = a_job().gpus(1).tasks(8), a_job().gpus(1).between(1, 12)
    wishes = [Wish(0, big, 4000), Wish(10, job, 2000), Wish(5000, job, 3000)]
    return Lived(a_cluster(QueueOrder.SKIP, (12, 0, 0, 0))).play(wishes)


def test_jobs_that_vary_start_with_as_many_tasks_again() -> None:
    lived = varying()
    found = history(lived)
    assert [job.tasks for job in found.trace.jobs] == [8, 4, 12]
    assert again(found) == lived.starts()


def test_with_half_the_tasks_it_takes_twice_as_long() -> None:
    log: list[e.Record] = []
    found = history(varying())
    last = msgspec.structs.replace(found.trace, jobs=found.trace.jobs[2:])
    wishes = msgspec.structs.replace(found.wishes, specs=found.wishes.specs[2:])
    half = msgspec.structs.replace(found, trace=last, wishes=wishes)
    simulate(replayed(half, Again("fifo", cluster="1x6")), tap=log.extend)
    at = {type(r.event): r.at for r in log}
    assert at[e.JobSucceeded] - at[e.AttemptStarted] == 2 * found.trace.jobs[2].run_ms


def test_an_elastic_job_goes_on_with_fewer_tasks_the_slower() -> None:
    """After half its work on 12 devices an owner takes 6: the rest takes twice as long."""
    guest = a_job().of("guests").gpus(1).between(1, 12, elastic=True)
    wishes = [Wish(0, guest, 4000), Wish(10_000, a_job().gpus(1).tasks(6), 9000)]
    found = history(Lived(a_cluster(QueueOrder.SKIP)).play(wishes))
    first, owner = found.trace.jobs
    owner = msgspec.structs.replace(owner, submit_ms=first.submit_ms + 70 + 2000)
    trace = msgspec.structs.replace(found.trace, jobs=(first, owner))
    log: list[e.Record] = []
    simulate(
        replayed(msgspec.structs.replace(found, trace=trace), Again("own")), tap=log.extend
    )
    shrunk = next(r for r in log if isinstance(r.event, e.AttemptShrunk))
    assert shrunk.event.tasks == 6  # type: ignore[union-attr]
    at = {(type(r.event), r.job): r.at for r in log}
    began, ended = at[e.AttemptStarted, shrunk.job], at[e.JobSucceeded, shrunk.job]
    left = 4000 - (shrunk.at - began)
    assert ended - shrunk.at == 2 * left
    assert 5900 <= ended - began <= 6000


@pytest.mark.parametrize("left_out", ["array", "depends_on", "priority", "queue"])
def test_each_of_them_matters(left_out: str) -> None:
    """Without it, the same history would come out otherwise: it is really carried."""
    lived = a_long_one(QueueOrder.STRICT, 2)
    found = history(lived)
    plain = {"array": None, "depends_on": (), "priority": 100, "queue": "other"}[left_out]
    specs = [msgspec.structs.replace(s, **{left_out: plain}) for s in found.wishes.specs]
    if left_out == "queue":
        specs = [msgspec.structs.replace(s, tenant="guests") for s in found.wishes.specs]
    wishes = msgspec.structs.replace(found.wishes, specs=tuple(specs))
    assert again(msgspec.structs.replace(found, wishes=wishes)) != lived.starts()


def test_a_cap_holds_under_every_policy() -> None:
    job = a_job().of("vision").gpus(1)
    lived = Lived(a_cluster(QueueOrder.SKIP)).play([Wish(0, job, 1000, 6, 2)])
    for policy in ("srtf", "las", "maxmin"):
        times = sorted(at for at, _ in again(history(lived), policy))
        assert len(times) == 6
        assert times[2] >= times[0] + 1000


def test_a_policy_ranks_the_jobs_and_the_services_own_ranks_as_configured() -> None:
    config = a_cluster(QueueOrder.STRICT, (12, 0, 0, 0))
    (vision, *others) = config.tenants
    ranked = msgspec.structs.replace(vision.queues[0], rank=RankBy.SHORTEST)
    vision = msgspec.structs.replace(vision, queues=(ranked,))
    config = msgspec.structs.replace(config, tenants=(vision, *others))
    whole = [
        Wish(at, a_job().of("vision").gpus(1).tasks(12).within(run_ms=2 * run), run)
        for at, run in ((0, 5000), (10, 3000), (20, 1000))
    ]
    found = history(lived := Lived(config).play(whole))
    assert [job for _, job in lived.starts()] == [1, 3, 2]
    assert again(found) == lived.starts()
    assert [job for _, job in again(found, settings=("order=skip",))] == [1, 3, 2]
    assert [job for _, job in again(found, "fifo")] == [1, 2, 3]


@pytest.mark.parametrize("state", [QueueState.CLOSED, QueueState.DRAINING])
def test_a_job_that_was_taken_once_is_taken_again(state: QueueState) -> None:
    """Two run when the queue is full and shut; a replay from then on has both come then."""
    job = a_job().of("vision").gpus(4)
    open_to_all = a_cluster(QueueOrder.SKIP, (12, 0, 0, 0))
    (vision, *others) = open_to_all.tenants
    (queue,) = vision.queues
    shut = msgspec.structs.replace(queue, state=state, max_waiting=0)
    vision = msgspec.structs.replace(vision, queues=(shut,))
    later = msgspec.structs.replace(open_to_all, tenants=(vision, *others))
    lived = Lived(open_to_all, [(500, later)]).play([Wish(0, job, 2000), Wish(1, job, 2000)])
    found = history_of(lived.log, NOW + 1000, FOREVER)
    assert len(found.trace.jobs) == 2
    assert len(again(found)) == len(again(found, "fifo")) == 2


def test_the_services_own_is_clairvoyant_where_its_queues_are_told_all() -> None:
    def told(order: QueueOrder, *settings: str) -> bool:
        found = history(Lived(a_cluster(order)).play([Wish(0, a_job().gpus(1), 1000)]))
        return simulate(replayed(found, Again("own", settings=settings))).clairvoyant

    assert not told(QueueOrder.EASY)
    assert told(QueueOrder.EASY, "estimates=exact")
    assert not told(QueueOrder.SKIP, "estimates=exact")
    assert not told(QueueOrder.EASY, "estimates=exact", "order=strict")


def test_one_pool_knows_no_tenants() -> None:
    found = history(a_long_one(QueueOrder.SKIP, 3))
    scenario = replayed(found, Again("backfill", one_pool=True))
    assert scenario.wishes is None
    assert simulate(scenario).summary is not None


def test_other_machines_may_lack_a_level() -> None:
    job = a_job().of("vision").gpus(1)
    job._spec = msgspec.structs.replace(job.spec(), within="node", prefer="node")  # noqa: SLF001
    lived = Lived(a_cluster(QueueOrder.SKIP)).play([Wish(0, job, 1000)])
    found = history(lived)
    (spec,) = found.wishes.specs
    (role,) = spec.roles
    role = msgspec.structs.replace(role, group=1, group_within="socket")
    spec = msgspec.structs.replace(spec, within="rack", prefer="switch", roles=(role,))
    wishes = msgspec.structs.replace(found.wishes, specs=(spec,))
    found = msgspec.structs.replace(found, wishes=wishes)
    assert len(again(found, cluster="1x8")) == 1


@pytest.mark.parametrize("pair", ["within=rack", "prefer=switch", "across_racks=0.5"])
def test_a_setting_of_a_level_that_the_machines_lack_is_refused(pair: str) -> None:
    found = history(a_long_one(QueueOrder.SKIP, 3))
    level = "switch" if "switch" in pair else "rack"
    with pytest.raises(
        BadSetting, match=f"--set {pair}: no node of this cluster is in a {level}"
    ):
        replayed(found, Again("own", settings=(pair,)))
    assert replayed(found, Again("own", cluster="4x4/2", settings=(pair,))).nodes


def test_a_job_of_a_tenant_that_is_gone_is_played_all_the_same() -> None:
    job = a_job().of("vision").gpus(4)
    first = a_cluster(QueueOrder.SKIP)
    others: Sequence[str] = ("nlp", "speech", "guests")
    later = a_config(*(a_tenant(name, 2) for name in others), nodes=3, devices=4)
    lived = Lived(first, [(500, later)]).play([Wish(0, job, 1000)])
    found = history_of(lived.log, lived.log[-1].at - 300, FOREVER)
    assert len(again(found)) == 1

"""Where several engines run the nodes: gangs stay on one, and on one that is able."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.core.commit import refusal
from allotment.core.plan import Place
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.engines import ANY_ENGINE, Ability
from allotment.model.errors import Rejected
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Entitlement, Placement, Slot
from allotment.model.lifecycle import JobState
from allotment.model.reasons import Reason
from allotment.model.spec import GiveWay
from allotment.model.tenancy import Config
from allotment.service.abilities import check_able
from tests.support.builders import JobBuilder, a_config, a_job, a_node, a_tenant
from tests.support.world import World

WEAK = (Ability.SUSPENDS, Ability.DIVIDES, Ability.PINS)


def on_engines(*nodes: tuple[str, int, str], lacks: dict[str, tuple[Ability, ...]]) -> Config:
    """Describe nodes by engine, number of devices and their type."""
    made = tuple(
        msgspec.structs.replace(
            a_node(at, devices, kind), engine=engine, lacks=lacks.get(engine, ())
        )
        for at, (engine, devices, kind) in enumerate(nodes)
    )
    return msgspec.structs.replace(a_config(a_tenant("vision", 4)), nodes=made)


def two() -> World:
    """One node of two devices here; two of four on an engine that is able to do little."""
    nodes = (("here", 2, "A100"), ("far", 4, "A100"), ("far", 4, "V100"))
    return World(on_engines(*nodes, lacks={"far": WEAK}))


def placed(world: World, job: JobId) -> list[int]:
    attempt = world.state.jobs[job].attempt
    return [] if attempt is None else [slot.node for slot in attempt.slots]


def start(world: World, job: JobBuilder, engine: str = "", **changes: object) -> JobId:
    spec = msgspec.structs.replace(job.spec(), engine=engine, **changes)
    (event, *_) = [record.event for record in world.do(c.SubmitJob(spec))]
    assert isinstance(event, e.JobSubmitted)
    world.cycle()
    if world.is_(event.job) is JobState.STARTING:
        world.runs(event.job)
    return event.job


def test_a_gang_stays_on_one_engine_unless_it_may_be_spread() -> None:
    world = two()
    gang = start(world, a_job().tasks(3).gpus(2))
    assert placed(world, gang) == [1, 1, 2]
    wide = start(world, a_job().tasks(2).gpus(2), ANY_ENGINE)
    assert sorted(placed(world, wide)) == [0, 2]


def test_an_engine_with_the_type_that_is_liked_best_comes_first() -> None:
    world = two()
    gang = start(world, a_job().tasks(2).gpus(1).types("V100", "A100"))
    assert placed(world, gang) == [2, 2]
    other = start(world, a_job().tasks(2).gpus(1).types("A100", "V100"))
    assert placed(world, other) == [0, 0]


@pytest.mark.parametrize(
    ("job", "changes"),
    [
        (a_job().gpus(0.5), {}),
        (a_job().tasks(2).gpus(0.5), {}),
        (a_job().gpus(1), {"on_eviction": GiveWay.SUSPEND}),
        (a_job().gpus(1), {"engine": "here"}),
    ],
)
def test_what_an_engine_cannot_do_is_not_planned_there(
    job: JobBuilder, changes: dict[str, Any]
) -> None:
    world = two()
    start(world, a_job().gpus(2).types("A100"), "here")
    waits = start(world, job, **changes)
    assert placed(world, waits) == []
    blocked = world.why(waits)
    assert blocked.reason is Reason.FRAGMENTED
    assert "It can run on here only." in blocked.message
    world.ends(JobId(1))
    world.cycle()
    assert set(placed(world, waits)) == {0}


@pytest.mark.parametrize(
    ("engine", "slots", "said"),
    [
        ("", ((0, (0, 1)), (1, (0, 1))), "not on one engine"),
        (ANY_ENGINE, ((0, (0, 1)), (1, (0, 1))), ""),
        ("here", ((1, (0, 1)), (1, (2, 3))), "the engine of node 1 is another, or not able to"),
    ],
)
def test_the_committer_refuses_other_engines(
    engine: str, slots: tuple[tuple[int, tuple[int, ...]], ...], said: str
) -> None:
    world = two()
    spec = msgspec.structs.replace(a_job().tasks(2).gpus(2).spec(), engine=engine)
    job = JobId(world.state.next_job)
    if engine == "here":  # Where it would not fit it would not be accepted.
        spec = a_job().tasks(2).gpus(1).spec()
        spec = msgspec.structs.replace(spec, engine=engine)
    world.do(c.SubmitJob(spec))
    each = spec.roles[0].resources.gpu_milli
    place = tuple(Slot(NodeId(node), devices[: each // 1000], each) for node, devices in slots)
    made = Place(Placement(job, place, Entitlement.OPPORTUNISTIC))
    assert refusal(world.state.cluster, made, world.now) == said


def test_what_no_engine_can_do_is_refused_and_told_when_it_comes_to_be() -> None:
    nodes = (("one", 4, "A100"), ("two", 4, "A100"))
    world = World(on_engines(*nodes, lacks={"one": WEAK, "two": WEAK}))
    with pytest.raises(Rejected, match="No engine here can give it a part of a GPU"):
        check_able(c.SubmitJob(a_job().gpus(0.5).spec()), world.state)
    spec = msgspec.structs.replace(a_job().gpus(1).spec(), engine="three")
    with pytest.raises(Rejected, match=r"There is no engine three\. Engines here: one, two\."):
        check_able(c.SubmitJob(spec), world.state)
    world = two()
    start(world, a_job().gpus(2), "here")
    half = start(world, a_job().gpus(0.5))
    world.ends(JobId(1))
    world.do(c.ApplyConfig(on_engines(*nodes, lacks={"one": WEAK, "two": WEAK})))
    world.cycle()
    blocked = world.why(half)
    assert blocked.reason is Reason.NEVER_FITS_NOW
    assert blocked.message == "No engine here can give it a part of a GPU."


def test_a_tenants_wish_to_suspend_binds_no_job_to_an_engine() -> None:
    """Where it cannot be suspended the borrower is told to end, and elsewhere it is frozen."""
    for engine, state in (("here", JobState.SUSPENDED), ("far", JobState.STOPPING)):
        config = on_engines(("here", 4, "A100"), ("far", 4, "A100"), lacks={"far": WEAK})
        tenants = (
            a_tenant("vision", 8),
            msgspec.structs.replace(a_tenant("nlp"), on_eviction=GiveWay.SUSPEND),
        )
        world = World(msgspec.structs.replace(config, tenants=tenants))
        borrower = start(world, a_job().of("nlp").gpus(4), engine)
        start(world, a_job().of("vision").gpus(4), engine)
        assert world.is_(borrower) is state, engine


LACKS = st.sampled_from([(), WEAK, (Ability.SUSPENDS,), (Ability.DIVIDES,)])
ENGINES = ("a", "b", "c")
JOBS = st.tuples(
    st.integers(1, 4),
    st.sampled_from([0, 0.5, 1, 2, 4]),
    st.sampled_from(["", "", "", *ENGINES, ANY_ENGINE]),
    st.sampled_from([GiveWay.AS_TENANT, GiveWay.AS_TENANT, GiveWay.SUSPEND]),
)


@given(
    nodes=st.lists(
        st.tuples(st.sampled_from(ENGINES), st.integers(0, 4), st.sampled_from("AB")),
        min_size=1,
        max_size=6,
    ),
    lacks=st.fixed_dictionaries(dict.fromkeys(ENGINES, LACKS)),
    jobs=st.lists(JOBS, min_size=1, max_size=8),
)
def test_no_history_puts_a_task_where_it_cannot_run(
    nodes: list[tuple[str, int, str]],
    lacks: dict[str, tuple[Ability, ...]],
    jobs: list[tuple[int, float, str, GiveWay]],
) -> None:
    """Whatever is submitted is refused, or starts in the end: on one engine, that is able."""
    world = World(on_engines(*nodes, lacks=lacks))
    accepted: list[JobId] = []
    for count, gpus, engine, way in jobs:
        spec = a_job().tasks(count).gpus(gpus).spec()
        spec = msgspec.structs.replace(spec, engine=engine, on_eviction=way)
        try:
            check_able(c.SubmitJob(spec), world.state)
            (event, *_) = [record.event for record in world.do(c.SubmitJob(spec))]
        except Rejected:
            continue
        assert isinstance(event, e.JobSubmitted)
        accepted.append(event.job)
    waiting = set(accepted)
    while waiting:
        world.cycle()
        going = sorted(job for job in waiting if placed(world, job))
        assert going, world.why(min(waiting))
        for job in going:
            _check(world, job)
            world.runs(job)
            world.ends(job)
        waiting.difference_update(going)


def _check(world: World, job: JobId) -> None:
    nodes, spec = {node.id: node for node in world.state.config.nodes}, world.job(job).spec
    mine = [nodes[NodeId(node)] for node in placed(world, job)]
    engines = {node.engine for node in mine}
    assert len(engines) == 1 or spec.engine == ANY_ENGINE
    assert spec.engine in ("", ANY_ENGINE) or engines == {spec.engine}
    for node in mine:
        assert Ability.DIVIDES not in node.lacks or not spec.roles[0].resources.gpu_milli % 1000
        assert Ability.SUSPENDS not in node.lacks or spec.on_eviction is not GiveWay.SUSPEND

"""How many of a thing there may be, and how long its name: just so many, and no more."""

import pytest
from msgspec.structs import replace

from allotment.engine import datasets, reservations
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.data_use import DataUse
from allotment.model.datasets import Grant, Grantee, ObjectPlace
from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor, JobId, NodeId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import HOUR, Instant, Millis, WallTime
from tests.support.builders import a_config, a_job, a_node, a_tenant
from tests.support.world import World

BEN = Actor("ben", 7)


def refused(world: World, command: c.AnyCommand) -> Code:
    with pytest.raises(Rejected) as refusal:
        world.do(command)
    return refusal.value.code


# ── datasets ────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def data() -> World:
    return World(a_config(a_tenant("vision"), a_tenant("nlp")))


def test_a_tenant_has_only_so_many_datasets(
    data: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "MOST_DATASETS", 2)
    for name in ("a", "b"):
        data.do(c.CreateDataset("vision", name, name))
    assert refused(data, c.CreateDataset("vision", "c", "c")) is Code.TOO_LARGE
    data.do(c.CreateDataset("nlp", "c", "c"))


def test_a_dataset_is_granted_to_only_so_many(
    data: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "MOST_GRANTS", 2)
    data.do(c.CreateDataset("vision", "words", "w"))
    grants = [Grant(Grantee.USER, name) for name in ("ann", "ben", "cem")]
    for grant in grants[:2]:
        data.do(c.GrantData("vision", "words", grant))
    assert refused(data, c.GrantData("vision", "words", grants[2])) is Code.TOO_LARGE
    data.do(c.GrantData("vision", "words", grants[0]))  # It is granted already.
    assert data.state.datasets["vision", "words"].grants == (grants[0], grants[1])


@pytest.mark.parametrize(
    ("name", "fits"), [("x" * 256, True), ("x" * 257, False), ("", False), ("a\nb", False)]
)
def test_a_dataset_is_granted_to_those_that_have_a_name(
    data: World, name: str, fits: bool
) -> None:
    data.do(c.CreateDataset("vision", "words", "w"))
    grant = c.GrantData("vision", "words", Grant(Grantee.USER, name))
    if fits:
        data.do(grant)
    else:
        assert refused(data, grant) is Code.BAD_REQUEST


def test_a_grant_to_a_user_is_of_no_tenant(data: World) -> None:
    data.do(c.CreateDataset("vision", "words", "w"))
    data.do(c.GrantData("vision", "words", Grant(Grantee.USER, "nobody")))
    revoked = c.RevokeData("vision", "words", Grantee.TENANT, "nobody")
    assert refused(data, revoked) is Code.NOT_FOUND


@pytest.mark.parametrize(("length", "fits"), [(1024, True), (1025, False)])
def test_a_folder_has_a_path_of_a_length_that_systems_take(
    data: World, length: int, fits: bool
) -> None:
    create = c.CreateDataset("vision", "far", "f", "/" + "x" * (length - 1))
    if fits:
        data.do(create)
    else:
        assert refused(data, create) is Code.PATH_UNUSABLE


def test_of_objects_the_oldest_version_that_no_job_needs_makes_way(
    data: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "MOST_VERSIONS", 2)
    place = ObjectPlace("https://store.example.org", "words")
    data.do(c.CreateDataset("vision", "words", "w", objects=place))

    def close(digest: str) -> None:
        data.do(c.CloseVersion("vision", "words", digest, 1, 1))

    def numbers() -> list[int]:
        return [each.number for each in data.state.datasets["vision", "words"].versions]

    def uses(number: int) -> JobId:
        use = DataUse("vision", "words", number, "/data/w", digest=str(number))
        records = data.do(c.SubmitJob(replace(a_job().spec(), data=(use,)), held=True))
        event = records[0].event
        assert isinstance(event, e.JobSubmitted)
        return event.job

    for digest in ("1", "2"):
        close(digest)
    assert numbers() == [1, 2]
    first = uses(1)
    close("3")
    assert numbers() == [1, 3], "a job needs the oldest"
    uses(3)
    assert refused(data, c.CloseVersion("vision", "words", "4", 1, 1)) is Code.TOO_LARGE
    data.do(c.CancelJob(first))
    assert data.is_(first) is JobState.CANCELLED
    close("4")
    assert numbers() == [3, 4]


def test_a_version_stays_for_whoever_runs_and_for_its_owner_alone(data: World) -> None:
    data.do(c.ApplyConfig(a_config(a_tenant("vision", 8), a_tenant("nlp"))))
    data.do(c.CreateDataset("vision", "words", "w"))
    for digest in ("1", "2"):
        data.do(c.CloseVersion("vision", "words", digest, 1, 1))
    use = DataUse("vision", "words", 1, "/data/w", digest="1")
    spec = replace(a_job().gpus(1).spec(), data=(use,))
    data.do(c.SubmitJob(spec), BEN)
    data.cycle()
    assert data.is_(JobId(1)) is JobState.STARTING
    assert refused(data, c.RemoveData("vision", "words", 1)) is Code.CONFLICT
    data.do(c.RemoveData("vision", "words", 2))
    data.runs(JobId(1))
    data.ends(JobId(1))
    data.do(c.RemoveData("vision", "words", 1))


# ── reservations ────────────────────────────────────────────────────────────────────────


def over(world: World, name: str, begin: int, end: int, **more: object) -> c.ReserveNodes:
    """Ask for nodes from so many hours from now until so many."""
    first, last = (WallTime(world.now + at * int(HOUR)) for at in (begin, end))
    return replace(c.ReserveNodes(name, first, last), **more)


def test_there_are_only_so_many_reservations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservations, "MOST_RESERVATIONS", 2)
    world = World(a_config(a_tenant("vision", 8)))
    for name in ("a", "b"):
        world.do(over(world, name, 1, 2, nodes=(NodeId(0),)))
    third = over(world, "c", 1, 2, nodes=(NodeId(0),))
    assert refused(world, third) is Code.TOO_LARGE
    world.do(c.EndReservation("a"))
    world.do(third)


@pytest.mark.parametrize(
    ("begin", "end", "node"),
    [(0, 2, 1), (0, 1, 0), (1, 3, 1), (2, 3, 1), (3, 4, 0)],
    ids=["begins in it", "ends as it begins", "is it", "ends with it", "begins as it ends"],
)
def test_devices_are_chosen_where_no_reservation_is_then(
    begin: int, end: int, node: int
) -> None:
    world = World(a_config(a_tenant("vision", 16), nodes=2))
    world.do(over(world, "first", 1, 3, nodes=(NodeId(0),)))
    world.do(over(world, "second", begin, end, devices=8))
    assert world.state.reservations["second"].nodes == (node,)


def test_devices_are_chosen_of_a_type_and_on_nodes_that_are_up() -> None:
    config = a_config(a_tenant("vision", 32), nodes=4)
    other = a_node(1, kind="V100")
    config = replace(config, nodes=(config.nodes[0], other, *config.nodes[2:]))
    world = World(config)
    world.do(c.DrainNode(NodeId(0), "new fans"))
    assert refused(world, over(world, "w", 1, 2, devices=17, type="A100")) is Code.NEVER_FITS
    world.do(over(world, "w", 1, 2, devices=16, type="A100"))
    assert world.state.reservations["w"].nodes == (2, 3)
    world.do(over(world, "v", 1, 2, devices=1))
    assert world.state.reservations["v"].nodes == (1,)


def test_with_evict_only_those_go_that_it_is_not_for() -> None:
    world = World(a_config(a_tenant("vision", 4), a_tenant("nlp", 4)))
    mine, theirs = world.submit(a_job().gpus(4)), world.submit(a_job().of("nlp").gpus(4))
    world.cycle()
    for job in (mine, theirs):
        world.runs(job)
    command = over(world, "w", 1, 2, nodes=(NodeId(0),), tenants=("nlp",), evict=True)
    world.do(replace(command, reason="exam"))
    world.wait(int(HOUR) - 1)
    assert (world.is_(mine), world.is_(theirs)) == (JobState.RUNNING, JobState.RUNNING)
    world.wait(1)
    assert (world.is_(mine), world.is_(theirs)) == (JobState.STOPPING, JobState.RUNNING)
    stop = [record.event for record in world.log if isinstance(record.event, e.StopRequested)]
    assert [each.diagnosis.cause for each in stop if each.diagnosis] == [
        "Node n0 is set aside now: w (exam)."
    ]
    world.wait(int(HOUR) - 1)
    assert "w" in world.state.reservations
    world.wait(1)
    assert "w" not in world.state.reservations


@pytest.mark.parametrize(
    ("begin", "end", "fits"),
    [(1, 2, True), (1, 1, False), (-2, 0, False), (-1, 1, True)],
    ids=["ahead", "of no length", "just over", "begun"],
)
def test_a_reservation_has_a_length_and_is_not_over(begin: int, end: int, fits: bool) -> None:
    world = World(a_config(a_tenant("vision", 8)))
    world.now = Instant(10 * int(HOUR))
    command = over(world, "w", begin, end, nodes=(NodeId(0),), notice_ms=Millis(0))
    if fits:
        world.do(command)
        assert world.state.reservations["w"].begin == max(world.now, command.begin)
    else:
        assert refused(world, command) is Code.BAD_REQUEST

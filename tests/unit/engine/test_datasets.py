"""Datasets in the engine: versions and grants as events, and what is refused."""

import msgspec
import pytest

from allotment.engine.datasets import MOST_VERSIONS, users_of
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model.data_use import DataUse
from allotment.model.datasets import Grant, Grantee
from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor, JobId
from tests.support.builders import POLICIES, a_config, a_job, a_tenant
from tests.support.world import World


@pytest.fixture
def world() -> World:
    made = World(a_config(a_tenant("vision"), a_tenant("nlp")))
    made.do(c.CreateDataset("vision", "words", "id-1"))
    return made


def put(world: World, digest: str) -> None:
    world.do(c.CloseVersion("vision", "words", digest, 2, 20))


def numbers(world: World) -> list[int]:
    return [each.number for each in world.state.datasets["vision", "words"].versions]


def refusal(world: World, command: c.AnyCommand) -> Code:
    with pytest.raises(Rejected) as refused:
        world.do(command)
    return refused.value.code


def test_each_put_is_another_version_unless_nothing_changed(world: World) -> None:
    for digest in ("a", "b", "b", "a"):
        put(world, digest)
    assert numbers(world) == [1, 2, 3]
    world.do(c.RemoveData("vision", "words", 3))
    put(world, "c")
    assert numbers(world) == [1, 2, 4]  # Numbers are not used again.


def test_a_snapshot_has_it_all(world: World) -> None:
    put(world, "a")
    world.do(c.GrantData("vision", "words", Grant(Grantee.USER, "ben", write=True)))
    again = State.from_image(world.state.image(), POLICIES)
    assert again.datasets == world.state.datasets


def test_a_grant_takes_the_place_of_the_one_before(world: World) -> None:
    for write in (False, True, True):
        world.do(c.GrantData("vision", "words", Grant(Grantee.TENANT, "nlp", write=write)))
    world.do(c.GrantData("vision", "words", Grant(Grantee.USER, "nlp")))
    dataset = world.state.datasets["vision", "words"]
    assert dataset.grants == (
        Grant(Grantee.TENANT, "nlp", write=True),
        Grant(Grantee.USER, "nlp"),
    )
    world.do(c.RevokeData("vision", "words", Grantee.TENANT, "nlp"))
    assert world.state.datasets["vision", "words"].grants == (Grant(Grantee.USER, "nlp"),)
    revoke = c.RevokeData("vision", "words", Grantee.TENANT, "nlp")
    assert refusal(world, revoke) is Code.NOT_FOUND


def test_what_a_job_needs_stays_until_it_has_ended(world: World) -> None:
    put(world, "a")
    put(world, "b")
    use = DataUse("vision", "words", 1, "/data/w", digest="a")
    again = msgspec.structs.replace(use, at="/data/v")
    spec = msgspec.structs.replace(a_job().of("vision").spec(), data=(use,))
    world.do(c.SubmitJob(msgspec.structs.replace(spec, data=(use, again))))
    assert refusal(world, c.RemoveData("vision", "words", 1)) is Code.CONFLICT
    assert refusal(world, c.RemoveData("vision", "words")) is Code.CONFLICT
    assert users_of(world.state, world.state.datasets["vision", "words"], 0) == [JobId(1)]
    world.do(c.RemoveData("vision", "words", 2))
    world.do(c.CancelJob(JobId(1)))
    world.do(c.SubmitJob(spec), Actor("ben", 7))  # of somebody else's, and it waits
    world.do(c.RemoveData("vision", "words"))
    assert world.state.datasets == {}


def test_what_cannot_be(world: World) -> None:
    made = c.CreateDataset
    assert refusal(world, made("vision", "words", "2")) is Code.CONFLICT
    assert refusal(world, made("nobody", "x", "2")) is Code.NO_SUCH_TENANT
    for name in ("", "..", "a/b", "a b", "x" * 64):
        assert refusal(world, made("vision", name, "2")) is Code.BAD_REQUEST
    for folder in ("relative", "/", "/a/../b", "/a/", "//a", "/a\n"):
        assert refusal(world, made("vision", "f", "2", folder)) is Code.PATH_UNUSABLE
    assert refusal(world, c.RemoveData("vision", "none")) is Code.DATA_MISSING
    assert refusal(world, c.RemoveData("vision", "words", 7)) is Code.DATA_MISSING
    world.do(made("vision", "f", "2", "/srv/f"))
    assert refusal(world, c.CloseVersion("vision", "f", "a", 1, 1)) is Code.NOT_SUPPORTED
    assert refusal(world, c.RemoveData("vision", "f", 1)) is Code.BAD_REQUEST
    nobody = c.GrantData("vision", "words", Grant(Grantee.TENANT, "nobody"))
    assert refusal(world, nobody) is Code.NO_SUCH_TENANT
    world.do(made("nlp", "words", "3"))  # The name is free in another tenant.


def test_there_are_only_so_many_versions(world: World) -> None:
    for number in range(MOST_VERSIONS):
        put(world, str(number))
    assert refusal(world, c.CloseVersion("vision", "words", "x", 1, 1)) is Code.TOO_LARGE

"""A job without a command runs its image's, where somebody knows it or needs not to."""

from collections.abc import Mapping

import msgspec
import pytest

from allotment.backends.router import Router
from allotment.model import commands as c
from allotment.model.environment import Environment
from allotment.model.errors import Rejected
from allotment.model.quantity import Millis
from allotment.model.spec import JobSpec
from allotment.service.abilities import check_able
from allotment.service.images import with_own_command
from allotment.service.launch import argv_of
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.fake_backend import FakeBackend
from tests.support.world import World


class Pods(FakeBackend):
    """As an engine whose tasks run in images, which only its cluster reads."""

    default_image = "busybox"

    def __init__(self, *, leads_commands: bool = False) -> None:
        super().__init__()
        self.leads_commands = leads_commands

    def shows(self, path: str) -> bool:  # noqa: ARG002
        return False


def bare(**more: object) -> JobSpec:
    spec = a_job().tasks(1).spec()
    roles = (msgspec.structs.replace(spec.roles[0], command=""),)
    return msgspec.structs.replace(spec, image="h/a:1", roles=roles, **more)


def check(spec: JobSpec, engines: Mapping[str, FakeBackend]) -> None:
    backend = Router(engines, lambda: ())
    check_able(c.SubmitJob(spec), World(a_config(a_tenant("vision", 4))).state, backend)


def test_a_cluster_runs_the_command_that_it_alone_knows() -> None:
    check(bare(), {"here": FakeBackend(), "pods": Pods()})
    assert argv_of(bare().roles[0]) == ()


def test_only_roles_without_a_command_get_that_of_the_image() -> None:
    spec = bare()
    both = msgspec.structs.replace(spec, roles=(*spec.roles, a_job().spec().roles[0]))
    found = with_own_command(both, ("train", "--fast"))
    assert [role.command for role in found.roles] == [
        ("train", "--fast"),
        a_job().spec().roles[0].command,
    ]


@pytest.mark.parametrize(
    ("spec", "engine", "why"),
    [
        (bare(), FakeBackend(), "no engine runs an image's own command"),
        (bare(), Pods(leads_commands=True), "`fence_after` of the engine puts a program"),
        (bare(hold_on_failure_ms=Millis(1000)), Pods(), "hold_on_failure: cannot be used"),
        (bare(environment=Environment()), Pods(), "environment: cannot be used"),
    ],
)
def test_what_needs_to_know_the_command_is_refused(
    spec: JobSpec, engine: FakeBackend, why: str
) -> None:
    with pytest.raises(Rejected, match=why) as told:
        check(spec, {"one": engine})
    assert "Write `command`" in told.value.hint

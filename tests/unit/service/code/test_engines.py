"""Code is refused at once where an engine that a job may run on does not see it."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from allotment.backends.router import Router
from allotment.engine.state import State
from allotment.model.code import CodeBundle
from allotment.model.errors import Code as Why
from allotment.model.errors import Rejected
from allotment.model.ids import Actor
from allotment.model.spec import JobSpec
from allotment.service.code.code import Code
from allotment.service.finding import Finding
from allotment.service.launch import Folders
from allotment.service.ports import Backend
from allotment.service.workspace import Workspace
from allotment.service.workspaces import Workspaces
from tests.support.builders import POLICIES
from tests.support.fake_backend import FakeBackend


class Pods(FakeBackend):
    """As an engine whose tasks run in images alone."""

    default_image = "busybox"


def answer(tmp_path: Path, backend: Backend, engine: str) -> Why:
    state = State(POLICIES)
    workspaces = Workspaces(state, backend, cast("Workspace", None))
    folders = Folders(str(tmp_path))
    code = Code(state, cast("Finding", None), folders, backend, workspaces)
    spec = JobSpec("x", "t", (), engine=engine, code=CodeBundle("0" * 64))
    with pytest.raises(Rejected) as caught:
        asyncio.run(code.settled(spec, Actor("ann", 64101)))
    return caught.value.code


@pytest.mark.parametrize("engine", ["", "any", "pods"])
def test_no_code_where_pods_may_run_it(tmp_path: Path, engine: str) -> None:
    backend = Router({"here": FakeBackend(), "pods": Pods()}, lambda: ())
    assert answer(tmp_path, backend, engine) is Why.NOT_SUPPORTED


def test_code_where_the_engine_sees_it(tmp_path: Path) -> None:
    backend = Router({"here": FakeBackend(), "pods": Pods()}, lambda: ())
    assert answer(tmp_path, backend, "here") is Why.CODE_MISSING

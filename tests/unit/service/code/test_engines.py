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
from tests.support.builders import POLICIES
from tests.support.fake_backend import FakeBackend


class Pods(FakeBackend):
    """As an engine whose tasks run in images alone."""

    default_image = "busybox"
    leads_commands = False

    def __init__(self, shown: str = "/elsewhere") -> None:
        super().__init__()
        self._shown = shown

    def shows(self, path: str) -> bool:
        return path.startswith(f"{self._shown}/")


def answer(tmp_path: Path, backend: Backend, engine: str) -> Why:
    state = State(POLICIES)
    folders = Folders(str(tmp_path))
    code = Code(state, cast("Finding", None), folders, backend)
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


def test_code_where_pods_are_shown_the_folder(tmp_path: Path) -> None:
    backend = Router({"here": FakeBackend(), "pods": Pods(str(tmp_path))}, lambda: ())
    assert answer(tmp_path, backend, "pods") is Why.CODE_MISSING

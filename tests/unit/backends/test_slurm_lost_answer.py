"""A task is told to stop whose submission Slurm did not answer: it may have been taken."""

import asyncio
import os
from pathlib import Path

import pytest

from allotment.backends.slurm import client
from allotment.backends.slurm.backend import SlurmBackend, Submitted
from allotment.backends.slurm.request import name_of
from allotment.backends.slurm.status import Row, Rows
from allotment.model.errors import EngineAway
from allotment.model.ids import AttemptNo, JobId, TaskIndex, TaskKey
from allotment.model.quantity import Millis
from allotment.model.reasons import StopCause
from allotment.model.reports import TaskReport

KEY = TaskKey(JobId(7), AttemptNo(1), TaskIndex(0))
UID = os.geteuid()


class Slurm:
    """Knows of one job, or of none, or does not answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: Rows | None = None
        self.cancelled: list[str] = []
        monkeypatch.setattr(client, "jobs", self.jobs)
        monkeypatch.setattr(client, "cancel", self.cancel)

    async def jobs(self, name: str = "") -> Rows:
        if self.rows is None:
            raise EngineAway("no answer")
        return self.rows

    async def cancel(self, job: str) -> None:
        self.cancelled.append(job)


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Slurm:
    return Slurm(monkeypatch)


def a_backend(folder: Path) -> SlurmBackend:
    backend = SlurmBackend(folder, "main", tuple)
    (folder / f"slurm/tasks/{KEY.job}/{KEY.attempt}/{KEY.index}").mkdir(parents=True)
    backend._keep(KEY, Submitted(UID, None, node="n1"))  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    return backend


async def stopped(backend: SlurmBackend) -> list[TaskReport]:
    await backend.stop(KEY, "TERM", Millis(1000), StopCause.CANCELLED)
    return list(await backend.observe([KEY]))


def test_it_is_not_known_to_have_stopped_while_slurm_does_not_answer(
    tmp_path: Path, slurm: Slurm
) -> None:
    with pytest.raises(EngineAway):
        asyncio.run(stopped(a_backend(tmp_path)))


def test_the_job_that_slurm_took_is_cancelled(tmp_path: Path, slurm: Slurm) -> None:
    row = Row("42", UID, "PENDING", "Priority", "", name=name_of("", KEY))
    slurm.rows = {(row.name, UID): row}
    (told,) = asyncio.run(stopped(a_backend(tmp_path)))
    assert slurm.cancelled == ["42"]
    assert told.key == KEY


def test_that_slurm_took_none_is_known_when_it_answers(tmp_path: Path, slurm: Slurm) -> None:
    slurm.rows = {}
    assert asyncio.run(stopped(a_backend(tmp_path))) == []
    assert slurm.cancelled == []

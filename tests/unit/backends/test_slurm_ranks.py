"""A gang of ranks as one Slurm job: what is asked for, and whose what is allocated is."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from allotment.backends.slurm import client
from allotment.backends.slurm.backend import SlurmBackend
from allotment.backends.slurm.ranks import (
    Share,
    by_node,
    hosts_of,
    lead_of,
    misfit_of,
    options_of_ranks,
    script_of_ranks,
    share_of,
)
from allotment.backends.slurm.request import name_of
from allotment.backends.slurm.status import Row, Rows, report
from allotment.backends.slurm.task import OF_RANK, groups_of_job
from allotment.backends.slurm.usage import NodeLine, others_on
from allotment.backends.status import RunnerStatus
from allotment.model.errors import EngineAway
from allotment.model.ids import AttemptNo, JobId, TaskIndex, TaskKey
from allotment.model.others import NOBODY
from allotment.model.quantity import MIB, Resources
from allotment.model.reports import Seen
from allotment.model.spec import Mpi
from allotment.service.ports import Binding, GangLaunch, Refused, TaskLaunch

NEED = Resources(gpu_milli=2000, cpu_milli=1500, memory=101 * MIB)


def rank(index: int, node: str, *types: tuple[str, int]) -> TaskLaunch:
    key = TaskKey(JobId(7), AttemptNo(2), TaskIndex(index))
    binding = Binding(node, (0, 1), types or (("a100", 2),))
    return TaskLaunch(key, f"main.{index}", binding, ("./ring",), (), NEED)


RANKS = (rank(0, "n2"), rank(1, "n1"), rank(2, "n2"))
GANG = GangLaunch(RANKS, "/data", mpi=Mpi.PMIX)


def test_a_gang_is_one_job_on_its_nodes_in_the_order_of_its_ranks() -> None:
    assert set(options_of_ranks(GANG, "allot-ab", "gpu", "/s/7/2/0")) >= {
        "--job-name=allot-ab-7.2.0", "--nodes=2", "--ntasks=3", "--distribution=arbitrary",
        "--cpus-per-task=2", "--mem-per-cpu=51M", "--gpus-per-task=a100:2", "--no-requeue",
    }  # fmt: skip
    assert hosts_of(GANG) == "n2\nn1\nn2\n"
    script = script_of_ranks(GANG, "/it's/7/2", "/task.pyz", "/opt/slurm/bin:/bin")
    assert " --mpi=pmix --distribution=arbitrary --ntasks=3 --cpus-per-task=2 " in script
    assert " --gpu-bind=per_task:2 /usr/bin/python3 -I -S '/task.pyz' rank '" in script
    assert "SLURM_HOSTFILE='/it'\\''s/7/2/mpi-hosts'" in script
    assert "PATH='/opt/slurm/bin:/bin'" in script


@pytest.mark.parametrize(
    ("ranks", "why"),
    [
        ((rank(0, "n1", ("a100", 2)), rank(1, "n2", ("v100", 2))), "different types of GPUs"),
        ((rank(0, "n1", ("a100", 1), ("v100", 1)),), "GPUs of several types"),
        ((rank(1, "n1"), rank(2, "n2")), "start together or not at all"),
    ],
)
def test_what_cannot_be_one_step_is_refused(ranks: tuple[TaskLaunch, ...], why: str) -> None:
    assert why in misfit_of(GANG.only(ranks))
    assert not misfit_of(GANG)


def test_no_part_of_a_gang_is_taken_for_what_others_use() -> None:
    row = Row("5", 0, "RUNNING", node="n[1-2]", name="allot-ab-7.2.0", cpus=6, memory="51M")
    name = (row.name, row.uid)
    share = share_of(RANKS[0])
    assert share == Share(2, 101, "gpu:a100:2")
    used = {"cpu": 2, "memory": 101, "a100": 2}
    lines = [
        NodeLine("n1", "mixed", "8", "2000", "gpu:a100:4", "", used),
        NodeLine(
            "n2", "mixed", "8", "2000", "gpu:a100:4", "", {k: 2 * n for k, n in used.items()}
        ),
    ]
    rows = by_node({name: row}, {name: {"n1": [share], "n2": [share, share]}})
    assert others_on(lines, rows, rows, "allot-ab", {}) == {"n1": NOBODY, "n2": NOBODY}
    whole = {name: row}
    assert NOBODY not in others_on(lines, whole, whole, "allot-ab", {}).values()


def test_a_rank_that_slurm_ended_for_another_is_no_fault_of_the_platform() -> None:
    key, failed = RANKS[1].key, Row("5", 0, "FAILED", node="n[1-2]")
    began = RunnerStatus("running", pid=4)
    told = report(key, began, failed, is_rank=True)
    assert told is not None
    assert told.exit is not None
    assert (told.exit.signal, told.exit.lost, told.exit.platform_error) == (9, False, "")
    # But that it never began is, and so is a job that somebody cancelled in Slurm.
    for status, row in ((None, failed), (began, replace(failed, state="CANCELLED"))):
        told = report(key, status, row, is_rank=True)
        assert told is not None
        assert told.exit is not None
        assert told.exit.platform_error
    assert lead_of(key) == RANKS[0].key


@pytest.mark.parametrize(
    ("own", "group"),
    [
        (
            "4:cpu,cpuacct:/slurm/uid_0/job_17/step_0/task_2\n",
            "slurm/uid_0/job_17/step_0/task_2",
        ),
        (
            "0::/slurmstepd.scope/job_17/step_0/user/task_2\n",
            "slurmstepd.scope/job_17/step_0/user/task_2",
        ),
    ],
    ids=["v1", "v2"],
)
def test_a_rank_is_measured_apart_from_those_beside_it(own: str, group: str) -> None:
    found = groups_of_job(own, Path("/cg"), OF_RANK)
    assert found
    for kind, path in found.items():
        assert path == Path("/cg", kind, group)


def test_a_gang_whose_answer_was_lost_is_found_and_not_started_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[str | EngineAway] = [EngineAway("no answer"), "43"]
    there: Rows = {}
    asked: list[Mapping[str, str]] = []

    async def submit(options: Sequence[str], script: str, env: Mapping[str, str] = {}) -> str:
        asked.append(env)
        answer = answers.pop(0)
        if isinstance(answer, EngineAway):
            raise answer
        return answer

    async def jobs(name: str = "") -> Rows:
        return there

    monkeypatch.setattr(client, "submit", submit)
    monkeypatch.setattr(client, "jobs", jobs)
    (tmp_path / "slurm/tasks").mkdir(parents=True)

    async def launched(backend: SlurmBackend, gang: GangLaunch) -> Refused:
        return await backend.launch(gang)

    backend = SlurmBackend(tmp_path, "main", tuple)
    with pytest.raises(EngineAway):
        asyncio.run(launched(backend, GANG))
    # Slurm took it after all; a service that started anew sends the order again.
    row = Row("42", os.geteuid(), "RUNNING", name=name_of("", RANKS[0].key))
    there = {(row.name, row.uid): row}
    backend = SlurmBackend(tmp_path, "main", tuple)
    assert asyncio.run(launched(backend, GANG)) == {}
    assert len(asked) == 1
    told = asyncio.run(SlurmBackend(tmp_path, "main", tuple).observe([r.key for r in RANKS]))
    assert [report.seen for report in told] == [Seen.UNKNOWN] * 3
    # The rest of a gang that never was one job is refused, as a whole.
    other = GANG.only(
        replace(rank, key=replace(rank.key, attempt=AttemptNo(3))) for rank in RANKS[1:]
    )
    there = {}
    refused = asyncio.run(launched(backend, other))
    assert set(refused.values()) == {
        "the other ranks were started before: ranks start together or not at all"
    }
    assert len(asked) == 1

"""What Slurm's accounts say of devices: as they were printed by `sacct`, and told over REST."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from allotment.backends.slurm import accounts
from allotment.backends.slurm.accounts import GpuAccounts, known_of
from allotment.backends.slurm.accounts_read import Accounted, accounted_in, counts_in
from allotment.backends.slurm.rest_shapes import accounts_in, counts_gpus_in
from allotment.model.diagnosis import GpuUse
from allotment.model.ids import AttemptNo, JobId, TaskIndex, TaskKey
from allotment.model.quantity import GIB, MIB
from allotment.model.reports import UseReport

KEY = TaskKey(JobId(7), AttemptNo(1), TaskIndex(0))
OTHER = TaskKey(JobId(8), AttemptNo(2), TaskIndex(3))
SAID = """\
41|COMPLETED|
41.batch|COMPLETED|cpu=00:00:09,energy=0,fs/disk=4031,gres/gpumem=61G,gres/gpuutil=170,mem=4M
41.extern|COMPLETED|cpu=00:00:00,energy=0,fs/disk=2332,gres/gpumem=0,gres/gpuutil=0,mem=0
42|RUNNING|
42.batch|RUNNING|
42.0|COMPLETED|cpu=00:00:01,gres/gpumem=1536M,gres/gpuutil=3,mem=1M
43|CANCELLED by 0|
43.batch|CANCELLED|cpu=00:00:02,energy=0,fs/disk=23323,mem=9384K,pages=1,vmem=16548K
44|FAILED|
"""
DEVICES = GpuUse(1700, 61 * GIB)


def test_the_most_of_any_step_is_read_once_all_have_ended() -> None:
    assert accounted_in(SAID) == {
        "41": Accounted(True, DEVICES),
        "42": Accounted(False, GpuUse(30, 1536 * MIB)),
        "43": Accounted(True, None),
    }


def test_slurm_counts_devices_where_it_has_a_resource_for_that() -> None:
    assert counts_in("cpu|\ngres|gpu\ngres|gpumem\ngres|gpuutil\n")
    assert not counts_in("cpu|\nmem|\ngres|gpu\n")


def told(state: object, number: object, memory: object) -> bytes:
    each = [
        {"type": "cpu", "name": None, "id": 1, "count": 9000},
        {"type": "gres", "name": "gpuutil", "id": 1002, "count": number},
        {"type": "gres", "name": "gpumem", "id": 1001, "count": memory},
    ]
    step = {"state": state, "tres": {"requested": {"average": each}, "consumed": {}}}
    return json.dumps({"jobs": [{"job_id": 41, "steps": [step]}], "errors": []}).encode()


def test_over_rest_it_is_the_same() -> None:
    closed = {"41": Accounted(True, DEVICES)}
    assert accounts_in(told("COMPLETED", 170, 61 * GIB)) == closed
    assert accounts_in(told(["COMPLETED"], 170, 61 * GIB)) == closed
    assert not accounts_in(told(["RUNNING"], 170, 0))["41"].is_closed
    assert accounts_in(b'{"jobs": [{"job_id": 41, "steps": []}]}') == {
        "41": Accounted(False, None)
    }
    for name in ("TRES", "tres"):
        said = {name: [{"type": "gres", "name": "gpuutil", "id": 1002, "count": 0}]}
        assert counts_gpus_in(json.dumps(said).encode())
    assert not counts_gpus_in(b'{"TRES": [{"type": "gres", "name": "gpu"}]}')


def test_what_is_never_said_is_not_waited_for() -> None:
    asked = {KEY: ("41", 0.0), OTHER: ("44", 0.0)}
    found = accounted_in(SAID)
    assert known_of(asked, found, 1.0) == [(KEY, DEVICES)]
    late = accounts.GIVEN_UP_S + 1
    assert known_of(asked, found, late) == [(KEY, DEVICES), (OTHER, None)]
    assert known_of({KEY: ("42", 0.0)}, found, 1.0) == []
    assert known_of({OTHER: ("44", accounts.NEVER)}, found, late) == []


class Told:
    """Slurm's accounts, as far as they are asked here."""

    def __init__(self, *, counts: bool) -> None:
        self.counts = counts
        self.asked: list[Sequence[str]] = []

    async def counts_gpus(self) -> bool:
        return self.counts

    async def accounted(self, jobs: Sequence[str]) -> Mapping[str, Accounted]:
        self.asked.append(jobs)
        return accounted_in(SAID)


def asked_of(slurm: Any, folder: Path, *keys: TaskKey) -> list[object]:
    """Ask once, of tasks that end after the first look."""

    async def ask() -> None:
        await book.ask()
        for key in keys:
            book.ended(key, "41")
        await book.ask()

    heard: list[object] = []
    book = GpuAccounts(slurm, folder, heard.append)
    book.start()
    asyncio.run(ask())
    return heard


def test_what_was_to_be_asked_for_is_asked_for_after_a_new_start(tmp_path: Path) -> None:
    folder = tmp_path / "accounts"
    folder.mkdir()
    (folder / "7.1.0").write_text("41")
    (folder / "README").write_text("not of ours")
    (folder / "8.1.0").touch()  # as the loss of power leaves it
    slurm = Told(counts=True)
    assert asked_of(slurm, folder) == [UseReport(KEY, DEVICES)]
    assert slurm.asked == [["41"]]
    assert not (folder / "7.1.0").exists()
    assert (folder / "README").exists()


def test_where_slurm_does_not_count_nobody_asks(tmp_path: Path) -> None:
    counts, counts_not = Told(counts=True), Told(counts=False)
    assert asked_of(counts_not, tmp_path / "a", KEY) == []
    assert (counts_not.asked, list((tmp_path / "a").iterdir())) == ([], [])
    assert asked_of(counts, tmp_path / "b", KEY) == [UseReport(KEY, DEVICES)]
    assert counts.asked == [["41"]]

"""Slurm's REST API as documents: what two versions of it say, and what they are asked."""

import asyncio
import base64
import json
from pathlib import Path

import pytest

from allotment.backends.contact import Contact
from allotment.backends.slurm.nodes import OURS, NodeWatch
from allotment.backends.slurm.rest import Rest
from allotment.backends.slurm.rest_shapes import (
    flaws_in,
    lines_of_nodes,
    newest_in,
    partition_in,
    rows_in,
    submission_of,
)
from allotment.backends.slurm.settings import Partition
from allotment.backends.slurm.status import Row
from allotment.backends.slurm.token import token_of
from allotment.backends.slurm.told import nodes_from
from allotment.model.engines import RestSetup
from allotment.model.errors import BackendError, EngineAway

OLD = {
    "job_id": 5, "user_id": 99, "name": "x", "job_state": "RUNNING", "state_reason": "None",
    "nodes": "n2", "cpus": 2, "memory_per_node": 100, "tres_per_node": "gres:gpu:a100:2",
}  # fmt: skip
SET = {"set": True, "infinite": False}
NEWER = {
    **OLD, "job_state": ["RUNNING", "COMPLETING"], "cpus": {**SET, "number": 2},
    "memory_per_node": {**SET, "number": 100}, "tres_per_node": "gres/gpu:a100:2",
}  # fmt: skip
OPTIONS = [
    "--job-name=x", "--comment=allotment 1.1.0", "--partition=main", "--nodelist=n2",
    "--nodes=1", "--ntasks=1", "--cpus-per-task=2", "--mem=100M", "--no-requeue",
    "--export=NIL", "--chdir=/", "--output=/s/slurm.log", "--open-mode=append",
    "--gres=gpu:a100:2,gpu:1", "--uid=1000", "--gid=1000", "--qos=high", "--time=7",
    "--signal=B:USR2@65",
]  # fmt: skip


def test_jobs_of_both_shapes_are_the_same() -> None:
    row = Row("5", 99, "RUNNING", "None", "n2", "x", 2, "100M", "gres:gpu:a100:2")
    assert rows_in(json.dumps({"jobs": [OLD]}).encode()) == {("x", 99): row}
    (now,) = rows_in(json.dumps({"jobs": [NEWER]}).encode()).values()
    assert (now.state, now.cpus, now.memory) == ("COMPLETING", 2, "100M")


def test_a_name_that_is_no_text_hides_nobodys_jobs() -> None:
    said = json.dumps({"jobs": [OLD, {**OLD, "name": "NAME"}]}).encode()
    rows = rows_in(said.replace(b"NAME", b"a\xff"))
    assert ("x", 99) in rows
    assert len(rows) == 2


def test_of_several_jobs_of_one_name_the_running_one_counts() -> None:
    over = {**OLD, "job_id": 9, "job_state": "COMPLETED"}
    (row,) = rows_in(
        json.dumps({"jobs": [over, OLD, {**OLD, "name": "y"}]}).encode(), "x"
    ).values()
    assert row.id == "5"


def test_the_same_is_asked_of_both_versions_and_nothing_is_left_out() -> None:
    before, uid = submission_of(OPTIONS, "#!/bin/sh\n", 38)
    after, _ = submission_of(OPTIONS, "#!/bin/sh\n", 42)
    assert uid == 1000
    old, new = before["job"], after["job"]
    assert isinstance(old, dict)
    assert isinstance(new, dict)
    assert (old["nodelist"], new["required_nodes"]) == ("n2", ["n2"])
    assert (old["gres"], new["tres_per_node"]) == (
        "gpu:a100:2,gpu:1",
        "gres/gpu:a100:2,gres/gpu:1",
    )
    assert (old["time_limit"], new["time_limit"]["number"]) == (7, 7)
    assert "signal" not in old, "22.05 refuses it over REST, and the job with it"
    assert (new["kill_warning_signal"], new["kill_warning_delay"]["number"]) == ("USR2", 65)
    assert (old["no_requeue"], new["requeue"]) == (True, False)
    for name in ("name", "comment", "partition", "qos", "tasks", "cpus_per_task"):
        assert old[name] == new[name], name
    with pytest.raises(BackendError, match="over REST there is no licenses"):
        submission_of([*OPTIONS, "--licenses=x"], "", 42)


def test_a_node_has_a_line_as_sinfo_would_write_it() -> None:
    node = {
        "name": "n1", "cpus": 4, "real_memory": 2000, "state": ["MIXED", "DRAIN", "PLANNED"],
        "gres": "gpu:a100:4", "gres_used": "gpu:a100:1(IDX:0)", "alloc_cpus": 2,
        "alloc_memory": 64, "partitions": ["main"], "reason": "fan",
    }  # fmt: skip
    found = nodes_from(json.dumps({"nodes": [node]}), "slurmrestd")
    (line,) = lines_of_nodes(found, "main")
    assert line.used == {"cpu": 2, "memory": 64, "a100": 1}
    assert line.standing == ("n1", "mixed+drain", "4", "2000", "gpu:a100:4", "fan")
    assert lines_of_nodes(found, "other") == ()


def test_a_partition_has_its_limit_in_both_shapes() -> None:
    old = {"name": "p", "max_time_limit": 60, "state": "UP", "preemption_mode": ["disabled"]}
    limit = {"time": {**SET, "number": 60}}
    new = {"name": "p", "maximums": limit, "partition": {"state": ["DOWN"]}}
    free = {"name": "q", "maximums": {"time": {"set": False, "infinite": True, "number": 0}}}
    said = [json.dumps({"partitions": [each]}).encode() for each in (old, new, free)]
    assert partition_in(said[0], "p") == Partition("p", 60)
    assert partition_in(said[1], "p") == Partition("p", 60, is_up=False)
    assert partition_in(said[2], "q") == Partition("q")
    assert partition_in(said[0], "q") is None


def test_the_newest_version_is_spoken_and_none_is_said() -> None:
    assert newest_in(rb'{"\/slurm\/v0.0.40\/jobs\/":1, "\/slurm\/v0.0.42\/jobs\/":1}') == 42
    with pytest.raises(BackendError, match=r"v0\.0\.38 or newer"):
        newest_in(b'{"/slurm/v0.0.36/jobs":1}')


def test_what_went_wrong_is_read_and_what_is_no_document_says_nothing() -> None:
    said = b'{"errors": [{"error": "Invalid node name specified", "error_code": 2018}]}'
    assert [(flaw.code, flaw.error) for flaw in flaws_in(said)] == [
        (2018, "Invalid node name specified")
    ]
    (unclear,) = flaws_in(b'{"errors": [{"error": "Unspecified error"}]}')
    assert unclear.code == -1, "of partitions and nodes 22.05 says no number"
    assert flaws_in(b"Authentication failure") == ()


def test_an_answer_without_jobs_is_none_that_says_there_are_none() -> None:
    """Else all that waits would be taken for lost."""
    for said in (b"{}", b"[]", b'{"jobs": null}', b'{"jobs": {}}', b"<html>", b"\xff"):
        with pytest.raises(BackendError, match="not understood"):
            rows_in(said)
        with pytest.raises(BackendError, match="not understood"):
            partition_in(said, "main")
    assert rows_in(b'{"jobs": []}') == {}


def test_a_token_tells_whose_it_is_and_when_to_renew_it() -> None:
    claims = base64.urlsafe_b64encode(b'{"exp":1000,"iat":0,"sun":"root"}').decode().rstrip("=")
    token = token_of(f"SLURM_JWT=a.{claims}.c\n")
    assert (token.text, token.user) == (f"a.{claims}.c", "root")
    assert token.renew_at == 940
    assert token_of("a.b.c").until == float("inf")


def test_ranks_without_sbatch_say_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    rest = Rest(RestSetup("http://127.0.0.1:1", token_file="/none"))
    with pytest.raises(BackendError, match="ranks of MPI are submitted by `sbatch`") as caught:
        asyncio.run(rest.submit([], "mpi.sh", {"SLURM_HOSTFILE": "/hosts"}))
    assert not isinstance(caught.value, EngineAway), "it would be tried for ever"


class Cluster(Rest):
    """Notes which nodes are opened."""

    def __init__(self) -> None:
        super().__init__(RestSetup("http://127.0.0.1:1", token_file="/none"))
        self.opened: list[str] = []

    async def resume(self, node: str) -> None:
        self.opened.append(node)


@pytest.mark.parametrize(
    "how", [{"state": "idle", "state_flags": ["DRAIN"]}, {"state": ["IDLE", "DRAIN"]}]
)
def test_what_slurm_did_not_open_when_told_is_opened_later(how: dict[str, object]) -> None:
    """Versions differ in where they say that a node is drained."""
    slurm = Cluster()
    watch = NodeWatch(slurm, list, "main", Contact("Slurm", "jobs"), lambda report: None)
    watch._to_open.add("n1")  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    told = {"name": "n1", "cpus": 1, "real_memory": 1, "reason": f"{OURS}fan", **how}
    (node,) = nodes_from(json.dumps({"nodes": [told]}), "slurmrestd")
    asyncio.run(watch._open_again({"n1": node}))  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    assert slurm.opened == ["n1"]

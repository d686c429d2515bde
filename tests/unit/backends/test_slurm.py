"""The pure parts of the Slurm backend: what is asked for, and what an answer means."""

import json

import pytest

from allotment.backends.slurm.client import SlurmNode
from allotment.backends.slurm.discover import nodes_of, report_of
from allotment.backends.slurm.request import document_of, options_of, script_of
from allotment.backends.slurm.status import Row, report, rows_of
from allotment.backends.status import RunnerStatus
from allotment.model.ids import AttemptNo, JobId, NodeId, TaskIndex, TaskKey
from allotment.model.quantity import MIB, Millis, Resources
from allotment.model.reports import NodeReport, Seen
from allotment.service.ports import Identity, LaunchRequest

KEY = TaskKey(JobId(7), AttemptNo(2), TaskIndex(1))
REQUEST = LaunchRequest(
    key=KEY,
    name="main.1",
    node="n3",
    argv=("python3", "train.py"),
    env=(("A", "1"), ("CUDA_VISIBLE_DEVICES", "5,6")),
    workdir="/data",
    resources=Resources(gpu_milli=2000, cpu_milli=1500, memory=100 * MIB + 1),
    devices=(5, 6),
    identity=Identity(1000, 1001),
    at_barrier=True,
    limit_ms=Millis(61_000),
)


def test_a_job_asks_for_just_its_node_and_what_it_needs() -> None:
    options = options_of(REQUEST, "allot-ab", "gpu", "/s/7", "a100")
    assert set(options) >= {
        "--job-name=allot-ab-7.2.1", "--partition=gpu", "--nodelist=n3", "--nodes=1",
        "--ntasks=1", "--cpus-per-task=2", "--mem=101M", "--gres=gpu:a100:2",
        "--no-requeue", "--export=NIL", "--time=7", "--uid=1000", "--gid=1001",
    }  # fmt: skip


def test_devices_are_said_by_slurm_and_secrets_are_in_no_option() -> None:
    told = json.loads(document_of(REQUEST))
    assert told["env"] == {"A": "1"}
    assert told["at_barrier"] is True
    assert "train.py" not in " ".join(options_of(REQUEST, "p", "gpu", "/s/7", ""))


def test_a_path_with_quotes_stays_one_word() -> None:
    assert "'/it'\\''s here'" in script_of("/it's here", "/runner")


RUNNING = RunnerStatus("running", pid=4)


def over(**more: object) -> RunnerStatus:
    return RunnerStatus(phase="ended", pid=4, **more)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("state", ["PENDING", "CONFIGURING", "RUNNING", "COMPLETING"])
def test_slurms_word_alone_starts_nothing(state: str) -> None:
    assert report(KEY, None, Row("1", "x", state)) is None
    told = report(KEY, RUNNING, Row("1", "x", state))
    assert told is not None
    assert told.seen is Seen.RUNNING


def test_that_nothing_is_said_is_no_end() -> None:
    assert report(KEY, None, None) is None
    told = report(KEY, RUNNING, None)
    assert told is not None
    assert told.seen is Seen.RUNNING


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("NODE_FAIL", "Slurm lost node n3"),
        ("PREEMPTED", "another job of the Slurm cluster preempted it"),
        ("CANCELLED", "it was cancelled in Slurm (scancel), not by Allotment"),
        ("TIMEOUT", "Slurm ended it at the time limit of its partition or account"),
        ("SOMETHING_NEW", "Slurm says SOMETHING_NEW of it"),
    ],
)
def test_what_slurm_did_is_no_fault_of_the_job(state: str, words: str) -> None:
    row = Row("1", "x", state, node="n3")
    for status in (RUNNING, over(signal=15, ended_by="slurm")):
        told = report(KEY, status, row)
        assert told is not None
        assert told.exit is not None
        assert told.exit.platform_error == words


def test_the_first_process_knows_better_than_slurm() -> None:
    told = report(KEY, over(exit_code=3), Row("1", "x", "COMPLETED"))
    assert told is not None
    assert told.exit is not None
    assert told.exit.code == 3


def test_a_kill_is_explained_when_slurm_has_said_why() -> None:
    killed = over(signal=9)
    for old in (Row("1", "x", "RUNNING"), Row("1", "x", "PENDING", "Resources")):
        waits = report(KEY, killed, old)
        assert waits is not None
        assert waits.seen is Seen.RUNNING
    for state, oom in (("OUT_OF_MEMORY", True), ("COMPLETED", False)):
        told = report(KEY, killed, Row("1", "x", state))
        assert told is not None
        assert told.exit is not None
        assert (told.exit.signal, told.exit.oom) == (9, oom)


def test_a_job_whose_first_process_never_came_says_what_to_look_at() -> None:
    told = report(KEY, None, Row("1", "x", "FAILED", node="n3"))
    assert told is not None
    assert told.exit is not None
    assert "did not come up on n3" in told.exit.platform_error


def test_rows_are_read_and_others_passed_over() -> None:
    text = "5|allot-a-1.1.0|RUNNING|None|n1\nnonsense\n6|b|PENDING|Resources|\n"
    assert rows_of(text) == {
        "allot-a-1.1.0": Row("5", "allot-a-1.1.0", "RUNNING", "None", "n1"),
        "b": Row("6", "b", "PENDING", "Resources", ""),
    }


def a_node(name: str = "n1", **more: object) -> SlurmNode:
    return SlurmNode(name, 8, 4000, partitions=("gpu",), **more)  # pyright: ignore[reportArgumentType]


def test_nodes_and_their_devices_are_found() -> None:
    found = [a_node("n2", gres="gpu:a100:2(S:0-1),gpu:v100:1"), a_node(gres="gpu:3")]
    other = SlurmNode("x", 1, 1, partitions=("cpu",))
    first, second = nodes_of([*found, other], "gpu")
    assert (first.name, first.cpu_milli, first.memory) == ("n1", 8000, 4000 * MIB)
    assert [device.type for device in first.devices] == ["gpu", "gpu", "gpu"]
    assert [device.type for device in second.devices] == ["a100", "a100", "v100"]


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (a_node(state="idle"), NodeReport(NodeId(0), alive=True)),
        (
            a_node(state="mixed", state_flags=("DRAIN",), reason="bad fan"),
            NodeReport(NodeId(0), alive=True, closed="drained in Slurm: bad fan"),
        ),
        (
            a_node(state="down"),
            NodeReport(NodeId(0), alive=False, reason="it is down in Slurm"),
        ),
        (None, NodeReport(NodeId(0), alive=True, closed="Slurm has no such node")),
    ],
)
def test_a_drained_node_is_closed_and_only_a_dead_one_lost(
    node: SlurmNode | None, expected: NodeReport
) -> None:
    (ours,) = nodes_of([a_node()], "gpu")
    assert report_of(ours, node) == expected

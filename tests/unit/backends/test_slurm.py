"""The pure parts of the Slurm backend: what is asked for, and what an answer means."""

import csv
import json
import os
import subprocess
from itertools import permutations
from pathlib import Path

import pytest
from msgspec.structs import replace

from allotment.backends.slurm.discover import UNTYPED, nodes_of, report_of
from allotment.backends.slurm.enter import enter_argv, inside_argv
from allotment.backends.slurm.output import pieces_in
from allotment.backends.slurm.packed import packed
from allotment.backends.slurm.request import (
    document_of,
    gres_of,
    options_of,
    script_of,
    time_of,
)
from allotment.backends.slurm.settings import Partition, partition_of
from allotment.backends.slurm.status import Row, report, rows_of
from allotment.backends.slurm.strays import STRAY_S, Strays
from allotment.backends.slurm.task import (
    environment,
    in_image,
    reserve,
    session_of,
    with_image_words,
    write_in_room,
)
from allotment.backends.slurm.told import SlurmNode
from allotment.backends.status import RunnerStatus, indexes_in, status_from
from allotment.model.cluster import Device, Node
from allotment.model.errors import BackendError
from allotment.model.ids import AttemptNo, DeviceIndex, JobId, NodeId, TaskIndex, TaskKey
from allotment.model.ledger import Slot
from allotment.model.quantity import MIB, Millis, Resources
from allotment.model.reports import NodeReport, Seen
from allotment.service.launch import binding_of
from allotment.service.ports import Binding, GangLaunch, Identity, ImageWish, TaskLaunch

KEY = TaskKey(JobId(7), AttemptNo(2), TaskIndex(1))
TASK = TaskLaunch(
    key=KEY,
    name="main.1",
    binding=Binding("n3", (4, 5), (("a100", 2),)),
    argv=("python3", "train.py"),
    env=(("A", "1"), ("CUDA_VISIBLE_DEVICES", "5,6")),
    resources=Resources(gpu_milli=2000, cpu_milli=1500, memory=100 * MIB + 1),
)
GANG = GangLaunch(
    (TASK,),
    workdir="/data",
    identity=Identity(1000, 1001),
    at_barrier=True,
    limit_ms=Millis(61_000),
    labels=(("tenant", "vision"),),
)


def test_a_job_asks_for_just_its_node_and_what_it_needs() -> None:
    options = options_of(GANG, TASK, "allot-ab", "gpu", "/s/7")
    assert set(options) >= {
        "--job-name=allot-ab-7.2.1", "--partition=gpu", "--nodelist=n3", "--nodes=1",
        "--ntasks=1", "--cpus-per-task=2", "--mem=101M", "--gres=gpu:a100:2",
        "--no-requeue", "--export=ALL", "--uid=1000", "--gid=1001",
        "--comment=allotment 7.2.1 tenant=vision",
    }  # fmt: skip


def test_devices_are_said_by_slurm_and_secrets_are_in_no_option() -> None:
    told = json.loads(document_of(GANG, TASK))
    assert told["env"] == {"A": "1"}
    assert told["at_barrier"] is True
    assert "train.py" not in " ".join(options_of(GANG, TASK, "p", "gpu", "/s/7"))


IN_IMAGE = replace(
    GANG,
    read_only=('/da,ta "1"',),
    writable=("/out",),
    named=frozenset({"PATH"}),
    image_wish=ImageWish(f"localhost:5000/bb:1@sha256:{'0' * 64}", "ann", "/home/ann"),
)


def test_a_command_in_an_image_is_one_of_apptainer() -> None:
    told = json.loads(document_of(IN_IMAGE, TASK, "/usr/bin/apptainer"))
    program, *words = in_image(told["container"], told["argv"])
    *options, image, first, second = words
    assert (program, first, second) == ("/usr/bin/apptainer", "python3", "train.py")
    assert image == f"docker://localhost:5000/bb@sha256:{'0' * 64}"
    assert [word for word in options if word in {"--no-https", "--pwd", "/data"}] == [
        "--no-https",
        "--pwd",
        "/data",
    ]
    mounts = [word for word in options if word.startswith(("type=", '"type'))]
    assert [next(csv.reader([word])) for word in mounts] == [
        ["type=bind", 'source=/da,ta "1"', 'destination=/da,ta "1"', "ro"],
        ["type=bind", "source=/out", "destination=/out"],
    ]
    assert told["cwd"] == "/", "where it begins is a folder in the image"


def test_variables_of_a_job_win_over_those_of_its_image() -> None:
    told = json.loads(document_of(IN_IMAGE, TASK, "/opt/apptainer"))["container"]
    env = {"PATH": "/mine", "LANG": "C", "HOME": "/h", "APPTAINER_CACHEDIR": "/c", "A%": "1"}
    assert with_image_words(env, told) == {**env, "APPTAINERENV_PATH": "/mine"}
    assert with_image_words(env, None) == env


def test_a_job_with_an_image_is_refused_where_apptainer_is_gone() -> None:
    with pytest.raises(BackendError, match="nothing here runs images any more"):
        document_of(IN_IMAGE, TASK)


def test_the_processes_of_a_session_are_found() -> None:
    assert os.getpid() in session_of(os.getsid(0))


def test_the_devices_of_a_task_are_of_the_types_that_were_chosen() -> None:
    devices = tuple(Device(DeviceIndex(n), "v100" if n < 6 else "a100") for n in range(8))
    node = Node(NodeId(3), "n3", 8000, 1, 1, devices)

    def asked(node: Node, *indexes: int) -> str:
        return gres_of(binding_of(Slot(NodeId(3), indexes), {NodeId(3): node}))

    assert asked(node, 4, 5) == "gpu:v100:2"
    assert asked(node, 5, 6) == "gpu:a100:1,gpu:v100:1"
    assert asked(node) == ""
    untyped = tuple(Device(DeviceIndex(n), UNTYPED) for n in range(8))
    assert asked(replace(node, devices=untyped), 4, 5) == "gpu:2"


def test_a_path_with_quotes_stays_one_word() -> None:
    assert "'/it'\\''s here'" in script_of("/it's here", "/runner")


RUNNING = RunnerStatus("running", pid=4)


def over(**more: object) -> RunnerStatus:
    return RunnerStatus(phase="ended", pid=4, **more)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("state", ["PENDING", "CONFIGURING", "RUNNING", "COMPLETING"])
def test_slurms_word_alone_starts_nothing(state: str) -> None:
    assert report(KEY, None, Row("1", 0, state)) is None
    told = report(KEY, RUNNING, Row("1", 0, state))
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
    row = Row("1", 0, state, node="n3")
    for status in (RUNNING, over(signal=15, ended_by="slurm")):
        told = report(KEY, status, row)
        assert told is not None
        assert told.exit is not None
        assert told.exit.platform_error == words


def test_the_first_process_knows_better_than_slurm() -> None:
    told = report(KEY, over(exit_code=3), Row("1", 0, "COMPLETED"))
    assert told is not None
    assert told.exit is not None
    assert told.exit.code == 3


def test_a_kill_is_explained_when_slurm_has_said_why() -> None:
    killed = over(signal=9)
    for old in (Row("1", 0, "RUNNING"), Row("1", 0, "PENDING", "Resources")):
        waits = report(KEY, killed, old)
        assert waits is not None
        assert waits.seen is Seen.RUNNING
    for state, oom in (("OUT_OF_MEMORY", True), ("COMPLETED", False)):
        told = report(KEY, killed, Row("1", 0, state))
        assert told is not None
        assert told.exit is not None
        assert (told.exit.signal, told.exit.oom) == (9, oom)


def test_what_slurm_ended_at_the_barrier_never_ran_and_is_no_fault_of_the_job() -> None:
    at_barrier = RunnerStatus(phase="ended", signal=15, ended_by="slurm")
    waits = report(KEY, at_barrier, Row("1", 0, "COMPLETING"))
    assert waits is not None
    assert waits.seen is Seen.READY
    told = report(KEY, at_barrier, Row("1", 0, "CANCELLED"))
    assert told is not None
    assert told.exit is not None
    assert "scancel" in told.exit.platform_error


def test_a_job_whose_first_process_never_came_says_what_to_look_at() -> None:
    told = report(KEY, None, Row("1", 0, "FAILED", node="n3"))
    assert told is not None
    assert told.exit is not None
    assert "did not come up on n3" in told.exit.platform_error


def test_rows_are_read_and_what_stands_in_names_is_not() -> None:
    text = (
        "k9|5|7|RUNNING|2|64M|gres:gpu:1|None|n1|allot-a-1.1.0\nnonsense\n"
        "k9|6|7|PENDING|1|1G|N/A|Resources||x|y\n"
        "k9|8|66|RUNNING|1|1G|N/A|None|n1|x\n"
        "k8|9|7|COMPLETED|1|1G|N/A|None|n1|allot-a-1.1.0\n"
        "k9|4|66|COMPLETED|1|1G|N/A|None|n1|allot-a-1.1.0\n"
    )
    rows = rows_of(text, "k9")
    assert rows["allot-a-1.1.0", 7] == Row(
        "5", 7, "RUNNING", "None", "n1", "allot-a-1.1.0", 2, "64M", "gres:gpu:1"
    )
    assert rows["x|y", 7].state == "PENDING"
    assert set(rows) == {("allot-a-1.1.0", 7), ("x|y", 7), ("x", 66), ("allot-a-1.1.0", 66)}


def test_a_second_copy_that_is_over_is_not_the_end_of_the_first() -> None:
    over, runs, waits = (f"k|{n}|0|{how}||||||a" for n, how in
                         ((9, "COMPLETED"), (7, "RUNNING"), (8, "PENDING")))  # fmt: skip
    for lines in permutations((over, runs, waits)):
        assert rows_of("\n".join(lines), "k")["a", 0].id == "7"


def test_a_job_without_a_task_is_ended_when_it_had_time_to_end_itself() -> None:
    rows = rows_of(
        "k|1|0|RUNNING||||||own-1.1.0\nk|2|0|RUNNING||||||own-2.1.0\n"
        "k|3|0|PENDING||||||own-3.1.0\nk|4|0|COMPLETING||||||own-4.1.0\n"
        "k|5|0|RUNNING||||||others-1.1.0\n", "k"
    )  # fmt: skip
    strays = Strays()
    wanted = {("own-1.1.0", 0)}
    assert strays.overdue(rows, "own", wanted, 100.0) == []
    assert strays.overdue(rows, "own", wanted, 100.0 + STRAY_S - 1) == []
    assert strays.overdue(rows, "own", wanted, 100.0 + STRAY_S) == ["2", "3"]
    assert strays.overdue({}, "own", wanted, 200.0) == []
    assert not strays


@pytest.mark.parametrize(
    "forged",
    [
        {"pid": 10**32}, {"exit_code": 10**19}, {"exit_code": -1}, {"signal": 9999},
        {"usage": {"wall_ms": 10**30}}, {"usage": {"cpu_user_ms": -1}},
        {"log_dropped": {str(n): 2**53 for n in range(3)}}, {"phase": ["ended"]},
        {"phases": [{"name": "x", "start_ms": 1, "end_ms": 2}] * 65},
        {"phases": [{"name": "x", "start_ms": -1, "end_ms": 2**70}]},
    ],
)  # fmt: skip
def test_what_no_event_log_could_hold_is_no_status(forged: dict[str, object]) -> None:
    assert status_from(json.dumps({"phase": "ended", **forged}).encode()) is None
    assert status_from(b'{"phase": "ended", "exit_code": 3, "later": 1}') is not None


def a_node(name: str = "n1", **more: object) -> SlurmNode:
    return SlurmNode(name, 8, 4000, partitions=("gpu",), **more)  # pyright: ignore[reportArgumentType]


def test_nodes_and_their_devices_are_found() -> None:
    found = [a_node("n2", gres="gpu:a100:2(S:0-1),gpu:v100:1"), a_node(gres="gpu:3")]
    other = SlurmNode("x", 1, 1, partitions=("cpu",))
    first, second = nodes_of([*found, other], "gpu")
    assert (first.name, first.cpu_milli, first.memory) == ("n1", 8000, 4000 * MIB)
    assert [device.type for device in first.devices] == ["gpu", "gpu", "gpu"]
    assert [device.type for device in second.devices] == ["a100", "a100", "v100"]


@pytest.mark.parametrize("said", ["nvlink,ib", ("ib", "nvlink")])
def test_the_features_of_a_node_are_a_label(said: str | tuple[str, ...]) -> None:
    (tagged,) = nodes_of([a_node(features=said)], "gpu")
    assert tagged.labels == (("features", "ib,nvlink"),)
    for none in ("", (), None):
        (plain,) = nodes_of([a_node(features=none)], "gpu")
        assert plain.labels == ()


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (a_node(state="idle"), NodeReport(NodeId(0), alive=True)),
        (
            a_node(state="mixed", state_flags=("DRAIN",), reason="bad fan"),
            NodeReport(NodeId(0), alive=True, closed="drained in Slurm: bad fan"),
        ),
        (
            a_node(state=("MIXED", "DRAIN", "NOT_RESPONDING"), reason="fan"),
            NodeReport(NodeId(0), alive=True, closed="drained in Slurm: fan"),
        ),
        (
            a_node(state=("DOWN", "DRAIN")),
            NodeReport(NodeId(0), alive=False, reason="it is down in Slurm"),
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


def test_a_command_is_told_slurms_devices_and_a_batch_script_its_own_words_for_the_rest() -> (
    None
):
    slurms = {
        "SLURM_JOB_ID": "77", "SLURM_NTASKS": "1", "SLURM_CPUS_PER_TASK": "4", "HOME": "/x",
        "CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_GPUS": "2,3", "SLURMD_NODENAME": "n1",
    }  # fmt: skip
    plain = environment({"A": "1", "ALLOT_DEVICES": "6,7", "SLURM_NTASKS": "9"}, slurms)
    assert plain == {
        "A": "1", "ALLOT_DEVICES": "0,1", "SLURM_NTASKS": "9", "SLURM_CPUS_PER_TASK": "4",
        "SLURM_JOB_ID": "77", "CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_GPUS": "2,3",
        "SLURMD_NODENAME": "n1",
    }  # fmt: skip
    script = environment({"SLURM_JOB_ID": "5", "SLURM_JOB_GPUS": "6,7"}, slurms)
    assert script == {
        "SLURM_JOB_ID": "5", "SLURM_JOB_GPUS": "2,3", "CUDA_VISIBLE_DEVICES": "0,1",
        "SLURMD_NODENAME": "n1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "indexes"),
    [
        ("", ()), ("0", (0,)), ("0,2-3", (0, 2, 3)), ("x", ()), ("1-", (1,)), ("0-99999", ()),
        ("-1", ()), ("²", ()), ("3-1", ()),
    ],
)  # fmt: skip
def test_the_devices_that_slurm_gave_are_read(text: str, indexes: tuple[int, ...]) -> None:
    assert indexes_in(text) == indexes


def test_a_command_beside_a_task_goes_as_its_user_from_the_first_moment() -> None:
    inside = inside_argv("/t.py", "/f", "/f/code", ["ls", "-l"])
    words = enter_argv("7", Identity(1000, 100, (100, 4)), ["PATH=/bin"], "/f/code", inside)
    assert words[:3] == ["/usr/bin/env", "-i", "PATH=/bin"]
    assert words[3:7] == ["setpriv", "--reuid=1000", "--regid=100", "--groups=100,4"]
    assert "--jobid=7" in words
    assert words[-5:] == ["enter", "/f", "/f/code", "ls", "-l"]


@pytest.mark.parametrize(
    ("limit_ms", "most", "minutes"),
    [(61_000, None, 7), (61_000, 60, 7), (61_000, 4, 4), (60_000 * 4, 4, 4)],
)
def test_a_time_limit_has_some_to_spare_where_the_partition_has(
    limit_ms: int, most: int | None, minutes: int
) -> None:
    assert time_of(Millis(limit_ms), most) == minutes


def test_the_limits_of_a_partition_are_read() -> None:
    text = "PartitionName=gpu AllowGroups=ALL MaxTime={} State=UP PreemptMode=REQUEUE"
    assert partition_of(text.format("1-02:30:00")) == Partition("gpu", 1590, preempts=True)
    assert partition_of(text.format("UNLIMITED")) == Partition("gpu", None, preempts=True)
    assert partition_of("") is None


def test_the_first_process_is_one_file_that_any_python_runs(tmp_path: Path) -> None:
    sources = {"a.b.other": "WORD = 'found'\n"}
    sources["allotment.backends.slurm.task"] = (
        "from a.b.other import WORD\ndef start(words): print(WORD, *words)\n"
    )
    name, content = packed(sources)
    assert packed(sources) == (name, content)
    assert packed({**sources, "a.b.other": "WORD = ''"})[0] != name
    (tmp_path / name).write_bytes(content)
    words = ["/usr/bin/python3", "-I", "-S", str(tmp_path / name), "x"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout == "found x\n", done.stderr


def test_pieces_of_output_are_found_among_whatever_else_is_there() -> None:
    names = ["stdout.tail.30", "stdout.log", "stdout.tail.x", "stderr.tail.7", "stdout.tail.4"]
    assert pieces_in(names, "stdout") == [
        (0, "stdout.log"), (4, "stdout.tail.4"), (30, "stdout.tail.30"),
    ]  # fmt: skip
    forged = (f"stdout.tail.{n}" for n in range(100_000))
    assert len(pieces_in(forged, "stdout")) == 5


def test_a_status_needs_no_room_but_what_was_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reserve("status.json")
    room = tmp_path / "status.json.part"
    first = room.stat().st_ino
    for phase in ("ready", "running", "ended"):
        write_in_room("status.json", json.dumps({"phase": phase}).encode())
        told = status_from((tmp_path / "status.json").read_bytes())
        assert told is not None
        assert told.phase == phase
    assert {path.name for path in tmp_path.iterdir()} == {"status.json", "status.json.part"}
    inodes = {path.stat().st_ino for path in tmp_path.iterdir()}
    assert first in inodes, "the same two files take turns"

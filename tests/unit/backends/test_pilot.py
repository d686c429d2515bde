"""The pure parts of the pilot backend: what is asked for, and what Slurm's files mean."""

import asyncio
import math

import msgspec
import pytest

from allotment.backends.pilot import messages as m
from allotment.backends.pilot.gres import expanded, files_of
from allotment.backends.pilot.request import name_of, options_of, script_of
from allotment.backends.pilot.squeue import PilotRow, rows_of, seconds_of
from allotment.model.cluster import Device, Node
from allotment.model.ids import AttemptNo, DeviceIndex, JobId, NodeId, TaskIndex, TaskKey
from allotment.model.quantity import MIB, Millis, Resources
from allotment.model.reasons import StopCause
from allotment.service.ports import Binding, GangLaunch, Identity, TaskLaunch

KEY = TaskKey(JobId(7), AttemptNo(2), TaskIndex(1))


def test_a_whole_node_is_asked_for() -> None:
    kinds = ["a100", "a100", "t4"]
    devices = tuple(Device(DeviceIndex(n), kind) for n, kind in enumerate(kinds))
    node = Node(NodeId(0), "n3", 4000, 100 * MIB, 0, devices)
    options = options_of(node, name_of("allot-ab", "n3", 4), "gpu", "/s/n3")
    assert set(options) >= {
        "--job-name=allot-ab-n3.4", "--partition=gpu", "--nodelist=n3", "--nodes=1",
        "--exclusive", "--mem=0", "--gres=gpu:a100:2,gpu:t4:1", "--no-requeue", "--export=ALL",
    }  # fmt: skip
    bare = Node(NodeId(0), "c1", 4000, 100 * MIB, 0)
    assert not any("gres" in option for option in options_of(bare, "x", "cpu", "/s/c1"))


def test_the_secret_goes_by_standard_input_alone() -> None:
    note = m.Note("n3", 4, "s3cret", "PEM\nPEM", 3600)
    script = script_of(["/py", "-c", "a b", "it's"], note)
    lines = script.splitlines()
    assert "SLURM_RESTART_COUNT" in lines[1]
    assert lines[2].startswith("exec /py -c 'a b' ")
    assert "s3cret" not in lines[2]
    assert msgspec.json.decode(lines[3], type=m.Note) == note


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3,07],m", ["n1", "n2", "n3", "n07", "m"]),
        ("r[1-2]n[08-10]", ["r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"]),
        ("n[x]", ["n[x]"]),
        ("", []),
    ],
)
def test_host_lists_are_expanded(text: str, names: list[str]) -> None:
    assert expanded(text) == names


def test_a_list_that_would_fill_the_memory_is_cut() -> None:
    assert len(expanded("n[0-99999999]")) <= 4096


def test_the_files_of_a_nodes_gpus_are_counted_through_all_lines() -> None:
    text = """
    AutoDetect=off
    NodeName=n[1-2] Name=gpu Type=a100 File=/dev/nvidia[0-1]  # two
    Name=nic File=/dev/ib0
    NodeName=n[2-3] Name=gpu Type=t4 File=/dev/nvidia7
    """
    assert files_of(text, "n1") == {0: "/dev/nvidia0", 1: "/dev/nvidia1"}
    assert files_of(text, "n2") == {0: "/dev/nvidia0", 1: "/dev/nvidia1", 2: "/dev/nvidia7"}
    assert files_of(text, "n4") == {}
    assert files_of("Name=gpu Count=4", "n1") == {}


def test_of_two_jobs_of_one_name_that_counts_which_is_there() -> None:
    text = (
        "12|allot-ab-n1.3|COMPLETED|None|0:00|1:00\n"
        "11|allot-ab-n1.3|RUNNING|None|UNLIMITED|UNLIMITED\n"
        "13|allot-abc-n1.3|RUNNING|None|1:00|1:00\n14|other|RUNNING|None|1:00|1:00\n"
    )
    found = rows_of(text, "allot-ab")
    assert {name: row.id for name, row in found.items()} == {"allot-ab-n1.3": "11"}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1:05", 65),
        ("2:00:00", 7200),
        ("1-00:00:01", 86401),
        ("UNLIMITED", math.inf),
        ("NOT_SET", math.inf),
        ("", math.inf),
    ],
)
def test_times_of_slurm_are_read(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("left", "limit", "is_nearly_over"),
    [
        ("UNLIMITED", "UNLIMITED", False),
        ("9:59", "1-00:00:00", True),
        ("10:00", "1-00:00:00", False),
        ("0:07", "1:00", False),
        ("0:05", "1:00", True),
    ],
)
def test_a_hold_is_renewed_before_its_end(left: str, limit: str, is_nearly_over: bool) -> None:
    row = PilotRow("1", "allot-ab-n1.3", "RUNNING", "None", left, limit)
    assert row.is_nearly_over is is_nearly_over


def test_what_is_said_is_understood_as_it_was_meant() -> None:
    task = TaskLaunch(
        key=KEY, name="main.1", argv=("true",), env=(("A", "1"),),
        binding=Binding("n3", (5, 6), (("a100", 2),)),
        resources=Resources(gpu_milli=2000, cpu_milli=1500),
    )  # fmt: skip
    gang = GangLaunch((task,), "/", Identity(1000, 1001, (4,)), at_barrier=True)
    said = [
        m.Call(1, m.Launch(gang)),
        m.Call(2, m.Stop(KEY, "TERM", Millis(5), StopCause.NODE_LOST)),
        m.Call(3, m.ReadLog(KEY, "stdout", -5, 10)),
        m.Welcome(),
    ]

    async def heard() -> list[m.FromService]:
        reader = asyncio.StreamReader()
        for message in said:
            reader.feed_data(m.framed(message))
        decode = msgspec.msgpack.Decoder[m.FromService](m.FromService).decode
        return [decode(await m.next_frame(reader)) for _ in said]

    assert asyncio.run(heard()) == said


def test_a_frame_that_would_fill_the_memory_is_refused() -> None:
    async def read() -> bytes:
        reader = asyncio.StreamReader()
        reader.feed_data(b"\x7f\xff\xff\xff")
        return await m.next_frame(reader)

    with pytest.raises(ValueError, match="at most"):
        asyncio.run(read())

"""What the service concludes of a node from what its runner and Slurm say of it."""

import asyncio
from pathlib import Path
from typing import cast

import msgspec
import pytest

from allotment.backends.pilot import messages as m
from allotment.backends.pilot.hold import ISOLATION, Hold
from allotment.backends.pilot.link import Link
from allotment.model.cluster import Device, Node
from allotment.model.ids import DeviceIndex, NodeId

NODE = Node(NodeId(0), "n1", 4000, 0, 0, (Device(DeviceIndex(0), "a100"),))
APART = m.Isolation("bwrap", "none", ())
BARE = m.Isolation("none", "none", ())


class Deaf:
    """A connection that nobody reads."""

    def close(self) -> None:
        pass


def a_hold(folder: Path, told: m.Isolation | None, *, needs_walls: bool) -> Hold:
    hold = Hold(NODE, folder, "allot-x", "gpu")
    hold.needs_walls = needs_walls
    hold.kept = msgspec.structs.replace(hold.kept, is_asked_for=True)
    hello = m.Hello(m.PROTOCOL, "n1", 1, "7", "", "", 1, told)
    writer = cast("asyncio.StreamWriter", Deaf())
    hold.connect(Link(hello, cast("asyncio.StreamReader", None), writer, lambda report: None))
    return hold


@pytest.mark.parametrize(
    ("told", "needs_walls", "is_closed"),
    [
        (APART, True, False),
        (BARE, False, False),
        (BARE, True, True),
        (None, True, True),
    ],
)
def test_no_work_goes_where_a_part_of_a_node_cannot_be_kept_apart(
    tmp_path: Path, told: m.Isolation | None, needs_walls: bool, is_closed: bool
) -> None:
    closed = a_hold(tmp_path, told, needs_walls=needs_walls).report({}, None).closed
    assert ("install bubblewrap" in closed) is is_closed
    assert bool(closed) is is_closed


def test_what_a_node_enforces_is_written_down(tmp_path: Path) -> None:
    a_hold(tmp_path, APART, needs_walls=False)
    assert msgspec.json.decode((tmp_path / ISOLATION).read_bytes(), type=m.Isolation) == APART

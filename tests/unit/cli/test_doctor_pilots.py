"""What `allot doctor` says of nodes that pilots hold, and of Slurm's epilog."""

from pathlib import Path

import msgspec
import pytest

from allotment.backends.pilot.messages import Isolation
from allotment.cli import doctor_pilots
from allotment.cli.doctor_finding import Level
from allotment.cli.doctor_slurm import epilog_findings

ALL = ("cpu", "devices", "freezer", "memory", "pids")
OF_ROOT = Isolation("own", "v1", ALL, fence="namespaces")
OF_USER = Isolation("bwrap", "v1", ("freezer", "memory"), fence="namespaces", uid=12345678)
BARE = Isolation(
    "none", "none", (), {"bwrap": "not \x1b[2Jinstalled"}, "processes", uid=12345678
)


def keep(folder: Path, node: str, told: Isolation | None) -> None:
    path = folder / node / "isolation.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(msgspec.json.encode(told))


def test_nodes_that_are_alike_are_named_together(tmp_path: Path) -> None:
    keep(tmp_path, "pilot/nodes/n1", OF_ROOT)
    keep(tmp_path, "pilot/nodes/n2", OF_ROOT)
    keep(tmp_path, "engines/old/pilot/nodes/m1", OF_USER)
    keep(tmp_path, "pilot/nodes/n3", None)  # its runner is of a version that does not say
    (first,) = doctor_pilots.findings(tmp_path)
    (second,) = doctor_pilots.findings(tmp_path, "old")
    assert (first.level, first.text[:7]) == (Level.OK, "n1, n2:")
    assert second.level is Level.NOTE
    assert "m1: pilots of uid 12345678, not of root" in second.text
    assert "no control groups for cpu, pids: CPU is not limited" in second.text
    assert "see each other" not in second.text


def test_what_does_not_hold_is_said(tmp_path: Path) -> None:
    keep(tmp_path, "pilot/nodes/n1", BARE)
    (finding,) = doctor_pilots.findings(tmp_path)
    for words in (
        "no namespaces for a pilot",
        "tasks see each other",
        "devices are not hidden",
    ):
        assert words in finding.text
    assert "Install bubblewrap" in finding.advice
    assert "\x1b" not in finding.text


def test_that_no_runner_has_come_is_said(tmp_path: Path) -> None:
    (finding,) = doctor_pilots.findings(tmp_path, "new")
    assert (finding.level, finding.text) == (Level.NOTE, "no runner has come from any node yet")


@pytest.mark.parametrize(
    ("settings", "level"),
    [
        ({}, Level.WARN),
        ({"Epilog": "(null)", "EpilogMsgTime": "2000 usec"}, Level.WARN),
        ({"Epilog": "/etc/slurm/clean-up"}, Level.NOTE),
        ({"Epilog": "/etc/slurm/allotment-epilog"}, Level.OK),
        ({"Epilog[0]": "/a", "Epilog[1]": "/etc/slurm/allotment-epilog"}, Level.OK),
    ],
)
def test_an_epilog_is_looked_for(settings: dict[str, str], level: Level) -> None:
    (finding,) = epilog_findings(settings)
    assert finding.level is level

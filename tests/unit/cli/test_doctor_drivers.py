"""Whether `allot doctor` says that images get the drivers of GPUs."""

import json
from pathlib import Path

import pytest

from allotment.backends.local import machine
from allotment.backends.local.cdi import found
from allotment.cli.doctor_drivers import drivers
from allotment.cli.doctor_finding import Level
from allotment.model.cluster import Device
from allotment.model.ids import DeviceIndex

pytestmark = pytest.mark.needs_root


@pytest.fixture
def folder(reachable: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which specifications are looked for, of a machine with a device."""
    device = Device(DeviceIndex(0), "H100", 1, "GPU-0", virtual=False)
    monkeypatch.setattr(machine, "real_devices", lambda: [(device, ("/dev/null",))])
    monkeypatch.setattr(found.Specifications.__init__, "__defaults__", ((reachable,),))
    return reachable


def test_without_gpus_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "real_devices", list)
    assert drivers() == []


def test_a_gpu_that_no_specification_has_is_noted(folder: Path) -> None:
    assert not list(folder.iterdir())
    (finding,) = drivers()
    assert finding.level is Level.NOTE
    assert "/dev/null" in finding.text
    assert finding.advice.startswith("nvidia-ctk cdi generate")


def test_what_comes_into_images_is_counted(folder: Path) -> None:
    mount = {"hostPath": "/etc/passwd", "containerPath": "/opt/x"}
    edits = {"deviceNodes": [{"path": "/dev/null"}], "mounts": [mount]}
    spec = {
        "cdiVersion": "0.5.0", "kind": "v.example/gpu",
        "devices": [{"name": "0", "containerEdits": edits}],
    }  # fmt: skip
    path = folder / "v.json"
    path.write_text(json.dumps(spec))
    path.chmod(0o644)
    (finding,) = drivers()
    assert (finding.level, finding.text) == (
        Level.OK, "1 file of drivers for images, by CDI",
    )  # fmt: skip

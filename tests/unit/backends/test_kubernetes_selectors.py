"""Selectors of DeviceClasses: what they are true of, and what is not understood."""

import pytest

from allotment.backends.kubernetes.device_objects import Attribute, Capacity, SliceDevice
from allotment.backends.kubernetes.selectors import NotUnderstood, facts_of, meant_by

DEVICE = SliceDevice(
    "gpu-0",
    attributes={
        "type": Attribute(text="gpu"),
        "index": Attribute(number=3),
        "healthy": Attribute(flag=True),
        "other.org/zone": Attribute(text="a"),
    },
    capacity={"memory": Capacity("80Gi")},
)
FACTS = facts_of("gpu.nvidia.com", DEVICE)
OWN = "device.attributes['gpu.nvidia.com']"


@pytest.mark.parametrize(
    "expression",
    [
        "device.driver == 'gpu.nvidia.com'",
        f'device.driver == "gpu.nvidia.com" && {OWN}.type == "gpu"',
        f"{OWN}.index == 3 && {OWN}.index >= 3 && !({OWN}.index < -1)",
        f"{OWN}.healthy",
        f"{OWN}.type in ['mig', 'gpu']",
        "device.attributes['other.org'].zone != 'b'",
        f"has({OWN}.type) && !has({OWN}.none)",
        "'gpu.nvidia.com' in device.attributes",
        "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('4Gi')) >= 0",
        f"{OWN}.none == 1 || true",
        f"{OWN}['type'] == 'gpu'",
    ],
)
def test_what_is_so_of_a_device(expression: str) -> None:
    assert meant_by(expression)(FACTS)


@pytest.mark.parametrize(
    "expression",
    [
        "device.driver == 'gpu.amd.com'",
        f"{OWN}.type == 'mig'",
        f"{OWN}.none == 'gpu'",
        f"{OWN}.none != 'gpu'",
        "device.attributes['none'].type == 'gpu'",
        f"false && {OWN}.none == 1",
        f"{OWN}.index == '3'",
        f"{OWN}.index == true",
        f"{OWN}.healthy == 1",
        f"{OWN}.index",
        f"{OWN}.type > 3",
        "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('100Gi')) >= 0",
    ],
)
def test_what_is_not_so_of_a_device(expression: str) -> None:
    assert not meant_by(expression)(FACTS)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "device.driver ==",
        "device.driver = 'x'",
        f"{OWN}.type.matches('g.*')",
        f"{OWN}.version.compareTo(semver('1.0.0')) >= 0",
        "cel.bind(a, device, a.driver == 'x')",
        "device.driver == 'x' device",
        "(" * 100 + "true" + ")" * 100,
        "!" * 100 + "true",
        "[" * 100 + "1" + "]" * 100,
        "true || " * 1000 + "true",
        "&&".join(["true"] * 300),
        "device" + ".a" * 1000,
        "1 + 1 == 2",
        "device.driver == r'x'",
        "1.5 < 2",
    ],
)
def test_what_is_not_read_is_not_understood(expression: str) -> None:
    with pytest.raises(NotUnderstood):
        meant_by(expression)


@pytest.mark.parametrize("expression", ["&&".join(["true"] * 128), "device" + ".a" * 127])
def test_the_longest_that_is_read_is_not_too_deep_for_python(expression: str) -> None:
    assert meant_by(expression)(FACTS) is ("&&" in expression)


def test_what_a_device_lacks_is_asked_for_once_however_it_is_written() -> None:
    deep = f"{OWN}.none || (" * 20 + "true" + ")" * 20
    assert meant_by(deep)(FACTS)
    assert not meant_by(deep.replace("true", "false"))(FACTS)

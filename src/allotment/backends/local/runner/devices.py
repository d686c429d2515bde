"""Accelerators as the kernel numbers them, and denying them in a v1 devices group."""

import os
from typing import Final

from allotment.backends.local.runner.cgroup_files import read, write

_FIXED_MAJORS: Final = (195, 226)
"""Those of NVIDIA and of DRM; other drivers' are in /proc/devices."""
_DRIVERS: Final = ("nvidia", "kfd", "accel", "habanalabs")


def deny_accelerators(path: str) -> None:
    """Deny every accelerator in a v1 devices group."""
    for major in _accelerator_majors():
        write(f"{path}/devices.deny", f"c {major}:* rwm")


def allow_only(path: str, devices: list[str]) -> None:
    """Deny every accelerator but these device files in a v1 devices group.

    What is denied as a whole major cannot be allowed in part. So all is denied, and then
    all but accelerators is allowed, driver by driver, and these.
    """
    write(f"{path}/devices.deny", "a")
    accelerators = _accelerator_majors()
    rules = [f"c {major}:* rwm" for major in _character_majors() if major not in accelerators]
    for device in devices:
        number = os.stat(device).st_rdev
        rules.append(f"c {os.major(number)}:{os.minor(number)} rwm")
    for rule in ("b *:* rwm", "c *:* m", *rules):
        write(f"{path}/devices.allow", rule)


def _accelerator_majors() -> set[int]:
    found = _character_majors()
    return {*_FIXED_MAJORS, *(major for major in found if found[major].startswith(_DRIVERS))}


def _character_majors() -> dict[int, str]:
    """Read the drivers of character devices from /proc/devices, by major number."""
    found: dict[int, str] = {}
    for line in read("/proc/devices").partition("Block devices")[0].splitlines():
        number, _, name = line.strip().partition(" ")
        if number.isdigit():
            found[int(number)] = name
    return found

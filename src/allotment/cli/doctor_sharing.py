"""What `allot doctor` says of GPUs that several jobs use: in turns, and in parts."""

import os
from pathlib import Path

from allotment.cli.doctor_finding import Finding, Level
from allotment.model.quantity import show_bytes

OPT_IN = "A job allows it with `checkpoint: {driver: true}`, and needs host memory for it."


def sharing(folder: Path) -> list[Finding]:
    """Return what becomes of device memory and of parts of devices; nothing without GPUs."""
    from allotment.backends.local.machine import real_devices  # noqa: PLC0415 - only here
    from allotment.backends.local.sharing import sharing_here  # noqa: PLC0415 - only here

    devices = [device for device, _ in real_devices()]
    if not devices:
        return []
    means = sharing_here(devices)
    level = Level.OK if means.enforced else Level.NOTE
    return [handing_over(folder), Finding("gpu parts", level, means.words)]


def handing_over(folder: Path) -> Finding:
    """Return whether the driver hands over device memory of suspended jobs, as it was tried."""
    from allotment.backends.local.driver.self_test import kept_test  # noqa: PLC0415 - only here

    test = kept_test(folder)
    if test is None:
        text = "it was not tested whether the driver can take device memory of suspended jobs"
        why = "" if os.geteuid() == 0 else " It needs a service that runs as root."
        advice = f"A service tries it once, at its start.{why}"
        return Finding("gpu memory", Level.NOTE, text, advice)
    if not test.passed:
        text = f"of a suspended job it stays on its devices: {test.why}"
        return Finding("gpu memory", Level.NOTE, text)
    text = (
        f"the driver {test.driver} can take that of a suspended job, and give it back: "
        f"{show_bytes(test.size)} went in {test.away_ms:.0f} ms ({_rate(test.away_rate)}), "
        f"and came back in {test.back_ms:.0f} ms ({_rate(test.back_rate)})"
    )
    return Finding("gpu memory", Level.OK, text, OPT_IN)


def _rate(bytes_a_second: int) -> str:
    return f"{bytes_a_second / 1e9:.1f} GB/s"

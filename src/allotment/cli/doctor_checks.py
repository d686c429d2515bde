"""What `allot doctor` looks at. Each check gives findings and raises nothing."""

import os
import platform
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path

from allotment import __version__
from allotment.cli.doctor_drivers import drivers
from allotment.cli.doctor_finding import Finding, Level
from allotment.cli.doctor_isolation import isolation
from allotment.cli.doctor_kubernetes import kubernetes
from allotment.cli.doctor_mlflow import mlflow
from allotment.cli.doctor_sharing import sharing
from allotment.cli.doctor_slurm import slurm
from allotment.cli.doctor_turns import turns
from allotment.cli.words import count
from allotment.client import ApiError, Client, Unreachable
from allotment.model.errors import StoreError
from allotment.model.quantity import DAY, GIB, MIB, show_bytes, show_millis
from allotment.service.views import Health

LEAST_PYTHON = (3, 11)
LITTLE_DISK, NO_DISK = 2 * GIB, 100 * MIB
PATIENCE_S = 5.0


def findings(folder: Path) -> list[Finding]:
    """Return the findings of all checks, for the service of one state folder."""
    checks: dict[str, Callable[[], list[Finding]]] = {
        "machine": machine,
        "python": python,
        "isolation": lambda: isolation(folder),
        "gpus": gpus,
        "drivers": drivers,
        "sharing": lambda: sharing(folder),
        "state": lambda: disk(folder),
        "service": lambda: service(folder),
        "turns": lambda: turns(folder),
        "books": lambda: books(folder),
        "mlflow": lambda: mlflow(folder),
        "slurm": lambda: slurm(folder),
        "kubernetes": lambda: kubernetes(folder),
    }
    found: list[Finding] = []
    shut: list[str] = []
    for name, check in checks.items():
        try:
            found += _safely(name, check)
        except PermissionError:
            shut.append(name)
    if shut:
        text = f"only the user who runs the service may check: {', '.join(shut)}"
        found.append(Finding("not seen", Level.NOTE, text, "Ask that user to run this."))
    return found


def _safely(name: str, check: Callable[[], list[Finding]]) -> list[Finding]:
    """Turn a check that breaks into a finding: the doctor must finish its round.

    Raises PermissionError where it is only not for this user to see.
    """
    try:
        return check()
    except PermissionError:
        raise
    except Exception as error:  # noqa: BLE001 - the top of a loop over checks
        text = f"this check itself failed: {type(error).__name__}: {error}"
        return [Finding(name, Level.BAD, text, "Please report this.")]


def machine() -> list[Finding]:
    """Return what this machine is."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    text = (
        f"{platform.node()}: {_system()}, Linux {platform.release()} {platform.machine()}, "
        f"{len(os.sched_getaffinity(0))} CPUs, {show_bytes(pages * size)} of memory"
    )
    return [Finding("machine", Level.OK, text)]


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return "unknown system"


def python() -> list[Finding]:
    """Return findings on the Python that runs us."""
    version = platform.python_version()
    text = f"{version} at {sys.executable}, allotment {__version__}"
    if sys.version_info[:2] < LEAST_PYTHON:
        return [Finding("python", Level.BAD, text, "Install Python 3.11 or newer.")]
    return [Finding("python", Level.OK, text)]


def disk(folder: Path) -> list[Finding]:
    """Return findings on the state folder and the room on its disk."""
    place = folder
    while not place.exists():
        place = place.parent
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        return [
            Finding(
                "state", Level.NOTE, f"you may not write to {folder}",
                "Use the service of its owner or one of your own: --state DIR.",
            )
        ]  # fmt: skip
    free = shutil.disk_usage(place).free
    text = f"{folder}, {show_bytes(free)} free" + ("" if folder.exists() else ", not made yet")
    if free < NO_DISK:
        return [Finding("state", Level.BAD, text, "Make space: no event can be recorded.")]
    if free < LITTLE_DISK:
        return [
            Finding("state", Level.WARN, text, "Make space: logs and outputs will fill it.")
        ]
    return [Finding("state", Level.OK, text)]


def service(folder: Path) -> list[Finding]:
    """Return whether a service runs, and whether it is healthy."""
    try:
        with Client(state=str(folder), timeout=PATIENCE_S) as client:
            health = client.health()
    except Unreachable as error:
        if (folder / "address.json").exists() and "not allowed" in error.message:
            return [Finding("service", Level.BAD, error.message, error.hint)]
        return [Finding("service", Level.NOTE, "not running here", "Start it: allot up")]
    except ApiError as error:
        return [Finding("service", Level.BAD, error.message, error.hint)]
    text = (
        f"version {health.version}, pid {health.pid}, {health.backend} backend, "
        f"{count(health.jobs, 'job')}, {count(health.events, 'event')}"
    )
    found = [Finding("service", Level.OK, text)]
    if health.trouble:
        advice = "Running jobs continue; new jobs are accepted when this is solved."
        found = [Finding("service", Level.BAD, f"{text}\nin trouble: {health.trouble}", advice)]
    elif not health.ready:
        found = [Finding("service", Level.WARN, f"{text}\nnot ready yet", "Ask again soon.")]
    if health.clock_set_at:
        found += _clock(health, round(time.time() * 1000))
    if health.version != __version__:
        advice = "Restart it with this version: allot down && allot up"
        found.append(Finding("versions", Level.WARN, f"this is {__version__}", advice))
    return found


def _clock(health: Health, now: int) -> list[Finding]:
    """Find that the machine's clock was set, for a day."""
    ago_ms = now - health.clock_set_at
    if ago_ms > DAY:
        return []
    way = "back" if health.clock_set_ms < 0 else "forward"
    by = show_millis(round(abs(health.clock_set_ms), -3))
    text = f"this machine's clock was set {way} by {by}, {show_millis(max(0, ago_ms))} ago"
    advice = (
        "Time limits are not affected; dates follow the new clock. Check that your dates are "
        "right (allot reservations), and let NTP set the clock."
    )
    return [Finding("clock", Level.WARN, text, advice)]


def books(folder: Path) -> list[Finding]:
    """Return findings on every row of the event log, and whether it is complete."""
    file = folder / "allot.db"
    try:
        return _books(file)
    except (StoreError, sqlite3.Error) as error:
        return [Finding("books", Level.BAD, f"{file}: {error}", PUT_BACK)]


def _books(file: Path) -> list[Finding]:
    from allotment.store.examine import doubts  # noqa: PLC0415 - only here

    wrong = doubts(file)
    if wrong is None:
        return [Finding("books", Level.NOTE, "no event log yet: the first `up` makes it")]
    if not wrong:
        text = f"{file}, {show_bytes(file.stat().st_size)}, complete"
        return [Finding("books", Level.OK, text)]
    return [Finding("books", Level.BAD, "\n".join([f"{file} is damaged:", *wrong]), PUT_BACK)]


PUT_BACK = (
    "Stop the service, move the file away with its -wal and -shm, and `allot restore` a "
    "backup. Without one: `allot up` says how much of it can be used."
)


def gpus() -> list[Finding]:
    """Return which GPUs there are."""
    from allotment.backends.local.machine import real_devices  # noqa: PLC0415 - only here

    found = [device for device, _ in real_devices()]
    if found:
        kinds = ", ".join(f"{device.type} ({show_bytes(device.memory)})" for device in found)
        return [Finding("gpus", Level.OK, f"{len(found)} through NVML: {kinds}")]
    if Path("/dev/nvidiactl").exists():
        text = "an NVIDIA driver is there, but its library NVML finds no device"
        return [Finding("gpus", Level.WARN, text, "Check if nvidia-smi works here.")]
    text = "no NVIDIA GPU here"
    return [Finding("gpus", Level.NOTE, text, "allot up --gpus N makes virtual ones, to try.")]

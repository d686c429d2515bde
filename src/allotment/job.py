"""What a job may tell while it runs: `allotment.progress(step, total, loss=…)`.

There it is also told to pause: `on_pause`, `on_resume` and `on_save` say what is then done.

For use inside jobs, so it needs nothing but Python itself. Without a service it does nothing.
A call never raises, and costs less than a microsecond most times: at most ten a second are
written, as one line of JSON in the file that $ALLOT_PROGRESS_FILE names. The rest, and the
values of their metrics, are only looked at when they are written.
"""

import atexit
import math
import os
import time
from collections.abc import Sequence
from typing import Any

from allotment.pausing import Hook, Pause, opened

EVERY_S = 0.1
"""So long apart is progress written."""
MOST_METRICS = 16
MOST_NAME = 64
"""Letters of the name of a metric."""

_monotonic = time.monotonic


class _Line:
    """The one line of the file of a job."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        self._longest = 0

    def write(self, told: dict[str, Any]) -> None:
        """Replace the line: a shorter one is filled up with spaces."""
        import json  # noqa: PLC0415 - a job that tells nothing does not pay for it

        line = json.dumps(told, allow_nan=False).encode()
        self._longest = max(self._longest, len(line))
        os.pwrite(self._fd, line.ljust(self._longest) + b"\n", 0)


class Progress:
    """Tells of progress, at most so often."""

    def __init__(
        self,
        path: str,
        metric: str = "",
        rungs: Sequence[int] = (),
        pause: Pause | None = None,
    ) -> None:
        """Make it. In a trial of a sweep, `metric` names what it is compared by, at `rungs`."""
        self._path = path
        self._pause = pause
        self._line: _Line | None = None
        self._next = 0.0
        self._unsaid: tuple[Any, Any] | None = None
        self._metrics: dict[str, float | None] = {}
        self._metric = metric
        self._ahead = list(rungs)
        self._reached: list[tuple[int, float | None]] = []

    def __call__(self, step: int, total: int | None = None, **metrics: Any) -> None:  # noqa: ANN401
        """Report that `step` steps are done, of `total` if that is known.

        Metrics are numbers, such as `loss=0.31`; they are shown by `allot show`.
        """
        if self._pause is not None:
            self._come_to(step)
        if not self._path:
            return
        now = _monotonic()
        came = self._metric and self._follow(step, metrics)
        if now < self._next and not came:
            self._unsaid = (step, total)  # No metrics: they may hold on to memory of a device.
            return
        self._next = now + EVERY_S
        self._metrics = _numbers(metrics, self._metric)
        self._write(step, total)

    def _come_to(self, step: Any) -> None:  # noqa: ANN401
        """Do what is wanted at the end of this step: it may take as long as others run."""
        assert self._pause is not None, "it was looked at"
        try:
            self._pause.step(int(step))
        except (TypeError, ValueError, OverflowError):
            return

    def _follow(self, step: Any, metrics: dict[str, Any]) -> bool:  # noqa: ANN401
        """Keep what a trial is compared by; return whether it came to a rung.

        So each trial is compared by its value at just the same step, not at that of a look.
        """
        value = metrics.get(self._metric)
        if isinstance(value, (int, float)):
            self._metrics[self._metric] = _finite(float(value))
        came = False
        try:
            while value is not None and self._ahead and int(step) >= self._ahead[0]:
                self._reached.append((int(step), _finite(float(value))))
                del self._ahead[0]
                came = True
        except Exception:  # noqa: BLE001 - whatever it is, it is no number
            return came
        return came

    def last(self) -> None:
        """Write what was told last, if it was not written."""
        if self._unsaid is not None:
            self._write(*self._unsaid)

    def _write(self, step: Any, total: Any) -> None:  # noqa: ANN401
        self._unsaid = None
        told: dict[str, Any] = {}
        try:
            told["step"] = int(step)
            if total is not None:
                told["total"] = int(total)
            if self._metrics:
                told["metrics"] = self._metrics
            if self._reached:
                told["rungs"] = self._reached
            if self._pause is not None and self._pause.frees:
                told["offloads"] = True
            if self._line is None:
                self._line = _Line(self._path)
            self._line.write(told)
        except Exception:  # noqa: BLE001 - no training ends because its progress cannot be told
            self._next = _monotonic() + 10


def _numbers(metrics: dict[str, Any], compared: str = "") -> dict[str, float | None]:
    """Return those that are numbers; None for what a trial is compared by and is none."""
    found: dict[str, float | None] = {}
    for name, value in metrics.items():
        try:
            number = float(value)
        except Exception:  # noqa: BLE001 - whatever it is, it is no number
            continue
        if name == compared:
            found[name] = _finite(number)
        elif math.isfinite(number) and len(found) < MOST_METRICS:
            found[name[:MOST_NAME]] = number
    return found


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _path() -> str:
    """Return where this process tells of its progress: the first of the job alone does."""
    env = os.environ
    first = env.get("RANK", env.get("SLURM_PROCID", "0")) == "0"
    return env.get("ALLOT_PROGRESS_FILE", "") if first else ""


def _rungs() -> list[int]:
    """Return the steps at which a trial of a sweep is compared."""
    words = os.environ.get("ALLOT_SWEEP_RUNGS", "").split()
    return [int(word) for word in words if word.isdecimal()]


_pause = opened()
progress = Progress(_path(), os.environ.get("ALLOT_SWEEP_METRIC", ""), _rungs(), _pause)
atexit.register(progress.last)


def on_pause(hook: Hook) -> Hook:
    """Call `hook()` when this job is paused after a step: to give its device memory back.

    All ranks of the job stand still then. What it raises is printed, and the job is frozen with
    what it has; the hooks of `on_resume` are called then, too.
    """
    if _pause is not None:
        _pause.on_pause(hook)
    return hook


def on_resume(hook: Hook) -> Hook:
    """Call `hook()` before the job goes on: to take its memory again. Last ones come first."""
    if _pause is not None:
        _pause.on_resume(hook)
    return hook


def on_save(hook: Hook) -> Hook:
    """Call `hook()` where a paused job has to end, without its device memory: to save.

    Then it exits with code 85.
    """
    if _pause is not None:
        _pause.on_save(hook)
    return hook

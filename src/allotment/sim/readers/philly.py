"""`philly`: Microsoft's Philly, `cluster_job_log`; a JSON list of jobs.

Keys: status (Pass, Killed, Failed), vc (tenant), jobid, attempts (start_time, end_time,
detail: ip and gpus of each machine), submitted_time, user. Dates are local time, read as
UTC. The run time is that of all attempts together; the devices are the first attempt's.
"""

from collections.abc import Iterable, Iterator
from sys import intern

import msgspec

from allotment.model.quantity import DEVICE, Resources
from allotment.sim.readers.fields import Clock, Unreadable, checked_span, is_blank
from allotment.sim.readers.formats import Format, Options
from allotment.sim.readers.history import Running, closed
from allotment.sim.readers.shape import NEVER_RAN, Demands
from allotment.sim.readers.source import LONGEST_LINE, Text
from allotment.sim.readers.table import Row
from allotment.sim.trace import BadTrace, Ending, TraceJob

_ENDINGS = {"Pass": Ending.SUCCEEDED, "Killed": Ending.CANCELLED}


class _Machine(msgspec.Struct, gc=False):
    gpus: list[str] = []


class _Attempt(msgspec.Struct, gc=False):
    start_time: str | None = None
    end_time: str | None = None
    detail: list[_Machine] = []


class _Job(msgspec.Struct, gc=False):
    jobid: str
    submitted_time: str
    status: str = ""
    vc: str = "all"
    user: str | None = None
    attempts: list[_Attempt] = []


def _tells(head: str) -> bool:
    start = head.lstrip()
    return start[:1] == "[" and start[1:].lstrip()[:1] == "{" and '"jobid"' in start


def _read(text: Text, options: Options) -> Iterable[Row]:
    reader = _PhillyReader(options)
    rows = [reader.row(entry) for entry in _entries(text)]
    return closed(rows, reader.last_ms)


class _PhillyReader:
    """Makes jobs of entries, and remembers the last instant seen."""

    def __init__(self, options: Options) -> None:
        self.last_ms = 0
        self._clock = Clock()
        self._demands = Demands(whole_nodes=options.whole_nodes)

    def row(self, entry: object) -> Row | Running:
        try:
            return self._job(msgspec.convert(entry, _Job))
        except msgspec.ValidationError:
            return "an entry of another shape than Philly's"
        except Unreadable as reason:
            return str(reason)

    def _job(self, entry: _Job) -> TraceJob | Running:
        submit_ms = self._clock.ms(entry.submitted_time, "submitted_time")
        self.last_ms = max(self.last_ms, submit_ms)
        ran_ms, since_ms, devices = 0, None, 0
        for attempt in entry.attempts:
            if attempt.start_time is None or is_blank(attempt.start_time):
                continue
            devices = devices or sum(len(machine.gpus) for machine in attempt.detail)
            start_ms = self._clock.ms(attempt.start_time, "start_time")
            end_ms = since_ms = None
            if attempt.end_time is None or is_blank(attempt.end_time):
                since_ms = start_ms
            else:
                end_ms = self._clock.ms(attempt.end_time, "end_time")
                ran_ms += _from_to(start_ms, end_ms)
            self.last_ms = max(self.last_ms, end_ms or start_ms)
        if not devices:
            raise Unreadable(NEVER_RAN)
        is_open = since_ms is not None
        tasks, need = self._demands.split(Resources(devices * DEVICE))
        job = TraceJob(
            _whole_text(entry.jobid),
            submit_ms,
            ran_ms if is_open else checked_span(ran_ms, "run time"),
            tasks,
            need,
            intern(_whole_text(entry.vc)),
            intern(_whole_text(entry.user or "")),
            ending=_ENDINGS.get(entry.status, Ending.FAILED),
        )
        return job if since_ms is None else Running(job, since_ms)


def _from_to(start_ms: int, end_ms: int) -> int:
    if end_ms < start_ms:
        raise Unreadable("an attempt ends before it starts")
    return end_ms - start_ms


def _whole_text(text: str) -> str:
    """JSON can escape half a character; written out again it would be refused."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _entries(text: Text) -> Iterator[object]:
    """Go through the entries of a JSON list without reading it whole."""
    import json

    decode = json.JSONDecoder().raw_decode
    buffer, count, started = "", 0, False
    for piece in text:
        buffer += piece
        at = 0
        while True:
            at = _skip(buffer, at, started)
            if at == len(buffer) or buffer[at] == "]":
                break
            started = True
            if buffer[at] != "{":
                raise BadTrace(
                    f"{text.name}: no JSON list of jobs: entry {count + 1} is not an object"
                )
            try:
                entry, at = decode(buffer, at)
            except RecursionError:
                raise BadTrace(f"{text.name}: entry {count + 1} is nested too deep") from None
            except ValueError:
                break
            count += 1
            yield entry
        buffer = buffer[at:]
        if len(buffer) > LONGEST_LINE and buffer[:1] != "]":
            raise BadTrace(
                f"{text.name}: entry {count + 1} is broken, or longer than 1 MiB: no JSON list "
                "of jobs"
            )
        if buffer[:1] == "]":
            return
    raise BadTrace(
        f"{text.name}: the JSON list stops early, inside or after entry {count}: the file is "
        "cut short or broken there"
    )


def _skip(buffer: str, at: int, started: bool) -> int:
    """Go past what stands between entries."""
    between = " \t\r\n," if started else " \t\r\n["
    while at < len(buffer) and buffer[at] in between:
        at += 1
    return at


FORMAT = Format("philly", (), _tells, _read)

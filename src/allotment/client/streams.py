"""Events and output of jobs as they come, over `follow`."""

import codecs
import contextlib
from collections.abc import Iterator, Mapping

from allotment.client.follow import LogLine, Patience, follow
from allotment.client.request import decode, events_path, job_path, path_to
from allotment.client.transport import Reply, Transport
from allotment.model.ids import JobId
from allotment.service.views import EventView, JobView

CHUNK = 1 << 16
PAGE = 1000
"""Events asked for at a time."""


def is_over(transport: Transport, job: JobId) -> bool:
    """Whether a job has finished, as the service says."""
    data = transport.fetch("GET", job_path(job), again=True)
    return decode(data, JobView).state.finished


def follow_events(
    transport: Transport, job: JobId | None, after: int, patience: Patience
) -> Iterator[EventView]:
    """Return events as they happen, until that job has finished; of all jobs for ever."""

    def open_after(last: str) -> Reply:
        query = {"after": last or str(after), "follow": "true"}
        return _stream(transport, path_to(events_path(job), query), last, patience)

    for event in follow(
        open_after, lambda: job is not None and is_over(transport, job), patience
    ):
        yield decode(event.data.encode(), EventView)


def read_events(
    transport: Transport, job: JobId | None, after: int, limit: int
) -> Iterator[EventView]:
    """Return events that happened, page by page."""
    while limit > 0:
        size = min(limit, PAGE)
        query = {"after": str(after), "limit": str(size)}
        data = transport.fetch("GET", path_to(events_path(job), query), again=True)
        found = decode(data, list[EventView])
        yield from found
        if len(found) < size:
            return
        after, limit = found[-1].seq, limit - size


def follow_logs(
    transport: Transport, job: JobId, query: Mapping[str, str], patience: Patience
) -> Iterator[LogLine]:
    """Return output as it is written, until that job has finished."""
    path = path_to(job_path(job, "/logs"), {**query, "follow": "true"})
    for event in follow(
        lambda last: _stream(transport, path, last, patience),
        lambda: is_over(transport, job),
        patience,
    ):
        yield decode(event.data.encode(), LogLine)


def _stream(transport: Transport, path: str, last: str, patience: Patience) -> Reply:
    headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
    return transport.open(path, headers, patience.silence())


def read_logs(
    transport: Transport, job: JobView, query: Mapping[str, str]
) -> Iterator[LogLine]:
    """Return what was written so far, task by task: the plain form names no tasks."""
    streams = ("stdout", "stderr")
    if (stream := query.get("stream", "both")) != "both":
        streams = (stream,)
    for task in _tasks(job, query):
        for part in streams:
            path = path_to(job_path(job.id, "/logs"), {**query, "task": task, "stream": part})
            yield from _text(transport.open(path, {"Accept": "*/*"}), task, part)


def _tasks(job: JobView, query: Mapping[str, str]) -> list[str]:
    if task := query.get("task"):
        return [task]
    wanted = query.get("attempt", str(len(job.attempts)))
    names = [
        task.name
        for attempt in job.attempts
        if str(attempt.no) == wanted
        for task in attempt.tasks
    ]
    return names or ["0"]  # the service says what is missing


def _text(reply: Reply, task: str, stream: str) -> Iterator[LogLine]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with contextlib.closing(reply):
        while chunk := reply.read(CHUNK):
            yield LogLine(task, stream, decoder.decode(chunk))
    if rest := decoder.decode(b"", final=True):
        yield LogLine(task, stream, rest)

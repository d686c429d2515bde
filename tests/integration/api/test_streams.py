"""Streams: what they say, where they go on after a break, and that they end."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from allotment.api import streams
from allotment.backends.local.output import read_output
from allotment.backends.local.runner.logs import CappedLog
from allotment.model.ids import AttemptNo, JobId, TaskIndex, TaskKey
from allotment.service.ports import LogChunk
from tests.integration.api.live import Live
from tests.support.cluster import UnixConnection, until


class Event(NamedTuple):
    id: str
    kind: str
    data: dict[str, object]


class Reader:
    """A client of one stream."""

    def __init__(self, live: Live, path: str, last: str = "") -> None:
        self._connection = UnixConnection(live.socket)
        headers = {"Last-Event-ID": last} if last else {}
        self._connection.request("GET", path, headers=headers)
        self.response = self._connection.getresponse()
        assert self.response.status == 200, self.response.read()

    def close(self) -> None:
        self.response.close()
        self._connection.close()

    def __iter__(self) -> Iterator[Event]:
        parts: dict[str, str] = {}
        while line := self.response.readline().decode():
            name, colon, value = line.rstrip("\n").partition(": ")
            if colon:
                parts[name] = value
            elif parts:
                data = json.loads(parts["data"])
                yield Event(parts.get("id", ""), parts.get("event", ""), data)
                parts = {}


@contextmanager
def reading(live: Live, path: str, last: str = "") -> Iterator[Reader]:
    reader = Reader(live, path, last)
    try:
        yield reader
    finally:
        reader.close()


def key(job: int, attempt: int = 1, index: int = 0) -> TaskKey:
    return TaskKey(JobId(job), AttemptNo(attempt), TaskIndex(index))


def running(live: Live, command: str = "fake forever", **changes: object) -> int:
    job = live.submit(command, **changes)
    live.wait_for(job, "running")
    return job


def says(live: Live, job: int, text: bytes, stream: str = "stdout", index: int = 0) -> None:
    output = live.backend.output
    place = (key(job, index=index), stream)
    live.call(lambda: output.__setitem__(place, output.get(place, b"") + text))


def streams_open(live: Live) -> float:
    lines = live.ask("GET", "/metrics").body.decode().splitlines()
    return float(
        next(line for line in lines if line.startswith("allot_http_streams")).split()[1]
    )


# ── events ──────────────────────────────────────────────────────────────────────────────


def test_a_jobs_events_come_as_they_happen_and_end_with_it(live: Live) -> None:
    job = running(live)
    with reading(live, f"/v1/jobs/{job}/events?follow=true") as reader:
        events = iter(reader)
        assert reader.response.getheader("Content-Type", "").startswith("text/event-stream")
        assert next(events).data["kind"] == "JobSubmitted"
        live.ask("POST", f"/v1/jobs/{job}:cancel")
        rest = list(events)
    assert rest[-1].kind == "end"
    assert rest[-1].data == {"state": "cancelled"}
    assert rest[-2].data["kind"] == "JobCancelled"
    ids = [int(event.id) for event in rest[:-1]]
    assert ids == sorted(ids)


def test_events_go_on_where_the_stream_broke(live: Live) -> None:
    job = live.submit("fake 0.01")
    live.wait_for(job, "succeeded")
    path = f"/v1/jobs/{job}/events?follow=true"
    with reading(live, path) as reader:
        whole = list(reader)
    with reading(live, path, last=whole[2].id) as reader:
        assert list(reader) == whole[3:]
    with reading(live, f"{path}&after={whole[2].id}") as reader:
        assert list(reader) == whole[3:]


def test_all_events_are_followed_by_many_at_once(live: Live) -> None:
    readers = [Reader(live, "/v1/events?follow=true") for _ in range(10)]
    job = live.submit("fake 0.01")
    for reader in readers:
        kinds = [
            next(e for e in iter(reader) if e.data["job"] == job and e.data["kind"] == kind)
            for kind in ("JobSubmitted", "JobSucceeded")
        ]
        assert len(kinds) == 2
        reader.close()
    until(lambda: streams_open(live) == 0, "streams to be closed")


# ── output ──────────────────────────────────────────────────────────────────────────────


def test_output_as_text(live: Live) -> None:
    job = running(live)
    says(live, job, b"hello\n")
    says(live, job, b"oh no\n", "stderr")
    assert live.ask("GET", f"/v1/jobs/{job}/logs?stream=stdout").body == b"hello\n"
    assert live.ask("GET", f"/v1/jobs/{job}/logs").body == b"hello\noh no\n"
    assert live.ask("GET", f"/v1/jobs/{job}/logs?stream=stderr&tail=4").body == b" no\n"
    assert live.ask("GET", f"/v1/jobs/{job}/logs?tail=0").body == b""
    answer = live.ask("GET", f"/v1/jobs/{job}/logs")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-type"].startswith("text/plain")


def test_long_output_comes_whole(live: Live) -> None:
    job = running(live)
    text = b"".join(b"line %d\n" % number for number in range(50_000))
    says(live, job, text)
    assert live.ask("GET", f"/v1/jobs/{job}/logs?task=0&stream=stdout").body == text
    tail = live.ask("GET", f"/v1/jobs/{job}/logs?stream=stdout&tail=300000").body
    assert tail == text[-300_000:]


def capped(live: Live, folder: Path, text: bytes, cap: int) -> None:
    """Let a task's output lie as a real one's does that wrote more than is kept."""
    folder.mkdir()
    (folder / "written").write_bytes(text)
    log = CappedLog(str(folder / "stdout.log"), cap)
    with (folder / "written").open("rb") as source:
        log.drain(source.fileno())
    log.finish()

    async def read_log(key: TaskKey, stream: str, offset: int, size: int) -> LogChunk:
        assert key.index == 0
        return read_output(folder, stream, offset, size)

    live.backend.read_log = read_log  # type: ignore[method-assign]


@pytest.mark.parametrize("cap", [40_000, 300_000, 1 << 20])
def test_of_output_beyond_the_cap_the_kept_end_comes_too(
    live: Live, tmp_path: Path, cap: int
) -> None:
    job = running(live)
    text = b"".join(b"line %07d\n" % number for number in range(200_000))
    capped(live, tmp_path / "task", text, cap)
    found = live.ask("GET", f"/v1/jobs/{job}/logs?stream=stdout").body
    head, marker, tail = found.partition(b" bytes of output are missing here]\n")
    assert marker
    assert text.startswith(head.rpartition(b"\n[allotment: ")[0])
    assert text.endswith(tail)
    assert len(tail) >= cap // 4
    last = live.ask("GET", f"/v1/jobs/{job}/logs?stream=stdout&tail={cap}").body
    assert last.endswith(b"line 0199999\n")


def test_output_that_grows_while_it_is_read_has_an_end(live: Live) -> None:
    """Whoever does not follow gets what there was when asked, of a task that never rests."""
    job = running(live)
    written = 100_000

    async def read_log(key: TaskKey, stream: str, offset: int, size: int) -> LogChunk:
        nonlocal written
        written += size
        begin = written + offset if offset < 0 else offset
        data = b"x" * min(size, written - begin) if stream == "stdout" else b""
        return LogChunk(data, begin + len(data) if data else 0)

    live.backend.read_log = read_log  # type: ignore[method-assign]
    answer = live.ask("GET", f"/v1/jobs/{job}/logs")
    assert 100_000 <= len(answer.body) < 300_000


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("task=nobody.7", 404, "no_such_task"),
        ("task=..%2f..%2fetc", 404, "no_such_task"),
        ("task=99", 404, "no_such_task"),
        ("attempt=7", 404, "no_such_task"),
        ("attempt=7&follow=true", 404, "no_such_task"),
        ("attempt=0", 422, "bad_request"),
        ("stream=..%2fstatus.json", 422, "bad_request"),
        ("tail=-1", 422, "bad_request"),
    ],
)
def test_output_that_is_not_there(live: Live, query: str, status: int, code: str) -> None:
    job = running(live)
    answer = live.ask("GET", f"/v1/jobs/{job}/logs?{query}")
    assert (answer.status, answer.json["code"]) == (status, code)


def test_a_job_that_has_not_started_has_no_output(live: Live) -> None:
    job = live.ask("POST", "/v1/jobs?held=true", {"name": "w", "command": "true"}).json["id"]
    answer = live.ask("GET", f"/v1/jobs/{job}/logs")
    assert (answer.status, answer.json["code"]) == (404, "no_such_task")


def test_output_is_followed_to_the_end(live: Live) -> None:
    job = running(live)
    says(live, job, b"first\n")
    with reading(live, f"/v1/jobs/{job}/logs?follow=true") as reader:
        events = iter(reader)
        assert next(events).data == {"task": "main.0", "stream": "stdout", "text": "first\n"}
        says(live, job, b"second\n", "stderr")
        assert next(events).data == {"task": "main.0", "stream": "stderr", "text": "second\n"}
        says(live, job, b"last words\n")
        live.ask("POST", f"/v1/jobs/{job}:cancel")
        rest = list(events)
    assert [event.data.get("text") for event in rest] == ["last words\n", None]
    assert rest[-1] == Event("", "end", {"state": "cancelled"})


def test_following_may_begin_before_the_job_does(live: Live) -> None:
    job = live.ask("POST", "/v1/jobs?held=true", {"name": "w", "command": "fake 1"}).json["id"]
    with reading(live, f"/v1/jobs/{job}/logs?follow=true") as reader:
        live.ask("POST", f"/v1/jobs/{job}:release")
        live.wait_for(job, "running")
        says(live, job, b"here\n")
        assert [event.data.get("text") for event in reader] == ["here\n", None]


def test_a_letter_cut_in_two_comes_whole(live: Live) -> None:
    job = running(live)
    text = "zwölf Boxkämpfer ☃".encode()
    says(live, job, text[:-1])
    with reading(live, f"/v1/jobs/{job}/logs?follow=true") as reader:
        events = iter(reader)
        first = next(events)
        assert first.data["text"] == "zwölf Boxkämpfer "
    with reading(live, f"/v1/jobs/{job}/logs?follow=true", last=first.id) as reader:
        says(live, job, text[-1:] + b"\n")
        assert next(iter(reader)).data["text"] == "☃\n"


def test_the_output_of_a_gang_goes_on_where_the_stream_broke(live: Live) -> None:
    job = running(live, roles={"worker": {"count": 3, "command": "fake forever"}})
    for index in range(3):
        says(live, job, b"one %d\n" % index, index=index)
    path = f"/v1/jobs/{job}/logs?follow=true"
    with reading(live, path) as reader:
        events = iter(reader)
        seen = [next(events) for _ in range(3)]
    assert {event.data["task"] for event in seen} == {"worker.0", "worker.1", "worker.2"}
    for index in range(3):
        says(live, job, b"two %d\n" % index, index=index)
    with reading(live, path, last=seen[1].id) as reader:
        events = iter(reader)
        again = [str(next(events).data["text"]) for _ in range(3)]
    assert "".join(sorted(again)) == "one 2\ntwo 2\ntwo 0\ntwo 1\n" or sorted(again) == [
        "one 2\ntwo 2\n",
        "two 0\n",
        "two 1\n",
    ]
    with reading(live, path, last="no place of ours") as reader:
        assert next(iter(reader)).data["text"] == "one 0\ntwo 0\n"


def test_every_attempt_is_followed(live: Live) -> None:
    job = live.submit("fake 1 exit 1", retry=1)
    live.wait_for(job, "running")
    says(live, job, b"attempt 1\n")
    place = (key(job, attempt=2), "stdout")
    live.call(lambda: live.backend.output.__setitem__(place, b"attempt 2\n"))
    with reading(live, f"/v1/jobs/{job}/logs?follow=true&tail=4") as reader:
        events = list(reader)
    assert [event.data.get("text") for event in events] == ["t 1\n", "attempt 2\n", None]
    with reading(live, f"/v1/jobs/{job}/logs?follow=true&attempt=1") as reader:
        events = list(reader)
    assert [event.data.get("text") for event in events] == ["attempt 1\n", None]


def test_only_what_comes_from_now_on(live: Live) -> None:
    job = running(live)
    says(live, job, b"old\n")
    with reading(live, f"/v1/jobs/{job}/logs?follow=true&tail=0&stream=stdout") as reader:
        reads = live.backend.reads
        until(lambda: live.backend.reads > reads + 2, "the end to be found")
        says(live, job, b"new\n")
        assert next(iter(reader)).data["text"] == "new\n"


def test_secrets_are_blotted_out_of_output(live: Live) -> None:
    job = running(live, secrets={"KEY": "hunter22"})
    says(live, job, b"the key is hunter22\n")
    assert live.ask("GET", f"/v1/jobs/{job}/logs").body == b"the key is ***\n"


# ── how they end ────────────────────────────────────────────────────────────────────────


def test_nothing_works_on_for_a_reader_that_is_gone(live: Live) -> None:
    job = running(live)
    for path in (f"/v1/jobs/{job}/logs?follow=true", "/v1/events?follow=true"):
        reader = Reader(live, path)
        until(lambda: streams_open(live) == 1, "the stream to be open")
        reader.close()
        until(lambda: streams_open(live) == 0, "the stream to be closed")
    reads = live.backend.reads
    time.sleep(0.6)
    assert live.backend.reads == reads


def test_a_silence_is_filled(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.05)
    with reading(live, "/v1/events?follow=true&after=1000000") as reader:
        assert [reader.response.readline() for _ in range(4)] == [b":\n", b"\n"] * 2


def test_streams_end_at_once_when_the_service_stops(live: Live) -> None:
    job = running(live)
    readers = [
        Reader(live, f"/v1/jobs/{job}/logs?follow=true"),
        Reader(live, f"/v1/jobs/{job}/events?follow=true"),
        Reader(live, "/v1/events?follow=true"),
    ]
    began = time.monotonic()
    live.ask("POST", "/v1/service:stop")
    for reader in readers:
        assert "end" not in [event.kind for event in reader]
        reader.close()
    live.__exit__()
    assert time.monotonic() - began < streams.HEARTBEAT_S


def test_a_long_page_is_whole_and_an_empty_one_is_an_empty_list(live: Live) -> None:
    live.submit(array={"count": 250, "max_running": 1})
    seen = [event["seq"] for event in live.get("/v1/events?limit=251")]
    assert seen == list(range(1, 252))
    assert live.get("/v1/events?after=1000000") == []

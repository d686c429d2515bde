"""What one user's crowd costs another: a service of root, and two users on its socket.

20,000 jobs of the first user wait. Then 200 clients of that user ask as fast as they are
answered, 12,000 times in all; ALLOT_CROWD says otherwise: an hour of 200 clients that ask once
in ten seconds is 72,000. They submit (also YAML, small and of the largest size), list, ask why,
look, and cancel what they submitted. Then they try to follow 3,000 streams, over as many
connections. A refusal (429) is taken at its word: the client comes back when it says; one in
ten does not and asks again at once.

The second user submits and reads all the while, over a kept connection and, like the command
line, over a new one each time. Clients and service share the machine's cores. Needs root.
"""

import asyncio
import contextlib
import json
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from multiprocessing.synchronize import Event
from queue import Empty
from random import Random
from typing import Any

import msgspec

from bench.cluster import BenchCluster, Connection, a_cluster, a_job, percentile
from bench.figures import Figure

WAITING = 20_000
CLIENTS, STREAMS = 200, 3_000
REQUESTS = int(os.environ.get("ALLOT_CROWD", "12000"))
IDLE_S, STREAMS_S = 10.0, 20.0
SETTLE_S, QUIET_S = 5.0, 25.0
"""Memory that is free is given back after two rounds of 10 s without a request."""
PAUSE_S = 0.02
"""Of the second user, between two requests."""
HOSTILE, NEIGHBOUR = 60_001, 60_002
"""Numbers that are nobody's account here."""
TARGET_MS, TARGET_MIB = 500, 30
MOST_BODY = 256 * 1024

FORK = multiprocessing.get_context("fork")


class Seen(msgspec.Struct):
    """What was measured while something went on beside."""

    submissions: list[float] = []
    reads: list[float] = []
    most_mib: float = 0


def main() -> list[Figure]:
    if os.geteuid() != 0:
        print("  left out: it needs root, for users of two numbers")
        return []
    with a_cluster(gpus=8) as cluster:
        _during(cluster, _fill, measured=False)
        time.sleep(SETTLE_S)
        before = cluster.rss_mib()
        alone = _during(cluster, _nothing)
        crowd = _during(cluster, _crowd)
        streams = _during(cluster, _streams)
        time.sleep(QUIET_S)
        after = cluster.rss_mib()
    return [
        *_figures("alone", alone, None),
        *_figures(f"beside {CLIENTS} clients of another", crowd, TARGET_MS),
        *_figures(f"beside {STREAMS:,} streams of another", streams, TARGET_MS),
        Figure("service memory before", before, "MiB", "lower"),
        Figure("service memory, most", max(crowd.most_mib, streams.most_mib), "MiB", "lower"),
        Figure("service memory after, more than before", after - before, "MiB", "lower", 30),
    ]


def _figures(when: str, seen: Seen, target: float | None) -> list[Figure]:
    found: list[Figure] = []
    for what, values in (("submission", seen.submissions), ("read", seen.reads)):
        print(f"  {what} {when}: {len(values)} measured, worst {max(values):.0f} ms")
        for share, name, limit in ((0.5, "p50", None), (0.99, "p99", target)):
            value = percentile(values, share)
            found.append(Figure(f"{what} {when}, {name}", value, "ms", "lower", limit))
    return found


# ── two users at once ───────────────────────────────────────────────────────────────────


def _during(
    cluster: BenchCluster,
    work: Callable[[str], Coroutine[Any, Any, None]],
    *,
    measured: bool = True,
) -> Seen:
    """Let the first user do something; measure what the second sees until that is over."""
    path, over, told = cluster.address["socket"], FORK.Event(), FORK.Queue()
    first = FORK.Process(target=_as_user, args=(HOSTILE, lambda: asyncio.run(work(path))))
    second = FORK.Process(
        target=_as_user, args=(NEIGHBOUR, lambda: told.put(_neighbour(path, over)))
    )
    first.start()
    if measured:
        second.start()
    most = 0.0
    while first.is_alive():
        most = max(most, cluster.rss_mib())
        first.join(0.05)
    over.set()
    found = Seen()
    if measured:
        with contextlib.suppress(Empty):
            found = told.get(timeout=120)
        second.join()
    if first.exitcode or second.exitcode:
        raise RuntimeError("a user of the benchmark broke")
    found.most_mib = most
    return found


def _as_user(uid: int, work: Callable[[], object]) -> None:
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    work()


def _neighbour(path: str, over: Event) -> Seen:
    """Submit and read, and note how long each took."""
    seen, kept, chance = Seen(), Connection(path), Random(2)
    mine = kept.submit(a_job("true"))
    while not over.is_set():
        _round(kept, mine, chance, seen)
        fresh = Connection(path)
        _round(fresh, mine, chance, seen)
        fresh.close()
        over.wait(PAUSE_S)
    return seen


def _round(connection: Connection, mine: int, chance: Random, seen: Seen) -> None:
    body, kind = chance.choice(((a_job("true"), JSON), (SMALL_YAML, YAML)))
    seen.submissions.append(_ms(partial(_submit, connection, body, kind)))
    for path in ("/v1/jobs", f"/v1/jobs/{mine}/why", f"/v1/jobs/{mine}", "/v1/tenants"):
        seen.reads.append(_ms(partial(connection.get, path)))


def _submit(connection: Connection, body: bytes, kind: str) -> None:
    status, answer = connection.ask("POST", "/v1/jobs", body, kind)
    if status != 201:
        raise RuntimeError(f"the neighbour was refused: {status} {answer[:300]!r}")


def _ms(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return (time.perf_counter() - began) * 1e3


# ── what the first user does ────────────────────────────────────────────────────────────

JSON, YAML = "application/json", "application/yaml"
SMALL_YAML = b"""
name: bench
tenant: bench
command: "true"
resources: {gpu: 1, cpu: 0.1, memory: 32MiB}
"""


def _large_yaml() -> bytes:
    """Make the largest body that is read, of many small values."""
    head = SMALL_YAML + b"env:\n"
    lines = (b"  V%d: [a, b, c, d]\n" % n for n in range(MOST_BODY))
    body = bytearray(head)
    for line in lines:
        if len(body) + len(line) > MOST_BODY:
            return bytes(body)
        body += line
    raise AssertionError


class Client:
    """One connection that asks again and again."""

    def __init__(self, path: str, *, is_patient: bool = True) -> None:
        self._path = path
        self._is_patient = is_patient
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.statuses: Counter[int] = Counter()

    async def ask(self, method: str, path: str, body: bytes = b"", kind: str = JSON) -> Any:
        """Send one request and give its answer; b'' where it was refused."""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        try:
            reader, writer = self._streams or await self._connect()
            writer.write(head.encode() + body)
            status, headers = await _head(reader)
            data = await _body(reader, headers)
        except (OSError, EOFError):
            self._streams = None
            self.statuses[0] += 1
            await asyncio.sleep(0.1)
            return b""
        self.statuses[status] += 1
        if "close" in headers.get("connection", ""):
            self.close()
        if status in (429, 503) and self._is_patient:
            await asyncio.sleep(float(headers.get("retry-after", "1")))
        return data if status < 400 else b""

    async def follow(self, path: str, seconds: float) -> None:
        """Open a stream, and read what comes."""
        with contextlib.suppress(OSError, EOFError):
            reader, writer = await self._connect()
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            status, _ = await _head(reader)
            self.statuses[status] += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while status == 200 and await reader.read(1 << 16):
                        pass
        self.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self._streams = await asyncio.open_unix_connection(self._path)
        return self._streams

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in pairs}


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if "chunked" not in headers.get("transfer-encoding", ""):
        return await reader.readexactly(int(headers.get("content-length", "0")))
    data = b""
    while size := int(await reader.readline(), 16):
        data += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return data


async def _nothing(_: str) -> None:
    await asyncio.sleep(IDLE_S)


async def _fill(path: str) -> None:
    """Eight jobs at a time run for a second, all others wait."""
    body, left = a_job("sleep 1"), iter(range(WAITING))

    async def submit() -> None:
        client = Client(path)
        for _ in left:
            while not await client.ask("POST", "/v1/jobs", body):
                pass
        client.close()

    await asyncio.gather(*(submit() for _ in range(4)))


async def _crowd(path: str) -> None:
    left, large, began = iter(range(REQUESTS)), _large_yaml(), time.perf_counter()
    clients = [Client(path, is_patient=number % 10 != 0) for number in range(CLIENTS)]
    await asyncio.gather(
        *(_at_work(client, Random(n), left, large) for n, client in enumerate(clients))
    )
    _tell(clients, time.perf_counter() - began)


async def _at_work(client: Client, chance: Random, left: Any, large: bytes) -> None:
    mine: list[int] = []
    for _ in left:
        await _one(client, chance, mine, large)
    for job in mine:
        await client.ask("POST", f"/v1/jobs/{job}:cancel")
    client.close()


READS = (
    "/v1/jobs?limit=1000",
    "/v1/jobs?name=none",
    "/v1/jobs/{}/why",
    "/v1/jobs/{}",
    "/v1/jobs/bench",
    "/v1/queues",
    "/v1/tenants",
    "/v1/nodes",
    "/v1/jobs/{}/events",
    "/v1/fairness",
    "/metrics",
)


async def _one(client: Client, chance: Random, mine: list[int], large: bytes) -> None:
    kind = chance.random()
    if mine and kind < 0.15:
        await client.ask("POST", f"/v1/jobs/{mine.pop()}:cancel")
    elif kind < 0.35:
        yaml = chance.random() < 0.5
        body = SMALL_YAML if yaml else a_job("true")
        made = await client.ask("POST", "/v1/jobs", body, YAML if yaml else JSON)
        mine += [json.loads(made)["id"]] if made else []
    elif kind < 0.353:
        await client.ask("POST", "/v1/jobs", large, YAML)
    else:
        job = chance.randrange(1, WAITING)
        await client.ask("GET", chance.choice(READS).format(job))


async def _streams(path: str) -> None:
    """Open as many streams as it takes, one half of events and one of the output of a job."""
    clients, began = [Client(path) for _ in range(STREAMS)], time.perf_counter()
    reads = ("/v1/events?follow=true", "/v1/jobs/19999/logs?follow=true")
    await asyncio.gather(
        *(
            client.follow(reads[number % len(reads)], STREAMS_S)
            for number, client in enumerate(clients)
        )
    )
    _tell(clients, time.perf_counter() - began)


def _tell(clients: list[Client], seconds: float) -> None:
    counts = sum((client.statuses for client in clients), Counter())
    said = ", ".join(f"{count} × {status}" for status, count in sorted(counts.items()))
    print(
        f"  {len(clients):,} clients in {seconds:.0f} s: {said} (0: no connection)", flush=True
    )

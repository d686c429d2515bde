"""10,000 waiting jobs in 1,000 queues on 1,250 × 8 GPUs: what a pass, a place, a why cost.

Four fifths of the cluster are guaranteed to ten tenants and one fifth is lent, so every gang
that is guaranteed its place may send borrowers away. Half of the queues let later jobs pass,
half are first come, first served. A pass is `Engine.tick` and one `Engine.cycle` to its end
with its events applied; encoding and HTTP are outside. The cold pass is over another line:
gangs of many shapes that need whole nodes or most of one, while single devices are free here
and there, so that a place is looked for in vain again and again. Then the line stands before
a real service (`allot up`, whose tasks are fakes): what `allot why` costs over HTTP, and how
long others wait for an answer while jobs end, come and are placed.
"""

import gc
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec

from allotment.core.ledger import Placing
from allotment.core.request import Request
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Slot
from allotment.model.quantity import DEVICE, GIB, Instant, Resources
from allotment.model.spec import TaskRole
from allotment.model.tenancy import QueueOrder
from bench.cluster import BenchCluster, Connection, percentile, until
from bench.crowd import SIZES, Crowd, Scale
from bench.figures import Figure

WHAT = "10,000 waiting in 1,000 queues, 1,250×8"
SCALE = Scale(
    waiting=10_000,
    nodes=1_250,
    tenants=10,
    queues=100,
    orders=(QueueOrder.SKIP, QueueOrder.STRICT),
    guaranteed=0.8,
)
RELEASES, COLD, IDLE = 200, 10, 100
ENDINGS, AT_ONCE = 2_000, 8
ASKED = 300
LARGE = ((4, 1), (8, 1), (8, 2), (8, 4), (4, 3), (4, 5))
"""Devices of a task, and tasks, of those who wait where only scraps are free."""
SCRAPS = 400
LEAST_SEARCHES = 100


def main() -> list[Figure]:
    return [*_passes(SCALE), *_service()]


# ── the engine ──────────────────────────────────────────────────────────────────────────


def _passes(scale: Scale) -> list[Figure]:
    crowd = Crowd(scale)
    gc.collect()
    gc.freeze()
    cluster = crowd.engine.state.cluster
    borrowers = sum(map(len, cluster.placed.borrowers.values()))
    print(f"  {len(cluster.gangs):,} gangs run, {borrowers:,} of them borrow")
    assert borrowers > 0, "without borrowers nobody can be evicted"
    idle = [_ms(lambda: _pass(crowd)) for _ in range(IDLE)]
    released = [_release(crowd) for _ in range(RELEASES)]
    gc.unfreeze()
    return [
        Figure("pass when nothing changed, p50", percentile(idle, 0.5), "ms", "lower", 2),
        Figure("pass after one release, p50", percentile(released, 0.5), "ms", "lower", 5),
        Figure("pass after one release, p90", percentile(released, 0.9), "ms", "lower"),
        Figure("pass with all memos dropped, worst", _cold(scale), "ms", "lower", 500),
        Figure("gangs placed, preemption possible", _sustained(crowd), "/s", "higher", 500),
    ]


def _ms(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return (time.perf_counter() - began) * 1e3


def _pass(crowd: Crowd) -> None:
    crowd.engine.tick(crowd.now)
    crowd.engine.cycle(crowd.now)


def _cold(scale: Scale) -> float:
    """Return the worst of some passes over a line for which there are only scraps."""
    crowd = _with_scraps(scale)
    cluster = crowd.engine.state.cluster
    ledger, searches = cluster.ledger, 0
    find = ledger.find

    def counted(requests: tuple[Request, ...], placing: Placing) -> tuple[Slot, ...] | None:
        nonlocal searches
        searches += 1
        return find(requests, placing)

    ledger.find = counted  # pyright: ignore[reportAttributeAccessIssue]
    _cold_pass(crowd)
    del ledger.find
    kinds = sum(1 for _ in cluster.pending.shapes())
    print(
        f"  cold: {len(cluster.pending):,} wait, of {kinds:,} kinds; {ledger.whole_free:,} "
        f"devices are free; {searches:,} searches in a pass"
    )
    assert searches >= LEAST_SEARCHES, "a cold pass that looks for nothing says nothing"
    return max(_ms(lambda: _cold_pass(crowd)) for _ in range(COLD))


def _with_scraps(scale: Scale) -> Crowd:
    """Let gangs of 4 and 8 devices a task wait, and single devices of some nodes be free."""
    crowd = Crowd(scale)
    cluster, chance = crowd.engine.state.cluster, crowd.chance
    for job in [job for job in crowd.engine.state.jobs if job in cluster.pending]:
        crowd.cancel(job)
    for _ in range(scale.waiting):
        gpus, tasks = chance.choice(LARGE)
        cpus = 1_000 * gpus * chance.randrange(4, 8)
        need = Resources(gpu_milli=1_000 * gpus, cpu_milli=cpus, memory=GIB)
        role = TaskRole("main", tasks, "true", need)
        crowd.submit(msgspec.structs.replace(crowd.spec(), roles=(role,)))
    crowd.settle()
    seen: set[NodeId] = set()
    for job, gang in sorted(cluster.gangs.items()):
        node = gang.slots[0].node
        if len(seen) < SCRAPS and node not in seen and gang.held().gpu_milli == DEVICE:
            seen.add(node)
            crowd.end(job)
    crowd.settle()
    return crowd


def _cold_pass(crowd: Crowd) -> None:
    """Look at the whole line, with nothing remembered of earlier passes."""
    cluster = crowd.engine.state.cluster
    cluster.memos.blocked.clear()
    cluster.memos.unguaranteed.clear()
    cluster.ledger.version += 1
    _pass(crowd)


def _release(crowd: Crowd) -> float:
    """Let one gang end; give the time of the pass that follows."""
    crowd.now = Instant(crowd.now + 1_000)
    crowd.end(_anybody(crowd))
    took = _ms(lambda: _pass(crowd))
    crowd.settle()
    return took


def _anybody(crowd: Crowd) -> JobId:
    return crowd.chance.choice(sorted(crowd.engine.state.cluster.gangs))


def _sustained(crowd: Crowd) -> float:
    """Place gangs as others end and as many come; all of it counts, the ends and jobs too."""
    placed, took = 0, 0.0
    pending = crowd.engine.state.cluster.pending
    for _ in range(0, ENDINGS, AT_ONCE):
        crowd.now = Instant(crowd.now + 1_000)
        ending = crowd.chance.sample(sorted(crowd.engine.state.cluster.gangs), AT_ONCE)
        began = time.perf_counter()
        for job in ending:
            crowd.end(job)
        placed += crowd.settle()
        while len(pending) < SCALE.waiting:
            crowd.submit()
        took += time.perf_counter() - began
    return placed / took


# ── the service ─────────────────────────────────────────────────────────────────────────

ROOT = Path(__file__).parents[1]
SERVE = (
    "import sys, pathlib; from allotment.wiring.service import serve;"
    "from allotment.wiring.options import Options;"
    "from allotment.wiring.engines import Engines;"
    "sys.path.insert(0, sys.argv[2]); from tests.support.fake_backend import FakeBackend;"
    "Engines.backend = lambda *_: FakeBackend();"
    "folder = pathlib.Path(sys.argv[1]);"
    "sys.exit(serve(Options(folder, config=folder / 'bench.yaml')))"
)
COPIES = 10
"""Jobs of one submission: an array."""
PAGES = ("/v1/jobs?limit=20", "/v1/jobs?limit=100", "/v1/service")
CHURN_S, PAUSE_S = 20.0, 0.1
"""How long jobs end while others are asked, and how often one does."""


def _service() -> list[Figure]:
    with _a_fake_cluster() as service:
        connection = service.connect()
        waiting = _fill(connection)
        chance = random.Random(2)
        print(f"  {len(waiting):,} jobs wait before the service")
        asked = [f"/v1/jobs/{chance.choice(waiting)}/why" for _ in range(ASKED)]
        why = [_ms(partial(connection.get, path)) for path in asked]
        reads, ended = _while_jobs_end(service, connection)
        print(f"  {ended:,} jobs ended and as many were placed while others asked")
        connection.close()
    return [
        Figure("`why` over HTTP, p50", percentile(why, 0.5), "ms", "lower", 20),
        Figure("`why` over HTTP, p99", percentile(why, 0.99), "ms", "lower"),
        Figure(
            "any read while jobs end and start, p99",
            percentile(reads, 0.99),
            "ms",
            "lower",
            100,
        ),
    ]


@contextmanager
def _a_fake_cluster() -> Iterator[BenchCluster]:
    """Run the service, with tasks that only seem to run, until we are done."""
    folder = Path(tempfile.mkdtemp(prefix="allot-bench-"))
    (folder / "bench.yaml").write_text(json.dumps(_config()))
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(folder), str(ROOT)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until(lambda: (folder / "address.json").exists(), "the service")
        yield BenchCluster(folder)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def _config() -> dict[str, object]:
    guaranteed = int(SCALE.guaranteed * SCALE.nodes) // SCALE.tenants
    share = {"gpu": 8 * guaranteed, "cpu": 64 * guaranteed, "memory": f"{512 * guaranteed}GiB"}
    queues = {
        f"q{n}": {"order": SCALE.orders[n % len(SCALE.orders)].value}
        for n in range(SCALE.queues)
    }
    node = {"cpu": 64, "memory": "512GiB", "gpu": {"type": "A100", "count": 8}}
    names = [f"n{n}" for n in range(SCALE.nodes)]
    return {
        "nodes": [{"names": names, **node}],
        "tenants": {
            f"t{n}": {"guaranteed": share, "queues": queues} for n in range(SCALE.tenants)
        },
        "limits": {"ports": "20000-60000"},
    }


def _fill(connection: Connection) -> list[int]:
    """Submit until so many wait, in arrays; give who waits."""
    chance, jobs, wanted = random.Random(1), 0, SCALE.waiting + SCALE.nodes * 3
    while True:
        while jobs < wanted:
            connection.submit(_an_array(chance))
            jobs += COPIES
        until(lambda: _rests(connection), "everybody to be placed", 600)
        waiting = _waiting(connection)
        if len(waiting) >= SCALE.waiting:
            return waiting
        wanted = jobs + SCALE.waiting - len(waiting)


def _rests(connection: Connection) -> bool:
    """Whether nothing happens for a second."""
    before = connection.get("/v1/service")["events"]
    time.sleep(1)
    return connection.get("/v1/service")["events"] == before


def _waiting(connection: Connection) -> list[int]:
    found: list[int] = []
    page = "/v1/jobs?limit=1000&state=queued"
    answer = connection.get(page)
    while True:
        found += [row["id"] for row in answer["items"]]
        if answer["next"] is None:
            return found
        answer = connection.get(f"{page}&before={answer['next']}")


def _an_array(chance: random.Random) -> bytes:
    gpus = chance.choice(SIZES)
    role = {
        "command": "fake forever",
        "resources": {"gpu": gpus, "cpu": 4 * gpus, "memory": "1GiB"},
    }
    spec = {
        "name": f"job{chance.randrange(200)}",
        "tenant": f"t{chance.randrange(SCALE.tenants)}",
        "queue": f"q{chance.randrange(SCALE.queues)}",
        "array": {"count": COPIES},
        "roles": {"main": role},
    }
    return json.dumps(spec).encode()


def _while_jobs_end(service: BenchCluster, connection: Connection) -> tuple[list[float], int]:
    """Let jobs end, one after another, while somebody else reads; give how long reads took."""
    running = connection.get("/v1/jobs?limit=1000&state=running")["items"]
    chance, over, reads = random.Random(3), threading.Event(), list[float]()

    def read() -> None:
        mine = service.connect()
        while not over.is_set():
            reads.append(_ms(partial(mine.get, chance.choice(PAGES))))
            time.sleep(PAUSE_S / 10)
        mine.close()

    reader = threading.Thread(target=read)
    reader.start()
    until_then, ended = time.monotonic() + CHURN_S, 0
    for row in running:
        if time.monotonic() > until_then:
            break
        connection.ask("POST", f"/v1/jobs/{row['id']}/cancel")
        ended += 1
        time.sleep(PAUSE_S)
    over.set()
    reader.join()
    return reads, ended

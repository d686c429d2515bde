"""What Prometheus is told: read from the state and the counters when it asks."""

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from allotment.api.fair_use import FairUse
from allotment.api.http_stats import HttpStats
from allotment.api.process import resident_bytes
from allotment.explain.cell_accounts import lost_counts
from allotment.model.health import WHOLE, HardwareHealth
from allotment.model.lifecycle import JobState
from allotment.model.quantity import DEVICE
from allotment.service.hardware import cells_guaranteed
from allotment.service.service import Service
from allotment.service.telemetry import Timings

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
INFINITY = "+Inf"


def exposition(service: Service, stats: HttpStats, fair_use: FairUse) -> bytes:
    """Return all numbers in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Numbers(service, stats, fair_use))
    return generate_latest(registry)


class Numbers(Collector):
    """All numbers of one request for them."""

    def __init__(self, service: Service, stats: HttpStats, fair_use: FairUse) -> None:
        self._service = service
        self._stats = stats
        self._fair_use = fair_use

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the registry is new for each request, so no names collide."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Return every family of numbers once."""
        yield from self._jobs()
        yield from self._cluster()
        yield from self._work()
        yield from self._http()

    def _jobs(self) -> Iterator[Metric]:
        state, now = self._service.state, self._service.now()
        counts: Counter[tuple[str, JobState]] = Counter()
        oldest: dict[str, int] = {}
        for job in state.jobs.values():
            tenant = job.spec.tenant
            if not job.state.finished:
                counts[tenant, job.state] += 1
            if job.state is JobState.QUEUED:
                oldest[tenant] = max(oldest.get(tenant, 0), now - job.submitted_at)
        tenants = {tenant.name for tenant in state.config.tenants} | {t for t, _ in counts}
        jobs = GaugeMetricFamily(
            "allot_jobs", "Jobs that have not finished.", labels=["tenant", "state"]
        )
        waiting = GaugeMetricFamily(
            "allot_oldest_queued_seconds",
            "Age of the job that has waited longest.",
            labels=["tenant"],
        )
        for tenant in sorted(tenants):
            waiting.add_metric([tenant], oldest.get(tenant, 0) / 1000)
            for each in JobState:
                if not each.finished:
                    jobs.add_metric([tenant, each.value], counts[tenant, each])
        yield jobs
        yield waiting
        telemetry = self._service.pipeline.telemetry
        finished = CounterMetricFamily(
            "allot_jobs_finished", "Jobs that finished.", labels=["tenant", "state"]
        )
        for (tenant, outcome), count in sorted(telemetry.finished.items()):
            finished.add_metric([tenant, outcome], count)
        yield finished
        yield _histogram("allot_wait", "From submission to first start.", telemetry.waits)
        yield _histogram("allot_start", "From placing a gang to its running.", telemetry.starts)

    def _cluster(self) -> Iterator[Metric]:
        devices = GaugeMetricFamily(
            "allot_devices", "Devices.", labels=["node", "type", "virtual", "state"]
        )
        cpus = GaugeMetricFamily("allot_node_cpus", "CPUs.", labels=["node", "state"])
        memory = GaugeMetricFamily(
            "allot_node_memory_bytes", "Memory.", labels=["node", "state"]
        )
        nodes = GaugeMetricFamily("allot_nodes", "Nodes, 1 each.", labels=["node", "state"])
        for node in self._service.nodes():
            nodes.add_metric([node.name, node.state.value], 1)
            cpus.add_metric([node.name, "free"], node.free.cpu_milli / 1000)
            cpus.add_metric(
                [node.name, "used"], (node.total.cpu_milli - node.free.cpu_milli) / 1000
            )
            memory.add_metric([node.name, "free"], node.free.memory)
            memory.add_metric([node.name, "used"], node.total.memory - node.free.memory)
            shares: dict[tuple[str, bool], list[int]] = {}
            for device in node.devices:
                share = shares.setdefault((device.type, device.virtual), [0, 0, 0])
                share[2 if device.health.is_out else 0] += device.free_milli
                share[1] += DEVICE - device.free_milli
            for (type_, virtual), amounts in shares.items():
                labels = [node.name, type_, str(virtual).lower()]
                for word, amount in zip(("free", "used", "broken"), amounts, strict=True):
                    devices.add_metric([*labels, word], amount / DEVICE)
        yield from (nodes, devices, cpus, memory)
        pools = GaugeMetricFamily(
            "allot_pool_nodes",
            "Nodes of each pool: those there are, and how many more would let jobs start.",
            labels=["pool", "state"],
        )
        for pool, (there, wanted) in self._service.more_nodes.nodes_by_pool().items():
            pools.add_metric([pool, "there"], there)
            pools.add_metric([pool, "wanted"], wanted)
        yield pools
        yield from self._health()

    def _health(self) -> Iterator[Metric]:
        """Return what is not well, and what tenants lose by it."""
        state = self._service.state
        unwell = GaugeMetricFamily(
            "allot_unhealthy",
            "Nodes and devices that are not healthy; doubted ones are still used.",
            labels=["kind", "health"],
        )
        counts = Counter(
            ("node" if place == WHOLE else "device", how.health)
            for (_, place), how in (state.health | state.doubts).items()
        )
        for kind in ("node", "device"):
            for health in list(HardwareHealth)[1:]:
                unwell.add_metric([kind, health.value], counts[kind, health])
        yield unwell
        yield GaugeMetricFamily(
            "allot_unhealthy_held_back",
            "Suspect parts still in use, because the breaker limits how many reports take out.",
            sum(how.held_back for how in state.doubts.values()),
        )
        if (cells := state.cluster.cells) is None:
            return
        lost = GaugeMetricFamily(
            "allot_cells_lost",
            "Guaranteed cells that a tenant cannot have complete: broken, or not available.",
            labels=["tenant", "type"],
        )
        counts_lost = dict.fromkeys(cells_guaranteed(cells), 0) | lost_counts(cells)
        for (tenant, type_), count in counts_lost.items():
            lost.add_metric([tenant, type_], count)
        yield lost

    def _work(self) -> Iterator[Metric]:
        telemetry = self._service.pipeline.telemetry
        health = self._service.shown(self._service.health())
        events = CounterMetricFamily(
            "allot_decisions", "Events recorded since the start, by kind.", labels=["kind"]
        )
        for kind, count in sorted(telemetry.decisions.items()):
            events.add_metric([kind], count)
        yield events
        yield CounterMetricFamily(
            "allot_backend_faults", "Failed calls of the backend.", telemetry.backend_faults
        )
        yield _histogram("allot_cycle", "One scheduling cycle.", telemetry.cycles)
        yield _histogram("allot_commit", "One commit of the event log.", telemetry.commits)
        yield GaugeMetricFamily(
            "allot_ready", "1 while jobs are accepted, else 0.", health.ready
        )
        yield GaugeMetricFamily(
            "allot_started_at_seconds", "When the service started.", health.started_at / 1e3
        )
        yield GaugeMetricFamily("allot_events", "Events in the event log.", health.events)

    def _http(self) -> Iterator[Metric]:
        latency = HistogramMetricFamily(
            "allot_http_seconds",
            "Time from a request to the beginning of its answer.",
            labels=["method", "route"],
        )
        for (method, route), timings in sorted(self._stats.latencies.items()):
            latency.add_metric([method, route], *_buckets(timings))
        answers = CounterMetricFamily(
            "allot_http_answers", "Answers.", labels=["method", "route", "status"]
        )
        for (method, route, status), count in sorted(self._stats.answers.items()):
            answers.add_metric([method, route, str(status)], count)
        refusals = CounterMetricFamily(
            "allot_refusals", "Requests that failed, by code.", labels=["code"]
        )
        for code, count in sorted(self._stats.refusals.items()):
            refusals.add_metric([code], count)
        yield from (latency, answers, refusals)
        yield from self._in_use()

    def _in_use(self) -> Iterator[Metric]:
        """Return what users have open now, and what of it is the most of one user."""
        fair_use = self._fair_use
        found = {kind: list(held.values()) for kind, held in fair_use.held.items()}
        found["requests"] = list(fair_use.requests.busy.values())
        total = GaugeMetricFamily(
            "allot_in_use", "What users have open or at work now.", labels=["kind"]
        )
        most = GaugeMetricFamily(
            "allot_in_use_most", "The most that one user has open or at work.", labels=["kind"]
        )
        for kind, counts in sorted(found.items()):
            total.add_metric([kind], sum(counts))
            most.add_metric([kind], max(counts, default=0))
        yield from (total, most)
        streams = sum(found["streams"]) + sum(found["execs"])
        yield GaugeMetricFamily("allot_http_streams", "Open streams.", streams)
        yield GaugeMetricFamily(
            "allot_memory_bytes", "Resident memory of the service.", resident_bytes()
        )


def _buckets(timings: Timings) -> tuple[list[tuple[str, float]], float]:
    """Return cumulative counts by upper bound in seconds, and the sum."""
    bounds = [str(bound / 1000) for bound in timings.bounds]
    total = 0
    found: list[tuple[str, float]] = []
    for bound, count in zip((*bounds, INFINITY), timings.counts, strict=True):
        total += count
        found.append((bound, total))
    return found, timings.total_ms / 1000


def _histogram(name: str, what: str, timings: Timings) -> Metric:
    buckets, total = _buckets(timings)
    return HistogramMetricFamily(f"{name}_seconds", what, buckets=buckets, sum_value=total)

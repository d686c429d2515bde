"""Who asks for what: a trace cut into tenants, and how many whole nodes each is guaranteed."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from random import Random

import msgspec
from msgspec.structs import replace

from allotment.model.quantity import DEVICE, Resources
from allotment.sim.trace import Trace, TraceJob

WIDTH = 8
"""Devices of a node."""
LARGEST = 32
"""Devices of the largest job that a tenant's share must have room for; larger are left out."""
FEW = 10
"""Tenants with fewer jobs are merged into one."""
TINY = "tiny"
SIZES = ((1, 44), (2, 10), (4, 14), (8, 20), (16, 8), (32, 4))
"""What sizes are drawn from anew, and how often each comes, in hundredths."""


class Workload(msgspec.Struct, frozen=True):
    """Jobs by submission, and each tenant's share in whole nodes."""

    trace: Trace
    shares: Mapping[str, int]
    left_out: tuple[TraceJob, ...] = ()
    """Jobs larger than any share must have room for."""

    @property
    def nodes(self) -> int:
        return sum(self.shares.values())

    def of(self, tenant: str) -> Trace:
        """Return a tenant's own jobs."""
        own = tuple(job for job in self.trace.jobs if job.tenant == tenant)
        return replace(self.trace, jobs=own)

    def offered(self) -> float:
        """Return the load in parts of the cluster: device-time asked for over that there is."""
        jobs = self.trace.jobs
        span = jobs[-1].submit_ms - jobs[0].submit_ms
        return sum(map(work_of, jobs)) / (span * self.nodes * WIDTH * DEVICE)


def devices_of(job: TraceJob) -> int:
    return job.gpu_milli // DEVICE


def work_of(job: TraceJob) -> int:
    """Return the device-time a job asks for, in thousandths of device-milliseconds."""
    return job.run_ms * job.gpu_milli


def as_tasks(job: TraceJob, devices: int) -> TraceJob:
    """Return a job of so many devices as tasks of whole nodes, or one task of a part of one."""
    tasks = -(-devices // WIDTH)
    return replace(job, tasks=tasks, need=Resources(gpu_milli=devices // tasks * DEVICE))


def one_task_each(trace: Trace) -> Trace:
    """Return the same jobs, each as one task of all its devices."""
    jobs = tuple(
        replace(job, tasks=1, need=Resources(gpu_milli=job.gpu_milli)) for job in trace.jobs
    )
    return replace(trace, jobs=jobs)


def read(trace: Trace, nodes: int, cut: int = 0) -> Workload:
    """Cut a trace to its first `cut` jobs (0: all), and share out so many nodes."""
    jobs = trace.jobs[: cut or None]
    counts = Counter(job.tenant for job in jobs)
    jobs = tuple(
        replace(job, tenant=TINY) if counts[job.tenant] < FEW else job
        for job in jobs
        if devices_of(job) <= LARGEST
    )
    left_out = tuple(j for j in trace.jobs[: cut or None] if devices_of(j) > LARGEST)
    fixed = {TINY: 1} if any(job.tenant == TINY for job in jobs) else {}
    return Workload(replace(trace, jobs=jobs), shares_of(jobs, nodes, fixed), left_out)


def shares_of(jobs: Iterable[TraceJob], nodes: int, fixed: Mapping[str, int]) -> dict[str, int]:
    """Share out whole nodes by load, each tenant at least what its largest job needs.

    By largest remainders; what minimums take from the sum, the others lose in proportion.
    Raises ValueError when the minimums alone are too many.
    """
    load: Counter[str] = Counter()
    least: dict[str, int] = {}
    for job in jobs:
        load[job.tenant] += work_of(job)
        needs = -(-devices_of(job) // WIDTH)
        least[job.tenant] = max(least.get(job.tenant, 1), needs)
    shares = dict(fixed)
    rest = sorted((t for t in load if t not in fixed), key=lambda t: (-load[t], t))
    while True:
        left = nodes - sum(shares.values())
        total = sum(load[tenant] for tenant in rest)
        if left < sum(least[tenant] for tenant in rest):
            raise ValueError(f"{nodes} nodes are too few for the largest job of every tenant")
        short = [t for t in rest if load[t] * left < least[t] * total]
        if not short:
            break
        for tenant in short:
            shares[tenant] = least[tenant]
        rest = [tenant for tenant in rest if tenant not in short]
    return dict(sorted((shares | _rounded(rest, load, left)).items()))


def _rounded(tenants: Sequence[str], load: Mapping[str, int], nodes: int) -> dict[str, int]:
    """Divide nodes in proportion: whole parts first, then the largest remainders."""
    total = sum(load[tenant] for tenant in tenants)
    parts = {tenant: divmod(load[tenant] * nodes, total) for tenant in tenants}
    shares = {tenant: whole for tenant, (whole, _) in parts.items()}
    over = nodes - sum(shares.values())
    for tenant in sorted(tenants, key=lambda t: (-parts[t][1], t))[:over]:
        shares[tenant] += 1
    return shares


# ── the same jobs, otherwise ────────────────────────────────────────────────────────────


def compressed(workload: Workload, load: float) -> Workload:
    """Let the jobs come `load` times as fast one after another; run times stay."""
    jobs = workload.trace.jobs
    first = jobs[0].submit_ms
    faster = tuple(
        replace(job, submit_ms=first + round((job.submit_ms - first) / load)) for job in jobs
    )
    return replace(workload, trace=replace(workload.trace, jobs=faster))


def redrawn(trace: Trace, nodes: int, offered: float, seed: int, cut: int = 0) -> Workload:
    """Draw every job's devices anew, and let jobs come so fast that they load the cluster.

    Tenants with few jobs are left out; `offered` is the load in parts of the cluster.
    """
    jobs = trace.jobs[: cut or None]
    counts = Counter(job.tenant for job in jobs)
    chance = Random(f"{seed}/sizes")
    sizes, weights = zip(*SIZES, strict=True)
    drawn = tuple(
        as_tasks(job, chance.choices(sizes, weights)[0])
        for job in jobs
        if counts[job.tenant] >= FEW
    )
    workload = Workload(replace(trace, jobs=drawn), shares_of(drawn, nodes, {}))
    return compressed(workload, offered / workload.offered())


def time_of_large(jobs: Iterable[TraceJob]) -> float:
    """Return the part of all device-time that jobs of a whole node or more ask for."""
    total = large = 0
    for job in jobs:
        total += work_of(job)
        large += work_of(job) if devices_of(job) >= WIDTH else 0
    return large / total

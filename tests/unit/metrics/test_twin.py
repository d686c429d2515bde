"""The folds against their slow twin, on histories that no planner would make."""

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from allotment.metrics.jobs import Fate, Jobs
from allotment.metrics.usage import PPM, Usage
from allotment.metrics.waits import WaitCauses
from allotment.model import events as e
from allotment.model.amounts import NO_AMOUNTS, amounts
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.quantity import Resources
from allotment.model.spec import Dependency, TaskRole
from allotment.model.tenancy import Queue, QueueOrder, Tenant, Terms
from tests.support.builders import a_config, a_tenant
from tests.unit.metrics.history import History
from tests.unit.metrics.twin import Twin

SKIP = QueueOrder.SKIP


def limited(**rules: object) -> Tenant:
    """Two queues in one, whose limits others may stand in for."""
    lab = Queue("lab", SKIP, limit=amounts({"gpu": 4000}))
    train = Queue("lab.train", SKIP, parent="lab", max_jobs=2)
    dev = Queue("lab.dev", SKIP, parent="lab", per_user=amounts({"gpu": 2000}))
    own = Terms(guaranteed=amounts({"gpu": 1000}), borrow=False)
    bound = Queue("lab.bound", SKIP, parent="lab", terms=own)
    queues = (Queue("default", SKIP), replace(lab, **rules), train, dev, bound)
    return replace(a_tenant("limited", 2), queues=queues)


CONFIG = a_config(
    limited(),
    a_tenant("strict", 2),
    a_tenant("skips", order=QueueOrder.SKIP),
    a_tenant("bound", 3, borrow=False),
    replace(a_tenant("capped", 2, order=QueueOrder.SKIP), per_user=Resources(gpu_milli=3000)),
    devices=6,
)
LATER = replace(CONFIG, tenants=(limited(limit=NO_AMOUNTS, max_jobs=1), *CONFIG.tenants[1:]))
QUEUES = ("lab.train", "lab.dev", "lab.bound")
NAMES = {
    "own": "own_s",
    "quota": "quota_s",
    "capacity": "capacity_s",
    "shape": "fragmentation_or_locality_s",
    "order": "order_s",
}

STATES = {
    "queued": ("place", "hold", "edit", "cancel"),
    "held": ("release", "edit", "cancel"),
    "backoff": ("hold", "cancel"),
    "placed": ("begin", "promote", "evict", "requeue"),
    "running": ("suspend", "promote", "evict", "succeed", "fail", "requeue"),
    "suspended": ("resume", "evict", "succeed", "requeue"),
}
"""What may happen to a job next."""

parts = (st.integers(0, 3), st.integers(0, 40), st.integers(0, 40))
step = st.tuples(
    *parts,
    st.sampled_from(["strict", "skips", "bound", "capped", "limited"]),
    st.integers(0, 1),
)


class Chance:
    """Turns numbers into a history that the lifecycle allows."""

    def __init__(self) -> None:
        self.log = History().configure(CONFIG)
        self.states: dict[int, str] = {}

    def step(self, wait: int, which: int, what: int, tenant: str, bit: int) -> None:
        self.log.at(self.log.now + wait)
        if which == 40:
            self.log.configure((CONFIG, LATER)[bit])
            return
        if not self.states or which % 4 == 0:
            self.submit(what, tenant, bit)
            return
        job = sorted(self.states)[which % len(self.states)]
        moves = STATES[self.states[job]]
        getattr(self, moves[what % len(moves)])(job, bit)

    def submit(self, what: int, tenant: str, bit: int) -> None:
        job = len(self.log.attempts) + 1
        need = Resources(gpu_milli=1000 * (what % 4 if what % 3 else 1), cpu_milli=what % 2)
        roles = (TaskRole("main", 1 + what % 2, "true", need),)
        depends = (Dependency(JobId(min(self.states))),) if what > 37 and self.states else ()
        held = what == 36
        self.log.attempts[job] = 0
        self.log.submit(
            job,
            tenant=tenant,
            roles=roles,
            priority=bit,
            preemptible=what % 5 != 0,
            depends_on=depends,
            held=held,
            user=("ann", "ben")[what // 4 % 2],
            queue=QUEUES[what % 3] if tenant == "limited" else "default",
        )
        self.states[job] = "held" if held else "queued"

    def place(self, job: int, bit: int) -> None:
        self.log.place(job, (Entitlement.GUARANTEED, Entitlement.OPPORTUNISTIC)[bit])
        self.states[job] = "placed"

    def hold(self, job: int, bit: int) -> None:
        self.log.hold(job)
        self.states[job] = "held"

    def release(self, job: int, bit: int) -> None:
        self.log.release(job)
        self.states[job] = "queued"

    def edit(self, job: int, bit: int) -> None:
        """It asks for another number of devices, with another priority."""
        spec = next(
            record.event.spec
            for record in reversed(self.log.records)
            if isinstance(record.event, e.JobSubmitted | e.JobEdited)
            and record.event.job == job
        )
        (role,) = spec.roles
        roles = (replace(role, count=3 - role.count),)
        if spec.queue in QUEUES:
            spec = replace(spec, queue=QUEUES[bit])
        self.log.rewrite(job, replace(spec, roles=roles, priority=bit))

    def cancel(self, job: int, bit: int) -> None:
        self.log.cancel(job)
        del self.states[job]

    def begin(self, job: int, bit: int) -> None:
        self.log.begin(job)
        self.states[job] = "running"

    def promote(self, job: int, bit: int) -> None:
        self.log.promote(job)

    def evict(self, job: int, bit: int) -> None:
        self.log.evict(job)
        self.states[job] = "queued"

    def requeue(self, job: int, bit: int) -> None:
        """It failed; perhaps it has to wait a while before the next try."""
        self.log.end(job, e.Outcome.FAILED)
        self.log.requeue(job, not_before=self.log.now + 3 * bit)
        self.states[job] = "backoff" if bit else "queued"

    def suspend(self, job: int, bit: int) -> None:
        self.log.suspend(job)
        self.states[job] = "suspended"

    def resume(self, job: int, bit: int) -> None:
        self.log.resume(job)
        self.states[job] = "running"

    def succeed(self, job: int, bit: int) -> None:
        self.log.succeed(job)
        del self.states[job]

    def fail(self, job: int, bit: int) -> None:
        self.log.fail(job)
        del self.states[job]


@given(st.lists(step, min_size=20, max_size=60))
def test_folds_agree_with_their_twin(
    steps: list[tuple[int, int, int, str, int]],
) -> None:
    agrees(steps)


@given(st.lists(st.tuples(*parts, st.just("limited"), st.integers(0, 1)), min_size=40))
def test_limits_of_queues_agree_with_their_twin(
    steps: list[tuple[int, int, int, str, int]],
) -> None:
    agrees(steps)


def agrees(steps: list[tuple[int, int, int, str, int]]) -> None:
    chance = Chance()
    for each in steps:
        chance.step(*each)
    records, end = chance.log.records, chance.log.now
    usage = Usage()
    jobs = Jobs(usage)
    waits = WaitCauses(usage, jobs)
    chance.log.into(usage, jobs, waits)
    twin = Twin(CONFIG, records, end)
    totals = asdict(usage.totals())
    assert {name: totals[name] for name in twin.sums} == twin.sums
    assert (totals["peak_waiting"], totals["peak_waiting_milli"]) == (
        twin.peak,
        twin.peak_milli,
    )
    # One millionth is lost at most, at each change.
    assert abs(usage.crowd / PPM - twin.crowding) <= len(records) / PPM
    found = defaultdict(int)
    for tenant, parts in waits.by_tenant().items():
        for cause, name in NAMES.items():
            if ms := round(getattr(parts, name) * 1000):
                found[tenant, cause] = ms
    assert found == twin.waits


@given(st.lists(step, min_size=20, max_size=60))
def test_waits_add_up_to_the_time_that_jobs_were_queued(
    steps: list[tuple[int, int, int, str, int]],
) -> None:
    """For jobs that run as soon as they are placed and are never suspended."""
    chance = Chance()
    for each in steps:
        chance.step(*each)
        for job, state in list(chance.states.items()):
            if state in ("placed", "suspended"):
                (chance.begin if state == "placed" else chance.resume)(job, 0)
    usage = Usage()
    jobs = Jobs(usage)
    waits = WaitCauses(usage, jobs)
    chance.log.into(usage, jobs, waits)
    delays = [
        row.end_ms - row.submit_ms - row.ran_ms
        for row in jobs.rows
        if row.fate is Fate.COMPLETED
    ]
    parts = waits.by_tenant().values()
    assert round(1000 * sum(sum(asdict(part).values()) for part in parts)) == sum(delays)

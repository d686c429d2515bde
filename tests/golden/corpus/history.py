"""One history: what happens to a cluster, drawn from a seed, and what was decided.

No outcome is taken from here: moves are drawn from a random source of their own, and name
jobs by their place among those that live, so a decision that differs shows from there on.
"""

import random
from collections.abc import Callable, Iterator, Sequence

import msgspec

from allotment.engine.engine import Engine
from allotment.engine.state import Image, State
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.cluster import NodeState
from allotment.model.errors import Rejected
from allotment.model.health import HealthReport, Source
from allotment.model.ids import Actor, DeviceIndex, JobId, NodeId, TaskIndex, TaskKey
from allotment.model.lifecycle import JobState
from allotment.model.quantity import DEVICE, GIB, SECOND, Millis, Resources, WallTime
from allotment.model.reasons import Blocked
from allotment.model.reports import NodeReport
from allotment.model.spec import Checkpoint, GiveWay, JobSpec, TaskRole
from allotment.service.why import why
from tests.golden.corpus.grid import (
    BOTH,
    NODES,
    QUEUES,
    TENANTS,
    USERS,
    Point,
    config,
    more,
    point,
)
from tests.support.builders import POLICIES
from tests.support.world import FAILED, PLATFORM, Unaudited

MOVES = 120
ASK_EVERY = 12
"""After so many moves every waiting job is asked why it waits."""
MOST_LIVE = 30
WITH_MORE = 400
"""From this history on there are more rules, and jobs ask for more."""
PLACED = (JobState.STARTING, JobState.RUNNING, JobState.SUSPENDED, JobState.STOPPING)
INPUTS = {"spec", "config", "words", "because", "reason", "message", "warnings", "text"}
"""Fields of events that repeat what was put in, or are words for people."""


class History:
    """A cluster at one point of the grid, and what happens to it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.point: Point = point(self.rng)
        if seed >= WITH_MORE:
            self.point = msgspec.structs.replace(self.point, more=more(self.rng))
        self.world = Unaudited(config(self.point))
        self.reasons: list[str] = []
        self._refusals = 0
        """Of engines before the one that runs."""

    @property
    def refusals(self) -> int:
        """How many decisions the committer refused."""
        return self._refusals + self.world.engine.refusals

    def play(self, moves: int = MOVES) -> None:
        """Make all moves; the line is served after most of them."""
        names = list(WEIGHTS)
        for number in range(1, moves + 1):
            move = self.rng.choices(names, list(WEIGHTS.values()))[0]
            getattr(self, f"_{move}")()
            if self.rng.random() < 0.8:
                self.world.cycle()
            if number % ASK_EVERY == 0:
                self.reasons += self._asked()

    def decisions(self) -> Iterator[str]:
        """Return a line an event: when, and what was decided."""
        for record in self.world.log:
            yield f"{record.seq} {record.at} {_line(record.event)}"

    def _asked(self) -> list[str]:
        world = self.world
        lined_up = [w.id for w in world.state.cluster.pending.all()]
        seq = world.state.seq
        asked = [
            f"{seq} {job} {_reason(found)}"
            for job in sorted(lined_up + self._suspended())
            if (found := why(world.state, world.job(job), world.now)) is not None
        ]
        assert world.state.seq == seq, "a question changes nothing"
        return asked

    def _suspended(self) -> list[JobId]:
        """Return the suspended jobs, in histories that ask for these too."""
        jobs = self.world.state.jobs.values() if self.point.more is not None else ()
        return [job.id for job in jobs if job.state is JobState.SUSPENDED]

    # ── users ───────────────────────────────────────────────────────────────────────────

    def _submit(self) -> None:
        live = [job.id for job in self.world.state.jobs.values() if not job.state.finished]
        if len(live) >= MOST_LIVE:
            self._wish(c.CancelJob(min(live)))
            self._end_of(min(live), 143)
        copies = self.rng.choice((1, 1, 1, 1, 1, 3))
        spec = self._spec()
        user = self.rng.choice(USERS)
        groups = (self.rng.choice(TENANTS),)
        self._wish(
            c.SubmitJob(spec, copies=copies, max_running=2 * (copies > 1)),
            Actor(user, 1000 + USERS.index(user), groups),
        )

    def _spec(self) -> JobSpec:
        pick = self.rng.choice
        gpus = pick((0, 0.25, 0.5, 1, 1, 1, 2, 2, 3, 4, 6, 8))
        need = Resources(
            round(gpus * DEVICE), 1000 * pick((1, 1, 4, 16)), GIB * pick((1, 1, 32, 128)),
            GIB * pick((0, 0, 0, 100, 300)), GIB * pick((0, 0, 0, 4, 16)) if gpus else 0,
        )  # fmt: skip
        tasks = pick((1, 1, 1, 1, 2, 2, 3, 4))
        elastic = self.point.elastic and pick((True, False))
        types = pick(((), (), (), ("V100",), ("A100",), ("A100", "V100"))) if gpus else ()
        role = TaskRole(
            "main", tasks + 3 * elastic, "true", need, types,
            least=tasks if elastic else 0, elastic=elastic and pick((True, False)),
        )  # fmt: skip
        roles = (role,)
        if not elastic and pick((False,) * 5 + (True,)):
            roles += (TaskRole("other", 1, "true", Resources(DEVICE, 1000, GIB)),)
        job = JobSpec(
            "job",
            pick(TENANTS),
            roles,
            queue=pick(QUEUES),
            priority=pick((50, 100, 100, 100, 200, 900)),
            retry=pick((0, 0, 1)),
            max_run_ms=Millis(pick((-1, 10, 30, 120, 600)) * SECOND),
            checkpoint=Checkpoint() if pick((True, False)) else None,
            preemptible=pick((True, True, True, True, False)),
            within=pick(("", "", "", "node", "rack")),
            prefer=pick(("", "", "", "node", "rack")),
            opportunistic=pick((False,) * 5 + (True,)),
            deadline_ms=Millis(pick((-1, 60, 600)) * SECOND),
            on_eviction=pick((GiveWay.AS_TENANT, GiveWay.AS_TENANT, *GiveWay)),
        )
        return self._asking_more(job) if self.point.more is not None else job

    def _asking_more(self, job: JobSpec) -> JobSpec:
        """Let tasks lie together in groups, take more memory of a device, or a pinned cell."""
        pick, (role, *others) = self.rng.choice, job.roles
        need = role.resources
        if need.gpu_milli and pick((False, False, True)):
            need = msgspec.structs.replace(need, gpu_memory=GIB * pick((10, 12, 16, 20)))
        grouped = not role.elastic and role.count % 2 == 0 and pick(BOTH)
        role = msgspec.structs.replace(
            role,
            resources=need,
            group=2 if grouped else 0,
            group_within=pick(("node", "rack")) if grouped else "",
        )
        has_pin = job.tenant == TENANTS[1] and bool(self.world.state.config.topology.pins)
        pinned = has_pin and not job.opportunistic and pick((False, False, True))
        return msgspec.structs.replace(job, roles=(role, *others), pin="own" if pinned else "")

    def _ask(self) -> None:
        kinds = (c.CancelJob, c.SuspendJob, c.SuspendJob, c.ResumeJob, c.HoldJob, c.ReleaseJob)
        kind = self.rng.choice(kinds)
        if (job := self._pick(lambda state: not state.finished)) is not None:
            self._wish(kind(job))

    def _edit(self) -> None:
        priority = self.rng.choice((10, 900))
        if (job := self._pick(lambda state: state.waiting)) is not None:
            spec = msgspec.structs.replace(self.world.job(job).spec, priority=priority)
            self._wish(c.EditJob(job, spec))

    def _wish(self, wish: c.AnyCommand, actor: Actor | None = None) -> None:
        try:
            self.world.do(wish) if actor is None else self.world.do(wish, actor)
        except Rejected as refused:
            # Which wish is refused is a decision too, and why.
            self.reasons.append(f"refused {type(wish).__name__} {refused.code}")

    # ── tasks ───────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        for _ in range(3):
            if (job := self._pick(lambda state: state is JobState.STARTING)) is not None:
                self.world.runs(job)

    def _end(self) -> None:
        code = self.rng.choice((0, 0, 0, 0, 1, 3))
        if (job := self._pick(lambda state: state in PLACED)) is not None:
            self._end_of(job, code)

    def _end_of(self, job: JobId, code: int) -> None:
        attempt = self.world.job(job).attempt
        for key in self.world.job(job).task_keys() if attempt else ():
            if self.world.job(job).attempt is attempt:
                self.world.task_ends(key, code, {1: FAILED, 3: PLATFORM}.get(code))

    def _leave(self) -> None:
        """What was told to stop has stopped: whole gangs, and surplus tasks."""
        jobs = self.world.state.jobs
        for job in sorted(jobs):
            attempt = jobs[job].attempt if job in jobs else None
            if attempt is None:
                continue
            if jobs[job].state is JobState.STOPPING:
                self._end_of(job, 143)
            elif attempt.staying < len(attempt.slots):
                for index in range(attempt.staying, len(attempt.slots)):
                    self.world.task_ends(TaskKey(job, attempt.no, TaskIndex(index)), 143)

    def _save(self) -> None:
        if (job := self._pick(lambda state: state is JobState.RUNNING)) is not None:
            self.world.saves(job)

    # ── machines and administrators ─────────────────────────────────────────────────────

    def _node(self) -> None:
        if self.rng.random() < 0.5:
            self._mend()
            return
        node = NodeId(self.rng.randrange(NODES))
        if self.rng.random() < 0.5:
            self.world.tell(NodeReport(node, alive=False, reason="test"))
        else:
            self._wish(c.DrainNode(node))

    def _mend(self) -> None:
        for node in map(NodeId, range(NODES)):
            self.world.tell(NodeReport(node, alive=True))
            if self.world.state.nodes.get(node, (None,))[0] is NodeState.DRAINED:
                self._wish(c.UndrainNode(node))

    def _device(self) -> None:
        node, ok = NodeId(self.rng.randrange(6)), self.rng.random() < 0.5
        device = DeviceIndex(self.rng.randrange(4))
        if self.rng.random() < 0.5:
            self.world.tell(HealthReport(node, Source.DRIVER, ok=ok, device=device))
        else:
            self._wish(c.DeclareHealth(((node, device),), ok=ok))

    def _reservation(self) -> None:
        if not self.point.reservations:
            return
        name, begin = self.rng.choice("ab"), self.rng.randrange(0, 120) * SECOND
        if self.rng.random() < 0.3:
            self._wish(c.EndReservation(name))
            return
        length = self.rng.randrange(10, 200) * SECOND
        now, by_count = self.world.now, self.rng.random() < 0.3
        self._wish(
            c.ReserveNodes(
                name,
                WallTime(now + begin),
                WallTime(now + begin + length),
                () if by_count else tuple(NodeId(n) for n in self.rng.sample(range(NODES), 2)),
                devices=6 if by_count else 0,
                tenants=self.rng.choice(((), ("vision",), ("speech", "nlp"))),
                evict=self.rng.random() < 0.5,
                notice_ms=Millis(self.rng.choice((0, 60, 600)) * SECOND),
            )
        )

    def _configure(self) -> None:
        changes: dict[str, tuple[object, ...]] = {
            "cut": (0, 2, 4, 8),
            "borrow": (True, False),
            "lend": (True, False),
            "quotas": (True, False),
        }
        part = self.rng.choice(sorted(changes))
        changed = {part: self.rng.choice(changes[part])}
        self.point = msgspec.structs.replace(self.point, **changed)
        self._wish(c.ApplyConfig(config(self.point)))

    def _wait(self) -> None:
        self.world.wait(self.rng.choice((1, 5, 20, 60, 300)) * SECOND)

    def _restart(self) -> None:
        data = msgspec.msgpack.encode(self.world.state.image())
        state = State.from_image(msgspec.msgpack.decode(data, type=Image), POLICIES)
        self._refusals = self.refusals
        self.world.engine = Engine(state)
        self.world.collect()

    def _pick(self, wanted: Callable[[JobState], bool]) -> JobId | None:
        at = self.rng.random()
        jobs = sorted(job.id for job in self.world.state.jobs.values() if wanted(job.state))
        return jobs[int(at * len(jobs))] if jobs else None


WEIGHTS = {
    "submit": 34,
    "run": 14,
    "end": 14,
    "leave": 12,
    "ask": 6,
    "edit": 1,
    "save": 3,
    "node": 3,
    "device": 1,
    "reservation": 3,
    "configure": 1,
    "wait": 8,
    "restart": 1,
}
"""How often each move is drawn."""


def _line(event: e.AnyEvent) -> str:
    parts = msgspec.to_builtins(event)
    left = {name: value for name, value in parts.items() if name not in INPUTS}
    return msgspec.json.encode(left, order="sorted").decode()


def _reason(found: Blocked) -> str:
    """Return what a program reads of a reason: no words."""
    holders: Sequence[int] = [holder.job for holder in found.holders]
    need, free = msgspec.json.encode(found.need), msgspec.json.encode(found.free)
    return (
        f"{found.reason} {need.decode()} {free.decode()} {holders} "
        f"{found.position} {found.ahead} {found.until}"
    )

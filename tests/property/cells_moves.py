"""What may happen to a cluster of cells, move by move, each with plain arguments.

A machine of Hypothesis and the nightly run draw from the same table, `ALL_MOVES`.
"""

from collections.abc import Callable

import msgspec

from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.cluster import NodeState
from allotment.model.errors import Rejected
from allotment.model.health import WHOLE, HealthReport, Source
from allotment.model.ids import SYSTEM, DeviceIndex, JobId, NodeId, TaskIndex, TaskKey
from allotment.model.lifecycle import JobState
from allotment.model.others import NOBODY, Others
from allotment.model.quantity import GIB, Resources
from allotment.model.reports import NodeReport, OthersReport
from allotment.model.spec import Checkpoint, GiveWay, JobSpec, TaskRole
from allotment.model.tenancy import Config, Preempt, QueueOrder
from tests.property.cells_world import NODES, TENANTS, CellsWorld, Plan, config
from tests.support.world import FAILED, PERMANENT, PLATFORM

MOST_LIVE = 24
"""Jobs that wait or run before the oldest is cancelled: a step must stay cheap."""


class Moves:
    """One history. After each move the line is served, unless the move says not yet."""

    def __init__(self, plan: Plan, every: int = 1) -> None:
        """`every` says after how many moves the audit is due."""
        self.plan, self.every, self.made = plan, every, 0
        first = self.planned(plan)
        assert first is not None
        self.world = CellsWorld(first)

    def planned(self, plan: Plan) -> Config | None:
        """Return the configuration of a plan; None if more is promised in it than there is."""
        return config(plan)

    def after(self, *, cycle: bool = True) -> None:
        """End a move: serve the line, and look at everything."""
        self.made += 1
        if cycle:
            self.world.cycle()
        if self.made % self.every == 0:
            self.world.check()

    # ── users ───────────────────────────────────────────────────────────────────────────

    def submit(  # noqa: PLR0917 - one a choice
        self,
        tenant: str,
        gpus: float,
        cpus: int,
        memory: int,
        tasks: int,
        most: int,
        second: int,
        priority: int,
        kind: str,
        where: tuple[str, str],
        types: tuple[str, ...],
        *,
        cycle: bool,
    ) -> None:
        need = Resources(round(gpus * 1000), cpus * 1000, memory * GIB)
        roles = (TaskRole("main", max(tasks, most), "true", need, types),)
        if most:
            roles = (msgspec.structs.replace(roles[0], least=tasks, elastic=most == 9),)
        elif second:
            other = Resources(second * 1000, 1000, GIB)
            roles += (TaskRole("second", 1, "true", other, types),)
        spec = JobSpec(
            "job",
            tenant,
            roles,
            priority=priority,
            retry=1 if kind == "retry" else 0,
            checkpoint=Checkpoint() if kind == "saves" else None,
            preemptible=kind != "steady",
            pin="p" if kind == "pin" else "",
            opportunistic=kind == "opportunistic",
            on_eviction=WAYS.get(kind, GiveWay.AS_TENANT),
            within=where[0],
            prefer=where[1],
        )
        live = [job.id for job in self.world.state.jobs.values() if not job.state.finished]
        if len(live) >= MOST_LIVE:
            self._ask(c.CancelJob(min(live)))
            self._end(min(live), 143)
        self._ask(c.SubmitJob(spec))
        self.after(cycle=cycle)

    def submit_of_all_parts(
        self, tenant: str, gpus: float, gpu_memory: int, disk: int, tasks: int, *, lends: bool
    ) -> None:
        """Submit a job that names the memory of its devices, or disk."""
        memory = gpu_memory * GIB if gpus else 0
        need = Resources(round(gpus * 1000), 1000, GIB, disk * GIB, memory)
        roles = (TaskRole("main", tasks, "true", need),)
        self._ask(c.SubmitJob(JobSpec("job", tenant, roles, opportunistic=lends)))
        self.after()

    def ask(self, wish: str, which: int) -> None:
        """Ask for something that a job of any state may refuse."""
        job = self._pick(which, lambda state: not state.finished)
        if job is not None:
            self._ask(WISHES[wish](job))
        self.after()

    def edit(self, which: int, gpus: int, priority: int) -> None:
        job = self._pick(which, lambda state: state.waiting)
        if job is not None:
            spec = self.world.job(job).spec
            need = msgspec.structs.replace(spec.roles[0].resources, gpu_milli=gpus * 1000)
            role = msgspec.structs.replace(spec.roles[0], resources=need)
            roles = (role, *spec.roles[1:])
            changed = msgspec.structs.replace(spec, roles=roles, priority=priority)
            self._ask(c.EditJob(job, changed))
        self.after()

    def _ask(self, command: c.AnyCommand) -> bool:
        before = self.world.state.seq
        try:
            self.world.do(command)
        except Rejected:
            assert self.world.state.seq == before, "a refusal changes nothing"
            return False
        return True

    # ── gangs ───────────────────────────────────────────────────────────────────────────

    def run(self, which: int) -> None:
        job = self._pick(which, lambda state: state is JobState.STARTING)
        if job is not None:
            self.world.runs(job)
        self.after()

    def end(self, which: int, code: int, *, cycle: bool) -> None:
        job = self._pick(which, lambda state: state in PLACED)
        if job is not None:
            self._end(job, code)
        self.after(cycle=cycle)

    def _end(self, job: JobId, code: int) -> None:
        how = {0: None, 1: FAILED, 2: PERMANENT, 3: PLATFORM, 143: FAILED}[code]
        attempt = self.world.job(job).attempt
        for key in self.world.job(job).task_keys() if attempt else ():
            if self.world.job(job).attempt is attempt:
                self.world.task_ends(key, code, how)

    def leave(self) -> None:
        """Everybody who was told to go goes, whole gangs and surplus tasks."""
        for job in sorted(self.world.state.cluster.placed.parting):
            attempt = self.world.job(job).attempts[-1]
            for index in range(attempt.staying, len(attempt.slots)):
                self.world.task_ends(TaskKey(job, attempt.no, TaskIndex(index)), 143)
        for job in sorted(self.world.state.cluster.placed.leaving):
            self._end(job, 143)
        self.after()

    def save(self, which: int) -> None:
        job = self._pick(which, lambda state: state in PLACED)
        if job is not None:
            self.world.saves(job, step=self.made)
        self.after()

    # ── machines ────────────────────────────────────────────────────────────────────────

    def drain(self, node: int, *, drain: bool) -> None:
        self._ask(c.DrainNode(NodeId(node)) if drain else c.UndrainNode(NodeId(node)))
        self.after()

    def lose(self, node: int, *, alive: bool) -> None:
        self.world.tell(NodeReport(NodeId(node), alive=alive, reason="test"))
        self.after()

    def others(self, node: int, gpus: int, cpus: int, memory: int) -> None:
        """Others, who run beside Allotment, use so much of a node from now on."""
        devices = (("", gpus),) if gpus else ()
        use = Others(devices, cpus * 1000, memory * GIB)
        self.world.tell(OthersReport(NodeId(node), use))
        self.after()

    def declare(self, node: int, device: int, *, ok: bool) -> None:
        """An administrator says how hardware is; refused if there is none."""
        part = (NodeId(node), None if device < 0 else DeviceIndex(device))
        self._ask(c.DeclareHealth((part,), ok=ok))
        self.after()

    def hear(self, node: int, device: int, source: Source, *, ok: bool) -> None:
        """A watcher, or a job, says how hardware is."""
        index = None if device < 0 else DeviceIndex(device)
        self.world.tell(HealthReport(NodeId(node), source, ok=ok, device=index, who="bob"))
        self.after()

    # ── administrators ──────────────────────────────────────────────────────────────────

    def configure(self, part: str, value: int) -> None:
        """Change one part of the configuration, if what is promised in it can be had."""
        values = (PARTS | REWIRED)[part]
        plan = msgspec.structs.replace(self.plan, **{part: values[value % len(values)]})
        changed = self.planned(plan)
        if changed is not None and self._ask(c.ApplyConfig(changed)):
            self.plan = plan
        self.after()

    def configure_cells(self, part: str, value: int) -> None:
        self.configure(part, value)

    def archive(self, keep: int) -> None:
        for job in self.world.engine.archive(self.world.now, keep):
            self.world.engine.emit(e.JobArchived(job), SYSTEM, self.world.now)
        self.world.collect()
        self.after()

    def wait(self, ms: int) -> None:
        self.world.wait(ms)
        self.after()

    def restart(self) -> None:
        self.world.reload()
        self.after()

    def replay(self) -> None:
        self.world.replay()
        self.after()

    # ── the end ─────────────────────────────────────────────────────────────────────────

    def finish(self) -> None:
        """Once all is mended and everybody else gone, whoever may start, starts."""
        for node, (state, _) in sorted(self.world.state.nodes.items()):
            kept = node in self.world.state.drains_kept  # Of a node that is lost just now.
            if node in self.world.state.cluster.nodes and (kept or state is NodeState.DRAINED):
                self._ask(c.UndrainNode(node))
            self.world.tell(NodeReport(node, alive=True))
        for node in sorted(self.world.state.others):
            self.world.tell(OthersReport(node, NOBODY))
        for at, device in sorted(self.world.state.health):
            part = (at, None if device == WHOLE else DeviceIndex(device))
            self._ask(c.DeclareHealth((part,), ok=True))
        assert not self.world.state.health
        for _ in range(200):
            self.world.cycle()
            self.world.check()
            placed = [job.id for job in self.world.state.jobs.values() if job.attempt]
            if not placed:
                break
            for job in placed:
                self._end(job, 0)
        self._nobody_is_left()
        self.world.replay()

    def _nobody_is_left(self) -> None:
        state = self.world.state
        reasons = {w.id: self.world.why(w.id).reason for w in state.cluster.pending.all()}
        left = {job: why for job, why in reasons.items() if why not in MAY_WAIT}
        assert not left, reasons
        assert state.cluster.cells is not None
        for space in state.cluster.cells.spaces:
            assert not any(space.lent)
        for (_, pin), held in state.cluster.cells.holdings.items():
            for holding in held.values():
                assert pin or not holding.bound
                assert not holding.used
                assert not holding.claims
                assert not holding.parts

    def _pick(self, which: int, wanted: Callable[[JobState], bool]) -> JobId | None:
        jobs = [job.id for job in self.world.state.jobs.values() if wanted(job.state)]
        return jobs[which % len(jobs)] if jobs else None


MAY_WAIT = ("quota", "never_fits_now")
"""Reasons to wait on an empty cluster: a share, or the hardware, became too small.

And to be behind one for whom it did, in a queue in which that holds up others.
"""

PLACED = (JobState.STARTING, JobState.RUNNING, JobState.SUSPENDED, JobState.STOPPING)

WISHES: dict[str, Callable[[JobId], c.AnyCommand]] = {
    "cancel": c.CancelJob,
    "suspend": c.SuspendJob,
    "resume": c.ResumeJob,
    "hold": c.HoldJob,
    "release": c.ReleaseJob,
}

PARTS: dict[str, tuple[object, ...]] = {
    "cut": (0, 1, 2, 3),
    "racks": (3, 2),
    "preempt": tuple(Preempt),
    "borrow": (True, False),
    "order": tuple(QueueOrder),
    "flat": (False, True),
    "without": ("", *TENANTS),
    "pinned": (True, False),
}

REWIRED: dict[str, tuple[object, ...]] = {
    "bare": ("", "r1", "a0", "a", "c1"),
    "a100": ("", "turned", "half", "type"),
}
"""What takes cells away from under nodes that stay, and those who run there."""

ANY = tuple(range(64))
BOTH = (True, False)

WAYS = {way.value: way for way in GiveWay if way not in (GiveWay.AS_TENANT, GiveWay.REQUEUE)}
"""What a job would rather have than to stand in line again."""

WHERE = (
    *[("", "")] * 3,
    ("", "node"),
    ("", "rack"),
    ("node", ""),
    ("rack", ""),
    ("rack", "node"),
)
"""The level that must hold a gang, and the one that should."""

Table = dict[str, tuple[int, dict[str, tuple[object, ...]]]]

MOVES: Table = {
    "submit": (
        34,
        {
            "tenant": TENANTS,
            "gpus": (0, 0.25, 0.5, 1, 1, 1, 2, 3, 4, 5, 8, 8),
            "cpus": (1, 1, 4, 16, 40),
            "memory": (1, 1, 64, 100),
            "tasks": (1, 1, 1, 1, 2, 3, 4),
            "most": (0, 0, 0, 0, 0, 5, 9),
            "second": (0, 0, 0, 0, 1, 2, 4),
            "priority": (50, 100, 100, 100, 200, 900),
            "kind": ("", "", "pin", "opportunistic", "steady", "retry", "saves", *WAYS),
            "where": WHERE,
            "types": ((), (), (), ("V100",), ("A100", "V100"), ("A100",)),
            "cycle": (True, True, True, False),
        },
    ),
    "run": (12, {"which": ANY}),
    "end": (20, {"which": ANY, "code": (0, 0, 0, 1, 2, 3, 143), "cycle": BOTH}),
    "leave": (6, {}),
    "ask": (10, {"wish": (*WISHES, "suspend", "resume"), "which": ANY}),
    "edit": (1, {"which": ANY, "gpus": (0, 1, 2, 8), "priority": (10, 900)}),
    "save": (1, {"which": ANY}),
    "drain": (5, {"node": tuple(range(NODES)), "drain": BOTH}),
    "lose": (3, {"node": tuple(range(NODES)), "alive": BOTH}),
    "declare": (3, {"node": tuple(range(NODES)), "device": (-1, 0, 1, 5, 6), "ok": BOTH}),
    "hear": (
        3,
        {
            "node": tuple(range(NODES)),
            "device": (-1, 0, 2, 3),
            "source": tuple(Source),
            "ok": BOTH,
        },
    ),
    "configure": (3, {"part": tuple(PARTS), "value": tuple(range(4))}),
    "archive": (1, {"keep": (0, 3)}),
    "wait": (3, {"ms": (0, 1000, 60_000, 3_600_000)}),
    "restart": (1, {}),
}
"""How often each is drawn, of a hundred or so, and from what its arguments are."""

ALL_MOVES: Table = MOVES | {
    "others": (
        4,
        {
            "node": tuple(range(NODES)),
            "gpus": (0, 0, 1, 2, 8),
            "cpus": (0, 0, 1, 20),
            "memory": (0, 0, 60),
        },
    ),
    "configure_cells": (4, {"part": tuple(REWIRED), "value": tuple(range(5))}),
    "submit_of_all_parts": (
        8,
        {
            "tenant": TENANTS,
            "gpus": (0, 0.25, 0.25, 0.5, 1, 2),
            "gpu_memory": (0, 3, 8, 16),
            "disk": (0, 0, 100, 400),
            "tasks": (1, 1, 2, 5),
            "lends": (False, False, True),
        },
    ),
}
"""These too; apart, so that histories drawn from the others stay as they are."""

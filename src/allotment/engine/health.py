"""Reports on hardware, turned into events: only when a part changes its state.

What the rules need to remember of reports between two changes is kept in a `Watch`, which is
not part of the state: after a restart it begins from the state each part is in. Watchers
then tell again what stands, and what none tells again heals in time.
"""

from collections.abc import Iterator

import msgspec

from allotment.engine.breaker import lacking_room
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.cluster import NodeState
from allotment.model.diagnosis import Owner
from allotment.model.errors import Code, Rejected
from allotment.model.health import (
    RULES,
    WHOLE,
    Condition,
    Course,
    HardwareHealth,
    HealthReport,
    Part,
    Rules,
    Source,
    Trouble,
    aged,
    became,
    heard,
    next_turn,
)
from allotment.model.ids import Actor, DeviceIndex, NodeId
from allotment.model.lifecycle import TaskState
from allotment.model.quantity import Instant, show_millis
from allotment.model.reports import NodeReport, Seen, TaskReport

Emit = Iterator[e.AnyEvent]


class Watch:
    """What was reported of which part by whom, as far as it may still matter."""

    def __init__(self, rules: Rules = RULES) -> None:
        self._rules = rules
        self._courses: dict[Part, Course] = {}
        self._armed: dict[Part, Instant] = {}

    def heard(self, state: State, report: HealthReport, now: Instant) -> Emit:
        """Take a report; on hardware that is not in the configuration, it says nothing."""
        if not _is_there(state, report.part):
            return
        before = self._course(state, report.part)
        after = heard(before, report, now, self._rules)
        yield from self._follow(state, report.part, before, after, report)

    def due(self, state: State, part: Part, now: Instant) -> Emit:
        """Let a part get worse or well by itself, unless the timer outlived its reason."""
        self._armed.pop(part, None)
        if state.condition(part) is not None:
            before = self._course(state, part)
            yield from self._follow(state, part, before, aged(before, now, self._rules), None)

    def _course(self, state: State, part: Part) -> Course:
        """Return what is remembered of a part, unless something else changed it since."""
        true = course_of(state.condition(part))
        kept = self._courses.get(part, true)
        same = kept.health is true.health and kept.final is true.final
        same = same and kept.held_back is true.held_back
        if true.health is not HardwareHealth.HEALTHY:
            same = same and kept.since == true.since
        return kept if same else true

    def _follow(
        self,
        state: State,
        part: Part,
        before: Course,
        after: Course,
        report: HealthReport | None,
    ) -> Emit:
        after = _within_room(state, part, before, after)
        if after.health is HardwareHealth.HEALTHY and not after.troubles:
            self._courses.pop(part, None)
        else:
            self._courses[part] = after
            self._arm(state, part, after)
        if _standing_of(after) != _standing_of(before):
            yield _change(state.condition(part), part, after, report, self._rules)

    def _arm(self, state: State, part: Part, course: Course) -> None:
        turn, armed = next_turn(course, self._rules), self._armed.get(part)
        if turn is not None and (armed is None or turn < armed):
            self._armed[part] = turn
            state.timers.arm_part(turn, part)


def course_of(condition: Condition | None) -> Course:
    """Return what the rules can know from the state alone."""
    if condition is None:
        return Course()
    at = condition.changed_at
    course = Course(condition.health, at, condition.final, last=at)
    if condition.health is not HardwareHealth.DOUBTED:
        return course
    told = Trouble(
        at, condition.by, condition.code, condition.words, condition.who, condition.since
    )
    return msgspec.structs.replace(course, troubles=(told,), held_back=condition.held_back)


def _standing_of(course: Course) -> tuple[HardwareHealth, bool, bool]:
    """Return what of a course the state knows."""
    return course.health, course.final, course.held_back


def _within_room(state: State, part: Part, before: Course, after: Course) -> Course:
    """Hold back what would take away more than automatic means may."""
    if not after.health.is_out or part in state.health or lacking_room(state, part) is None:
        return after
    now = before.since if before.held_back else after.since
    return became(after, HardwareHealth.DOUBTED, now, held_back=True)


def _change(
    old: Condition | None, part: Part, after: Course, report: HealthReport | None, rules: Rules
) -> e.HealthChanged:
    node, place = part
    was = old.health if old else HardwareHealth.HEALTHY
    device = None if place == WHOLE else DeviceIndex(place)
    by = report.source if report else old.by if old else Source.PROBE
    if after.health is HardwareHealth.HEALTHY:
        ago = _still_ms(was, rules)
        words = f"no trouble for {show_millis(ago)}"
        if report is not None and report.source is Source.ADMIN:
            words = report.words
        who = report.who if report else ""
        return e.HealthChanged(node, was, after.health, by, device, "", words, who)
    if report is None or report.ok:
        # By time alone: the cause is what stands.
        assert old is not None, "only what is suspect gets worse by itself"
        code, words, who, since = old.code, old.words, old.who, old.since
    else:
        code, words, who = report.code, report.words, report.who
        since = _begin(old, report, after.last)
    return e.HealthChanged(
        node, was, after.health, by, device, code, words, who, after.final, since,
        after.held_back,
    )  # fmt: skip


def _still_ms(was: HardwareHealth, rules: Rules) -> int:
    """Return for how long no trouble was reported of what is healthy again."""
    match was:
        case HardwareHealth.DOUBTED:
            return rules.within_ms
        case HardwareHealth.SUSPECT:
            return rules.heal_ms
        case _:
            return rules.mend_ms


def _begin(old: Condition | None, report: HealthReport, now: Instant) -> Instant:
    """Return since when a part is in trouble: the earliest that was told."""
    told = min(report.since, now) if report.since else now
    return Instant(min(old.since, told) if old else told)


def _is_there(state: State, part: Part) -> bool:
    node, place = part
    machine = state.cluster.nodes.get(node)
    return machine is not None and -1 <= place < len(machine.devices)


# ── an administrator's word ─────────────────────────────────────────────────────────────


def declare(state: State, command: c.DeclareHealth, actor: Actor, now: Instant) -> Emit:
    """Return changes an administrator's word makes. Raises Rejected for unknown hardware."""
    for node, device in command.parts:
        _check(state, node, device)
    for part in _meant(state, command):
        node, place = part
        device = None if place == WHOLE else DeviceIndex(place)
        old = state.condition(part)
        report = HealthReport(
            node, Source.ADMIN, command.ok, device, "declared", command.because, actor.user
        )
        after = heard(course_of(old), report, now)
        if command.ok and old is None:
            continue
        if old is not None and old.final and after.final and old.words == command.because:
            continue
        yield _change(old, part, after, report, RULES)


def _meant(state: State, command: c.DeclareHealth) -> list[Part]:
    """List the parts a word is about; a node that is ok is so with all its devices."""
    parts = [(node, WHOLE if device is None else int(device)) for node, device in command.parts]
    if command.ok:
        whole = {node for node, place in parts if place == WHOLE}
        parts += [part for part in (*state.health, *state.doubts) if part[0] in whole]
    return list(dict.fromkeys(parts))


def _check(state: State, node: NodeId, device: DeviceIndex | None) -> None:
    machine = state.cluster.nodes.get(node)
    if machine is None:
        raise Rejected(Code.NO_SUCH_NODE, f"There is no node {node}.", "See `allot nodes`.")
    if device is not None and not 0 <= device < len(machine.devices):
        has = f"devices 0 to {len(machine.devices) - 1}" if machine.devices else "no devices"
        raise Rejected(
            Code.BAD_REQUEST, f"Node {machine.name} has {has}; there is no device {device}."
        )


# ── what other reports say of hardware ──────────────────────────────────────────────────


def suspicions(state: State, report: TaskReport) -> list[HealthReport]:
    """Return what a task's end tells of its devices. Ask before the end is applied."""
    found = report.diagnosis
    if report.seen is not Seen.ENDED or found is None or found.owner is not Owner.HARDWARE:
        return []
    job = state.jobs.get(report.key.job)
    attempt = job.attempt if job else None
    index = report.key.index
    if job is None or attempt is None or attempt.no != report.key.attempt:
        return []
    if index >= len(attempt.slots) or attempt.task(index).state is TaskState.ENDED:
        return []
    slot = attempt.slots[index]
    words = f"job {job.id}: {found.cause}"
    return [
        HealthReport(
            slot.node, Source.JOB, False, DeviceIndex(device), found.code, words, job.owner.user
        )
        for device in slot.devices
    ]


def heartbeat(state: State, report: NodeReport) -> list[HealthReport]:
    """Return what a node's silence, or its return, tells of it. Ask before it is applied.

    Shells whose nodes are real ask this; a world that draws faults has its nodes mended.
    """
    lost = state.nodes.get(report.node, (NodeState.READY, ""))[0] is NodeState.LOST
    if lost is not report.alive:
        return []
    words = "" if report.alive else report.reason or "no heartbeat"
    code = "" if report.alive else "node_lost"
    return [HealthReport(report.node, Source.HEARTBEAT, report.alive, None, code, words)]

"""Whether hardware is well: what is reported of it, and what is made of the reports.

A *part* is a node or one device of it. Reports come from watchers that look again and again
(a probe, the driver), from jobs that failed, and from administrators. The rules, pure and
without a clock, turn them into three states:

    healthy ──trouble──▶ suspect ──troubles times within within_ms──▶ bad
      ▲ ▲ ▲                │  └──── it stands for worsen_ms ─────────▲ │
      │ │ └──no trouble for heal_ms                                    │
      │ └──────────────── well again for mend_ms ──────────────────────┘
      └─for within_ms no other source ───── doubted ◀──one user's jobs say so── healthy

* A watcher's trouble *stands* until the same watcher says ok, and counts once. A job's word
  and a heartbeat that came back do not stand; of one user's jobs one word counts.
* What a job says is what its user let it print. The jobs of one user alone take no hardware
  from others: it is *doubted*, and used as before, until another source reports it too:
  a watcher, or a job of another user, within within_ms.
* The breaker may hold back (engine/breaker.py): what the rules make suspect
  or bad is then doubted, and *held back*, until there is room or an administrator confirms it.
* A heartbeat's trouble alone suspects nothing: a silent node is lost, and takes no work as
  long as it is. Only one that is lost again and again is bad.
* A bad part is unused, so silence proves nothing: it needs a report that it is ok, and then
  none to the contrary for `mend_ms`.
* An administrator's `bad` is final until an administrator says `ok`, which also forgets all
  that was reported before.
"""

from enum import StrEnum

import msgspec

from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.quantity import MINUTE, Instant

WHOLE = -1
"""In a part, the place of a device: the node as a whole."""

Part = tuple[NodeId, int]
"""A node, and the index of one of its devices or `WHOLE`."""


class HardwareHealth(StrEnum):
    """What is known of a part. Suspect and bad ones get no new work; nothing is ever killed."""

    HEALTHY = "healthy"
    DOUBTED = "doubted"
    """Something is said against it that does not suffice to take it away: it is used."""
    SUSPECT = "suspect"
    """Something was amiss; it may pass."""
    BAD = "bad"
    """It is broken as far as we know."""

    @property
    def is_out(self) -> bool:
        """Whether a part gets no new work."""
        return self in (HardwareHealth.SUSPECT, HardwareHealth.BAD)


class Source(StrEnum):
    """The source of a report."""

    HEARTBEAT = "heartbeat"
    PROBE = "probe"
    """A program that tests hardware."""
    DRIVER = "driver"
    """The devices' own library: NVML's Xid and ECC errors, a device off the bus."""
    JOB = "job"
    """The reading of a job's end."""
    ADMIN = "admin"


WATCHERS = (Source.PROBE, Source.DRIVER)
"""Sources that look again and again, and say when it is over."""


class HealthReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What somebody says of a part. Telling it again says nothing new."""

    node: NodeId
    source: Source
    ok: bool
    device: DeviceIndex | None = None
    """None for the node as a whole."""
    code: str = ""
    """What the trouble is, for programs: `gpu_ecc`, `gpu_lost`."""
    words: str = ""
    who: str = ""
    """The user behind it, where there is one."""
    since: Instant = Instant(0)
    """Since when it is so; 0 for now."""

    @property
    def part(self) -> Part:
        return (self.node, WHOLE if self.device is None else self.device)


class Condition(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a part that is not healthy, and the source of the report."""

    node: NodeId
    health: HardwareHealth
    by: Source
    changed_at: Instant
    """Since when it is in this state."""
    since: Instant
    """Since when there is trouble, as far as it was told."""
    device: DeviceIndex | None = None
    code: str = ""
    words: str = ""
    who: str = ""
    final: bool = False
    held_back: bool = False
    """It would be suspect or bad, but more would be out of use than may be by itself."""

    @property
    def is_suspicion(self) -> bool:
        """Whether it is believed to be broken by other means than an administrator's word."""
        return not self.final and (self.health.is_out or self.held_back)

    @property
    def part(self) -> Part:
        return (self.node, WHOLE if self.device is None else self.device)


class Rules(msgspec.Struct, frozen=True, gc=False):
    """How quickly hardware is given up and forgiven. Lengths of time in milliseconds."""

    troubles: int = 3
    """So many troubles …"""
    within_ms: int = 30 * MINUTE
    """… within this make a part bad. What jobs of two users say within it makes it suspect."""
    worsen_ms: int = 5 * MINUTE
    """A suspect part whose trouble stands so long is bad."""
    heal_ms: int = 10 * MINUTE
    """A suspect part without trouble for so long is healthy."""
    mend_ms: int = 30 * MINUTE
    """A bad part that is said to be ok, and for so long not the contrary, is healthy."""


RULES = Rules()


class Trouble(msgspec.Struct, frozen=True, gc=False):
    """One report that counts."""

    at: Instant
    source: Source
    code: str
    words: str
    who: str
    since: Instant


class Course(msgspec.Struct, frozen=True):
    """How a part has been, as far as the rules need to remember."""

    health: HardwareHealth = HardwareHealth.HEALTHY
    since: Instant = Instant(0)
    """Since when it is in this state."""
    final: bool = False
    """An administrator said so."""
    standing: tuple[Source, ...] = ()
    """Watchers whose trouble is not over."""
    troubles: tuple[Trouble, ...] = ()
    """The last ones that count, oldest first, as many as could make it bad."""
    last: Instant = Instant(0)
    """When trouble was last reported, counted or not."""
    well_since: Instant | None = None
    """Since when it is reported ok, with no report to the contrary."""
    held_back: bool = False
    """It is doubted only because no more is to be taken away."""


def heard(course: Course, report: HealthReport, now: Instant, rules: Rules = RULES) -> Course:
    """Take a report into account."""
    if report.source is Source.ADMIN:
        return _final(course, report, now)
    if course.final:
        return course
    after = _well(course, report, now) if report.ok else _troubled(course, report, now, rules)
    return aged(after, now, rules)


def aged(course: Course, now: Instant, rules: Rules = RULES) -> Course:
    """Let time pass: what stood long enough is bad, what was long well is healthy."""
    due = next_turn(course, rules)
    if due is None or now < due:
        return course
    if course.standing:
        return became(course, HardwareHealth.BAD, now)
    return Course(since=now)


def next_turn(course: Course, rules: Rules = RULES) -> Instant | None:
    """Return when a part gets worse or well by itself without further reports."""
    if course.final or course.health is HardwareHealth.HEALTHY:
        return None
    if course.standing:
        worse = course.health is HardwareHealth.SUSPECT
        return Instant(course.since + rules.worsen_ms) if worse else None
    well = course.well_since
    if course.health is HardwareHealth.BAD:
        return None if well is None else Instant(well + rules.mend_ms)
    still_ms = rules.heal_ms
    if course.health is HardwareHealth.DOUBTED:
        still_ms = rules.within_ms
    return Instant(max(course.last, well or 0) + still_ms)


def became(
    course: Course, health: HardwareHealth, now: Instant, *, held_back: bool = False
) -> Course:
    """Return the course of a part that is in another state from now on."""
    return msgspec.structs.replace(course, health=health, since=now, held_back=held_back)


def _final(course: Course, report: HealthReport, now: Instant) -> Course:
    """An administrator's word: bad until withdrawn; or a clean slate."""
    if report.ok:
        return course if course == Course(since=course.since) else Course(since=now)
    same = course.health is HardwareHealth.BAD
    told = (_trouble(report, now),)
    return Course(
        HardwareHealth.BAD, course.since if same else now, final=True, troubles=told, last=now
    )


def _well(course: Course, report: HealthReport, now: Instant) -> Course:
    standing = tuple(source for source in course.standing if source is not report.source)
    well = course.well_since
    if not standing and well is None:
        well = now
    return msgspec.structs.replace(course, standing=standing, well_since=well)


def _troubled(course: Course, report: HealthReport, now: Instant, rules: Rules) -> Course:
    recent = tuple(t for t in course.troubles if t.at > now - rules.within_ms)
    if _counts(report, course.standing, recent):
        others = (t for t in recent if not _is_same_word(t, report))
        recent = (*others, _trouble(report, now))[-rules.troubles :]
    if not _is_believed(recent):
        return _doubted(msgspec.structs.replace(course, troubles=recent), now)
    standing = course.standing
    if report.source in WATCHERS and report.source not in standing:
        standing = (*standing, report.source)
    after = msgspec.structs.replace(
        course, standing=standing, troubles=recent, last=now, well_since=None
    )
    if len(recent) >= rules.troubles and after.health is not HardwareHealth.BAD:
        return became(after, HardwareHealth.BAD, now)
    if not after.health.is_out and report.source is not Source.HEARTBEAT:
        return became(after, HardwareHealth.SUSPECT, now)
    return after


def _doubted(course: Course, now: Instant) -> Course:
    """Take note of what the jobs of one user say, who may want a part for themselves."""
    if course.health.is_out:
        return course
    if course.health is HardwareHealth.HEALTHY:
        course = became(course, HardwareHealth.DOUBTED, now)
    return msgspec.structs.replace(course, last=now)


def _counts(
    report: HealthReport, standing: tuple[Source, ...], recent: tuple[Trouble, ...]
) -> bool:
    """Whether a trouble is another one, and not the same once more."""
    if report.source in WATCHERS:
        return report.source not in standing
    return True


def _is_same_word(trouble: Trouble, report: HealthReport) -> bool:
    """Whether a job's word only takes the place of one of the same user's jobs."""
    return trouble.source is report.source is Source.JOB and trouble.who == report.who


def _is_believed(troubles: tuple[Trouble, ...]) -> bool:
    """Whether others speak against a part than the jobs of one user."""
    users = {trouble.who for trouble in troubles if trouble.source is Source.JOB}
    return len(users) != 1 or any(t.source is not Source.JOB for t in troubles)


def _trouble(report: HealthReport, now: Instant) -> Trouble:
    since = min(report.since, now) if report.since else now
    return Trouble(now, report.source, report.code, report.words, report.who, Instant(since))

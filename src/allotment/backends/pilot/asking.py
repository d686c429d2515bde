"""Asks a runner about its tasks, and takes of its answers what was asked for and can be.

A node may be in the hands of somebody else. What it says of its own tasks has to be believed;
it says nothing of others, and nothing that the event log could not hold.
"""

from collections.abc import Collection, Sequence

import msgspec

from allotment.backends.pilot import messages as m
from allotment.backends.pilot.link import Link
from allotment.backends.status import MOST_DEVICES, MOST_WORDS, PauseSaid
from allotment.model.cluster import Node
from allotment.model.diagnosis import Exit
from allotment.model.health import WATCHERS, HealthReport
from allotment.model.ids import TaskKey
from allotment.model.reports import TaskReport
from allotment.service.ports import DeviceUse, GangLaunch, LogChunk, Refused, TaskUse

MOST_BYTES = 64 * 1024
"""Of one report."""
MOST = 2**53
"""Of a number: the event log holds a thousand of them added up."""
IMPOSSIBLE = Exit(platform_error="its runner reported an end that cannot be")


async def observe(link: Link, keys: Collection[TaskKey]) -> list[TaskReport]:
    """Return the state of tasks. Raises BackendError."""
    asked = frozenset(keys)
    told = await link.call(m.Observe(tuple(keys)), list[TaskReport])
    return [possible(report) for report in told if report.key in asked]


async def launch(link: Link, gang: GangLaunch, image_bytes: int) -> Refused:
    """Start tasks; return which are refused, and why. Raises BackendError."""
    asked = {task.key for task in gang.tasks}
    told = await link.call(m.Launch(gang, image_bytes), list[tuple[TaskKey, str]])
    return {key: why[:MOST_WORDS] for key, why in told if key in asked}


async def uses(link: Link, keys: Sequence[TaskKey]) -> list[TaskUse]:
    """Return what tasks use. Raises BackendError."""
    asked = frozenset(keys)
    told = await link.call(m.Uses(tuple(keys)), list[TaskUse])
    return [
        use
        for use in told
        if use.key in asked and max(use.cpu_ms, use.memory, use.processes) <= MOST
    ]


async def device_uses(link: Link, node: Node) -> list[DeviceUse]:
    """Return what is in use of a node's devices. Raises BackendError."""
    known = {device.index for device in node.devices}
    told = await link.call(m.DeviceUses(), list[DeviceUse])
    return [use for use in told if use.index in known and use.memory <= MOST]


async def ranks(link: Link, op: m.AskRanks | m.StandRanks) -> dict[TaskKey, PauseSaid]:
    """Return what is said of the ranks of tasks. Raises BackendError."""
    asked = frozenset(op.keys)
    longer_s = op.wait_s if isinstance(op, m.StandRanks) else 0
    told = await link.call(op, list[tuple[TaskKey, PauseSaid]], longer_s)
    return {key: said for key, said in told if key in asked}


async def read_log(link: Link, key: TaskKey, stream: str, offset: int, size: int) -> LogChunk:
    """Return a piece of a task's output. Raises BackendError."""
    chunk = await link.call(m.ReadLog(key, stream, offset, size), LogChunk)
    if len(chunk.data) > size or not max(offset, 0) + len(chunk.data) <= chunk.next <= MOST:
        raise link.distrusted("answers with output that was not asked for")
    return chunk


def possible(report: TaskReport) -> TaskReport:
    """Return a report, or of one that cannot be true no more than that the task is so far."""
    exit_ = report.exit or Exit()
    used = exit_.usage
    numbers = [
        report.pid, exit_.log_dropped, used.wall_ms, used.cpu_user_ms, used.cpu_system_ms,
        used.max_rss, *((used.gpu.busy_milli, used.gpu.memory) if used.gpu else ()),
        *(each.started_at for each in report.phases),
        *(each.ms for each in report.phases),
        *((report.suspension.no, *report.suspension.kept) if report.suspension else ()),
    ]  # fmt: skip
    small = [exit_.code or 0, exit_.signal or 0]
    if (
        all(0 <= number <= MOST for number in numbers)
        and all(0 <= number <= 255 for number in small)
        and all(0 <= index < MOST_DEVICES for index in report.devices)
        and len(msgspec.msgpack.encode(report)) <= MOST_BYTES
    ):
        return report
    return TaskReport(report.key, report.seen, exit=IMPOSSIBLE if report.exit else None)


def heard_of(node: Node, report: HealthReport) -> HealthReport | None:
    """Return what a runner says of its own node's devices; None for anything else."""
    known = {None, *(device.index for device in node.devices)}
    is_own = report.source in WATCHERS and report.device in known
    if not is_own or not 0 <= report.since <= MOST:
        return None
    words = report.words[:MOST_WORDS]
    code = report.code[:100]
    return msgspec.structs.replace(report, node=node.id, code=code, words=words, who="")

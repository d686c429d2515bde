"""Reservations are set, begin and end: commands and the clock in, events out."""

import re
from collections.abc import Iterator

from allotment.engine.report import grace_of
from allotment.engine.state import State
from allotment.model import events as e
from allotment.model.cluster import Node, NodeState
from allotment.model.commands import ReserveNodes
from allotment.model.diagnosis import Diagnosis, Owner, RetryClass
from allotment.model.errors import Code, Rejected
from allotment.model.ids import NodeId
from allotment.model.quantity import DEVICE, Instant, WallTime
from allotment.model.reasons import StopCause
from allotment.model.reservations import Reservation

Emit = Iterator[e.AnyEvent]

MOST_RESERVATIONS = 1_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def reserve(state: State, command: ReserveNodes, now: Instant) -> Emit:
    """Set nodes aside. Raises Rejected."""
    _check_name(state, command.name)
    _check_times(command, state.wall(now))
    _check_who(state, command)
    nodes = _named(state, command) if command.nodes else _chosen(state, command)
    yield e.ReservationSet(
        Reservation(
            name=command.name,
            begin=WallTime(max(state.wall(now), command.begin)),
            end=command.end,
            nodes=nodes,
            users=command.users,
            tenants=command.tenants,
            queues=command.queues,
            evict=command.evict,
            notice_ms=command.notice_ms,
            reason=command.reason,
        )
    )


def end(state: State, name: str) -> Emit:
    """End a reservation: its nodes are open to all again. Raises Rejected."""
    if name not in state.reservations:
        names = ", ".join(sorted(state.reservations)[:10]) or "none"
        raise Rejected(
            Code.NOT_FOUND, f"There is no reservation {name!r}.", f"There are: {names}."
        )
    if engine := state.reservations[name].engine:
        raise Rejected(
            Code.CONFLICT,
            f"Reservation {name} was made in engine {engine}, not here.",
            "End it there; of Slurm: scontrol delete "
            f"reservationname={name.removesuffix(f'@{engine}')}",
        )
    yield e.ReservationEnded(name)


def due(state: State, name: str, now: Instant) -> Emit:
    """Return what is due for a reservation: its end, or the jobs that go when it begins."""
    reservation = state.reservations.get(name)
    if reservation is None:
        return
    if state.wall(now) >= reservation.end:
        yield e.ReservationEnded(name)
    elif reservation.evict and state.wall(now) >= reservation.begin:
        yield from _clear(state, reservation)


def _clear(state: State, reservation: Reservation) -> Emit:
    """Evict the jobs on the nodes of a reservation that may not use it."""
    nodes, names = set(reservation.nodes), {node.id: node.name for node in state.config.nodes}
    for job_id, gang in sorted(state.cluster.gangs.items()):
        there = sorted({slot.node for slot in gang.slots} & nodes)
        queue = state.jobs[job_id].spec.queue
        if not there or gang.leaving or reservation.admits(gang.tenant, queue, gang.user):
            continue
        job = state.jobs[job_id]
        yield e.StopRequested(
            job_id,
            job.attempts[-1].no,
            StopCause.EVICTED,
            signal=job.spec.checkpoint.signal if job.spec.checkpoint else "TERM",
            grace_ms=grace_of(job),
            diagnosis=Diagnosis(
                code="reservation",
                cause=f"Node {names.get(there[0], there[0])} is set aside now: "
                + reservation.name
                + (f" ({reservation.reason})." if reservation.reason else "."),
                owner=Owner.PLATFORM,
                retry=RetryClass.PLATFORM,
                advice="It is queued again. See `allot reservations`.",
            ),
        )


# ── bad input ───────────────────────────────────────────────────────────────────────────


def _check_name(state: State, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise Rejected(
            Code.BAD_REQUEST,
            f"{name[:80]!r} cannot be the name of a reservation.",
            "Use letters, digits, '.', '_' and '-', at most 63 of them.",
        )
    if name in state.reservations:
        raise Rejected(
            Code.CONFLICT,
            f"There is a reservation {name} already.",
            f"End it first (`allot unreserve {name}`), or use another name.",
        )
    if sum(not its.engine for its in state.reservations.values()) >= MOST_RESERVATIONS:
        raise Rejected(
            Code.TOO_LARGE,
            f"There are {MOST_RESERVATIONS:,} reservations, and no more are accepted.",
            "End one first: `allot unreserve NAME`.",
        )


def _check_times(command: ReserveNodes, now: WallTime) -> None:
    if command.end <= command.begin:
        raise Rejected(
            Code.BAD_REQUEST, "It would end before it begins.", "Choose a later end."
        )
    if command.end <= now:
        raise Rejected(Code.BAD_REQUEST, "It would be over already.", "Choose a later end.")
    if command.notice_ms < 0:
        raise Rejected(Code.BAD_REQUEST, "Its notice is negative.", "Choose 0 or more.")


def _check_who(state: State, command: ReserveNodes) -> None:
    tenants = state.cluster.tenants
    for name in command.tenants:
        if name not in tenants:
            raise Rejected(
                Code.NO_SUCH_TENANT,
                f"There is no tenant {name!r}.",
                f"Tenants here: {', '.join(sorted(tenants))}.",
            )
    for name in command.queues:
        _check_queue(state, name)


def _check_queue(state: State, name: str) -> None:
    tenants = state.cluster.tenants
    tenant, slash, queue = name.partition("/")
    if not slash or not queue:
        raise Rejected(Code.NO_SUCH_QUEUE, f"{name!r} names no queue.", "Write TENANT/QUEUE.")
    if tenant not in tenants:
        raise Rejected(
            Code.NO_SUCH_TENANT,
            f"There is no tenant {tenant!r}.",
            f"Tenants here: {', '.join(sorted(tenants))}.",
        )
    if tenants[tenant].queue(queue) is None:
        there = ", ".join(each.name for each in tenants[tenant].queues)
        raise Rejected(
            Code.NO_SUCH_QUEUE,
            f"Tenant {tenant} has no queue {queue!r}.",
            f"Its queues: {there}.",
        )


def _named(state: State, command: ReserveNodes) -> tuple[NodeId, ...]:
    if command.devices:
        raise Rejected(Code.BAD_REQUEST, "Name nodes, or say how many devices; not both.")
    for node in command.nodes:
        if node not in state.cluster.nodes:
            raise Rejected(Code.NO_SUCH_NODE, f"There is no node {node}.", "See `allot nodes`.")
    return tuple(sorted(set(command.nodes)))


# ── so many devices ─────────────────────────────────────────────────────────────────────


def _chosen(state: State, command: ReserveNodes) -> tuple[NodeId, ...]:
    """Choose whole nodes with so many devices: those of which least is in use, in order."""
    if command.devices < 1:
        raise Rejected(Code.BAD_REQUEST, "It has no nodes: name them, or say how many devices.")
    taken = {
        node
        for reservation in state.reservations.values()
        if reservation.begin < command.end and command.begin < reservation.end
        for node in reservation.nodes
    }
    rooms = [
        (_in_use(state, node), node.id, count)
        for node in state.config.nodes
        if node.id not in taken
        and state.nodes.get(node.id, (NodeState.READY, ""))[0] is NodeState.READY
        and (count := _devices(state, node, command.type))
    ]
    chosen: list[NodeId] = []
    missing = command.devices
    for _, node_id, count in sorted(rooms):
        if missing <= 0:
            break
        chosen.append(node_id)
        missing -= count
    if missing > 0:
        kind = f" {command.type}" if command.type else ""
        there = sum(count for _, _, count in rooms)
        raise Rejected(
            Code.NEVER_FITS,
            f"There are not {command.devices:,}{kind} devices that are up and not set aside "
            f"then; there are {there:,}.",
            "Ask for fewer, or for another time: `allot reservations`.",
        )
    return tuple(sorted(chosen))


def _devices(state: State, node: Node, kind: str) -> int:
    book = state.cluster.ledger.books[node.id]
    bad = book.bad - book.taken  # What others use now is theirs to give back.
    return sum(
        1 for device in node.devices if kind in ("", device.type) and device.index not in bad
    )


def _in_use(state: State, node: Node) -> int:
    """Return what is in use of a node's devices, in thousandths."""
    book = state.cluster.ledger.books[node.id]
    return sum(DEVICE - max(0, milli) for milli in book.device_milli)

"""Histories with reservations, counted and in cells: no job is put where it may not be.

The twin reads reservations and limits from the log alone, and asks of every start the question
in its plainest form.
"""

import os

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.ids import JobId, NodeId
from allotment.model.quantity import MINUTE, Instant, Millis, WallTime
from allotment.model.reservations import Reservation
from allotment.model.spec import JobSpec
from tests.property.test_health import BreakingCells, BreakingHardware
from tests.property.test_histories import TENANTS, Histories
from tests.support.builders import a_job

NAMES = ("a", "b", "c")


class Reservations(Histories):
    """What reservations add to a history: nodes are set aside now and then."""

    @rule(
        name=st.sampled_from(NAMES),
        start=st.integers(0, 10),
        length=st.integers(1, 10),
        nodes=st.sets(st.integers(0, 2), max_size=3),
        devices=st.integers(0, 9),
        tenants=st.sets(st.sampled_from(TENANTS), max_size=2),
        evict=st.booleans(),
        notice=st.integers(0, 20),
    )
    def reserve(  # noqa: PLR0917
        self,
        name: str,
        start: int,
        length: int,
        nodes: set[int],
        devices: int,
        tenants: set[str],
        evict: bool,
        notice: int,
    ) -> None:
        now = self.world.now
        self.attempt(
            c.ReserveNodes(
                name,
                WallTime(now + start * MINUTE),
                WallTime(now + (start + length) * MINUTE),
                tuple(NodeId(node) for node in sorted(nodes)),
                devices=0 if nodes else devices,
                tenants=tuple(sorted(tenants)),
                evict=evict,
                notice_ms=Millis(notice * MINUTE),
            )
        )

    @rule(name=st.sampled_from(NAMES))
    def end_reservation(self, name: str) -> None:
        self.attempt(c.EndReservation(name))

    @rule(
        tenant=st.sampled_from(TENANTS),
        gpus=st.sampled_from([0.5, 1, 2, 4]),
        tasks=st.integers(1, 3),
        minutes=st.integers(1, 12),
    )
    def submit_bounded(self, tenant: str, gpus: float, tasks: int, minutes: int) -> None:
        job = a_job().of(tenant).gpus(gpus).tasks(tasks).within(run_ms=minutes * MINUTE)
        self.attempt(c.SubmitJob(job.spec()))
        self.world.cycle()

    @rule(minutes=st.integers(1, 8))
    def wait_minutes(self, minutes: int) -> None:
        self.world.wait(minutes * MINUTE)
        self.world.cycle()

    @invariant()
    def nobody_is_where_it_may_not_be(self) -> None:
        if not hasattr(self, "world"):
            return
        reservations: dict[str, Reservation] = {}
        specs: dict[JobId, JobSpec] = {}
        places: dict[JobId, set[NodeId]] = {}
        for record in self.world.log:
            match record.event:
                case e.ReservationSet(reservation):
                    assert reservation.name not in reservations
                    reservations[reservation.name] = reservation
                case e.ReservationEnded(name):
                    del reservations[name]
                case e.JobSubmitted(job, spec) | e.JobEdited(job, spec):
                    specs[job] = spec
                case e.AttemptPlaced(job, _, slots):
                    places[job] = {slot.node for slot in slots}
                    check(reservations, specs[job], places[job], record.at)
                case e.AttemptResumed(job):
                    check(reservations, specs[job], places[job], record.at)
                case _:
                    pass
        assert reservations == self.world.state.reservations

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        # What ends by itself: no reservation is left once its time is over.
        self.world.wait(60 * MINUTE)
        assert not self.world.state.reservations
        super().teardown()


def check(
    reservations: dict[str, Reservation], spec: JobSpec, nodes: set[NodeId], now: Instant
) -> None:
    """A job is gone before a reservation of its nodes begins, or may use it."""
    for reservation in reservations.values():
        if nodes.isdisjoint(reservation.nodes) or spec.tenant in reservation.tenants:
            continue
        runs = spec.max_run_ms if spec.max_run_ms >= 0 else reservation.notice_ms
        assert now + runs <= reservation.begin or now >= reservation.end


class WithReservations(Reservations, BreakingHardware):
    """Three tenants on three nodes; hardware breaks too."""


class WithReservationsCells(Reservations, BreakingCells):
    """The same where shares are cells."""


def _settings(examples: int) -> settings:
    return settings(
        max_examples=int(os.environ.get("ALLOT_HISTORIES", str(examples))),
        stateful_step_count=30,
        deadline=None,
    )


TestWithReservations = WithReservations.TestCase
TestWithReservations.settings = _settings(60)
TestWithReservationsCells = WithReservationsCells.TestCase
TestWithReservationsCells.settings = _settings(60)

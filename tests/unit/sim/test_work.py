"""What stops and faults leave of a job's work, against counting every millisecond of it."""

from hypothesis import given
from hypothesis import strategies as st

from allotment.model.ids import AttemptNo
from allotment.model.quantity import Instant
from allotment.sim.trace import TraceJob
from allotment.sim.work import FULL_SPEED, Work


def a_work(run_ms: int) -> Work:
    return Work(TraceJob("job", 0, run_ms), 0, run_ms, attempt=AttemptNo(1))


def begun(run_ms: int, at: int = 0) -> Work:
    work = a_work(run_ms)
    work.since = Instant(at)
    return work


def test_a_stop_loses_nothing() -> None:
    work = begun(100)
    assert work.stop(Instant(45)) == 0
    assert (work.left_ms, work.since) == (55, -1)


def test_a_fault_loses_what_was_done_since_the_last_checkpoint() -> None:
    work = begun(100)
    assert work.stop(Instant(45), 30) == 15
    assert work.left_ms == 70


def test_a_fault_takes_nothing_that_an_earlier_stop_kept() -> None:
    """Checkpoints are at 30 and 60; it was stopped at 45, which kept all of that."""
    work = begun(100)
    work.stop(Instant(45))
    work.since = Instant(200)
    assert work.stop(Instant(205), 30) == 5
    assert work.left_ms == 55
    work.since = Instant(300)
    assert work.stop(Instant(320), 30) == 5
    assert work.left_ms == 40


def test_a_fault_of_who_makes_no_progress_takes_nothing() -> None:
    work = begun(100)
    work.stop(Instant(45))
    assert work.stop(Instant(60), 30) == 0
    assert work.left_ms == 55


def test_half_speed_does_half_of_the_work() -> None:
    work = begun(100)
    work.speed = FULL_SPEED // 2
    assert (work.done_by(Instant(50)), work.ends_at(Instant(50))) == (25, 200)
    assert work.stop(Instant(50), 20) == 5


class Twin:
    """A job that remembers of each millisecond of its work whether it is safe."""

    def __init__(self, run_ms: int) -> None:
        self.run_ms = run_ms
        self.safe: list[bool] = []

    def work(self, ms: int, checkpoint_ms: int) -> None:
        for _ in range(min(ms, self.run_ms - len(self.safe))):
            self.safe.append(False)
            if checkpoint_ms and len(self.safe) % checkpoint_ms == 0:
                self.keep()

    def keep(self) -> None:
        self.safe = [True] * len(self.safe)

    def fault(self, checkpoint_ms: int) -> int:
        if not checkpoint_ms:
            self.keep()
        lost = self.safe.count(False)
        self.safe = [True] * (len(self.safe) - lost)
        return lost


@given(
    st.integers(1, 400),
    st.integers(0, 60),
    st.lists(
        st.tuples(
            st.sampled_from(["stop", "fault", "pause"]), st.integers(0, 90), st.integers(0, 9)
        ),
        max_size=12,
    ),
)
def test_what_is_left_is_what_is_not_safe(
    run_ms: int, checkpoint_ms: int, moves: list[tuple[str, int, int]]
) -> None:
    work, twin, now = begun(run_ms), Twin(run_ms), 0
    for move, length, idle in moves:
        # It is never left running beyond its end.
        length = min(length, run_ms - len(twin.safe))
        now += length
        twin.work(length, checkpoint_ms)
        if move == "pause":
            work.pause(Instant(now))
            assert work.left_ms == run_ms - len(twin.safe)
            continue
        if move == "stop":
            twin.keep()
            assert work.stop(Instant(now)) == 0
        else:
            assert work.stop(Instant(now), checkpoint_ms) == twin.fault(checkpoint_ms)
        assert work.left_ms == run_ms - len(twin.safe)
        assert work.ends_at(Instant(now)) == now + work.left_ms
        now += idle
        work.since = Instant(now)

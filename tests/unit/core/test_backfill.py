"""What backfilling asks of who waits and who runs, against looking at everybody."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from allotment.core.ends import Ends
from allotment.core.gang import Standing
from allotment.core.pending import Key, Pending
from allotment.core.rank import Rank
from allotment.model.ids import JobId
from allotment.model.quantity import DEVICE, Instant, Millis
from allotment.policies.estimates.known import Known
from tests.unit.core.books import Given, a_gang, a_standing

Lengths = dict[int, int | None]
"""What is told of the run time of each job, if anything."""

LENGTHS = st.lists(st.none() | st.integers(0, 9), min_size=1, max_size=25).map(
    lambda lengths: dict(enumerate(lengths, 1))
)


def a_job(job: int, served: int = 0) -> Standing:
    return replace(a_standing(job), served_ms=Millis(served))


# ── who is next to end in time ──────────────────────────────────────────────────────────


@given(lengths=LENGTHS, ranks=st.lists(st.integers(0, 4), min_size=25), data=st.data())
def test_the_next_that_ends_in_time_is_that_of_looking_at_everybody(
    lengths: Lengths, ranks: list[int], data: st.DataObject
) -> None:
    ordering = Given({job: Rank((ranks[job - 1],)) for job in lengths})
    line = Pending(ordering, Known(lengths.get))
    served = {job: data.draw(st.integers(0, 3)) for job in lengths}
    coming = sorted(lengths, key=lambda job: ranks[-job])
    for job in coming:
        line.add(a_job(job, served[job]), Instant(1))
        if data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(coming))
            if gone != job:
                line.remove(JobId(gone))
        most = data.draw(st.integers(-3, 9))
        after = data.draw(st.sampled_from([waiting.id for waiting in line.all()]))
        assert line.next_to_end(line[after], most) == slowly(line, lengths, served, after, most)


def slowly(
    line: Pending, lengths: Lengths, served: dict[int, int], after: JobId, most: int
) -> Key | None:
    for waiting in line.in_order(set()):
        length = lengths[waiting.id]
        behind = line.key(waiting.id) > line.key(after)
        if behind and length is not None and length - served[waiting.id] <= most:
            return line.key(waiting.id)
    return None


def test_shapes_do_not_mix() -> None:
    line = Pending(Given({job: Rank((0,)) for job in (1, 2, 3)}), Known(lambda _: 5))
    for job, gpus in ((1, 1), (2, 2), (3, 1)):
        line.add(a_standing(job, gpus), Instant(1))
    assert line.next_to_end(line[JobId(1)], 5) == ((0,), 3)
    assert line.next_to_end(line[JobId(2)], 5) is None
    line.remove(JobId(1))
    line.remove(JobId(3))
    line.add(a_standing(1), Instant(2))
    assert line.next_to_end(line[JobId(1)], 5) is None


# ── when enough is free ─────────────────────────────────────────────────────────────────


@given(
    lengths=LENGTHS,
    gone=st.sets(st.integers(1, 25)),
    wanted=st.integers(1, 30),
    free=st.integers(0, 5),
    now=st.integers(1, 12),
)
def test_enough_is_free_when_adding_up_all_ends_says(
    lengths: Lengths, gone: set[int], wanted: int, free: int, now: int
) -> None:
    ends = Ends(Known(lengths.get))
    for job in lengths:
        ends.add(a_gang(a_standing(job, job % 4 + 1)))
    for job in gone:
        ends.remove(JobId(job))
    runs = {
        job: max(now + 1, 1 + length)
        for job, length in lengths.items()
        if length is not None and job not in gone
    }
    expected = None
    for at in sorted(set(runs.values())):
        then = free + sum(job % 4 + 1 for job, end in runs.items() if end <= at)
        if then >= wanted and expected is None:
            expected = (at, then * DEVICE)
    assert ends.enough(wanted * DEVICE, free * DEVICE, Instant(now)) == expected

"""The line of waiting jobs, against sorting everybody."""

from hypothesis import given
from hypothesis import strategies as st

from allotment.core.pending import Pending
from allotment.core.rank import Rank
from allotment.core.request import Shape
from allotment.model.ids import JobId
from allotment.model.quantity import Instant
from tests.unit.core.books import Given, a_shape, a_standing

Jobs = dict[int, tuple[int, int]]
"""Rank and devices of each job."""

JOBS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3)), max_size=20).map(
    lambda jobs: dict(enumerate(jobs, 1))
)


def in_line(jobs: Jobs) -> Pending:
    line = Pending(Given({job: Rank((rank,)) for job, (rank, _) in jobs.items()}))
    for job, (_, gpus) in jobs.items():
        line.add(a_standing(job, gpus), Instant(1))
    return line


def in_order(jobs: Jobs) -> list[int]:
    return sorted(jobs, key=lambda job: (jobs[job][0], job))


@given(JOBS)
def test_everybody_is_met_in_order(jobs: Jobs) -> None:
    line = in_line(jobs)
    assert [job.id for job in line.in_order(set())] == in_order(jobs)
    assert len(line) == len(line.all()) == len(jobs)
    assert {shape: line.head(shape) for shape in line.shapes()} == {
        a_shape(gpus): line.key(JobId(first))
        for gpus in {gpus for _, gpus in jobs.values()}
        for first in [next(job for job in in_order(jobs) if jobs[job][1] == gpus)]
    }


@given(jobs=JOBS, data=st.data())
def test_jobs_leave_and_shapes_are_left_out_while_it_is_walked(
    jobs: Jobs, data: st.DataObject
) -> None:
    line = in_line(jobs)
    skip: set[Shape] = set()
    still = dict(jobs)
    met: list[int] = []
    expected = in_order(jobs)
    for waiting in line.in_order(skip):
        met.append(waiting.id)
        while expected[0] not in still or a_shape(still[expected[0]][1]) in skip:
            expected.pop(0)
        assert waiting.id == expected.pop(0)
        act = data.draw(st.sampled_from(["go on", "leave", "others leave", "leave out"]))
        if act == "leave":
            line.remove(waiting.id)
            del still[waiting.id]
        elif act == "others leave" and still:
            for job in data.draw(st.sets(st.sampled_from(sorted(still)), max_size=3)):
                line.remove(JobId(job))
                del still[job]
        elif act == "leave out":
            skip.add(waiting.shape)
    left = [job for job in expected if job in still and a_shape(still[job][1]) not in skip]
    assert left == []
    assert {job.id for job in line.all()} == still.keys()


@given(jobs=JOBS, data=st.data())
def test_ranks_are_asked_anew_when_they_no_longer_hold(jobs: Jobs, data: st.DataObject) -> None:
    ordering = Given({
        job: Rank((rank,), until=data.draw(st.none() | st.integers(2, 6).map(Instant)))
        for job, (rank, _) in jobs.items()
    })  # fmt: skip
    line = Pending(ordering)
    for job, (_, gpus) in jobs.items():
        line.add(a_standing(job, gpus), Instant(1))
    for job in data.draw(st.sets(st.sampled_from(sorted(jobs)) if jobs else st.nothing())):
        line.remove(JobId(job))
        del jobs[job]
    now = Instant(data.draw(st.integers(1, 7)))
    for job, (rank, gpus) in jobs.items():
        until = ordering.ranks[job].until
        ordering.ranks[job] = Rank((9 - rank,))
        if until is not None and until <= now:
            jobs[job] = (9 - rank, gpus)
    line.rerank(now)
    assert [job.id for job in line.in_order(set())] == in_order(jobs)
    assert all(change > now for change, _ in line.until)


@given(JOBS)
def test_a_job_knows_how_many_are_ahead(jobs: Jobs) -> None:
    line = in_line(jobs)
    order = in_order(jobs)
    for place, job in enumerate(order):
        ahead, first = line.ahead_of(line[JobId(job)])
        assert ahead == place
        assert first == (order[0] if place else None)


def test_a_job_that_is_not_in_line_may_be_taken_out_of_it() -> None:
    line = in_line({1: (0, 1)})
    line.remove(JobId(7))
    assert JobId(1) in line
    assert JobId(7) not in line
    line.remove(JobId(1))
    assert not len(line)
    assert not list(line.shapes())


def test_the_first_of_a_shape_from_some_place_on_may_be_left_out() -> None:
    line = in_line({job: (job, 1) for job in (1, 2, 3)})
    keys = [line.key(JobId(job)) for job in (1, 2, 3)]
    shape = a_shape(1)
    assert line.first_of(shape, (), keys[0]) == keys[0]
    assert line.first_of(shape, (), keys[1]) == keys[1]
    assert line.first_of(shape, {JobId(1), JobId(2)}, keys[0]) == keys[2]
    assert line.first_of(shape, {JobId(3)}, keys[2]) is None

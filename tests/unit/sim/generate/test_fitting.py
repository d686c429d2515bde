"""Models of small traces made by hand."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from allotment.model.quantity import DAY, HOUR, Resources
from allotment.sim.generate import (
    BadModel,
    anonymous,
    fit,
    generate,
    model_from_json,
    model_to_json,
)
from allotment.sim.trace import Ending, Trace, TraceJob

MONDAY = 19_723 * DAY


def job(number: int, at: int, run: int = 60_000, **more: object) -> TraceJob:
    return TraceJob(str(number), at, run, **more)  # pyright: ignore[reportArgumentType]


def test_an_empty_trace_is_refused(trace_of):
    with pytest.raises(BadModel, match=r"by-hand.csv has no jobs"):
        fit(trace_of([]))


def test_times_in_another_unit_are_refused(trace_of):
    with pytest.raises(BadModel, match="span 31 years"):
        fit(trace_of([job(1, 0), job(2, 31 * 366 * DAY)]))


def test_one_job(trace_of):
    model = fit(trace_of([job(1, 5 * HOUR, tasks=4, tenant="vision")]))
    drawn = list(generate(model, 3, 1))
    assert {(each.run_ms, each.tasks, each.tenant) for each in drawn} == {(60_000, 4, "vision")}
    assert len({each.submit_ms for each in drawn}) == 1
    spread = list(generate(model, 3, 1, 0.5, 8000))
    assert spread[-1].submit_ms - spread[0].submit_ms == 120_000


def test_two_jobs(trace_of):
    model = fit(trace_of([job(1, 1000, 10_000), job(2, 61_000, 20_000)]))
    drawn = list(generate(model, 11, 1))
    assert drawn[-1].submit_ms - drawn[0].submit_ms == 10 * 60_000
    assert all(10_000 <= each.run_ms <= 20_000 for each in drawn)


def test_all_the_same(trace_of):
    model = fit(trace_of([job(number, MONDAY, 7) for number in range(500)]))
    drawn = list(generate(model, 100, 2))
    assert {(each.submit_ms, each.run_ms, each.tasks) for each in drawn} == {(MONDAY, 7, 1)}


def test_steady_jobs_stay_nearly_steady(trace_of):
    model = fit(trace_of([job(number, MONDAY + number * HOUR) for number in range(2000)]))
    drawn = list(generate(model, 2000, 2))
    gaps = [b.submit_ms - a.submit_ms for a, b in pairwise(drawn)]
    assert max(gaps) < 2 * HOUR
    assert min(gaps) > HOUR / 2


def test_nights_and_weekends_are_learnt(trace_of):
    working = [
        job(day * 100 + number, MONDAY + day * DAY + 9 * HOUR + number * HOUR // 10)
        for day in range(56)
        if day % 7 < 5
        for number in range(80)
    ]
    model = fit(trace_of(working))
    assert min(model.hours[9:17]) > 20 * max(model.hours[:9] + model.hours[17:])
    assert min(model.days[:5]) > 20 * max(model.days[5:])
    drawn = list(generate(model, len(working), 1))
    in_hours = sum(9 <= each.submit_ms // HOUR % 24 < 17 for each in drawn)
    in_week = sum((each.submit_ms // DAY + 3) % 7 < 5 for each in drawn)
    assert in_hours > 0.95 * len(drawn)
    assert in_week > 0.97 * len(drawn)


def test_a_day_seen_makes_no_rhythm_of_the_week(trace_of):
    model = fit(trace_of([job(number, MONDAY + number * 60_000) for number in range(1440)]))
    assert all(900 < day < 1100 for day in model.days)
    assert model.busy == (1000,) * 8


def test_run_times_go_with_sizes(trace_of):
    short = [job(number, number * 1000, 10_000) for number in range(300)]
    long = [job(900 + n, n * 3000, 5_000_000, tasks=8) for n in range(100)]
    model = fit(trace_of([*short, *long]))
    assert [runs.up_to_gpu_milli for runs in model.runs] == [1000, 8000]
    drawn = {(each.tasks, each.run_ms) for each in generate(model, 500, 1)}
    assert drawn == {(1, 10_000), (8, 5_000_000)}


def test_few_big_jobs_are_pooled_with_their_neighbours(trace_of):
    jobs = [job(n, n * 1000, tasks=1 if n < 200 else 2 << n % 3) for n in range(220)]
    model = fit(trace_of(jobs))
    assert [runs.up_to_gpu_milli for runs in model.runs] == [8000]
    jobs = [job(n, n * 1000, tasks=1 if n < 200 else 2 << n % 3) for n in range(300)]
    assert [runs.up_to_gpu_milli for runs in fit(trace_of(jobs)).runs] == [1000, 8000]


def test_tenants_have_mixes_of_their_own(trace_of):
    big = [job(n, n * 1000, tasks=8, tenant="language") for n in range(100)]
    small = [job(200 + n, n * 1000, tenant="vision") for n in range(300)]
    rare = [job(900 + n, n * 1000, tasks=2, tenant=f"guest{n}") for n in range(5)]
    model = fit(trace_of([*big, *small, *rare]))
    assert [share.name for share in model.tenants[:3]] == ["vision", "language", "guest0"]
    drawn = list(generate(model, 4000, 1))
    assert {each.tasks for each in drawn if each.tenant == "language"} == {8}
    assert {each.tasks for each in drawn if each.tenant == "vision"} == {1}
    assert {each.tasks for each in drawn if each.tenant.startswith("guest")} == {2}
    assert anonymous(model).tenants[0].name == "team1"


def test_parts_of_devices_and_other_needs_are_kept(trace_of):
    need = Resources(gpu_milli=250, cpu_milli=4000, memory=1 << 30)
    cpu_only = Resources(cpu_milli=8000)
    jobs = [job(n, n * 1000, need=need if n % 2 else cpu_only) for n in range(200)]
    drawn = {each.need for each in generate(fit(trace_of(jobs)), 200, 1)}
    assert drawn == {need, cpu_only}


def test_sizes_beyond_the_commonest_count_as_the_nearest(trace_of):
    jobs = [job(n, n, tasks=n // 2 + 1) for n in range(600)] + [job(999, 999, tasks=5000)]
    model = fit(trace_of(jobs))
    assert len(model.sizes) == 200
    assert sum(size.jobs for size in model.sizes) == 601
    assert model.sizes[-1].tasks == 200


def test_endings_are_counted(trace_of):
    endings = [Ending.FAILED] * 3 + [Ending.CANCELLED] * 2 + [Ending.SUCCEEDED] * 5
    model = fit(trace_of(job(n, n, ending=ending) for n, ending in enumerate(endings)))
    assert (model.failed_ppm, model.cancelled_ppm) == (300_000, 200_000)


any_job = some.builds(
    TraceJob,
    id=some.just("x"),
    submit_ms=some.integers(-DAY, 40 * DAY),
    run_ms=some.integers(1, 10**9),
    tasks=some.integers(1, 300),
    need=some.sampled_from([Resources(1000), Resources(500), Resources(0, 2000)]),
    tenant=some.text(max_size=5),
    ending=some.sampled_from(Ending),
)


@given(some.lists(any_job, min_size=1, max_size=60), some.integers(0, 2**64))
def test_whatever_the_trace_its_model_can_be_kept_and_drawn_from(
    jobs: list[TraceJob], seed: int
):
    ordered = tuple(sorted(jobs, key=lambda each: each.submit_ms))
    model = fit(Trace("any", "simple", "", ordered))
    assert model_from_json(model_to_json(model)) == model
    drawn = list(generate(model, 20, seed))
    submits = [each.submit_ms for each in drawn]
    assert submits == sorted(submits)
    assert {each.tenant for each in drawn} <= {each.tenant for each in jobs}
    assert {each.need.gpu_milli for each in drawn} <= {each.need.gpu_milli for each in jobs}

"""The simulated world: what slows jobs down, what fails, what starting and stopping costs."""

import msgspec
import pytest

from allotment.model.quantity import DEVICE, HOUR, MINUTE, SECOND, Resources
from allotment.sim.cluster import cluster_of
from allotment.sim.outcome import Run
from allotment.sim.run import simulate
from allotment.sim.scenario import Scenario
from allotment.sim.settings import read_settings
from allotment.sim.trace import Trace, TraceJob

NEED = Resources(gpu_milli=DEVICE)


def a_job(name: str, submit_s: int, run_s: int, tasks: int = 1, **more: object) -> TraceJob:
    at, run_ms = submit_s * SECOND, run_s * SECOND
    return TraceJob(name, at, run_ms, tasks, NEED, **more)  # pyright: ignore[reportArgumentType]


def play(jobs: list[TraceJob], cluster: str, policy: str = "backfill", *pairs: str) -> Run:
    trace = Trace("made up", "simple", "0", tuple(jobs))
    return simulate(Scenario(trace, cluster_of(cluster), policy, read_settings(pairs), seed=3))


def ends_s(run: Run) -> list[float]:
    return [job.end_ms / SECOND for job in run.jobs]


def test_a_gang_across_nodes_is_slower() -> None:
    jobs = [a_job("near", 0, 100, 2), a_job("far", 0, 100, 3)]
    assert ends_s(play(jobs, "3x2", "backfill", "across_nodes=0.5")) == [100, 200]


def test_a_gang_across_racks_is_slower_still() -> None:
    pairs = ("across_nodes=0.8", "across_racks=0.5")
    jobs = [a_job("in a rack", 0, 100, 4)]
    assert ends_s(play(jobs, "4x2/2", "backfill", *pairs)) == [125]
    jobs = [a_job("across racks", 0, 100, 6)]
    assert ends_s(play(jobs, "4x2/2", "backfill", *pairs)) == [200]


def test_a_wider_gang_is_never_the_faster() -> None:
    """Who spans racks spans switches and nodes; the least factor counts."""
    near, far = a_job("near", 0, 100, 2), [a_job("far", 0, 100, 2)]
    assert ends_s(play([near], "2x1/2", "backfill", "across_nodes=0.5")) == [200]
    assert ends_s(play(far, "2x1/1", "backfill", "across_nodes=0.5")) == [200]
    assert ends_s(play(far, "2x1/1", "backfill", "across_switches=0.5")) == [200]
    both = ("across_nodes=0.5", "across_racks=0.8")
    assert ends_s(play(far, "2x1/1", "backfill", *both)) == [200]
    assert ends_s(play([near], "2x1/2", "backfill", "across_switches=0.5")) == [100]


def test_in_the_short_form_a_rack_is_a_switch_and_either_factor_alone_counts() -> None:
    near, far = a_job("near", 0, 100, 2), a_job("far", 0, 100, 4)
    for factor in ("across_switches=0.5", "across_racks=0.5"):
        assert ends_s(play([near], "4x1/2", "backfill", factor)) == [100]
        assert ends_s(play([far], "4x1/2", "backfill", factor)) == [200]
    both = ("across_switches=0.8", "across_racks=0.5")
    assert ends_s(play([far], "4x1/2", "backfill", *both)) == [200]


@pytest.mark.parametrize(("devices", "lasts_s"), [(1, 100), (2, 125), (4, 200), (8, 400)])
def test_where_switches_lie_in_racks_each_factor_has_a_distance(
    devices: int, lasts_s: int
) -> None:
    nodes = tuple(
        msgspec.structs.replace(
            node, labels=(("switch", f"s{place // 2}"), ("rack", f"r{place // 4}"))
        )
        for place, node in enumerate(cluster_of("8x1"))
    )
    pairs = ("prefer=switch", "across_nodes=0.8", "across_switches=0.5", "across_racks=0.25")
    trace = Trace("made up", "simple", "0", (a_job("gang", 0, 100, devices),))
    assert ends_s(simulate(Scenario(trace, nodes, "fifo", read_settings(pairs)))) == [lasts_s]


def test_neighbours_disturb_as_long_as_they_are_there() -> None:
    jobs = [a_job("long", 0, 100), a_job("short", 0, 20)]
    # Together at half speed: the short one takes 40 s. The long one has done 20 by then.
    assert ends_s(play(jobs, "1x2", "backfill", "interference=0.5")) == [120, 40]


def test_a_neighbour_that_comes_late_slows_down_from_then_on() -> None:
    jobs = [a_job("first", 0, 100), a_job("second", 50, 10)]
    # 50 s alone, then 20 s at half speed beside the second, then 40 s alone.
    assert ends_s(play(jobs, "1x2", "backfill", "interference=0.5")) == [110, 70]


def test_starting_and_resuming_take_their_time() -> None:
    jobs = [a_job("long", 0, 100), a_job("short", 10, 20)]
    run = play(jobs, "1x1", "srtf", "start=5s", "resume=7s", "stop=3s")
    # The long one starts at 5, is told to go at 10, is gone at 13; the short one runs from 18
    # to 38; then the long one, of which 95 s are left, from 45.
    assert ends_s(run) == [140, 38]
    assert run.jobs[0].preemptions == 1


def test_a_job_that_was_sent_away_before_it_ran_has_the_whole_start_before_it() -> None:
    jobs = [a_job("long", 0, 100, 2), a_job("short", 5, 10, 2)]
    # The long one is sent away while it starts; the short one runs from 15 to 25.
    assert ends_s(play(jobs, "1x2", "srtf", "start=10s", "resume=1s")) == [135, 25]


def test_nobody_runs_before_its_start_is_over_however_often_nodes_fail() -> None:
    pairs = ("start=2h", "mtbf=3h", "mttr=1min")
    run = play([a_job(str(n), 0, 600) for n in range(6)], "1x6", "backfill", *pairs)
    assert run.jobs[0].start_ms >= 2 * HOUR


def test_nodes_fail_and_are_repaired_and_nothing_is_forgotten() -> None:
    jobs = [a_job(str(n), n * 600, 7_200, 4) for n in range(40)]
    fails = ("mtbf=20h", "mttr=1h", "checkpoint=30min")
    calm, rough = play(jobs, "4x4"), play(jobs, "4x4", "backfill", *fails)
    assert calm.summary is not None
    assert rough.summary is not None
    assert rough.summary.completed == 40
    assert max(ends_s(rough)) > max(ends_s(calm))
    assert all(job.attained_ms >= job.run_ms * 4 for job in rough.jobs)
    redone = [job.attained_ms - job.run_ms * 4 for job in rough.jobs]
    assert any(redone)
    # What is lost at one failure is less than what lies between two checkpoints.
    assert all(extra < 10 * 4 * 30 * MINUTE for extra in redone)


def test_jobs_that_fail_by_themselves_are_tried_again_so_often() -> None:
    jobs = [a_job(str(n), n, 3_600) for n in range(50)]
    sure = play(jobs, "10x8", "backfill", "job_failure=1", "retries=2", "checkpoint=1d")
    assert sure.summary is not None
    # Nothing is ever saved and each attempt fails: all of them end after three.
    assert [job.end_ms > 0 for job in sure.jobs] == [True] * 50
    assert all(job.ran_ms < 3 * HOUR for job in sure.jobs)


def test_chance_is_the_seeds() -> None:
    jobs = [a_job(str(n), n, 3_600) for n in range(20)]
    pairs = ("job_failure=0.5", "mtbf=5h", "mttr=10min")
    once, again = (ends_s(play(jobs, "2x8", "backfill", *pairs)) for _ in range(2))
    assert once == again


@pytest.mark.parametrize("told", ["exact", "noisy", "history", "limit", "predicted"])
def test_whatever_is_told_of_run_times_everybody_ends(told: str) -> None:
    jobs = [a_job(str(n), n, 10 + n * 7 % 50, user="ann", limit_ms=HOUR) for n in range(60)]
    for policy in ("easy", "sjf", "srtf", "ftf"):
        run = play(jobs, "1x4", policy, f"estimates={told}")
        assert run.summary is not None
        assert run.summary.completed == 60
        assert run.clairvoyant == (told in ("exact", "noisy"))


def test_history_tells_the_mean_of_the_last_two_of_the_same_user() -> None:
    before = [a_job("a", 0, 10, user="ann"), a_job("b", 20, 30, user="ann")]
    # Both come at once while one is busy: bob's is known to be short, ann's to take 20 s.
    known = [a_job("bob", 60, 5, user="bob")]
    rivals = [a_job("x", 101, 1, user="ann"), a_job("y", 101, 500, user="bob")]
    block = [a_job("busy", 100, 50, user="eve")]
    run = play(before + known + block + rivals, "1x1", "sjf", "estimates=history")
    x, y = run.jobs[4], run.jobs[5]
    # bob's next is expected to take 5 s, ann's 20 s: bob goes first, wrongly.
    assert y.start_ms < x.start_ms


def test_a_gang_within_one_node_waits_for_one() -> None:
    jobs = [a_job("one", 0, 100), a_job("two", 0, 100), a_job("pair", 1, 10, 2)]
    spread = ("placing=spread",)
    assert play(jobs, "2x2", "backfill", *spread).jobs[2].start_ms == SECOND
    run = play(jobs, "2x2", "backfill", *spread, "within=node")
    assert run.jobs[2].start_ms == 100 * SECOND
    run = play(jobs, "2x2", "backfill", *spread, "prefer=node")
    assert run.jobs[2].start_ms == SECOND


def test_what_no_node_could_ever_hold_is_refused_with_the_reason() -> None:
    run = play(
        [a_job("big", 0, 10, 5), a_job("small", 0, 10)], "2x4", "backfill", "within=node"
    )
    assert "never start here" in run.jobs[0].never
    assert run.jobs[1].end_ms == 10 * SECOND
    assert run.summary is not None
    assert run.summary.never_schedulable == 1


def test_least_fragmentation_keeps_whole_nodes_for_those_who_need_them() -> None:
    small = [a_job(f"s{n}", 0, 1_000) for n in range(4)]
    large = TraceJob("large", SECOND, 10 * SECOND, 1, NEED * 4)
    assert play([*small, large], "2x4", "backfill", "placing=fgd").jobs[4].start_ms == SECOND
    run = play([*small, large], "2x4", "backfill", "placing=spread")
    assert run.jobs[4].start_ms == 1_000 * SECOND


def test_each_time_a_job_was_suspended_it_does_what_the_switch_costs_again() -> None:
    jobs = [a_job("a", 0, 100), a_job("b", 0, 100)]
    assert ends_s(play(jobs, "1x1", "round_robin", "round=60s")) == [160, 200]
    assert ends_s(play(jobs, "1x1", "round_robin", "round=60s", "switch=1s")) == [161, 202]


# ── sharing devices ─────────────────────────────────────────────────────────────────────


def test_two_jobs_share_a_device_and_take_turns_on_it() -> None:
    jobs = [a_job("a", 0, 100), a_job("b", 0, 40)]
    # Nothing is known of them together, so each has half: b ends at 80, and a goes on alone.
    assert ends_s(play(jobs, "1x1", "gavel-pack")) == [140, 80]


def test_nobody_shares_while_a_device_is_free() -> None:
    jobs = [a_job("a", 0, 100), a_job("b", 0, 40)]
    assert ends_s(play(jobs, "1x2", "gavel-pack")) == [100, 40]
    assert ends_s(play(jobs, "2x1", "gavel-pack")) == [100, 40]


def test_packed_jobs_have_what_was_measured_of_them_together() -> None:
    rates = {"v100": {("x", 1): 10.0, ("y", 1): 4.0}}
    together = {"v100": {(("x", 1), ("y", 1)): 8.0, (("y", 1), ("x", 1)): 3.0}}
    jobs = (a_job("x", 0, 80, model="x"), a_job("y", 0, 300, model="y"))
    trace = Trace("made up", "simple", "0", jobs)
    scenario = Scenario(
        trace, cluster_of("1x1xv100"), "gavel-pack", rates=rates, pairs=together
    )
    # x runs at 0.8 and ends at 100; y has done 75 by then, at 0.75.
    assert ends_s(simulate(scenario)) == [100, 325]


def test_at_the_end_of_a_round_a_job_moves_into_a_device_of_its_own() -> None:
    jobs = [a_job("a", 0, 400), a_job("b", 0, 100), a_job("c", 0, 400)]
    # On two devices a has one, b and c share the other until b ends at 200; then c is alone
    # anyway. With b beside a, c would have to move: nobody is left sharing for long.
    run = play(jobs, "1x2", "gavel-pack", "round=60s")
    assert max(ends_s(run)) <= 560
    assert run.summary is not None
    assert run.summary.completed == 3


def test_a_job_moves_to_the_type_it_is_faster_on() -> None:
    rates = {"v100": {("x", 1): 10.0}, "k80": {("x", 1): 1.0}}
    jobs = (a_job("first", 0, 50, model="x"), a_job("second", 0, 100, model="x"))
    trace = Trace("made up", "simple", "0", jobs)
    cluster = cluster_of("1x1xv100+1x1xk80")
    settings = read_settings(["round=60s"])
    run = simulate(Scenario(trace, cluster, "gavel", settings, rates=rates))
    # The second does 6 s of its work on the slow one until the round ends at 60, then the
    # other 94 s on the fast one.
    assert ends_s(run) == [50, 154]
    assert run.jobs[1].preemptions == 1

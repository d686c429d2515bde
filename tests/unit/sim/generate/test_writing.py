"""Workloads as files that the readers of traces read back."""

from io import StringIO
from pathlib import Path

from allotment.model.quantity import Resources
from allotment.sim.generate import default_model, fit, generate, write_csv
from allotment.sim.readers import read_trace
from allotment.sim.trace import Ending, TraceJob


def test_there_and_back(tmp_path: Path):
    jobs = list(generate(default_model(), 3000, 1, 0.9, 64_000))
    path = tmp_path / "made.csv"
    with path.open("w", newline="") as file:
        written = write_csv(jobs, file)
    assert (written.jobs, written.left_out) == (3000, 0)
    trace = read_trace(path)
    assert (trace.format, trace.dropped, trace.warnings) == ("simple", (), ())
    assert trace.jobs == tuple(jobs)


def test_odd_jobs_there_and_back(tmp_path: Path):
    jobs = (
        TraceJob("a", 0, 1, tenant='x,"y"', user="ann", model="ResNet-50"),
        TraceJob("b", 0, 1234, need=Resources(gpu_milli=250), tenant="späte Schicht"),
        TraceJob("c", 1_704_067_200_001, 10**12, tasks=128, ending=Ending.CENSORED),
    )
    path = tmp_path / "odd.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        write_csv(jobs, file)
    assert read_trace(path).jobs == jobs


def test_jobs_without_devices_are_counted(tmp_path: Path):
    cpu_only = TraceJob("a", 0, 1000, need=Resources(cpu_milli=4000))
    file = StringIO()
    written = write_csv([cpu_only, TraceJob("b", 0, 1000)], file)
    assert (written.jobs, written.left_out) == (1, 1)
    assert [line.split(",")[0] for line in file.getvalue().splitlines()] == ["job_id", "b"]


def test_the_ending_is_written_for_people():
    file = StringIO()
    write_csv([TraceJob("a", 1000, 1500, ending=Ending.FAILED)], file)
    assert file.getvalue().splitlines()[1] == "a,1,1,1.5,all,,,2.5,failed"


def test_a_model_of_a_synthetic_workload_is_like_the_first(trace_of):
    first = default_model()
    again = fit(trace_of(generate(first, 20_000, 1)))
    assert [share.name for share in again.tenants[:3]] == ["team1", "team2", "team3"]
    assert again.submit_step_ms == again.run_step_ms == 1000
    shares = [
        {s.tasks: s.jobs / model.jobs for s in model.sizes}[1] for model in (first, again)
    ]
    assert abs(shares[0] - shares[1]) < 0.01

"""The traces that other programs published or wrote, read whole."""

from collections import Counter
from pathlib import Path

import pytest

from allotment.model.quantity import DAY, GIB, Resources
from allotment.sim.readers import read_trace
from allotment.sim.readers.gavel import read_all_rates
from allotment.sim.speeds import REFERENCE
from allotment.sim.trace import BadTrace, Ending

SHARED = Path(__file__).parents[5] / "shared"
GOLDEN, TRACES = SHARED / "golden", SHARED / "traces"

pytestmark = pytest.mark.needs_shared("golden", "traces")


def test_philly_as_reduced_for_sia():
    trace = read_trace(TRACES / "philly_sia_82k.csv.zst")
    assert (trace.format, len(trace.jobs), trace.rows) == ("philly-sia", 82_247, 82_247)
    assert trace.dropped == ()
    assert len(trace.digest) == 16
    by_tenant = Counter(job.tenant for job in trace.jobs)
    assert len(by_tenant) == 15
    assert sum(job.tasks == 1 for job in trace.jobs) == 76_627
    assert max(job.tasks for job in trace.jobs) == 128
    submits = [job.submit_ms for job in trace.jobs]
    assert submits == sorted(submits)
    assert 108 * DAY < submits[-1] - submits[0] < 110 * DAY
    assert len({job.id for job in trace.jobs}) == 82_247
    first = next(job for job in trace.jobs if job.id == "1")
    assert (first.submit_ms, first.run_ms, first.tenant) == (
        1_507_532_515_000,
        66_000,
        "11cb48",
    )
    assert trace.warnings == (
        "the file is not in order of submission, and was sorted: 82,242 of 82,247 jobs stand "
        "below a later one",
    )


def test_the_load_of_philly_is_as_measured_elsewhere():
    trace = read_trace(TRACES / "philly_sia_82k.csv.zst")
    span_ms = max(job.submit_ms for job in trace.jobs) - trace.jobs[0].submit_ms
    gpu_ms = Counter[str]()
    for job in trace.jobs:
        gpu_ms[job.tenant] += job.run_ms * job.gpu_milli // 1000
    assert sum(gpu_ms.values()) / span_ms == pytest.approx(374, rel=0.05)
    assert gpu_ms["ee9e8c"] / span_ms == pytest.approx(98, rel=0.05)


@pytest.mark.parametrize(("file", "rows"), [("philly480.csv", 480), ("philly5k.csv", 5_000)])
def test_the_golden_inputs(file: str, rows: int):
    trace = read_trace(GOLDEN / file)
    assert (trace.format, len(trace.jobs), trace.dropped, trace.warnings) == (
        *("simple", rows),
        *((), ()),
    )
    assert [job.id for job in trace.jobs] == [str(n) for n in range(rows)]


@pytest.mark.parametrize("file", ["philly480.csv", "philly480le8.csv", "philly5k.csv"])
@pytest.mark.parametrize("both", [False, True])
def test_the_same_in_milliseconds_is_doubted(file: str, both: bool, tmp_path: Path):
    head, *lines = (GOLDEN / file).read_text().splitlines()
    columns = head.split(",")
    rows = [dict(zip(columns, line.split(","), strict=True)) for line in lines]
    for row in rows:
        row["duration"] += "000"
        row["submit_time"] += "000" if both else ""
    copy = tmp_path / file
    copy.write_text("\n".join([head, *(",".join(row.values()) for row in rows), ""]))
    assert read_trace(copy).warnings[0].startswith("half of the jobs run longer than ")


def test_the_first_golden_job():
    job = read_trace(GOLDEN / "philly480.csv").jobs[0]
    assert (job.submit_ms, job.run_ms, job.tasks, job.tenant) == (0, 45_025_000, 16, "ee9e8c")
    assert job.need == Resources(gpu_milli=1000)
    whole = read_trace(GOLDEN / "philly480.csv", tasks="node").jobs[0]
    assert (whole.tasks, whole.need.gpu_milli, whole.gpu_milli) == (2, 8000, 16_000)


def test_results_of_tiresias_are_a_trace_too():
    read = read_trace(GOLDEN / "tiresias/philly480-n16g8-count-fifo.job.csv")
    same = read_trace(GOLDEN / "philly480.csv")
    assert read.format == "tiresias"
    # Its tenants are not written down there.
    assert [(j.id, j.submit_ms, j.run_ms, j.tasks) for j in sorted(read.jobs, key=_number)] == [
        (j.id, j.submit_ms, j.run_ms, j.tasks) for j in same.jobs
    ]


def _number(job: object) -> int:
    return int(getattr(job, "id", "0"))


def test_alibabas_pods_share_devices():
    trace = read_trace(TRACES / "openb/openb_pod_list_default.csv.gz")
    assert (trace.format, len(trace.jobs), trace.rows) == ("openb", 7_255, 8_152)
    assert trace.dropped == (("never ran, so its run time is not known", 897),)
    assert trace.warnings == (
        "34 of 7255 jobs had not ended when the history ends: their run times are lower bounds",
    )
    first, second = trace.jobs[:2]
    assert first.need == Resources(1000, 12_000, 16 * GIB)
    assert second.need == Resources(460, 6_000, 12 * GIB)
    assert second.submit_ms == 427_061_000
    assert second.run_ms == (12_902_960 - 427_061) * 1000
    assert second.ending is Ending.CENSORED
    assert Counter(job.need.gpu_milli for job in trace.jobs)[8000] > 0
    assert Counter(job.ending for job in trace.jobs)[Ending.SUCCEEDED] == 192
    assert {job.tasks for job in trace.jobs} == {1}


def test_gavel_counts_steps():
    rates = read_all_rates(TRACES / "perf/gavel_simulation_throughputs.json.gz")[REFERENCE]
    trace = read_trace(GOLDEN / "gavel/minimize_makespan.trace", rates=rates)
    assert (trace.format, len(trace.jobs), trace.dropped) == ("gavel", 100, ())
    first = trace.jobs[0]
    assert first.model == "Transformer (batch size 128)"
    assert first.run_ms == round(19_605 / rates[first.model, 1] * 1000)
    assert max(job.tasks for job in trace.jobs) > 1


def test_gavel_without_rates_says_what_to_give():
    with pytest.raises(BadTrace, match="counts steps, not time: give the table of throughputs"):
        read_trace(GOLDEN / "gavel/minimize_makespan.trace")


def test_a_folder_is_alibaba_pai():
    with pytest.raises(BadTrace, match=r"read as pai, but it has no pai_job_table\.csv"):
        read_trace(GOLDEN)

"""Each format by a few rows: units, endings, and what is left out."""

from pathlib import Path

import pytest

from allotment.metrics.jobs import Fate
from allotment.model.quantity import DAY, GIB, HOUR, MINUTE, Resources
from allotment.sim.readers import FORMATS, read_trace
from allotment.sim.readers.simple import OUTCOMES
from allotment.sim.trace import BadTrace, Ending, TraceJob
from tests.unit.sim.readers.conftest import WriteTrace

ONE = Resources(gpu_milli=1000)
NEVER_RAN = "never ran, so its run time is not known"
HELIOS = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,"
    "queue"
)
ACME = (
    "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,"
    "submit_time,start_time,end_time,fail_time,stop_time,duration,queue,gpu_time"
)
SPOT = (
    "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,"
    "job_type"
)
OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time"
)
SACCT = (
    "JobID|JobName|User|Account|Submit|Start|End|ElapsedRaw|State|NNodes|ReqTRES|AllocTRES|"
    "Timelimit"
)


def test_every_format_is_named_by_its_key():
    assert all(known.name == name for name, known in FORMATS.items())
    assert set(FORMATS) == {
        *("philly-sia", "simple", "philly", "helios", "acme", "pai", "openb", "spot"),
        *("gavel", "tiresias", "muri", "sacct"),
    }


def test_simple_without_ids_calls_rows_by_number(write: WriteTrace):
    path = write("submit_time,num_gpus,duration", "0,1,5", "0,1,5", "7,0.5,2.5")
    assert read_trace(path).jobs == (
        TraceJob("1", 0, 5_000),
        TraceJob("2", 0, 5_000),
        TraceJob("3", 7_000, 2_500, 1, Resources(gpu_milli=500)),
    )


def test_what_became_of_the_jobs_of_a_run_is_kept(write: WriteTrace):
    outcomes = {
        "completed": Ending.SUCCEEDED, "failed": Ending.FAILED, "timed_out": Ending.FAILED,
        "cancelled": Ending.CANCELLED, "censored": Ending.CENSORED,
        "unfinished": Ending.CENSORED,
    }  # fmt: skip
    assert {*outcomes, "never_schedulable"} == set(OUTCOMES) == {fate.value for fate in Fate}
    head = "job_id,num_gpus,submit_time,end_time,attained_gpu_s,outcome"
    rows = [f"{word},1,0,9,9,{word}" for word in outcomes]
    trace = read_trace(write(head, *rows, "never,64,0,,0,never_schedulable"))
    assert {job.id: job.ending for job in trace.jobs} == outcomes
    assert trace.dropped == ((NEVER_RAN, 1),)
    assert any(words.startswith("2 of 6 jobs had not ended") for words in trace.warnings)


def test_a_word_that_is_no_ending_is_told(write: WriteTrace):
    path = write("submit_time,num_gpus,duration,ending", "0,1,5,done", "0,1,5,", "0,1,5,Failed")
    trace = read_trace(path)
    assert [job.ending for job in trace.jobs] == [Ending.SUCCEEDED, Ending.FAILED]
    assert trace.warnings == (
        "left out: row 1: 'done' is not an ending: succeeded, failed, cancelled, censored",
    )


def test_outcomes_of_a_run_are_a_trace(write: WriteTrace):
    path = write(
        "job_id,tenant,num_gpus,submit_time,start_time,end_time,attained_gpu_s,preemptions",
        "a,red,2,0,1,11,20,0",
        "b,red,2,0,,,0,0",
        "c,blue,4,3,5,,40.0,1",
    )
    trace = read_trace(path)
    assert trace.jobs == (
        TraceJob("a", 0, 10_000, 2, ONE, "red"),
        TraceJob("c", 3_000, 10_000, 4, ONE, "blue", ending=Ending.CENSORED),
    )
    assert trace.dropped == ((NEVER_RAN, 1),)


@pytest.mark.parametrize(
    ("devices", "tasks", "each"),
    [
        *(("1", 1, 1), ("4", 1, 4), ("8", 1, 8), ("12", 2, 6), ("16", 2, 8), ("13", 13, 1)),
        *(("9", 3, 3), ("128", 16, 8), ("10", 2, 5)),
    ],
)
def test_whole_node_tasks_are_as_few_as_can_be_equal(
    write: WriteTrace, devices: str, tasks: int, each: int
):
    path = write("submit_time,num_gpus,duration", f"0,{devices},5")
    job = read_trace(path, tasks="node").jobs[0]
    assert (job.tasks, job.need.gpu_milli) == (tasks, each * 1000)


def test_a_share_above_one_device_is_rounded_up(write: WriteTrace):
    job = read_trace(write("submit_time,num_gpus,duration", "0,1.5,5")).jobs[0]
    assert job.gpu_milli == 2000


def test_no_time_at_all_counts_as_a_millisecond(write: WriteTrace):
    assert read_trace(write("submit_time,num_gpus,duration", "0,1,0")).jobs[0].run_ms == 1


def test_philly_job_log(write: WriteTrace):
    trace = read_trace(write(*PHILLY.splitlines(), name="cluster_job_log"))
    assert trace.format == "philly"
    done, lost, open_job = trace.jobs
    assert done == TraceJob(
        *("application_1", 1_507_338_699_000, (74 + 60) * 1000, 3, ONE, "ee9e8c", "ce2f4c"),
    )
    assert (lost.id, lost.ending) == ("application_3", Ending.CANCELLED)
    assert open_job.ending is Ending.CENSORED
    # It started at 01:00 and the history's last instant is 02:00.
    assert open_job.run_ms == HOUR
    assert trace.dropped == (("an entry of another shape than Philly's", 1), (NEVER_RAN, 1))


PHILLY = """
[
  {"status": "Pass", "vc": "ee9e8c", "jobid": "application_1", "user": "ce2f4c",
   "submitted_time": "2017-10-07 01:11:39",
   "attempts": [
     {"start_time": "2017-10-07 01:12:09", "end_time": "2017-10-07 01:13:23",
      "detail": [{"ip": "m47", "gpus": ["gpu0", "gpu1"]}, {"ip": "m48", "gpus": ["gpu0"]}]},
     {"start_time": "2017-10-07 01:14:00", "end_time": "2017-10-07 01:15:00",
      "detail": [{"ip": "m47", "gpus": ["gpu0", "gpu1", "gpu2"]}]}]},
  {"status": "Killed", "vc": "a", "jobid": "application_2", "user": "u",
   "submitted_time": "2017-10-08 00:00:00", "attempts": []},
  {"status": "Killed", "vc": "a", "jobid": "application_3", "user": "u",
   "submitted_time": "2017-10-08 00:00:00",
   "attempts": [{"start_time": "2017-10-08 00:00:00", "end_time": "2017-10-08 02:00:00",
      "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]},
  {"jobid": 7},
  {"status": "Failed", "vc": "a", "jobid": "application_4", "user": "u",
   "submitted_time": "2017-10-08 00:30:00",
   "attempts": [{"start_time": "2017-10-08 01:00:00", "end_time": null,
      "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]}
]
"""


def test_a_philly_attempt_that_ends_before_it_starts_is_left_out(write: WriteTrace):
    attempt = PHILLY.replace("2017-10-08 02:00:00", "2017-10-07 23:00:00")
    assert attempt != PHILLY
    trace = read_trace(write(attempt))
    assert ("an attempt ends before it starts", 1) in trace.dropped
    assert "left out: row 3: an attempt ends before it starts" in trace.warnings


def test_philly_cut_short_names_the_entry(write: WriteTrace):
    path = write(*PHILLY.splitlines()[:-3], name="cluster_job_log")
    with pytest.raises(BadTrace, match="the JSON list stops early, inside or after entry 4"):
        read_trace(path)


def test_helios(write: WriteTrace):
    path = write(
        HELIOS,
        "1,uA,vcA,1,1,1,COMPLETED,"
        "2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0",
        "2,uB,vcB,4,16,1,FAILED,"
        "2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0",
        "3,uB,vcB,0,64,2,TIMEOUT,"
        "2020-06-09 18:41:28,2020-06-09 18:41:28,2020-06-09 18:41:38,10,0",
        "4,uB,vcB,1,1,1,CANCELLED,2020-06-09 18:41:28,None,2020-06-09 18:41:38,0,10",
        "5,uB,vcB,0,0,1,COMPLETED,"
        "2020-06-09 18:41:28,2020-06-09 18:41:28,2020-06-09 18:41:38,10,0",
    )
    trace = read_trace(path)
    assert trace.format == "helios"
    first, second, third = trace.jobs
    assert (first.run_ms, first.tenant, first.user) == (36_848_000, "vcA", "uA")
    assert (second.tasks, second.need) == (4, Resources(1000, 4000))
    assert second.ending is Ending.FAILED
    assert (third.tasks, third.need) == (2, Resources(0, 32_000))
    assert trace.dropped == (
        ("asks for no GPU, and its CPU is not known", 1),
        (NEVER_RAN, 1),
    )


def test_acme_of_either_cluster(write: WriteTrace):
    path = write(
        ACME,
        "dlc1,uf,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,"
        "2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,2023-05-17 11:01:16+00:00,,18,"
        "10.0,1",
        "dlc2,uf,1,8,960,,,Pretrain,CANCELLED,2023-05-17 19:01:58+08:00,"
        "2023-05-17 19:01:59+08:00,2023-05-17 19:02:09+08:00,,,10,1.0,80",
        "dlc3,uf,1,8,960,,,Pretrain,RUNNING,2023-05-17 11:02:58+00:00,"
        "2023-05-17 11:02:58+00:00,,,,100,1.0,80",
    )
    trace = read_trace(path)
    first, second, third = trace.jobs
    assert trace.format == "acme"
    # Its column duration, 18 s, counts the wait too.
    assert first.run_ms == 8_000
    assert first.need == Resources(1000, 15_000, 8000 * GIB // 64)
    assert second.submit_ms - first.submit_ms == MINUTE
    assert (second.name, second.ending) == ("Pretrain", Ending.CANCELLED)
    assert (third.run_ms, third.ending) == (100_000, Ending.CENSORED)


def test_openb(write: WriteTrace):
    path = write(
        OPENB,
        "p0,12000,16384,1,460,V100M16|V100M32,LS,Succeeded,0,100,10",
        "p1,12000,16384,8,1000,,BE,Running,5,90,5",
        "p2,1000,1024,0,0,,BE,Running,6,200,6",
        "p3,1000,1024,1,1000,,BE,Pending,7,200,",
    )
    trace = read_trace(path)
    shared, node, cpu = trace.jobs
    assert (shared.run_ms, shared.gpu_types) == (90_000, ("V100M16", "V100M32"))
    assert shared.need == Resources(460, 12_000, 16 * GIB)
    assert (node.tasks, node.need.gpu_milli, node.ending) == (1, 8000, Ending.CANCELLED)
    assert (cpu.need, cpu.ending) == (Resources(0, 1000, GIB), Ending.CENSORED)
    assert trace.dropped == ((NEVER_RAN, 1),)


def test_spot(write: WriteTrace):
    path = write(
        SPOT,
        "239255,13,A10,20,1,1,0,2764799,HP",
        "437260,57,A100-SXM4-80GB,15,1,16,9589663,41060,Spot",
        "437261,57,A100-SXM4-80GB,15,0.5,2,9589663,41060,Spot",
    )
    steady, spot, shared = read_trace(path).jobs
    assert (steady.preemptible, steady.priority, steady.tenant) == (False, 100, "13")
    assert (spot.tasks, spot.need, spot.preemptible) == (16, Resources(1000, 15_000), True)
    assert (spot.gpu_types, spot.priority) == (("A100-SXM4-80GB",), 50)
    assert shared.gpu_milli == 1000


def test_sacct(write: WriteTrace):
    path = write(
        SACCT,
        "10|train|ann|vision|2026-01-05T10:00:00|2026-01-05T10:01:00|2026-01-05T11:01:00|3600|"
        "COMPLETED|2|billing=16,cpu=16,gres/gpu=16,mem=64G,node=2||1-00:00:00",
        "10.batch|batch|||2026-01-05T10:00:00|2026-01-05T10:01:00|2026-01-05T11:01:00|3600|"
        "COMPLETED|1||cpu=8|",
        "11|x|bob|nlp|2026-01-05T10:00:00|2026-01-05T10:00:10|2026-01-05T10:00:20|10|"
        "CANCELLED by 1000|1|cpu=4|cpu=4,gres/gpu:a100=2,gres/gpu=2|UNLIMITED",
        "12|y|bob|nlp|2026-01-05T10:00:00|Unknown|Unknown|0|PENDING|1|cpu=4,gres/gpu=1||10:00",
        "13|z|bob|nlp|2026-01-05T10:00:00|2026-01-05T10:00:10|Unknown|50|RUNNING|1|"
        "cpu=4,mem=500M||10:00",
        "14|a|b|bob|nlp|2026-01-05T10:00:00|2026-01-05T10:00:10|Unknown|50|RUNNING|1|cpu=4||10:00",
        name="sacct.txt",
    )
    trace = read_trace(path)
    assert trace.format == "sacct"
    first, second, third = trace.jobs
    assert (first.tasks, first.need) == (16, Resources(1000, 1000, 4 * GIB))
    assert (first.run_ms, first.limit_ms, first.tenant) == (HOUR, DAY, "vision")
    assert (second.ending, second.gpu_types, second.gpu_milli) == (
        *(Ending.CANCELLED, ("a100",), 2000),
    )
    assert second.limit_ms == 0
    assert (third.ending, third.run_ms, third.limit_ms) == (
        *(Ending.CENSORED, 50_000, 10 * MINUTE),
    )
    assert dict(trace.dropped) == {
        "a step of a job, not a job": 1,
        NEVER_RAN: 1,
        "has more fields than the header: a | in a name": 1,
    }


@pytest.mark.parametrize(
    ("elapsed", "run_ms"),
    [("1-02:03:04", 93_784_000), ("05:06", 306_000), ("00:00:01.5", 1_500)],
)
def test_sacct_with_clocked_times(write: WriteTrace, elapsed: str, run_ms: int):
    path = write(
        "JobID|Submit|Elapsed|State|AllocTRES",
        f"1|2026-01-05T10:00:00|{elapsed}|OUT_OF_MEMORY|gres/gpu=1",
        "2|2026-01-05T10:00:00|00:00:00|PENDING|gres/gpu=1",
    )
    trace = read_trace(path)
    assert [(job.run_ms, job.ending) for job in trace.jobs] == [(run_ms, Ending.FAILED)]
    assert trace.dropped == ((NEVER_RAN, 1),)


def test_sacct_without_what_it_needs_says_how_to_write_it(write: WriteTrace):
    path = write("JobID|JobName|Partition|Account|Submit|State", "1|a|b|c|d|e")
    with pytest.raises(BadTrace, match="lacks reqtres or alloctres; write it with `sacct -X"):
        read_trace(path)


def test_tiresias_counts_seconds(write: WriteTrace):
    path = write(TIRESIAS, "1,2,0,100,resnet50,3600,1.0")
    trace = read_trace(path)
    assert trace.format == "tiresias"
    assert trace.jobs == (TraceJob("1", 0, HOUR, 2, ONE, model="resnet50"),)
    assert trace.warnings == ()


def test_muri_counts_milliseconds_and_says_that_this_was_guessed(write: WriteTrace):
    path = write(TIRESIAS, "1,2,5000,100,resnet50,3600000,1.0", "2,1,6000,100,vgg16,900000,1.0")
    trace = read_trace(path)
    assert trace.format == "muri"
    assert [(job.submit_ms, job.run_ms) for job in trace.jobs] == [
        *((5_000, HOUR), (6_000, 15 * MINUTE)),
    ]
    assert trace.warnings == (
        "times taken for milliseconds (format muri): as seconds, half of the jobs would run "
        "for over two days; if they are seconds, name the format tiresias",
    )
    assert read_trace(path, format="muri").warnings == ()
    assert read_trace(path, format="tiresias").jobs[0].run_ms == 1000 * HOUR


TIRESIAS = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval"


def test_gavel_drops_models_without_a_rate(write: WriteTrace):
    line = "{}\tcmd\tfolder\t-n\t1\t{}\t{}\t1\t-1.000000\t30"
    path = write(line.format("A", 100, 2), line.format("B", 100, 2), name="x.trace")
    trace = read_trace(path, rates={("A", 2): 4.0})
    assert trace.jobs == (TraceJob("1", 30_000, 25_000, 2, ONE, model="A"),)
    assert trace.dropped == (("no rate is known for its model on so many devices", 1),)


JOBS = (
    "a,i1,ann,Terminated,100.0,200.0",
    "b,i2,bob,Failed,150.0,160.0",
    "c,i3,bob,Running,150.0,",
    "d,i4,bob,Waiting,150.0,",
)
TASKS = (
    "a,ps,1.0,Terminated,110.0,200.0,600.0,10.0,,",
    "a,worker,2.0,Terminated,120.0,190.0,400.0,20.0,50.0,T4",
    "b,w,3.0,Failed,152.0,160.0,100.0,1.0,200.0,V100",
    "c,w,1.0,Running,160.0,,100.0,1.0,100.0,MISC",
)


@pytest.mark.parametrize("has_header", [False, True])
def test_pai_as_a_folder(write: WriteTrace, has_header: bool):
    heads = (
        "job_name,inst_id,user,status,start_time,end_time",
        "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,"
        "gpu_type",
    )
    for name, head, rows in zip(("job", "task"), heads, (JOBS, TASKS), strict=True):
        lines = (head, *rows) if has_header else rows
        path = write(*lines, name=f"pai/pai_{name}_table.csv")
    trace = read_trace(path.parent)
    assert (trace.format, trace.source) == ("pai", "pai")
    a, b, c = trace.jobs
    # 600 % + 2 × 400 % of CPU and 2 × 50 % of a GPU, over the two instances with a GPU.
    assert a == TraceJob(
        *("a", 100_000, 90_000, 2, Resources(500, 7_000, 25 * GIB), "all", "ann"),
        gpu_types=("T4",),
    )
    assert (b.tasks, b.need.gpu_milli, b.ending) == (3, 2000, Ending.FAILED)
    assert (c.run_ms, c.ending) == (40_000, Ending.CENSORED)
    assert trace.dropped == (("has no row in the task table", 1),)


def test_pai_joined(write: WriteTrace):
    path = write(
        "job_name,user,status,inst_num,plan_cpu,plan_gpu,submit_time,start_time,end_time",
        "a,ann,Terminated,1,600,0,100,110,200",
        "b,bob,Terminated,1,100,-5,100,110,200",
        "a,ann,Terminated,2,400,50,100,120,190",
    )
    trace = read_trace(path)
    assert trace.format == "pai"
    assert [(j.id, j.tasks, j.need, j.run_ms) for j in trace.jobs] == [
        ("a", 2, Resources(500, 7_000), 90_000)
    ]
    assert trace.dropped == (("plan_gpu is negative", 1),)


def test_a_folder_is_not_read_as_anything_else(tmp_path: Path):
    with pytest.raises(BadTrace, match="is a folder; simple is read from a file"):
        read_trace(tmp_path, format="simple")


def test_a_folder_is_called_by_its_name_however_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "logs"
    folder.mkdir()
    monkeypatch.chdir(folder)
    said = "^logs: a folder is read as pai, but it has no pai_job_table.csv; name the file of"
    for path in (Path(), folder, Path("../logs")):
        with pytest.raises(BadTrace, match=said):
            read_trace(path)
    with pytest.raises(BadTrace, match=r"^logs: is a folder; simple is read from a file"):
        read_trace(Path(), format="simple")

"""What is refused, dropped or doubted, and the words for it."""

import gzip
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allotment.sim.readers import FORMATS, read_trace
from allotment.sim.trace import BadTrace, Trace
from tests.unit.sim.readers.conftest import WriteTrace

HEAD = "job_id,submit_time,num_gpus,duration,vc"
ROWS = [f"{n},{n},1,{n % 977 + 5},red" for n in range(20_000)]
PLAIN = "\n".join([HEAD, *ROWS, ""]).encode()


def _refused(path: Path, format: str = "", tasks: str = "") -> str:
    with pytest.raises(BadTrace) as refused:
        read_trace(path, format, tasks)
    return str(refused.value)


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_compressed_or_not_it_is_the_same_trace(write: WriteTrace, ending: str):
    packed = {"": PLAIN, ".gz": gzip.compress(PLAIN), ".zst": zstandard.compress(PLAIN)}
    trace = read_trace(write(name=f"t.csv{ending}", stored=packed[ending]))
    assert len(trace.jobs) == len(ROWS)


def test_the_bytes_tell_how_a_file_is_compressed_not_its_name(write: WriteTrace):
    assert len(read_trace(write(name="t.csv", stored=gzip.compress(PLAIN))).jobs) == 20_000
    assert len(read_trace(write(name="t.csv.gz", stored=PLAIN)).jobs) == 20_000


def test_several_compressed_parts_are_one_trace(write: WriteTrace):
    parts = [PLAIN[:5000], PLAIN[5000:]]
    for pack in (gzip.compress, zstandard.compress):
        stored = b"".join(pack(part) for part in parts)
        assert len(read_trace(write(stored=stored)).jobs) == 20_000


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
@pytest.mark.parametrize("cut", [5, 0.5, -1])
def test_a_truncated_file_is_refused(write: WriteTrace, pack, cut: float):
    packed = pack(PLAIN)
    stored = packed[: int(len(packed) * cut) if isinstance(cut, float) else cut]
    message = _refused(write(name="t.csv.x", stored=stored))
    assert message.startswith(
        f"t.csv.x: the compressed file is cut short: it ends at byte {len(stored)}, "
    )
    assert message.endswith("before its end mark; fetch it again")


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_damaged_file_is_refused(write: WriteTrace, pack):
    packed = bytearray(pack(PLAIN))
    packed[len(packed) // 3 : len(packed) // 3 + 200] = bytes(200)
    message = _refused(write(name="t.x", stored=bytes(packed)))
    assert message.startswith("t.x: the compressed file is damaged near byte ")


def test_an_empty_file(write: WriteTrace):
    assert _refused(write(stored=b"")) == "trace.csv: the file is empty"


def test_a_missing_file(tmp_path: Path):
    assert _refused(tmp_path / "no.csv").endswith(
        "no.csv: cannot be read: No such file or directory"
    )


def test_only_a_header(write: WriteTrace):
    assert _refused(write(HEAD)) == "trace.csv: no job could be read as simple: it has no rows"


def test_binary_garbage(write: WriteTrace):
    stored = bytes(range(256)) * 40
    assert _refused(write(stored=stored)) == (
        "trace.csv: not text; a trace is text, plain or compressed with gzip or zstd"
    )


def test_an_archive_is_to_be_unpacked(write: WriteTrace):
    stored = b"a.csv".ljust(257, b"\0") + b"ustar\0" + bytes(300)
    assert "a tar archive; unpack it" in _refused(
        write(name="t.tar.gz", stored=gzip.compress(stored))
    )


def test_an_unknown_header_names_the_nearest_format(write: WriteTrace):
    assert _refused(write("job_id,submit_time,num_gpus", "1,2,3")) == (
        "trace.csv: no known format starts like this; nearest is simple, whose header also has "
        "duration"
    )
    assert "known: philly-sia, simple, " in _refused(write("some words", "and more"))


def test_a_forced_format_names_what_the_header_lacks(write: WriteTrace):
    assert _refused(write("job_id,user,vc", "1,2,3"), format="simple") == (
        "trace.csv: the header lacks 'submit_time', 'num_gpus', 'duration'; "
        "it has 'job_id', 'user', 'vc'"
    )


def test_an_unknown_format_names_the_nearest(write: WriteTrace):
    assert _refused(write(HEAD, "1,2,3,4,5"), format="tiresis").startswith(
        "unknown trace format 'tiresis': did you mean tiresias"
    )


def test_unknown_tasks(write: WriteTrace):
    assert _refused(write(HEAD), tasks="rack") == "unknown tasks 'rack': 'node' or nothing"


def test_ids_that_repeat_are_refused(write: WriteTrace):
    path = write(HEAD, "a,0,1,5,x", "b,0,-1,5,x", "c,0,1,5,x", "a,9,1,5,x")
    assert _refused(path) == (
        "trace.csv: rows 1 and 4 (the header not counted) are both called 'a'; give each job "
        "an id of its own, or leave the column out"
    )


def test_rows_that_cannot_be_used_are_counted(write: WriteTrace):
    path = write(
        *(
            HEAD,
            "a,0,1,5,x",
            "b,0,1,-5,x",
            "c,0,1,-6,x",
            "d,0,1,,x",
            "e,0,1,soon,x",
            "f,0,0,5,x",
        ),
        *("g,then,1,5,x", "h,0,-1,5,x", "i,0,many,5,x", "j,0", "k,0,1,nan,x", "l,0,1,1e999,x"),
        *("m,0,1e99,5,x", "n,1e300,1,5,x", "", "o,2017-13-01 00:00:00,1,5,x"),
    )
    trace = read_trace(path)
    assert [job.id for job in trace.jobs] == ["a"]
    assert trace.rows == 15
    assert dict(trace.dropped) == {
        "duration is negative": 2,
        "duration is missing": 2,
        "duration is not a number": 2,
        "asks for no GPU, and its CPU is not known": 1,
        "submit_time is not a number": 1,
        "submit_time is not a date and time": 1,
        "submit_time is too large": 1,
        "num_gpus is negative": 1,
        "num_gpus is not a number": 1,
        "num_gpus is over 1000000": 1,
        "has fewer fields than the header": 1,
    }
    assert [count for _, count in trace.dropped] == sorted(dict(trace.dropped).values())[::-1]


def test_no_usable_row_says_why(write: WriteTrace):
    assert _refused(write(HEAD, "a,0,1,-5,x", "b,0,1,-6,x")) == (
        "trace.csv: no job could be read as simple: row 1 and 1 more: duration is negative"
    )
    assert _refused(write(HEAD, "", "a,0,1,-5,x")).endswith("row 1: duration is negative")


def test_broken_rows_are_told_by_number(write: WriteTrace):
    trace = read_trace(write(HEAD, "a,0,1,5,x", "b,0,1,-5,x", "c,0,,5,x", "d,0,1,-5,x"))
    assert trace.warnings == (
        "left out: row 2 and 1 more: duration is negative",
        "left out: row 3: num_gpus is missing",
    )


def test_who_came_before_the_beginning_of_time_is_left_out(write: WriteTrace):
    rows = ("a,-50,1,5,x", "b,1969-12-31 23:59:59,1,5,x", "c,1970-01-01,1,5,x", "d,0,1,-5,x")
    trace = read_trace(write(HEAD, *rows, "e,1970-01-01T00:30:00+01:00,1,5,x"))
    assert [job.id for job in trace.jobs] == ["c"]
    assert trace.dropped == (
        ("submission is negative, or before 1970", 3),
        ("duration is negative", 1),
    )
    assert trace.warnings == (
        "left out: row 1 and 2 more: submission is negative, or before 1970",
        "left out: row 4: duration is negative",
    )
    assert _refused(write(HEAD, "a,-50,1,5,x")) == (
        "trace.csv: no job could be read as simple: row 1: submission is negative, or before "
        "1970"
    )


def test_rows_of_jobs_that_asked_for_nothing_are_counted_only(write: WriteTrace):
    trace = read_trace(write(HEAD, "a,0,1,5,x", "b,0,0,5,x"))
    assert trace.rows == 2
    assert trace.warnings == ()


def test_unsorted_submissions_are_sorted_and_ties_stay(write: WriteTrace):
    trace = read_trace(write(HEAD, "a,9,1,5,x", "b,3,1,5,x", "c,9,1,5,x", "d,3,1,5,x"))
    assert [job.id for job in trace.jobs] == ["b", "d", "a", "c"]
    assert trace.warnings == (
        "the file is not in order of submission, and was sorted: 2 of 4 jobs stand below a "
        "later one",
    )


def test_durations_in_milliseconds_are_doubted(write: WriteTrace):
    trace = read_trace(write(HEAD, *(f"{n},{n},1,{7_200_000 + n},x" for n in range(9))))
    assert trace.warnings == (
        "half of the jobs run longer than 83 days: the durations look like milliseconds; "
        "divide that column by 1000",
    )


def test_one_job_in_ten_that_runs_for_months_is_doubted(write: WriteTrace):
    hours = [1, 1, 1, 1, 1, 1, 1, 1, 24 * 61]
    rows = [f"{n},{n},1,{hour * 3_600},x" for n, hour in enumerate(hours)]
    assert read_trace(write(HEAD, *rows)).warnings == (
        "one job in ten runs longer than 61 days: the durations look like milliseconds; "
        "divide that column by 1000",
    )
    assert read_trace(write(HEAD, *rows, "9,9,1,1,x", "10,10,1,1,x")).warnings == ()


def test_submissions_in_milliseconds_are_doubted(write: WriteTrace):
    since_1970 = read_trace(
        write(HEAD, *(f"{n},{1_507_532_515_000 + n},1,60,x" for n in range(9)))
    )
    assert since_1970.warnings == (
        "the first job comes after the year 2100: the submission times look like milliseconds "
        "since 1970 or finer; divide that column by 1000",
    )
    span = read_trace(write(HEAD, "a,0,1,60,x", "b,2592000000,1,60,x"))
    assert span.warnings == (
        "submissions span 82 years: the submission times look like milliseconds; divide that "
        "column by 1000",
    )


def uneven(count: int) -> list[int]:
    """Return seconds that nobody planned, over some minutes."""
    return [7 * n + n * n % 11 for n in range(count)]


IN_THOUSANDS = "is in whole thousands of seconds: they look like milliseconds; divide that"


def test_submissions_times_1000_over_minutes_are_doubted(write: WriteTrace):
    rows = [f"{at},{at * 1000},1,{600 + at},x" for at in uneven(12)]
    (told,) = read_trace(write(HEAD, *rows)).warnings
    assert told.startswith(f"every submission time {IN_THOUSANDS} column by 1000")


def test_short_durations_times_1000_are_doubted(write: WriteTrace):
    rows = [f"{n},{n},1,{at * 1000},x" for n, at in enumerate(uneven(12))]
    (told,) = read_trace(write(HEAD, *rows)).warnings
    assert told.startswith(f"every duration {IN_THOUSANDS} column by 1000")


def test_whole_thousands_are_not_doubted_where_few_or_even(write: WriteTrace):
    even = [f"{n},{n * 1000},1,{n * 2000},x" for n in range(50)]
    assert read_trace(write(HEAD, *even)).warnings == ()
    few = [f"{at},{at * 1000},1,{at * 1000},x" for at in uneven(9)]
    assert read_trace(write(HEAD, *few)).warnings == ()
    but_one = [f"{at},{at * 1000 + (at > 60)},1,{9 + at},x" for at in uneven(12)]
    assert read_trace(write(HEAD, *but_one)).warnings == ()


def test_jobs_of_minutes_that_come_days_apart_are_doubted(write: WriteTrace):
    hour_in_ms = [f"{n},{n * 3_600_000 // 20 + n % 7},1,600,x" for n in range(21)]
    (told,) = read_trace(write(HEAD, *hour_in_ms)).warnings
    assert told == (
        "submissions span 42 days, in which all jobs together run for 0.1: the submission "
        "times look like milliseconds, or the durations are not in seconds"
    )


def test_quiet_clusters_are_not_doubted(write: WriteTrace):
    step_s = 4 * 86_400 + 17
    half_busy = [f"{n},{n * step_s},8,{step_s // 2 + 1},x" for n in range(21)]
    assert read_trace(write(HEAD, *half_busy)).warnings == ()
    used = [f"{n},{n * step_s},8,{step_s // 15},x" for n in range(21)]
    assert read_trace(write(HEAD, *used)).warnings == ()
    dated = [f"{n},2026-{1 + n % 12:02}-0{1 + n // 12} 10:00:00,1,600,x" for n in range(24)]
    assert not any("milli" in told for told in read_trace(write(HEAD, *dated)).warnings)


def test_a_line_without_end_is_refused_in_little_memory(write: WriteTrace):
    endless = HEAD.encode() + b"\n" + b"x" * (64 << 20)
    for stored in (endless, gzip.compress(endless), zstandard.compress(endless)):
        path = write(stored=stored)
        tracemalloc.start()
        try:
            message = _refused(path)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert message.startswith("trace.csv, line 2: longer than 1 MiB")
        assert peak < 96 << 20


def test_a_huge_field_is_refused(write: WriteTrace):
    path = write(HEAD, f"a,0,1,5,{'x' * 200_000}")
    assert "line 2: field larger than field limit" in _refused(path)


def test_names_in_another_encoding_are_kept_as_well_as_can_be(write: WriteTrace):
    stored = HEAD.encode() + b"\na,0,1,5,caf\xe9\n"
    assert read_trace(write(stored=stored)).jobs[0].tenant == "caf\ufffd"


def test_a_byte_order_mark_and_carriage_returns_do_no_harm(write: WriteTrace):
    stored = b"\xef\xbb\xbf" + HEAD.encode() + b"\r\n\r\na,0,1,5,x\r\n"
    assert read_trace(write(stored=stored)).jobs[0].tenant == "x"


def _lines(names: tuple[str, ...]) -> st.SearchStrategy[str]:
    field = st.one_of(
        st.integers(-5, 10**13).map(str),
        st.floats().map(str),
        st.text(max_size=8),
        st.sampled_from(
            ["2017-10-09 07:01:55", "None", "", "COMPLETED", '"', "|", "gres/gpu=2"]
        ),
    )
    row = st.lists(field, max_size=len(names) + 2).map(",".join)
    return st.lists(row, max_size=6).map(lambda rows: "\n".join([",".join(names), *rows]))


ANY_BYTES = st.one_of(
    st.binary(max_size=400),
    st.text(max_size=400).map(lambda text: text.encode("utf-8", "replace")),
    st.sampled_from([known.columns for known in FORMATS.values() if known.columns])
    .flatmap(_lines)
    .map(lambda text: text.encode("utf-8", "replace")),
    st.text(max_size=100).map(lambda text: f'[{{"jobid":{text}'.encode("utf-8", "replace")),
    st.recursive(
        st.text(max_size=3), lambda x: st.lists(x) | st.dictionaries(st.text(), x), max_leaves=9
    )
    .map(lambda value: f'[{{"jobid": "1", "attempts": {value!r}}}]'.replace("'", '"'))
    .map(lambda text: text.encode("utf-8", "replace")),
)
PACKED = st.sampled_from([bytes, gzip.compress, zstandard.compress])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    stored=ANY_BYTES,
    pack=PACKED,
    cut=st.integers(0, 30),
    format=st.sampled_from(["", "", "", *FORMATS]),
    tasks=st.sampled_from(["", "node"]),
)
def test_any_bytes_are_a_trace_or_refused(
    tmp_path: Path, stored: bytes, pack, cut: int, format: str, tasks: str
):
    packed = pack(stored)
    path = tmp_path / "any"
    path.write_bytes(packed[: len(packed) - cut] if cut < 10 else packed)
    try:
        trace = read_trace(path, format, tasks, rates={("A", 1): 1.0})
    except BadTrace:
        return
    assert isinstance(trace, Trace)
    assert trace.jobs
    assert all(job.run_ms > 0 and job.tasks > 0 for job in trace.jobs)
    assert [j.submit_ms for j in trace.jobs] == sorted(j.submit_ms for j in trace.jobs)

"""Why a task failed: the most certain witness wins."""

import pytest
from msgspec.structs import replace

from allotment.engine.diagnose import diagnose
from allotment.engine.exit_codes import BY_CODE, BY_STOP, PERMANENT
from allotment.engine.log_patterns import RAISED, STRONG, WEAK
from allotment.engine.log_scan import EVIDENCE, LogPattern, last_line, printable
from allotment.engine.signals import BY_SIGNAL
from allotment.model.diagnosis import Diagnosis, Exit, Owner, RetryClass, Usage
from allotment.model.quantity import GIB
from allotment.model.reasons import StopCause
from tests.unit.engine.failing_logs import LOGS, Failing

ALL_PATTERNS = [*STRONG, *RAISED, *WEAK]
CUDA_OOM = "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB\n"


def read(
    end: Exit, log: str = "", *, memory_limit: int = 0, stopped_by: StopCause | None = None
) -> Diagnosis | None:
    return diagnose(
        end,
        log,
        memory_limit=memory_limit,
        disk_limit=5 * GIB,
        pids_limit=1024,
        stopped_by=stopped_by,
    )


def found(
    end: Exit, log: str = "", *, memory_limit: int = 0, stopped_by: StopCause | None = None
) -> Diagnosis:
    diagnosis = read(end, log, memory_limit=memory_limit, stopped_by=stopped_by)
    assert diagnosis is not None
    return diagnosis


def test_success_has_no_diagnosis_whatever_the_log_says() -> None:
    assert read(Exit(code=0), CUDA_OOM) is None
    assert read(Exit(code=0, oom=True)) is None
    assert read(Exit(code=0), stopped_by=StopCause.EVICTED) is None


@pytest.mark.parametrize("case", LOGS, ids=lambda case: f"{case.expect}-{case.evidence[:20]}")
def test_logs_are_read_as_a_person_would(case: Failing) -> None:
    diagnosis = found(Exit(code=case.exit_code), case.log)
    assert (diagnosis.code, case.evidence in diagnosis.evidence) == (case.expect, True), (
        diagnosis
    )


@pytest.mark.parametrize("pattern", [*STRONG, *WEAK], ids=lambda each: each.diagnosis.code)
def test_each_pattern_is_the_first_to_find_its_example(pattern: LogPattern) -> None:
    log = f"step 1\n{pattern.example}\nbye\n"
    assert next(each for each in (*STRONG, *WEAK) if last_line(log, each)) is pattern


@pytest.mark.parametrize("pattern", [*STRONG, *WEAK], ids=lambda each: each.diagnosis.code)
def test_a_pattern_finds_the_only_line_there_is(pattern: LogPattern) -> None:
    assert last_line(pattern.example, pattern) == " ".join(pattern.example.split())[:EVIDENCE]


@pytest.mark.parametrize("pattern", RAISED, ids=lambda each: each.diagnosis.code)
def test_each_exception_is_read_off_the_end_of_a_traceback(pattern: LogPattern) -> None:
    log = f'Traceback (most recent call last):\n  File "a.py", line 1\n{pattern.example}\n'
    diagnosis = found(Exit(code=1), log)
    assert diagnosis == replace(pattern.diagnosis, evidence=pattern.example)


# ── precedence ──────────────────────────────────────────────────────────────────────────


def test_a_broken_memory_limit_outweighs_everything_but_the_machine() -> None:
    end = Exit(signal=9, oom=True, usage=Usage(max_rss=2 * GIB))
    diagnosis = found(end, CUDA_OOM, memory_limit=2 * GIB, stopped_by=StopCause.EVICTED)
    assert diagnosis.code == "out_of_memory"
    assert diagnosis.retry is RetryClass.NEVER
    assert diagnosis.evidence == "limit 2 GiB, largest process 2 GiB"


@pytest.mark.parametrize(
    ("end", "code", "evidence"),
    [
        (Exit(code=1, disk_limit_hit=True), "disk_limit", "limit 5 GiB"),
        (Exit(code=1, pids_limit_hit=True), "pids_limit", "limit 1024 processes and threads"),
    ],
)
def test_broken_limits_are_never_retried(end: Exit, code: str, evidence: str) -> None:
    diagnosis = found(end, CUDA_OOM)
    assert (diagnosis.code, diagnosis.evidence) == (code, evidence)
    assert diagnosis.retry is RetryClass.NEVER


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (Exit(lost=True), "lost"),
        (Exit(platform_error="cannot mount /data: stale file handle"), "platform_error"),
        (Exit(code=0, platform_error="no launcher"), "platform_error"),
    ],
)
def test_what_the_platform_did_is_the_platforms(end: Exit, code: str) -> None:
    diagnosis = found(end, CUDA_OOM)
    assert diagnosis.code == code
    assert diagnosis.owner is Owner.PLATFORM
    assert diagnosis.retry is RetryClass.PLATFORM
    assert end.platform_error in diagnosis.evidence


@pytest.mark.parametrize("cause", StopCause)
def test_after_an_order_to_stop_any_ending_is_due_to_it(cause: StopCause) -> None:
    for end in (Exit(code=85), Exit(code=143), Exit(signal=15), Exit(signal=9), Exit(code=1)):
        diagnosis = found(end, CUDA_OOM, stopped_by=cause)
        assert diagnosis.code == cause.value
        assert diagnosis.retry is BY_STOP[cause].retry
        assert diagnosis.evidence


def test_how_a_stopped_task_ended_is_the_evidence() -> None:
    stop = StopCause.EVICTED
    saved = found(Exit(code=85), stopped_by=stop).evidence
    assert saved == "it saved a checkpoint and ended (exit code 85)"
    forced = found(Exit(signal=9), stopped_by=stop).evidence
    assert forced == "it had not ended within its grace and was ended by force (SIGKILL)"


def test_85_means_a_checkpoint_only_after_a_stop() -> None:
    assert found(Exit(code=85)).code == "checkpoint_unasked"
    assert found(Exit(code=85), stopped_by=StopCause.EVICTED).code == "evicted"


@pytest.mark.parametrize("code", PERMANENT)
def test_permanent_exit_codes_outweigh_the_log(code: int) -> None:
    diagnosis = found(Exit(code=code), CUDA_OOM)
    assert diagnosis.code == PERMANENT[code].code
    assert diagnosis.retry is RetryClass.NEVER


def test_memory_refused_under_a_limit_is_never_retried() -> None:
    log = "terminate called after throwing an instance of 'std::bad_alloc'\n"
    assert found(Exit(code=134), log).retry is RetryClass.UNKNOWN
    limited = found(Exit(code=134), log, memory_limit=GIB)
    assert limited.retry is RetryClass.NEVER
    assert "1 GiB" in limited.cause


# ── exit codes and signals ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("code", [1, 2, 3, 42, 64, 75, 124, 125, 128, 200, 255, 256, 70_000])
def test_unexplained_exit_codes_are_the_users_and_may_be_retried(code: int) -> None:
    diagnosis = found(Exit(code=code), "epoch 1 done\n")
    assert diagnosis.code == BY_CODE.get(code, BY_CODE[1]).code
    assert diagnosis.retry is RetryClass.UNKNOWN
    assert diagnosis.evidence == f"exit code {code}"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (1, "hangup"),
        (2, "interrupted"),
        (4, "illegal_instruction"),
        (6, "aborted"),
        (7, "bus_error"),
        (8, "arithmetic_error"),
        (9, "killed"),
        (11, "segmentation_fault"),
        (13, "broken_pipe"),
        (15, "terminated"),
        (24, "cpu_time_limit"),
        (25, "file_size_limit"),
        (31, "bad_system_call"),
        (40, "signalled"),
    ],
)
def test_a_signal_reads_the_same_however_it_is_reported(number: int, code: str) -> None:
    ends = [Exit(signal=number), Exit(code=128 + number), Exit(code=-number)]
    assert [found(end).code for end in ends] == [code] * 3


def test_the_evidence_of_a_signal_names_it() -> None:
    assert found(Exit(signal=9)).evidence == "SIGKILL"
    assert found(Exit(code=137)).evidence == "exit code 137, that is SIGKILL"
    assert found(Exit(signal=44)).evidence == "signal 44"


def test_an_ending_that_nobody_recorded_is_not_the_users() -> None:
    assert found(Exit()).owner is Owner.PLATFORM


def test_every_reading_is_complete() -> None:
    readings = [
        *BY_CODE.values(),
        *PERMANENT.values(),
        *BY_STOP.values(),
        *(signal.diagnosis for signal in BY_SIGNAL.values()),
        *(pattern.diagnosis for pattern in ALL_PATTERNS),
    ]
    for reading in readings:
        assert reading.code.replace("_", "").isalnum()
        assert reading.cause.endswith((".", "last."))
        assert reading.advice
        assert not reading.evidence
    assert set(BY_STOP) == set(StopCause)


# ── evidence ────────────────────────────────────────────────────────────────────────────


def test_the_last_matching_line_is_the_evidence() -> None:
    log = "cp: a: No space left on device\ncp: b: No space left on device\n"
    assert found(Exit(code=1), log).evidence == "cp: b: No space left on device"


def test_evidence_is_short_and_safe_to_show() -> None:
    log = (
        f"\x1b[31mcp: \x1b]0;evil\x07\x9b{'x' * 5000} No space left on device{'y' * 5000}\x00\n"
    )
    evidence = found(Exit(code=1), log).evidence
    assert "No space left on device" in evidence
    assert len(evidence) <= EVIDENCE
    assert evidence.isprintable()


def test_colours_do_not_hide_a_message() -> None:
    assert found(Exit(code=1), "\x1b[1mCUDA \x1b[31mout of memory\x1b[0m").code == (
        "cuda_out_of_memory"
    )


def test_a_progress_bar_ends_where_it_returns_to_the_start_of_its_line() -> None:
    log = "10%|#  | 1/10\r20%|## | 2/10\rsh: 1: foo: not found\r\n"
    assert found(Exit(code=1), log).evidence == "sh: 1: foo: not found"


def test_only_the_end_of_the_log_counts() -> None:
    assert found(Exit(code=1), CUDA_OOM + "fine\n" * 20_000).code == "error"


@pytest.mark.parametrize(
    "end",
    [
        Exit(code=137, oom=True),
        Exit(code=1, disk_limit_hit=True),
        Exit(code=1, pids_limit_hit=True),
    ],
)
def test_a_limit_that_is_not_known_is_not_shown(end: Exit) -> None:
    read_so = diagnose(end, "", memory_limit=0, disk_limit=0, pids_limit=0, stopped_by=None)
    assert read_so is not None
    assert read_so.evidence == ""


@pytest.mark.parametrize(
    ("more", "shown"), [(0, "x" * EVIDENCE), (1, "x" * (EVIDENCE - 1) + "…")]
)
def test_a_line_is_cut_where_it_is_too_long(more: int, shown: str) -> None:
    assert printable("x" * (EVIDENCE + more)) == shown

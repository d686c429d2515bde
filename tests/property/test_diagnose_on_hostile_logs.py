"""Whatever a program prints, it gets a diagnosis, and soon."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.engine.diagnose import diagnose
from allotment.engine.log_patterns import RAISED, STRONG, WEAK
from allotment.engine.log_scan import EVIDENCE
from allotment.model.diagnosis import Exit
from allotment.model.reasons import StopCause

ALL_PATTERNS = [*STRONG, *RAISED, *WEAK]
NEEDLES = sorted({needle for pattern in ALL_PATTERNS for needle in pattern.needles})
HEAD = "Traceback (most recent call last):\n"
MIB = 1 << 20

pieces = st.one_of(
    st.text(max_size=40),
    st.sampled_from(NEEDLES),
    st.sampled_from([pattern.example for pattern in ALL_PATTERNS]),
    st.sampled_from([HEAD, "\n", "\r", "\x1b[0m", "[rank0]: ", "  File x\n", ": ", "Error"]),
)
logs = st.lists(pieces, max_size=30).map("".join)
exits = st.builds(
    Exit,
    code=st.none() | st.integers(-300, 70_000),
    signal=st.none() | st.integers(-5, 100),
    oom=st.booleans(),
    pids_limit_hit=st.booleans(),
    disk_limit_hit=st.booleans(),
    platform_error=st.just("") | st.text(max_size=500),
    lost=st.booleans(),
)


@given(
    end=exits,
    log=logs,
    limit=st.integers(-1, 1 << 40),
    stopped_by=st.none() | st.sampled_from(StopCause),
)
def test_every_failure_gets_a_diagnosis_and_no_success_does(
    end: Exit, log: str, limit: int, stopped_by: StopCause | None
) -> None:
    diagnosis = diagnose(
        end, log, memory_limit=limit, disk_limit=limit, pids_limit=limit, stopped_by=stopped_by
    )
    assert (diagnosis is None) == end.ok
    if diagnosis:
        assert diagnosis.code
        assert diagnosis.cause
        assert diagnosis.advice
        assert len(diagnosis.evidence) <= EVIDENCE
        assert diagnosis.evidence.isprintable()


NEARLY = "".join(
    f"{needle} {pattern.example[: len(pattern.example) // 2]}\n"
    for pattern in ALL_PATTERNS
    for needle in pattern.needles
)
HOSTILE = {
    "nearly every message": NEARLY.replace("No space", "Some space") * (MIB // len(NEARLY)),
    "nearly, on one line": NEARLY.replace("\n", " ") * (MIB // len(NEARLY)),
    "no line break": "x" * MIB,
    "only line breaks": "\n" * MIB,
    "every needle on every line": (" ".join(NEEDLES) + "\n") * (MIB // 1000),
    "every needle, no line break": " ".join(NEEDLES) * (MIB // 1000),
    "each needle on a line": ("\n".join(NEEDLES) + "\n") * (MIB // 1000),
    "tracebacks without an end": HEAD * (MIB // len(HEAD)),
    "tracebacks on one line": HEAD.strip() * (MIB // len(HEAD)),
    "frames without an end": HEAD + '  File "x"\n' * (MIB // 11),
    "half an escape": "\x1b[0" * (MIB // 3),
    "escapes": "\x1b[0m" * (MIB // 4),
    "loss, over and over": "loss " * (MIB // 5) + "nan",
    "almost a shell": "sh: 1: " * (MIB // 7),
    "dots": "a." * (MIB // 2) + "MemoryError",
    "binary": "".join(map(chr, range(0x2FFF))) * (MIB // 0x2FFF),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_mebibyte_is_read_in_a_blink(kind: str) -> None:
    log = HOSTILE[kind]
    # Processor time: another program on the machine must not fail this test.
    before = time.process_time()
    diagnosis = diagnose(
        Exit(code=1), log, memory_limit=0, disk_limit=0, pids_limit=0, stopped_by=None
    )
    spent = time.process_time() - before
    assert diagnosis is not None
    assert spent < 0.1

"""What is written as a trace is read back as it was."""

from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.model.quantity import Resources
from allotment.sim.generate import default_model, generate, write_csv
from allotment.sim.readers import read_trace
from allotment.sim.trace import Ending, Trace, TraceJob
from tests.unit.sim.readers.conftest import WriteTrace

WORDS = st.text(st.characters(exclude_categories=("C", "Z")), max_size=12)
MILLIS = st.integers(1, 10**12)


def jobs_called(name: str) -> st.SearchStrategy[TraceJob]:
    whole = st.builds(
        TraceJob,
        id=st.just(name),
        submit_ms=st.integers(0, 10**13),
        run_ms=MILLIS,
        tasks=st.integers(1, 512),
        tenant=WORDS,
        user=WORDS,
        model=WORDS,
        ending=st.sampled_from(Ending),
    )
    share = st.integers(1, 999).map(lambda milli: Resources(gpu_milli=milli))
    return whole | st.builds(
        lambda job, need: msgspec.structs.replace(job, tasks=1, need=need), whole, share
    )


JOBS = (
    st.lists(WORDS.filter(bool), min_size=1, max_size=6, unique=True)
    .flatmap(lambda names: st.tuples(*map(jobs_called, names)))
    .map(lambda jobs: sorted(jobs, key=lambda job: job.submit_ms))
)


def there_and_back(jobs: list[TraceJob]) -> Trace:
    file = StringIO(newline="")
    write_csv(jobs, file)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "made.csv"
        path.write_bytes(file.getvalue().encode())
        return read_trace(path)


@given(JOBS)
def test_jobs_there_and_back(jobs: list[TraceJob]) -> None:
    trace = there_and_back(jobs)
    assert (trace.format, trace.dropped) == ("simple", ())
    assert list(trace.jobs) == jobs


@given(st.integers(0, 1_000_000), st.integers(0, 1_000_000), st.integers(0, 99))
def test_endings_of_a_model_there_and_back(failed: int, others: int, seed: int) -> None:
    cancelled = min(others, 1_000_000 - failed)
    model = msgspec.structs.replace(default_model(), failed_ppm=failed, cancelled_ppm=cancelled)
    jobs = list(generate(model, 40, seed))
    assert list(there_and_back(jobs).jobs) == jobs


@pytest.mark.parametrize(
    ("ending", "end", "read"),
    [
        ("failed", "65", Ending.FAILED),
        ("Cancelled ", "65", Ending.CANCELLED),
        ("censored", "65", Ending.CENSORED),
        ("succeeded", "", Ending.SUCCEEDED),
        ("", "65", Ending.SUCCEEDED),
        ("", "", Ending.CENSORED),
        ("completed", "65", Ending.SUCCEEDED),
        ("unfinished", "", Ending.CENSORED),
    ],
)
def test_an_ending_in_words(write: WriteTrace, ending: str, end: str, read: Ending) -> None:
    head = "submit_time,num_gpus,duration,end_time,ending"
    assert read_trace(write(head, f"5,1,60,{end},{ending}")).jobs[0].ending is read

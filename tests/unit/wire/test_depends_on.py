"""What a job waits for, as it is written."""

import msgspec
import pytest

from allotment.model.errors import BadInput
from allotment.model.ids import JobId
from allotment.model.spec import Dependency, EndKind
from allotment.wire.job import job_to_wire, read_job

NONE = JobId(0)


def read(needs: str) -> tuple[Dependency, ...]:
    return read_job(
        f"name: x\ncommand: x\ndepends_on: {needs}\n".encode(), source="job.yaml"
    ).spec.depends_on


def test_each_way_to_say_it() -> None:
    assert read('[12, prep, "8[0-9]", {job: 13, end: any}, {job: "9[1]", end: any}]') == (
        Dependency(JobId(12), ref="12"),
        Dependency(NONE, ref="prep"),
        Dependency(NONE, ref="8[0-9]"),
        Dependency(JobId(13), EndKind.ANY),
        Dependency(NONE, EndKind.ANY, ref="9[1]"),
    )
    assert read("[{any_of: [1, {job: 2, end: any}]}, {any_of: [b]}]") == (
        Dependency(JobId(1), any_of=1, ref="1"),
        Dependency(JobId(2), EndKind.ANY, any_of=1),
        Dependency(NONE, any_of=2, ref="b"),
    )


def test_what_was_accepted_is_written_and_read_back_the_same() -> None:
    spec = read_job(b"name: x\ncommand: x\n", source="job").spec
    needs = (
        Dependency(JobId(3)),
        Dependency(JobId(1), any_of=1),
        Dependency(JobId(2), EndKind.ANY, any_of=1),
    )
    written = job_to_wire(msgspec.structs.replace(spec, depends_on=needs))
    assert written["depends_on"] == [
        {"job": 3, "end": "success"},
        {"any_of": [{"job": 1, "end": "success"}, {"job": 2, "end": "any"}]},
    ]
    assert read_job(msgspec.json.encode(written), source="job").spec.depends_on == needs


@pytest.mark.parametrize(
    ("needs", "says"),
    [
        ("[{end: any}]", "has to have either `job` or `any_of`"),
        ("[{job: 1, any_of: [2]}]", "has to have either `job` or `any_of`"),
        ("[{any_of: [2], end: any}]", "cannot be used with `any_of`"),
        ('["a b"]', "must be a job"),
        ('["8[0"]', "must be a job"),
        ("[0]", "depends_on[0]"),
    ],
)
def test_what_cannot_be_is_said(needs: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(needs)
    assert says in str(caught.value)

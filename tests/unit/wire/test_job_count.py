"""A number of tasks that may vary: read, written back, and refused in words."""

import pytest

from allotment.model.errors import BadInput
from allotment.model.spec import JobSpec
from allotment.wire.job import apply_set, job_to_json, job_to_wire, read_job, read_job_json


def read(text: str) -> JobSpec:
    return read_job(text.encode(), source="job").spec


def problems(text: str) -> list[str]:
    with pytest.raises(BadInput) as caught:
        read(text)
    return [str(problem) for problem in caught.value.problems]


def test_it_is_read_and_written_back() -> None:
    spec = read("{name: a, tenant: t, command: 'true', count: {min: 2, max: 8}}")
    role = spec.roles[0]
    assert (role.least, role.count, role.elastic) == (2, 8, False)
    assert (spec.least_count, spec.task_count) == (2, 8)
    written = job_to_wire(spec)["roles"]
    assert isinstance(written, dict)
    assert written["main"]["count"] == {"min": 2, "max": 8}  # pyright: ignore
    again = read_job_json(job_to_json(spec))
    assert again is not None
    assert again.spec == spec
    elastic = apply_set(spec, ["count.elastic=true", "count.min=3"])
    assert (elastic.roles[0].least, elastic.roles[0].elastic) == (3, True)
    assert job_to_wire(elastic)["roles"]["main"]["count"] == {  # pyright: ignore
        "min": 3, "max": 8, "elastic": True
    }  # fmt: skip
    assert apply_set(elastic, ["count=4"]).roles[0].least == 0


def test_only_the_last_role_may_vary() -> None:
    roles = "{ps: {command: a, count: %s}, worker: {command: b, count: %s}}"
    varying = "{min: 1, max: 2}"
    spec = read(f"{{name: a, tenant: t, roles: {roles % (3, varying)}}}")
    assert (spec.least_count, spec.task_count) == (4, 5)
    (said,) = problems(f"{{name: a, tenant: t, roles: {roles % (varying, 3)}}}")
    assert "roles.ps.count: may vary only in the last role, and worker comes after it" in said
    body = b'{"name":"a","roles":{"x":{"command":"a","count":{"min":1,"max":2}},'
    with pytest.raises(BadInput, match="only in the last role"):
        read_job_json(body + b'"y":{"command":"b"}}}')


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("count: {min: 3, max: 2}", "count.min: is more than the 2 tasks there are at most"),
        ("count: {min: 0, max: 2}", "count.min: "),
        ("count: {max: 2}", "count.min: is missing"),
        ("count: {min: 1, max: 2, step: 1}", "count.step: there is no key `step` here"),
        (
            "count: {min: 2, max: 6}, groups: {size: 4, within: node}",
            "groups.size: 2 tasks do not make groups of 4",
        ),
        (
            "count: {min: 2, max: 6}, completion: {min_succeeded: 3}",
            "completion.min_succeeded: 3 tasks can never succeed where there are only 2",
        ),
    ],
)
def test_what_cannot_be_is_refused(keys: str, said: str) -> None:
    found = problems(f"{{name: a, tenant: t, command: 'true', {keys}}}")
    assert said in found[0]


@pytest.mark.parametrize("tasks", [3, 5, 7, 9])
def test_a_job_is_of_a_size_between_in_whole_groups(tasks: int) -> None:
    spec = read(
        "{name: a, tenant: t, roles: {ps: {command: a}, worker: {command: b, "
        "count: {min: 2, max: 8}, groups: {size: 2, within: node}}}}"
    )
    fixed = spec.sized(tasks)
    assert (fixed.task_count, fixed.least_count) == (tasks, tasks)

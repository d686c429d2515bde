"""Specs written back, and changed as a user types it."""

import msgspec
import pytest

from allotment.model.errors import BadInput
from allotment.model.ids import JobId
from allotment.model.quantity import GIB, Resources
from allotment.model.spec import (
    ArraySlice,
    Checkpoint,
    Completion,
    Dialect,
    JobSpec,
    Port,
    TaskRole,
)
from allotment.wire.job import apply_set, job_to_wire, read_job

NEED = Resources(gpu_milli=500, cpu_milli=1500, memory=8 * GIB)
ONE = JobSpec("a", "t", (TaskRole("main", 1, "true", NEED),), secrets=(("S", "hunter2"),))
TWO = msgspec.structs.replace(
    ONE, roles=(*ONE.roles, TaskRole("ps.x", 2, ("a", "b"), NEED, ports=(Port("http"),)))
)


def test_what_is_shown_is_the_native_form_without_secrets() -> None:
    assert job_to_wire(msgspec.structs.replace(ONE, dialect=Dialect.CLASSIC, retry=2)) == {
        "name": "a",
        "tenant": "t",
        "queue": "default",
        "priority": 100,
        "secrets": {"S": "***"},
        "roles": {
            "main": {
                "count": 1,
                "command": "true",
                "resources": {"cpu": 1.5, "memory": "8GiB", "gpu": 0.5},
            }
        },
        "retry": 2,
        "dialect": "classic",
    }


def test_what_was_shown_cannot_be_submitted_with_its_stars() -> None:
    shown = msgspec.json.encode(job_to_wire(ONE))
    with pytest.raises(BadInput, match="shown in place of a secret"):
        read_job(shown, source="job")


def problems(spec: JobSpec, *changes: str) -> list[str]:
    with pytest.raises(BadInput) as caught:
        apply_set(spec, changes)
    return [str(problem) for problem in caught.value.problems]


def test_changes_are_made_where_they_point() -> None:
    changed = apply_set(
        TWO,
        [
            "roles.main.count=4",
            "roles.ps.x.resources.gpu=2",
            "roles.ps.x.ports.0.count=3",
            "roles.main.completion.min_failed=2",
            "priority=high",
            "weight=3",
            "env.LR=0.10",
            "env.EMPTY=",
            "secrets.S=007",
            "image=12",
            "name=x",
            "max_run_time=2h",
            "depends_on=[1, {job: 2, end: any}]",
            "roles.main.command=python train.py --note 'a: b'",
        ],
    )
    main, other = changed.roles
    assert (main.count, main.completion) == (4, Completion(min_failed=2))
    assert main.command == "python train.py --note 'a: b'"
    assert (other.resources.gpu_milli, other.ports) == (2000, (Port("http", 0, 3),))
    assert changed.env == (("LR", "0.10"), ("EMPTY", ""))
    assert changed.secrets == (("S", "007"),)
    assert (changed.name, changed.image, changed.priority) == ("x", "12", 500)
    assert changed.weight == 3
    assert changed.max_run_ms == 7_200_000
    assert [item.job for item in changed.depends_on] == [1, 2]


def test_the_only_role_need_not_be_named() -> None:
    changed = apply_set(ONE, ["count=2", "resources.gpu=1", "command=[sleep, 1.0]"])
    assert changed.roles[0].count == 2
    assert changed.roles[0].resources.gpu_milli == 1000
    assert changed.roles[0].command == ("sleep", "1.0")


def test_a_shell_line_may_start_like_a_list() -> None:
    assert apply_set(ONE, ["command=[ -f x ] && y"]).roles[0].command == "[ -f x ] && y"


def test_an_empty_value_goes_back_to_the_default() -> None:
    limited = apply_set(ONE, ["max_run_time=1h", "image=x", "env={A: 1.10}"])
    assert limited.env == (("A", "1.10"),)
    assert apply_set(limited, ["max_run_time=", "image=", "env="]) == ONE


def test_a_place_in_an_array_is_kept() -> None:
    member = msgspec.structs.replace(ONE, array=ArraySlice(3, 10, JobId(7)))
    assert apply_set(member, ["name=b"]).array == member.array


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        (["count"], ["count: is not a change (write it like roles.worker.count=4, "
         "priority=high or env.LR=0.1)"]),
        (["=x", "name=../x"], ["is not a change (write it like roles.worker.count=4, "
         "priority=high or env.LR=0.1)"]),
        (["name=../x", "nam=y", "roles.main.cnt=2"], [
            "name: '../x' cannot be a name (use letters, digits, `.`, `_` and `-`, at most "
            "128, starting with a letter or digit)",
            "roles.main.cnt: there is no key `cnt` here (did you mean `count`?)",
            "nam: there is no key `nam` here (did you mean `name`?)"]),
        (["count=2"], ["count: could be meant for any role (write roles.NAME.…; the roles are "
         "main, ps.x)"]),
        (["roles.ps.x.ports.7.count=2"], ["roles.ps.x.ports.7.count: there is no item `7` (the "
         "items are 0 to 0)"]),
        (["secrets.S.x.y=1"], ["secrets.S.x.y: goes into a value that has no keys (write it "
         "like roles.worker.count=4, priority=high or env.LR=0.1)"]),
        (["depends_on=[1"], ["depends_on: not valid YAML: expected ',' or ']', but got "
         "'<stream end>' (a bracket that was opened before is not closed)"]),
        (["env={A: 1, A: 2}"], ["env: `A` was given before, on line 1 (keep one of the two)"]),
        (["array={count: 3}"], ["array: belongs to a submission, not to a job (submit a file "
         "with `array` in it)"]),
        (["name=a\x1b"], ["name: has a control character (take it out)"]),
        (["a" * 2000 + "=1"], ["a" * 39]),
        (["secrets.S=***"], ["secrets.S: `***` is what is shown in place of a secret (give the "
         "secret itself, or {from_env: NAME})"]),
    ],
)  # fmt: skip
def test_a_wrong_change_is_refused_in_words(changes: list[str], found: list[str]) -> None:
    said = problems(TWO, *changes)
    assert [line[: len(start)] for line, start in zip(said, found, strict=True)] == found
    assert "hunter2" not in "".join(said)


def test_every_field_of_the_model_has_its_key() -> None:
    """A new field needs a key in the native form, or a reason to have none."""
    assert JobSpec.__struct_fields__ == (
        "name", "tenant", "roles", "queue", "priority", "image", "env", "secrets", "workdir",
        "data_dir", "code_dir", "output_dir", "retry", "max_run_ms", "max_queue_ms",
        "checkpoint", "depends_on", "array", "hold_on_failure_ms", "preemptible", "within",
        "prefer", "dialect", "pin", "opportunistic", "deadline_ms", "on_eviction", "labels",
        "batch", "engine", "mpi", "offered", "code",
        "environment", "data", "save", "weight",
    )  # fmt: skip
    assert TaskRole.__struct_fields__ == (
        "name", "count", "command", "resources", "gpu_types", "arch", "ports", "retry",
        "completion", "group", "group_within", "least", "elastic",
        "by_default",  # What its owner did not name: left out again.
    )  # fmt: skip
    assert Resources.__struct_fields__ == (
        "gpu_milli", "cpu_milli", "memory", "disk", "gpu_memory",
    )  # fmt: skip
    assert Checkpoint.__struct_fields__ == (
        "dir", "every_ms", "keep", "signal", "grace_ms", "save", "driver",
    )  # fmt: skip


def test_the_pin_and_the_idle_are_changed_and_written() -> None:
    pinned = apply_set(ONE, ["pin=own"])
    assert (pinned.pin, job_to_wire(pinned)["pin"]) == ("own", "own")
    assert apply_set(pinned, ["pin="]) == ONE
    idle = apply_set(ONE, ["opportunistic=true"])
    assert (idle.opportunistic, job_to_wire(idle)["opportunistic"]) == (True, True)
    assert apply_set(idle, ["opportunistic="]) == ONE
    assert problems(pinned, "opportunistic=true")


def test_code_that_is_taken_along_is_changed_and_written() -> None:
    digest = "ab" * 32
    wish = apply_set(ONE, ["code={take: /home/ada/x}"])
    assert wish.code is not None
    assert (wish.code.folder, wish.code.bundle) == ("/home/ada/x", "")
    sent = apply_set(
        wish, [f"code={{take: /home/ada/x, bundle: {digest}, changed: 2}}", "workdir=pkg"]
    )
    assert job_to_wire(sent)["code"] == {
        "take": "/home/ada/x", "bundle": digest, "changed": 2
    }  # fmt: skip
    assert apply_set(sent, ["code=", "workdir="]) == ONE
    live = apply_set(sent, ["code=/home/ada/live"])
    assert (live.code, live.code_dir) == (None, "/home/ada/live")
    assert problems(ONE, "code={commit: abc}", "name=x") == [
        "code.take: names no folder (write code: {take: .})"
    ]

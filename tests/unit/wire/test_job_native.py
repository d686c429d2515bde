"""The native form of a job: what it gives, and what it is refused for."""

import pytest

from allotment.model.errors import BadInput
from allotment.model.ids import JobId
from allotment.model.quantity import GIB, HOUR, MIB, Millis, Resources
from allotment.model.spec import (
    NEVER,
    Arch,
    Checkpoint,
    Completion,
    Dependency,
    Dialect,
    EndKind,
    JobSpec,
    Port,
    TaskRole,
)
from allotment.wire.job import Form, JobFile, job_schema, read_job, read_job_json
from allotment.wire.job_native import read_native_json

WHOLE = b"""\
name: train-resnet
tenant: vision
queue: nightly
priority: high
image: torch:2.9
env: {LR: 1e-3, EPOCHS: 10, FAST: true}
secrets:
  TOKEN: s3cret
  KEY: {from_env: MY_KEY}
roles:
  ps:
    command: [python, ps.py, --port, 8080]
    ports: {rpc: 1}
    retry: 0
  worker:
    count: 4
    resources:
      {cpu: 2, memory: 8GiB, gpu: 1, gpu_type: [H100, A100], gpu_memory: 40GiB, disk: 1GiB}
    arch: amd64
    command: |
      set -e
      python train.py
    ports:
      - {label: http, begin: 8000, count: 2}
    completion: {min_failed: 2, min_succeeded: 3}
data: /data/imagenet
code: /home/me/code
output: /out
workdir: /tmp
retry: 3
max_run_time: 2h30m
max_queue_time: 1d
deadline: 3d
checkpoint: {dir: ckpt, every: 10m, keep: 3, signal: SIGUSR1, grace: 30}
depends_on: [12, {job: 13, end: any}]
array: {count: 10, max_running: 2}
hold_on_failure: true
preemptible: false
"""


def read(text: str | bytes, **options: object) -> JobFile:
    data = text.encode() if isinstance(text, str) else text
    return read_job(data, source="job.yaml", **options)  # pyright: ignore[reportArgumentType]


def problems(text: str, **options: object) -> list[str]:
    with pytest.raises(BadInput) as caught:
        read(text, **options)
    return [str(problem) for problem in caught.value.problems]


def test_every_key_gets_to_its_place() -> None:
    job = read(WHOLE, environ={"MY_KEY": "k3y"})
    assert (job.warnings, job.copies, job.max_running) == ((), 10, 2)
    assert job.spec == JobSpec(
        name="train-resnet",
        tenant="vision",
        queue="nightly",
        priority=500,
        image="torch:2.9",
        env=(("LR", "1e-3"), ("EPOCHS", "10"), ("FAST", "true")),
        secrets=(("TOKEN", "s3cret"), ("KEY", "k3y")),
        roles=(
            TaskRole(
                name="ps",
                count=1,
                command=("python", "ps.py", "--port", "8080"),
                resources=Resources(cpu_milli=1000, memory=512 * MIB),
                ports=(Port("rpc"),),
                retry=0,
                by_default=("cpu", "memory"),
            ),
            TaskRole(
                name="worker",
                count=4,
                command="set -e\npython train.py\n",
                resources=Resources(1000, 2000, 8 * GIB, GIB, 40 * GIB),
                gpu_types=("H100", "A100"),
                arch=Arch.X86_64,
                ports=(Port("http", 8000, 2),),
                completion=Completion(2, 3),
            ),
        ),
        data_dir="/data/imagenet",
        code_dir="/home/me/code",
        output_dir="/out",
        workdir="/tmp",
        retry=3,
        max_run_ms=Millis(9_000_000),
        max_queue_ms=Millis(86_400_000),
        deadline_ms=Millis(259_200_000),
        checkpoint=Checkpoint("ckpt", Millis(600_000), 3, "USR1", Millis(30_000)),
        depends_on=(Dependency(JobId(12), ref="12"), Dependency(JobId(13), EndKind.ANY)),
        hold_on_failure_ms=Millis(HOUR),
        preemptible=False,
    )


def test_one_role_needs_no_name_and_little_else() -> None:
    spec = read("name: a\ncommand: 'true'\ncount: 2\nresources: {gpu: 0.5}\nretry: 1\n").spec
    assert spec == JobSpec(
        name="a",
        tenant="",
        roles=(
            TaskRole(
                name="main",
                count=2,
                command="true",
                resources=Resources(gpu_milli=500, cpu_milli=1000, memory=512 * MIB),
                by_default=("cpu", "memory"),
            ),
        ),
        retry=1,
    )
    assert (spec.max_run_ms, spec.dialect) == (NEVER, Dialect.NATIVE)


def test_a_key_without_a_value_is_a_key_left_out() -> None:
    assert read("name: a\ncommand: x\nenv:\nretry: ~\nimage:\n") == read("name: a\ncommand: x")


def test_a_dataset_without_a_path_is_not_left_out() -> None:
    wanted = "data.words: has no path (mount it at /data/NAME, for example)"
    assert problems("name: a\ncommand: x\ndata: {words: }") == [f"line 3: {wanted}"]
    assert problems('{"name": "a", "command": "x", "data": {"words": null}}') == [
        f"line 1: {wanted}"
    ]
    assert read("name: a\ncommand: x\ndata:").spec.data == ()


@pytest.mark.parametrize(
    ("weight", "says"),
    [
        ("0", "must be at least 1, not 0"),
        ("11", "11 is more than the 10 that are accepted"),
        ("1.5", "must be a whole number, not 1.5"),
        ("heavy", "must be a whole number, not 'heavy'"),
        ("true", "must be a whole number, not true"),
    ],
)
def test_a_weight_is_a_few_whole_slices(weight: str, says: str) -> None:
    (problem,) = problems(f"name: a\ncommand: x\nweight: {weight}")
    assert problem.startswith(f"line 3: weight: {says}")
    assert read("name: a\ncommand: x\nweight: 10").spec.weight == 10


def test_everything_wrong_is_said_at_once_with_its_line() -> None:
    text = """\
name: ../etc
priority: urgent
gpu: 1
env: {ALLOT_X: 1, OK: null}
roles:
  worker:
    count: -2
    resources:
      gpus: 1
      cpu: .nan
      memory: 8
      gpu: 1.5
    comand: python train.py
  "a/b": {command: x}
depends_on: ["a b", {jo: 1}]
retry: 99999999999999999999
hold_on_failure: later
nmae: x
"""
    assert problems(text) == [
        "line 1: name: '../etc' cannot be a name (use letters, digits, `.`, `_` and `-`, at "
        "most 128, starting with a letter or digit)",
        "line 2: priority: must be low, normal, high or a number up to 1000, not 'urgent'",
        "line 3: gpu: there is no key `gpu` here (it belongs under `resources`)",
        "line 4: env.ALLOT_X: names with ALLOT_ are set by Allotment itself (choose another "
        "name)",
        'line 4: env.OK: must be a text, not nothing (put it in quotes; no text at all is "")',
        "line 6: roles.worker.command: is missing, so there is nothing to run (add command: "
        "python train.py, or an image, which may have a command of its own)",
        "line 7: roles.worker.count: must be at least 1, not -2",
        "line 9: roles.worker.resources.gpus: there is no key `gpus` here (did you mean "
        "`gpu`?)",
        "line 10: roles.worker.resources.cpu: must be a finite number, not nan",
        "line 11: roles.worker.resources.memory: 8 has no unit, and could be bytes as well as "
        "gigabytes (write 8MiB or 8GiB)",
        "line 12: roles.worker.resources.gpu: 1.5 is neither whole nor part of one GPU (write "
        "1 or 2, or less than 1 to share a GPU)",
        "line 13: roles.worker.comand: there is no key `comand` here (did you mean `command`?)",
        "line 14: roles.a/b: 'a/b' cannot be a name (use letters, digits, `.`, `_` and `-`, at "
        "most 128, starting with a letter or digit)",
        "line 15: depends_on[0]: must be a job, not 'a b' (write its number, its name, or "
        "8[0-9] of an array)",
        "line 15: depends_on[1].jo: there is no key `jo` here (did you mean `job`?)",
        "line 16: retry: 99999999999999999999 is more than the 1,000,000 that are accepted",
        "line 17: hold_on_failure: must be a length of time, not 'later' (write it like 90s, "
        "2h30m or 1d)",
        "line 18: nmae: there is no key `nmae` here (did you mean `name`?)",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- a", "line 1: must be a map of keys, not a list"),
        ("just words", "line 1: must be a map of keys, not 'just words'"),
        ("name: a", "line 1: command: is missing, so there is nothing to run (add command: "
         "python train.py, or an image, which may have a command of its own)"),
        ("name: a\nroles: {w: {count: 2}}", "line 2: roles.w.command: is missing, so there is "
         "nothing to run (add command: python train.py, or an image, which may have a command "
         "of its own)"),
        ("name: a\ncommand:", "line 2: command: is missing, so there is nothing to run (add "
         "command: python train.py, or an image, which may have a command of its own)"),
        ("name: a\nimage: x\nmpi: pmix", "line 3: mpi: cannot be used with the command of an "
         "image (write `command`)"),
        ("command: x", "line 1: name: is missing (add name: train-resnet)"),
        ("name: a\nroles: {}", "line 2: roles: must have at least one role (such as main: "
         "{command: python train.py})"),
        ("name: a\nroles: [x]", "line 2: roles: must be a map of keys, not a list (such as "
         "{main: {command: python train.py}})"),
        ("name: a\nroles: {w: {command: x}}\ncount: 2", "line 3: count: cannot be used with "
         "`roles` (move it into the role it is for, or take `roles` out)"),
        ("name: a\ncommand: x\nresources: {gpu_type: A}", "line 3: resources.gpu_type: says "
         "which GPU, and `gpu` is 0 (add gpu: 1)"),
        ("name: a\ncommand: x\nresources: {gpu: 1, gpu_type: [A, A]}", "line 3: "
         "resources.gpu_type: names a device type twice (name each once, best first)"),
        ("name: a\ncommand: x\nports: 80", "line 3: ports: must be a map or a list, not 80 "
         "(such as {http: 1})"),
        ("name: a\ncommand: x\nports: [{label: a}, {label: a}]", "line 3: ports[1].label: the "
         "label a is taken by another port (choose another, or raise its count)"),
        ("name: a\ncommand: x\nports: {a-b: 1, A.b: 1}", "line 3: ports.A.b: the label A.b is "
         "too much like a-b (make them differ in letters or digits)"),
        ("name: a\ncommand: x\nports: [{label: a, begin: 80}]", "line 3: ports[0].begin: 80 is "
         "a reserved port (use 1024 or more, or 0 for any free one)"),
        ("name: a\ncommand: x\nports: [{label: a, begin: 65530, count: 9}]", "line 3: "
         "ports[0]: goes beyond port 65535 (begin lower, or take fewer)"),
        ("name: a\ncommand: x\ncompletion: {min_succeeded: 2}", "line 3: "
         "completion.min_succeeded: 2 tasks can never succeed where there are 1 (leave it out "
         "for all of them)"),
        ("name: a\ncommand: x\nenv: {A: 1}\nsecrets: {A: 2}", "line 4: secrets.A: is in `env` "
         "too (keep one of the two)"),
        ("name: a\ncommand: x\nsecrets: {A: '***'}", "line 3: secrets.A: `***` is what is "
         "shown in place of a secret (give the secret itself, or {from_env: NAME})"),
        ("name: a\ncommand: x\nsecrets: {A: {from_env: B}}", "line 3: secrets.A.from_env: is "
         "looked up where the file is; the service does not see your environment (submit the "
         "file with `allot submit`, or give the secret itself)"),
        ("name: a\ncommand: x\ncount: 1000\narray: {count: 1001}", "line 4: array: makes "
         "1,001,000 tasks, and 1,000,000 are accepted (check the counts)"),
        ("name: a\ncommand: " + "x" * 9000 + "\narray: {count: 5000}", "line 3: array: makes "
         "5,000 copies of 8.9 KiB, and 32 MiB in all are accepted (keep what is large in a "
         "file the jobs read, or make several arrays)"),
        ("name: a\ncommand: x\ncount: 1000001", "line 3: count: 1000001 is more than the "
         "1,000,000 that are accepted"),
        ("name: a\ncommand: x\ncount: 1000000\nresources: {memory: 2TiB}", "line 1: roles: "
         "asks for 2000000 TiB of memory in all, which no cluster has (check the counts and "
         "the units)"),
        ("name: a\ncommand: x\ncount: 1000000\nports: {a: 1}", "line 1: roles: needs "
         "1,000,001 ports, and 60,000 are accepted (ask for fewer ports)"),
        ("name: a\ncommand: x\nmax_run_time: 0", "line 3: max_run_time: must be more than 0 "
         "(write it like 90s or 2h30m; leave it out for no limit)"),
        ("name: a\ncommand: x\ncheckpoint: {signal: KILL}", "line 3: checkpoint.signal: no "
         "program can catch KILL (use TERM, or USR1 as a warning)"),
        ("name: a\ncommand: ...", "line 2: command: `...` is a placeholder from the "
         "documentation (write what you mean)"),
        ("name: a\nname: b\ncommand: x", "line 2: `name` was given before, on line 1 (keep one "
         "of the two)"),
    ],
)  # fmt: skip
def test_a_problem_says_where_what_and_what_next(text: str, problem: str) -> None:
    assert problems(text) == [problem]


def test_a_missing_secret_is_named_and_no_secret_is_shown() -> None:
    (problem,) = problems("name: a\ncommand: x\nsecrets: hunter2")
    assert "hunter2" not in problem
    text = "name: a\ncommand: x\nsecrets: {A: {from_env: B}, C: [hunter2]}"
    (problem,) = problems(text, environ={})
    assert problem == "line 3: secrets.C: must be a text or {from_env: NAME}"
    (problem,) = problems(text.replace("[hunter2]", "hunter2"), environ={})
    assert problem == (
        "line 3: secrets.A.from_env: 'B' is not set in your environment (export it, then "
        "submit again)"
    )
    (problem,) = problems(text.replace("[hunter2]", "x"), environ={"B": "\udcff"})
    assert "holds bytes that are not UTF-8" in problem


def test_very_many_problems_are_counted() -> None:
    text = "name: a\ncommand: x\n" + "".join(f"k{at}: 1\n" for at in range(200))
    found = problems(text)
    assert len(found) == 51
    assert found[0].startswith("line 3: k0: there is no key `k0` here")
    assert found[-1] == "and 150 more like these"


def test_no_failure_is_too_many_is_doubted() -> None:
    job = read("name: a\ncommand: x\ncompletion: {min_failed: 2}")
    assert [str(warning) for warning in job.warnings] == [
        "line 3: completion.min_failed: is more than the 1 tasks there are, so no failure ends "
        "the job (write `never` if you mean that)"
    ]
    job = read("name: a\ncommand: x\ncompletion: {min_failed: never}")
    assert job.warnings == ()
    assert job.spec.roles[0].completion == Completion(min_failed=0)


def test_roles_may_share_their_parts() -> None:
    spec = read(
        "name: a\nroles:\n  w: &w {command: x, resources: {gpu: 1}}\n  v: {<<: *w, count: 2}"
    ).spec
    assert [(role.count, role.resources.gpu_milli) for role in spec.roles] == [
        (1, 1000),
        (2, 1000),
    ]


def test_the_form_can_be_insisted_on() -> None:
    assert "`name` was given" not in problems("jobName: x", form=Form.NATIVE)[0]
    (first, second) = problems("jobName: x\ncommand: y", form=Form.NATIVE)
    assert first == "line 1: name: is missing (add name: train-resnet)"
    assert second == "line 1: jobName: there is no key `jobName` here (did you mean `name`?)"


# ── JSON, fast ──────────────────────────────────────────────────────────────────────────


def test_right_json_is_read_fast() -> None:
    body = b'{"name": "a", "command": "x", "resources": {"gpu": 1}, "env": {"A": "b"}}'
    assert read_native_json(body) == read_job_json(body) == read(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"name": "a", "command": "x", "env": {"LR": 1.10}}',
        b'{"name": "a", "command": 5}',
        b'{"name": "a", "command": "x", "retry": null, "env": null}',
        b'{"name": "a", "command": "x", "completion": {"min_failed": 9}}',
        b'{"name": "a", "command": "x",}',
        b'\xef\xbb\xbf{"name": "a", "command": "x"}',
    ],
)
def test_unusual_json_is_read_carefully(body: bytes) -> None:
    assert read_native_json(body) is None or b"retry" in body
    assert read_job_json(body) == read(body)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'{"name": "a",\n"command": "x",\n"name": "b"}', "line 3: `name` was given before"),
        (b'{"name": "a",\n"comand": "x"}', "line 2: comand: there is no key"),
        (b'{"name": "a", "command": "x", "secrets": {"A": {"from_env": "HOME"}}}', "from_env"),
        (b"name: a\ncommand: x", "line 1: not valid JSON: a value is expected here"),
        (b"[" * 200_000, "nested more than 32 deep"),
        (b'{"name": ' * 20_000, "nested more than 32 deep"),
        (b'{"name": "\\ud83d"}', "half of a"),
        (b"\xff", "not UTF-8"),
        (b"", "is empty"),
        (b"{" + b" " * 300_000, "at most 256 KiB are read"),
    ],
    ids=range(10),
)
def test_wrong_json_is_refused_in_words(body: bytes, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        read_job_json(body)


def test_the_schema_knows_every_key() -> None:
    schema = job_schema()
    assert isinstance(schema["properties"], dict)
    assert {"name", "roles", "command", "checkpoint"} <= set(schema["properties"])
    assert "default" not in str(schema).replace("'default'", "default").split("examples")[0]


def test_a_job_may_name_its_pinned_cell_or_live_on_what_is_idle() -> None:
    pinned = read_job(b"{name: a, command: x, pin: own}", source="job").spec
    assert (pinned.pin, pinned.opportunistic) == ("own", False)
    idle = read_job(b"{name: a, command: x, opportunistic: true}", source="job").spec
    assert (idle.pin, idle.opportunistic) == ("", True)


@pytest.mark.parametrize(
    ("beside", "wrong"),
    [
        (
            "pin: own",
            "pin: cannot be used with `opportunistic`, which never uses its tenant's guarantee",
        ),
        (
            "preemptible: false",
            "preemptible: is false, but an opportunistic job can be evicted",
        ),
        ("pin: [a]", "pin: must be a name, not a list"),
    ],
)
def test_what_an_opportunistic_job_cannot_have_beside(beside: str, wrong: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_job(
            f"{{name: a, command: x, opportunistic: true, {beside}}}".encode(), source="job"
        )
    assert wrong in str(caught.value)


def test_groups_of_a_role_say_how_many_and_within_what() -> None:
    text = "name: a\ncommand: x\ncount: 8\ngroups: {size: 4, within: socket}\n"
    role = read(text).spec.roles[0]
    assert (role.count, role.group, role.group_within) == (8, 4, "socket")
    assert problems(text.replace("8", "6")) == [
        "line 4: groups.size: 6 tasks do not make groups of 4 (take a number that divides them)"
    ]
    assert problems(text.replace("socket", '""')) == [
        "line 4: groups.within: must not be empty (write it, or take the key out)"
    ]

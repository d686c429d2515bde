"""Whatever is read: a value or BadInput, never anything else; what was written reads back."""

import json
import string
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from allotment.model.amounts import Amounts, amounts
from allotment.model.cluster import Device, Node
from allotment.model.errors import BadInput
from allotment.model.ids import DeviceIndex, JobId, NodeId
from allotment.model.objectives import Objectives
from allotment.model.quantity import Millis, Resources
from allotment.model.spec import (
    NEVER,
    Arch,
    Batch,
    Checkpoint,
    Completion,
    Dependency,
    Dialect,
    EndKind,
    JobSpec,
    Port,
    TaskRole,
)
from allotment.model.tenancy import Config, Limits, Queue, QueueOrder, QueueState, Tenant, Terms
from allotment.wire.amounts import (
    read_duration_or_none,
    read_size_or_none,
    write_duration,
    write_size,
)
from allotment.wire.config import config_to_wire, default_config, read_config
from allotment.wire.config_shape import GuaranteedShape
from allotment.wire.config_share import share_of
from allotment.wire.job import (
    Form,
    apply_set,
    job_to_json,
    job_to_wire,
    read_job,
    read_job_json,
)
from allotment.wire.parse import tree_of
from allotment.wire.text import MOST_BYTES

SLOW_S = 2.0
"""Longest that any input may take."""

# ── jobs ────────────────────────────────────────────────────────────────────────────────

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,12}", fullmatch=True)
variables = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: not name.upper().startswith("ALLOT_")
)
values = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20
)
secrets = values.filter(lambda text: text != "***")
letters = st.characters(exclude_categories=("Cs", "Cc", "Cn"))
lines = (
    st.text(letters, max_size=12).map(str.strip).filter(lambda text: text not in ("...", "…"))
)
paths = lines.filter(lambda text: ".." not in text and "://" not in text)
words = lines.filter(bool)
sizes = st.integers(0, 1 << 40) | st.sampled_from([1 << 30, 10**9, 1536 << 20])
lengths = st.integers(0, 10**10).map(Millis)
limits = st.just(NEVER) | st.integers(1, 10**10).map(Millis)
shell_lines = values.filter(lambda text: bool(text.strip()) and text not in ("...", "…"))
commands = shell_lines | st.lists(values, min_size=1, max_size=4).map(tuple).filter(
    lambda listed: bool(listed[0].strip())
)
whole_or_part = st.integers(0, 999) | st.integers(0, 64).map(lambda count: count * 1000)


def as_variable(label: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in label).upper()


@st.composite
def task_roles(draw: st.DrawFn, name: str, *, varies: bool) -> TaskRole:
    gpu = draw(whole_or_part)
    count = draw(st.integers(1, 50))
    ports = draw(st.lists(names, max_size=3, unique_by=as_variable))
    group = draw(st.sampled_from([0, 1, count]))
    least = draw(st.just(0) | st.integers(1 if group < 2 else count, count)) if varies else 0
    return TaskRole(
        name=name,
        count=count,
        command=draw(commands),
        resources=Resources(
            gpu_milli=gpu,
            cpu_milli=draw(st.integers(1, 10**6)),
            memory=draw(sizes.filter(bool)),
            disk=draw(sizes),
            gpu_memory=draw(sizes) if gpu else 0,
        ),
        gpu_types=tuple(draw(st.lists(words, max_size=3, unique=True))) if gpu else (),
        arch=draw(st.sampled_from(Arch)),
        ports=tuple(
            Port(label, draw(st.just(0) | st.integers(1024, 60_000)), draw(st.integers(1, 9)))
            for label in ports
        ),
        retry=draw(st.none() | st.integers(0, 100)),
        completion=Completion(
            draw(st.integers(0, count)), draw(st.none() | st.integers(1, least or count))
        ),
        group=group,
        group_within=draw(words) if group else "",
        least=least,
        elastic=bool(least) and draw(st.booleans()),
    )


checkpoints = st.builds(
    Checkpoint,
    dir=paths,
    every_ms=lengths,
    keep=st.integers(1, 9),
    signal=st.sampled_from(["TERM", "USR1", "INT"]),
    grace_ms=lengths,
)


@st.composite
def specs(draw: st.DrawFn) -> JobSpec:
    role_names = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    env = draw(st.dictionaries(variables, values, max_size=3))
    hidden = draw(st.dictionaries(variables, secrets, max_size=2))
    preemptible, pin = draw(st.booleans()), draw(names | st.just(""))
    return JobSpec(
        name=draw(names),
        tenant=draw(names | st.just("")),
        roles=tuple(
            draw(task_roles(name, varies=name == role_names[-1])) for name in role_names
        ),
        queue=draw(names),
        priority=draw(st.integers(0, 1000)),
        image=draw(lines),
        env=tuple(env.items()),
        secrets=tuple((key, value) for key, value in hidden.items() if key not in env),
        workdir=draw(paths),
        data_dir=draw(paths),
        code_dir=draw(paths),
        save=draw(st.sampled_from(["", "results", "speech/results"])),
        output_dir=draw(paths),
        retry=draw(st.integers(0, 100)),
        max_run_ms=draw(limits),
        max_queue_ms=draw(limits),
        checkpoint=draw(st.none() | checkpoints),
        depends_on=tuple(
            Dependency(JobId(job), draw(st.sampled_from(EndKind)))
            for job in draw(st.lists(st.integers(1, 10**12), max_size=2))
        ),
        hold_on_failure_ms=draw(lengths),
        preemptible=preemptible,
        within=draw(lines),
        prefer=draw(lines),
        pin=pin,
        opportunistic=preemptible and not pin and draw(st.booleans()),
        dialect=draw(st.sampled_from(Dialect)),
    )


codes = st.lists(st.integers(1, 255), max_size=3).map(tuple)
batches = st.builds(
    Batch,
    tasks=st.integers(1, 1000),
    args=st.lists(values, max_size=3).map(tuple),
    output=lines,
    error=lines,
    input=lines,
    append=st.booleans(),
    warn_ms=lengths,
    warn_script=st.booleans(),
    requeue_on=codes,
    variables=st.dictionaries(variables, values, max_size=3).map(
        lambda found: tuple(found.items())
    ),
)


@given(specs(), batches, values)
def test_a_script_reads_back_as_it_was_written(spec: JobSpec, batch: Batch, text: str) -> None:
    role = TaskRole("batch", 1, f"#!/bin/sh\n{text}", spec.roles[0].resources)
    script = msgspec.structs.replace(spec, roles=(role,), batch=batch)
    body = job_to_json(script)
    assert read_job_json(body).spec == script
    assert read_job(body, source="job.json").spec == script


@given(specs())
def test_a_spec_reads_back_as_it_was_written(spec: JobSpec) -> None:
    body = job_to_json(spec)
    assert read_job_json(body).spec == spec
    assert read_job(body, source="job.json").spec == spec


@given(specs())
def test_a_spec_reads_back_from_ascii_json_and_from_yaml(spec: JobSpec) -> None:
    written = json.dumps(job_to_wire(spec, redact=False), indent=1)
    assert read_job(written.encode(), source="job.json").spec == spec
    # JSON with ASCII escapes, in flow style after a key, is YAML.
    as_yaml = "\n".join(
        f"{key}: {json.dumps(value)}" for key, value in json.loads(written).items()
    )
    assert read_job(as_yaml.encode(), source="job.yaml").spec == spec


@given(specs())
def test_no_secret_is_in_what_is_shown(spec: JobSpec) -> None:
    shown = job_to_wire(spec)
    assert shown.get("secrets", {}) == {name: "***" for name, _ in spec.secrets}
    assert shown == job_to_wire(
        msgspec.structs.replace(
            spec, secrets=tuple((name, "other") for name, _ in spec.secrets)
        )
    )


@given(specs(), names, st.integers(1, 100), values)
def test_a_change_changes_what_it_names(
    spec: JobSpec, name: str, count: int, value: str
) -> None:
    assume(not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in value))
    assume("X" not in dict(spec.secrets))
    assume((spec.roles[0].completion.min_succeeded or 0) <= count)
    assume(count % (spec.roles[0].group or 1) == 0)
    assume(not any(ord(letter) >= 0xFFFE and ord(letter) <= 0xFFFF for letter in value))
    role = spec.roles[0].name
    changed = apply_set(spec, [f"name={name}", f"roles.{role}.count={count}", f"env.X={value}"])
    first = msgspec.structs.replace(spec.roles[0], count=count, least=0, elastic=False)
    assert changed == msgspec.structs.replace(
        spec,
        name=name,
        roles=(first, *spec.roles[1:]),
        env=tuple((dict(spec.env) | {"X": value}).items()),
    )


# ── one result, fast or careful ─────────────────────────────────────────────────────────


def outcome(body: bytes, *, fast: bool) -> object:
    """Return what reading gives, errors as values."""
    try:
        if fast:
            return read_job_json(body)
        return read_job(body, source="job", form=Form.NATIVE)
    except BadInput as error:
        return error.problems


KEYS = [
    "name", "tenant", "queue", "priority", "image", "env", "secrets", "roles", "command",
    "count", "resources", "arch", "ports", "completion", "data", "code", "output", "workdir",
    "retry", "max_run_time", "max_queue_time", "deadline", "checkpoint", "depends_on", "array",
    "hold_on_failure", "preemptible", "dialect", "cpu", "memory", "gpu", "gpu_type", "within",
    "pin", "opportunistic", "groups", "size",
    "gpu_memory", "disk", "label", "begin", "min_failed", "min_succeeded", "job", "end",
    "dir", "every", "keep", "signal", "grace", "max_running", "from_env", "jobName",
    "taskRoles", "taskNumber", "memoryMB", "portList", "protocolVersion", "[key]", "@map",
]  # fmt: skip
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.integers()
    | st.floats()
    | st.sampled_from(
        ["8GiB", "2h", "high", "***", "...", "..", "a/b", "x", "", "500m", "1e400"]
    )
    | st.text(max_size=8)
)
trees: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=20,
)


@st.composite
def damaged_jobs(draw: st.DrawFn) -> dict[str, Any]:
    """A right job in which a few places are anything at all."""
    job: Any = json.loads(json.dumps(job_to_wire(draw(specs()), redact=False)))
    for _ in range(draw(st.integers(1, 3))):
        node: Any = job
        while True:
            key = draw(
                st.sampled_from([*list(node), *KEYS[:8]]) if node else st.sampled_from(KEYS)
            )
            inner = node.get(key)
            if not isinstance(inner, dict) or draw(st.booleans()):
                node[key] = draw(trees)
                break
            node = inner
    return job


@given(damaged_jobs() | st.dictionaries(st.sampled_from(KEYS), trees, max_size=6))
def test_fast_and_careful_reading_agree(job: dict[str, Any]) -> None:
    body = json.dumps(job).encode()
    assert outcome(body, fast=True) == outcome(body, fast=False)


@given(specs(), st.data())
def test_a_key_given_twice_is_never_lost(spec: JobSpec, data: st.DataObject) -> None:
    body = job_to_json(spec).decode()
    name = json.dumps(data.draw(names))
    twice = f'{{"name": {name}, {body[1:]}'.encode()
    with pytest.raises(BadInput, match="was given before"):
        read_job_json(twice)


# ── anything at all ─────────────────────────────────────────────────────────────────────

JOB = b"""name: train
tenant: vision
env: {LR: 0.1}
roles:
  w: &w
    count: 2
    resources: {cpu: 1, memory: 8GiB, gpu: 1}
    command: |
      python train.py
  e: {<<: *w, count: 1}
max_run_time: 2h
"""
CLASSIC = b"""{
  // classic
  jobName: 'x', retryCount: -1, taskRoles: [
    {name: "w", taskNumber: 1, cpuNumber: 1, memoryMB: 1024, gpuNumber: 1, command: "x",
     portList: [{label: "a", beginAt: 0, portNumber: 1}], minFailedTaskCount: null},
  ],
}"""
CONFIG = b"""nodes:
  - {name: n1, cpu: 8, memory: 32GiB, disk: 1TiB, gpu: {type: A, count: 4, memory: 80GiB}}
tenants:
  vision: {guaranteed: {gpu: 2}, queues: {default: {order: strict}}}
  nlp:
default_tenant: vision
limits: {backoff: {first: 1s, most: 5m}}
"""
PIECES = [bytes([letter]) for letter in b"{}[]:,-#&*!|>'\"%@`?\n\t \\0x.eE+~<"] + [
    b"...", b"---\n", b"\n  ", b"null", b"\\ud83d", b"\xff", b"\xef\xbb\xbf", b"<<: ", b"*w",
    b"&w", b"!!str", b"99999999999999999999", b"-1", b".nan", b"NaN", b"1e999", b"\xc2\x85",
    b"/*", b"//", b"\xe2\x80\xa8", b"\r", b"? ", b"- ", b"%YAML 1.1\n", b"count", b"\x7f",
]  # fmt: skip


@st.composite
def damaged_texts(draw: st.DrawFn) -> bytes:
    """A right file with pieces put in, cut out and doubled."""
    text = draw(st.sampled_from([JOB, CLASSIC, CONFIG]))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        to = at + draw(st.integers(0, 12))
        piece = draw(st.sampled_from(PIECES) | st.binary(max_size=4))
        kind = draw(st.sampled_from(["put in", "replace", "double"]))
        if kind == "put in":
            text = text[:at] + piece + text[at:]
        elif kind == "replace":
            text = text[:at] + piece + text[to:]
        else:
            text = text[:to] + text[at:]
    return text


NODE = Node(NodeId(0), "here", 8000, 1 << 34, 1 << 36)


def check_all_readers(data: bytes) -> None:
    """Read in every way; only BadInput may come out, and soon."""
    start = time.process_time()
    for form in Form:
        for source in ("job", "job.yaml"):
            try:
                read_job(data, source=source, form=form)
            except BadInput as error:
                check_problems(error)
    for machine in (NODE, None):
        try:
            read_config(data, source="config.yaml", machine=machine)
        except BadInput as error:
            check_problems(error)
    assert time.process_time() - start < SLOW_S
    outcome(data, fast=True)


def check_problems(error: BadInput) -> None:
    assert error.problems
    assert len(error.problems) <= 51
    for problem in error.problems:
        assert problem.message
        assert problem.line >= 0
        assert str(problem).isprintable()
        assert len(str(problem)) < 700


@given(damaged_texts())
def test_a_damaged_file_is_read_or_refused(data: bytes) -> None:
    check_all_readers(data)


@given(st.binary(max_size=200) | st.text(string.printable, max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    check_all_readers(data)


@given(st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join))
def test_any_signs_are_read_or_refused(data: bytes) -> None:
    check_all_readers(data)


@given(trees)
def test_any_json_is_read_or_refused(tree: object) -> None:
    check_all_readers(json.dumps(tree).encode())


@given(specs(), st.lists(st.text(max_size=20), max_size=3), st.sampled_from(KEYS))
def test_any_change_is_made_or_refused(spec: JobSpec, changes: list[str], key: str) -> None:
    try:
        apply_set(spec, [*changes, *(f"{key}={change}" for change in changes)])
    except BadInput as error:
        check_problems(error)


# ── amounts ─────────────────────────────────────────────────────────────────────────────


@given(st.integers(0, 1 << 60))
def test_bytes_read_back(amount: int) -> None:
    assert read_size_or_none(write_size(amount)) == amount


@given(st.integers(0, 10**12))
def test_lengths_of_time_read_back(length: int) -> None:
    assert read_duration_or_none(write_duration(length)) == length


# ── configurations ──────────────────────────────────────────────────────────────────────


@st.composite
def nodes(draw: st.DrawFn, at: int, name: str) -> Node:
    devices = [
        (draw(words), draw(sizes), draw(st.booleans()), draw(words | st.just("")))
        for _ in range(draw(st.integers(0, 4)))
    ]
    return Node(
        NodeId(at),
        name,
        cpu_milli=draw(st.integers(1, 10**6)),
        memory=draw(sizes.filter(bool)),
        disk=draw(sizes),
        devices=tuple(
            Device(DeviceIndex(index), kind, memory, uuid, virtual)
            for index, (kind, memory, virtual, uuid) in enumerate(devices)
        ),
        arch=draw(st.sampled_from([Arch.X86_64, Arch.ARM64])),
        address=draw(words),
        labels=tuple(draw(st.dictionaries(names, lines, max_size=2)).items()),
    )


users = words.filter(lambda text: not any(letter in text for letter in ":/,"))
ports = st.just((0, 0)) | st.tuples(st.integers(1024, 30_000), st.integers(30_001, 65_536))


objectives = st.builds(
    Objectives,
    st.none() | st.integers(1, 10**9),
    st.none() | st.integers(1, 10**9),
    st.none() | st.integers(1, 10**6),
)
counts = st.none() | st.integers(0, 50)


def vectors(types: Sequence[str], least: int, most_parts: int) -> st.SearchStrategy[Amounts]:
    """Draw amounts of a few parts; by type only of types that there are."""
    parts = ["gpu", "gpu_memory", "cpu", "memory", "disk", *(f"gpu:{kind}" for kind in types)]
    drawn = st.dictionaries(
        st.sampled_from(parts), st.integers(least, 100_000), max_size=most_parts
    )
    return drawn.map(amounts)


@st.composite
def queue_trees(
    draw: st.DrawFn, types: Sequence[str], parent: str = "", levels: int = 3
) -> tuple[Queue, ...]:
    """Draw the queues inside one, depth first; no two have one path."""
    found: dict[str, Queue] = {}
    for name in draw(st.lists(names, min_size=not parent, max_size=2, unique=True)):
        queue = Queue(
            f"{parent}.{name}" if parent else name,
            draw(st.sampled_from(QueueOrder)),
            parent=parent,
            state=draw(st.sampled_from(QueueState)),
            limit=draw(vectors(types, 0, 3)),
            terms=Terms(lend=draw(st.booleans())),
            max_jobs=draw(counts),
            max_waiting=draw(counts),
        )
        if draw(st.booleans()) and not queue.limit:
            user, group = draw(vectors(types, 1, 2)), draw(vectors(types, 1, 2))
            queue = msgspec.structs.replace(queue, per_user=user, per_group=group)
        inside = draw(queue_trees(types, queue.name, levels - 1)) if levels > 1 else ()
        if inside:  # An order there would have no effect.
            queue = msgspec.structs.replace(queue, order=QueueOrder.STRICT)
        new = {each.name: each for each in (queue, *inside)}
        if found.keys().isdisjoint(new):
            found |= new
    return tuple(found.values())


@st.composite
def configs(draw: st.DrawFn) -> Config:
    node_names = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    tenant_names = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    machines = tuple(draw(nodes(at, name)) for at, name in enumerate(node_names))
    types = sorted({device.type for node in machines for device in node.devices})
    whole = sum((node.total() for node in machines), start=Resources())
    part = len(tenant_names) + draw(st.integers(0, 2))
    share = Resources(
        whole.gpu_milli // 1000 // part * 1000,
        whole.cpu_milli // part,
        whole.memory // part,
        whole.disk // part,
        whole.gpu_memory // part,
    )
    return Config(
        machines,
        tuple(
            Tenant(
                name,
                share,
                draw(queue_trees(types)),
                tuple(draw(st.lists(users, max_size=2))),
                tuple(draw(st.lists(users, max_size=2))),
                draw(st.booleans()),
                per_user=Resources(
                    draw(whole_or_part), draw(st.integers(0, 10**6)), draw(sizes), draw(sizes)
                ),
                objectives=draw(objectives),
            )
            for name in tenant_names
        ),
        Limits(
            platform_retries=draw(st.integers(0, 99)),
            backoff_first_ms=draw(st.integers(1, 5000)),
            backoff_most_ms=draw(st.integers(5000, 10**7)),
            task_log_bytes=draw(sizes.filter(bool)),
            ports=draw(ports),
        ),
        draw(st.sampled_from(["", *tenant_names])),
    )


@given(configs())
def test_a_configuration_reads_back_as_it_was_written(config: Config) -> None:
    written = json.dumps(config_to_wire(config)).encode()
    assert read_config(written, source="config", machine=NODE) == (config, ())


@given(
    st.integers(0, 9),
    st.lists(st.text(max_size=6), max_size=5),
    st.integers(1, 10**6),
)
def test_default_shares_add_up_to_the_machine(gpus: int, groups: list[str], cpu: int) -> None:
    devices = tuple(Device(DeviceIndex(index), "virtual", 7) for index in range(gpus))
    machine = Node(NodeId(0), "here", cpu, 1 << 34, 12345, devices)
    config = default_config([machine], groups)
    total = sum((tenant.guaranteed for tenant in config.tenants), start=Resources())
    assert total == machine.total()
    assert len({tenant.name for tenant in config.tenants}) == max(1, len(set(groups)))
    assert len({tenant.guaranteed for tenant in config.tenants[1:]}) <= 1
    written = json.dumps(config_to_wire(config)).encode()
    if all(group.isprintable() and not set(group) & set(":/, ") for group in groups if group):
        assert read_config(written, source="config", machine=None)[0] == config


@given(st.lists(st.integers(0, 8), min_size=1, max_size=4))
def test_shares_in_proportion_never_exceed_the_whole(gpus: list[int]) -> None:
    assume(sum(gpus) > 0)
    whole = Resources(sum(gpus) * 1000, 7777, 10**10 + 1, 999, 10**11 + 3)
    shares = [share_of(GuaranteedShape(gpu=count), whole) for count in gpus]
    assert sum(shares, start=Resources()).fits_in(whole)


# ── time ────────────────────────────────────────────────────────────────────────────────

HOSTILE = {
    "brackets": "[" * MOST_BYTES,
    "braces": "{a: " * (MOST_BYTES // 4),
    "dashes": "- " * (MOST_BYTES // 2),
    "questions": "? " * (MOST_BYTES // 2),
    "items": "[" + "a," * (MOST_BYTES // 2 - 1),
    "lines": "- a\n" * (MOST_BYTES // 4),
    "quotes": "'" * MOST_BYTES,
    "comments": "/*" * (MOST_BYTES // 2),
    "escapes": '{a: "' + "\\n" * (MOST_BYTES // 2 - 3),
    "placeholders": "[" + "...," * (MOST_BYTES // 4 - 1),
    "twice": "a: 1\n" * (MOST_BYTES // 5),
    "merges": "a: &a {" + ",".join(f"k{at}: 1" for at in range(5000)) + "}\nb:\n"
    + "".join(f"- {{<<: *a, x{at}: 1}}\n" for at in range(9000)),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_no_file_takes_long(name: str) -> None:
    start = time.process_time()
    with suppress(BadInput):
        tree_of(HOSTILE[name][:MOST_BYTES], "f")
    assert time.process_time() - start < SLOW_S

"""Jobs written for operators of Kubernetes: what they become, and what of them is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from allotment.model.errors import BadInput
from allotment.model.quantity import MIB, SECOND
from allotment.model.spec import MPI_SLOTS, Dialect
from allotment.wire.foreign import batch_job, job, mpi_job, pod, pytorch_job, tf_job
from allotment.wire.foreign.fields import Refused
from allotment.wire.job import job_to_wire, read_job
from allotment.wire.job_file import JobFile

EXAMPLES = Path(__file__).parents[2] / "fixtures" / "foreign"


def example(name: str) -> JobFile:
    path = EXAMPLES / f"{name}.yaml"
    return read_job(path.read_bytes(), source=path.name)


def changed(name: str, old: str, new: str) -> JobFile:
    text = (EXAMPLES / f"{name}.yaml").read_text()
    assert old in text
    return read_job(text.replace(old, new, 1).encode(), source="job")


def refused(name: str, old: str, new: str) -> str:
    with pytest.raises(BadInput) as caught:
        changed(name, old, new)
    return str(caught.value)


def test_a_pytorch_job_is_a_gang_of_two_roles() -> None:
    spec = example("pytorch").spec
    assert [(role.name, role.count) for role in spec.roles] == [("master", 1), ("worker", 1)]
    need = spec.roles[1].resources
    assert (need.gpu_milli, need.cpu_milli, need.memory) == (1000, 500, 64 * MIB)
    assert spec.image == "localhost/busybox:1"
    assert dict(spec.env) == {
        "LR": "0.1", "WORLD_SIZE": "4", "PET_NNODES": "2", "PET_NPROC_PER_NODE": "2",
    }  # fmt: skip
    assert (spec.retry, spec.max_run_ms, spec.queue) == (1, 600 * SECOND, "default")
    assert spec.checkpoint is not None
    assert spec.checkpoint.grace_ms == 5 * SECOND
    assert spec.roles[0].command[-1].endswith('$PET_NNODES x $PET_NPROC_PER_NODE, lr 0.1"')
    assert spec.dialect is Dialect.PYTORCH_JOB


@pytest.mark.parametrize("name", ["pytorch", "tf", "mpi", "job"])
def test_what_is_read_can_be_written_and_is_the_same(name: str) -> None:
    spec = example(name).spec
    written = job_to_wire(spec, redact=False)

    assert read_job(json.dumps(written).encode(), source="job").spec == spec


def test_what_has_no_use_is_warned_of_with_its_line() -> None:
    warned = {
        warning.path.rpartition(".")[2]: warning.line for warning in example("pytorch").warnings
    }
    assert warned == {"namespace": 6, "cleanPodPolicy": 10, "imagePullPolicy": 22, "cpu": 30}


def test_the_workers_decide_a_tf_job_unless_it_has_a_chief() -> None:
    spec = example("tf").spec
    assert [role.name for role in spec.roles] == ["worker", "ps"]
    assert [role.completion.min_succeeded for role in spec.roles] == [2, None]
    assert spec.retry == 0
    led = changed("tf", "    PS: &replica", "    Chief: &replica").spec
    assert [role.completion.min_succeeded for role in led.roles] == [1, None]
    said = changed("tf", "spec:\n", "spec:\n  successPolicy: AllWorkers\n")
    assert said.spec.roles[0].completion.min_succeeded == 2


def test_the_workers_of_an_mpi_job_wait_for_its_launcher() -> None:
    spec = example("mpi").spec
    launcher, worker = spec.roles
    assert launcher.completion.min_succeeded == 1
    assert worker.command == ("sleep", "infinity")
    assert dict(spec.env)["OMPI_MCA_orte_set_default_slots"] == "2"
    assert (launcher.ports, [port.label for port in worker.ports]) == ((), ["mpi"])


@pytest.mark.parametrize(
    ("command", "runs", "warning"),
    [
        ("[/usr/sbin/sshd, -De]", ("sleep", "infinity"), "mpirun gets to workers without SSH"),
        ("[my-server]", ("my-server",), "mpirun starts no ranks there"),
    ],
)
def test_a_worker_serves_no_ssh(command: str, runs: tuple[str, ...], warning: str) -> None:
    found = changed(
        "mpi", "- name: worker\n", f"- name: worker\n              command: {command}\n"
    )
    assert found.spec.roles[1].command == runs
    (said,) = [each for each in found.warnings if each.path.endswith("command")]
    assert warning in said.message
    assert said.line == 24


@pytest.mark.parametrize("slots", ["cores", "-1", "0", "9" * 5000])
def test_what_no_host_file_can_have_is_no_number_of_ranks(slots: str) -> None:
    text = json.dumps(job_to_wire(example("mpi").spec, redact=False))
    named = text.replace('"OMPI_MCA_orte_set_default_slots": "2"', f'"{MPI_SLOTS}": "{slots}"')
    with pytest.raises(BadInput, match="is not the number of ranks of a worker"):
        read_job(named.encode(), source="job")
    of_ours = read_job(named.replace('"mpijob"', '"native"').encode(), source="job").spec
    assert dict(of_ours.env)[MPI_SLOTS] == slots


def test_the_pods_of_a_job_are_an_array() -> None:
    found = example("job")
    assert (found.copies, found.max_running, found.held) == (3, 2, True)
    assert found.spec.roles[0].arch.value == "x86_64"
    assert found.spec.retry == 0
    alone = changed("job", "  completions: 3\n  parallelism: 2\n", "")
    assert (alone.copies, alone.spec.retry) == (1, 0)


def test_what_only_a_task_knows_is_put_in_when_it_starts() -> None:
    spec = changed("pytorch", "lr $(LR)", "$(RANK) $$(RANK) $(LR)").spec
    assert spec.roles[0].command[-1].endswith('$(allotment.RANK) $(RANK) 0.1"')
    field = "valueFrom: {fieldRef: {fieldPath: spec.nodeName}}"
    spec = changed("pytorch", 'value: "0.1"', field).spec
    assert dict(spec.env)["LR"] == "$(allotment.task.node)"
    field = "valueFrom: {fieldRef: {fieldPath: 'metadata.labels[\"a\"]'}}"
    with pytest.raises(BadInput, match="which a task here does not have"):
        changed("pytorch", 'value: "0.1"', field)


MASTER = "spec.pytorchReplicaSpecs.Master.template.spec"


@pytest.mark.parametrize(
    ("name", "old", "new", "wrong"),
    [
        ("pytorch", "backoffLimit: 1", "backofLimit: 1", "did you mean `backoffLimit`"),
        ("pytorch", "nprocPerNode: \"2\"", "elasticPolicy: {}", "workers vary"),
        ("pytorch", "nprocPerNode: \"2\"", "nprocPerNode: many", "a number from 1 to 999"),
        ("pytorch", "nprocPerNode: \"2\"", f"nprocPerNode: \"{'9' * 5000}\"", "from 1 to 999"),
        ("pytorch", "Master: &", "Boss: &", "spec.pytorchReplicaSpecs.Boss: is not known"),
        ("pytorch", "          containers:", "          affinity: {}\n          containers:",
         f"{MASTER}.affinity: chooses nodes"),
        ("pytorch", "mountPath: /dev/shm", "mountPath: /data", "mounts something that does"),
        ("pytorch", "emptyDir: {medium: Memory}", "hostPath: {path: /}", "is a volume of"),
        ("pytorch", 'value: "0.1"', "valueFrom: {secretKeyRef: {name: a, key: b}}",
         "LR is of an object of a cluster"),
        ("pytorch", 'value: "0.1"', "value: {a: b}", "must be a text, not a map"),
        ("pytorch", 'value: "0.1"', "value: $(TF_CONFIG)", "only when a task starts"),
        ("pytorch", "mountPath: /dev/shm", "mountPath: /dev/shm, subPath: a", "subPath: is"),
        ("pytorch", "medium: Memory", "medium: HugePages", "must be Memory"),
        ("pytorch", "nvidia.com/gpu: 1", "nvidia.com/gpu: 500m", "a whole number of devices"),
        ("pytorch", "nvidia.com/gpu: 1", "nvidia.com/gpu: 1, amd.com/gpu: 1", "of one kind"),
        ("job", "{name: shards}", "{name: a, labels: {a: [b]}}", "must be a text, not a list"),
        ("pytorch", "nvidia.com/gpu: 1", "nvidia.com/mig-1g.5gb: 1", "is not counted here"),
        ("pytorch", "memory: 64Mi", "memory: lots", "must be an amount"),
        ("pytorch", "command: [sh, -c]", "", "are for the command of the image"),
        ("pytorch", "    Worker: *replica", "    Worker: {replicas: -1}", "from 0 to"),
        ("tf", "    Worker: {<<: *replica, replicas: 2}",
         "    Worker: {replicas: 1, template: {spec: {containers: [{image: other:1, "
         "command: [a]}]}}}", "differs from that of worker"),
        ("mpi", "replicas: 1", "replicas: 2", "must be one: it starts the ranks"),
        ("mpi", "minAvailable: 3", "minAvailable: 2", "all 3 tasks start together"),
        ("mpi", "slotsPerWorker: 2", "mpiImplementation: Intel", "must be OpenMPI"),
        ("job", "completionMode: Indexed", "podFailurePolicy: {}", "is about some of its pods"),
        ("job", "kubernetes.io/arch: amd64", "disk: ssd", "chooses nodes"),
        ("job", "kind: Job", "kind: CronJob", "is not a kind of job that Allotment reads"),
        ("job", "batch/v1", "batch/v9", "is not a kind of job that Allotment reads"),
        ("job", "  template:", "  template: []\n  x:", "must be a map"),
    ],
)  # fmt: skip
def test_what_would_make_it_another_job_is_refused(
    name: str, old: str, new: str, wrong: str
) -> None:
    said = refused(name, old, new)
    assert wrong in said
    assert "line " in said


COMMAND = """          command: [sh, -c, 'echo shard "$JOB_COMPLETION_INDEX"']\n"""
IMAGE = "          image: localhost/busybox:1\n"


def test_a_container_without_a_command_runs_that_of_its_image() -> None:
    found = changed("job", COMMAND, "").spec
    assert (found.image, found.roles[0].command) == ("localhost/busybox:1", "")
    assert "command" not in str(job_to_wire(found))
    assert "names no command" in refused("job", IMAGE + COMMAND, "")
    said = refused("job", COMMAND, "          args: [x]\n")
    assert "are for the command of the image" in said


@pytest.mark.parametrize(
    ("name", "old", "new", "line"),
    [
        ("pytorch", "name: digits", "name: digits!!", 5),
        ("pytorch", "memory: 64Mi", "memory: 0", 20),
    ],
)
def test_what_the_native_form_refuses_has_the_line_of_the_file(
    name: str, old: str, new: str, line: int
) -> None:
    assert f"line {line}: " in refused(name, old, new)


def test_variables_that_name_each_other_fill_no_memory() -> None:
    """Nine variables of ten times the one before would be a gigabyte."""
    env = [{"name": "A0", "value": "x" * 10}]
    env += [{"name": f"A{n + 1}", "value": f"$(A{n})" * 10} for n in range(8)]
    container = {"image": "a", "command": ["true"], "env": env}
    document: dict[str, Any] = {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }  # fmt: skip
    with pytest.raises(BadInput, match=r"env\[5\].*longer than 1,048,576 characters"):
        read_job(json.dumps(document).encode(), source="job")
    del env[4:]
    container["command"] = ["echo", *["$(A3)" * 20] * 20]
    with pytest.raises(BadInput, match=r"command.*longer than 1,048,576 characters"):
        read_job(json.dumps(document).encode(), source="job")


def test_a_request_that_is_the_limit_is_not_warned_of() -> None:
    found = changed("pytorch", "nvidia.com/gpu: 1", 'nvidia.com/gpu: "1"')
    assert not [each for each in found.warnings if "nvidia" in each.path]


def test_a_file_of_nothing_but_odd_values_is_refused_in_words() -> None:
    for odd in ("[]", "7", "{a: [1]}", "{replicas: x}", "text", "null"):
        text = (
            f"{{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {odd}, spec: {odd}}}"
        )
        with pytest.raises(BadInput):
            read_job(text.encode(), source="job")


def test_every_refusal_says_what_it_refuses() -> None:
    tables = [
        value
        for module in (batch_job, job, mpi_job, pod, pytorch_job, tf_job)
        for value in vars(module).values()
        if isinstance(value, dict) and all(isinstance(key, str) for key in value)
    ]
    rules: list[Any] = [rule for table in tables for rule in table.values()]
    assert all(rule.why for rule in rules if isinstance(rule, Refused))
    assert len(rules) > 100

"""JobSets and TrainJobs: what they become, and what of them is refused."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from allotment.model.errors import BadInput
from allotment.model.later import fill
from allotment.model.spec import Dialect
from allotment.wire.foreign import framework, job_set, runtime, train_job
from allotment.wire.foreign.fields import Refused
from allotment.wire.job import job_to_wire, read_job
from allotment.wire.job_file import JobFile

EXAMPLES = Path(__file__).parents[2] / "fixtures" / "foreign"


def example(name: str, *changes: tuple[str, str]) -> JobFile:
    text = (EXAMPLES / f"{name}.yaml").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return read_job(text.encode(), source=f"{name}.yaml")


def test_each_replicated_job_is_a_role() -> None:
    found = example("jobset")
    spec = found.spec
    assert (spec.name, spec.dialect, dict(spec.labels)) == (
        "ring", Dialect.JOB_SET, {"team": "speech"},
    )  # fmt: skip
    assert [(role.name, role.count) for role in spec.roles] == [("leader", 1), ("workers", 4)]
    assert [role.completion.min_succeeded for role in spec.roles] == [1, None]
    assert [role.retry for role in spec.roles] == [0, 2]
    assert dict(spec.env)["JOBSET_REPLICAS"] == "leader=1,workers=2"
    assert not found.held


def test_the_names_of_hosts_become_those_of_tasks() -> None:
    spec = example("jobset").spec
    assert dict(spec.env)["LEADER"] == "$(allotment.host.leader.0)"
    assert spec.roles[0].command[-1].endswith('$(allotment.host.workers.2)"')
    for text in ("ring-workers-1-0.lan.team-a.svc", "ring-workers-1-0.lan.x.svc.cluster.local"):
        named = example("jobset", ("value: ring-leader-0-0.lan", f"value: {text}"))
        assert dict(named.spec.env)["LEADER"] == "$(allotment.host.workers.2)"
    for text in ("a-ring-workers-1-0.lan", "ring-workers-1-0.lane", "ring-workers-1-0.lan.org"):
        named = example("jobset", ("value: ring-leader-0-0.lan", f"value: {text}"))
        assert dict(named.spec.env)["LEADER"] == text


def test_a_host_that_there_is_not_is_warned_of() -> None:
    named = example("jobset", ("value: ring-leader-0-0.lan", "value: ring-workers-2-0.lan"))
    assert dict(named.spec.env)["LEADER"] == "ring-workers-2-0.lan"
    assert any("there is no such pod" in each.message for each in named.warnings)


def test_where_pods_have_no_host_names_texts_stay_as_they_are() -> None:
    named = example("jobset", ("enableDNSHostnames: true", "enableDNSHostnames: false"))
    assert dict(named.spec.env)["LEADER"] == "ring-leader-0-0.lan"


def test_it_is_tried_as_often_as_a_pod_may_fail() -> None:
    again = example("jobset", ("backoffLimit: 0", "backoffLimit: 1"))
    assert [role.retry for role in again.spec.roles] == [1, 5]  # (1 or 3) × 2 tries
    usual = example("jobset", ("          backoffLimit: 0\n", ""))
    assert [role.retry for role in usual.spec.roles] == [6, 20]


def test_any_one_of_single_pods_can_decide() -> None:
    rule = "{operator: All, targetReplicatedJobs: [leader]}"
    named = "{operator: Any, targetReplicatedJobs: [workers]}"
    lone = example(
        "jobset", (rule, named), ("{<<: *job, parallelism: 2, completions: 2}", "{<<: *job}")
    )
    assert [role.completion.min_succeeded for role in lone.spec.roles] == [None, 1]


@pytest.mark.parametrize("name", ["jobset", "trainjob", "runtime", "framework"])
def test_what_is_read_can_be_written_and_is_the_same(name: str) -> None:
    spec = example(name).spec
    written = job_to_wire(spec, redact=False)
    assert read_job(json.dumps(written).encode(), source="job").spec == spec


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("parallelism: 1", "paralelism: 1", "did you mean `parallelism`"),
        ("completions: 1", "completions: 3", "3, of which 1 run at a time"),
        ("[leader]}\n  fail", "[leadr]}\n  fail", "did you mean `leader`"),
        ("operator: All", "operator: Some", "must be All or Any"),
        ("operator: All, targetReplicatedJobs: [leader]", "operator: Any",
         "waits for all pods of any one Job of workers"),
        ("FailJobSet", "RestartJobSetAndIgnoreMaxRestarts", "without a limit"),
        ("FailJobSet", "Explode", "must be FailJobSet, RestartJobSet or RestartJob"),
        ("action: FailJobSet", "action: FailJobSet, onJobFailureReasons: [a]",
         "tells failures"),
        ("coordinator: {replicatedJob: leader}", "coordinator: {replicatedJob: boss}",
         "names pod 0 of Job 0 of 'boss'"),
        ("    - name: workers", "    - name: leader", "is called 'leader' like another"),
        ("      replicas: 2", "      dependsOn: [{name: leader, status: Complete}]",
         "waits for the end of another"),
        ("  network:", "  volumeClaimPolicies: []\n  network:", "makes volumes"),
        ("  network:", "  managedBy: x.io/y\n  network:", "to another controller"),
        ("  labels: {team: speech}",
         "  annotations: {alpha.jobset.sigs.k8s.io/exclusive-topology: rack}",
         "keeps other Jobs out"),
        ("fieldPath: metadata.name", "fieldPath: metadata.uid", "which a task here does not"),
        ("v1alpha2", "v1alpha1", "is not a kind of job that Allotment reads"),
    ],
)  # fmt: skip
def test_what_would_make_it_another_set_is_refused(old: str, new: str, wrong: str) -> None:
    with pytest.raises(BadInput) as caught:
        example("jobset", (old, new))
    assert wrong in str(caught.value)
    assert "line " in str(caught.value)


def test_the_nodes_of_a_train_job_are_told_what_torchrun_reads() -> None:
    found = example("trainjob")
    spec = found.spec
    (role,) = spec.roles
    assert (role.name, role.count, spec.dialect) == ("node", 2, Dialect.TRAIN_JOB)
    assert dict(spec.env) == {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "2", "LR": "0.1"}
    assert (spec.retry, role.arch.value) == (6, "x86_64")
    assert spec.checkpoint is not None
    assert spec.checkpoint.grace_ms == 5000
    assert Counter(each.path.rpartition(".")[2] for each in found.warnings) == {
        "namespace": 1, "manager": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "processes"),
    [('cpu: "2", memory: 64Mi', "2"), ('cpu: "2", nvidia.com/gpu: 4', "auto")],
)
def test_how_many_processes_a_node_has(limits: str, processes: str) -> None:
    spec = example("trainjob", ('cpu: "2", memory: 64Mi', limits)).spec
    assert dict(spec.env)["PET_NPROC_PER_NODE"] == processes
    said = example("trainjob", ("numNodes: 2", "numNodes: 2\n    numProcPerNode: 8")).spec
    assert dict(said.env)["PET_NPROC_PER_NODE"] == "8"


def test_how_many_processes_a_node_has_may_be_said_in_words_or_by_its_runtime() -> None:
    cpu = ("numNodes: 2", "numNodes: 2\n    numProcPerNode: cpu")
    said = example("trainjob", ('cpu: "2", memory: 64Mi', 'cpu: "2", nvidia.com/gpu: 4'), cpu)
    assert dict(said.spec.env)["PET_NPROC_PER_NODE"] == "2"
    torch = ("jax: {}", "torch: {numProcPerNode: 3}")
    assert dict(example("runtime", torch).spec.env)["PET_NPROC_PER_NODE"] == "3"


def test_a_number_of_processes_that_nobody_reads_is_warned_of() -> None:
    found = example("runtime", ("  trainer:\n", "  trainer:\n    numProcPerNode: 4\n"))
    assert any(each.path.endswith("numProcPerNode") for each in found.warnings)


def test_variables_of_a_framework_are_the_jobs_own_but_those_of_its_runtime() -> None:
    own = example("trainjob", ("name: LR, value", "name: PET_MAX_RESTARTS, value")).spec
    assert dict(own.env)["PET_MAX_RESTARTS"] == "0.1"
    more = 'env: [{name: JAX_PLATFORMS, value: cpu}, {name: SEED, value: "7"}]'
    own = example("runtime", ('env: [{name: SEED, value: "7"}]', more)).spec
    assert dict(own.env)["JAX_PLATFORMS"] == "cpu"


def test_without_an_image_of_its_own_the_engine_s_is_used_and_that_is_said() -> None:
    found = example("trainjob", ("    image: localhost/busybox:1\n", ""))
    assert found.spec.image == ""
    assert any("image in its cluster" in each.message for each in found.warnings)


def test_a_runtime_may_stand_in_the_file_of_its_job() -> None:
    found = example("runtime")
    spec = found.spec
    (role,) = spec.roles
    assert (role.count, spec.image, spec.retry) == (2, "localhost/busybox:1", 1)
    assert role.resources.cpu_milli == 100
    assert dict(spec.env) == {"JAX_NUM_PROCESSES": "2", "SEED": "7"}
    assert "seed $SEED" in role.command[2]
    assert role.command[3:] == ("exit 1",), "its arguments stay, as the job has none"
    warned = {each.path.rpartition(".")[2]: each.line for each in found.warnings}
    assert warned == {"labels": 5, "podGroupPolicy": 8, "metadata": 15}
    filled = example(
        "runtime", ('name: SEED, value: "7"', 'name: N, value: "7"'),
        ("[exit 1]", "[exit $(N) $$(N)]"),
        ("  trainer:\n", '  trainer:\n    env: [{name: N, value: "8"}]\n'),
    ).spec  # fmt: skip
    assert filled.roles[0].command[3] == "exit 8 $(N)", "the job's variables, and once"
    no_command = example("runtime", ("    command:\n      - sh\n      - -c\n", "    args:\n"))
    command = no_command.spec.roles[0].command
    assert (command[:2], len(command)) == (("sh", "-c"), 3), "the job's arguments are in place"
    assert "seed $SEED" in command[2]


@pytest.mark.parametrize(
    ("name", "old", "new", "wrong"),
    [
        ("trainjob", "torch-distributed", "ours", "put it into this file, before the TrainJob"),
        ("trainjob", "torch-distributed", "deepspeed-distributed", "write an MPIJob"),
        ("trainjob", "  trainer:", "  initializer: {}\n  trainer:", "fetches data or a model"),
        ("trainjob", "name: LR, value", "name: PET_NNODES, value", "its runtime's own"),
        ("trainjob", "numNodes: 2", "numNodes: 0", "a whole number from 1"),
        ("trainjob", "numNodes: 2", "numProcPerNode: many", "a number from 1 to 999"),
        ("trainjob", "- name: node\n", "- name: launcher\n", "changes 'launcher'"),
        ("trainjob", "nodeSelector: {kubernetes.io/arch: amd64}", "serviceAccountName: me",
         "an account of the cluster"),
        ("trainjob", "command: [sh, -c]", "", "are for the command of the image"),
        ("trainjob", "numNodes: 2", "nodes: 2", "did you mean `numNodes`"),
        ("runtime", "jax: {}", "mpi: {}", "ranks over SSH"),
        ("runtime", "- name: node\n", "- name: other\n", "must be node, not 'other'"),
        ("runtime", "kind: TrainJob", "kind: TrainingRuntime", "a second document starts here"),
        ("runtime", "{maxRestarts: 1}", "{maxRestarts: -1}", "a whole number from 0"),
    ],
)  # fmt: skip
def test_what_would_make_it_another_train_job_is_refused(
    name: str, old: str, new: str, wrong: str
) -> None:
    with pytest.raises(BadInput) as caught:
        example(name, (old, new))
    assert wrong in str(caught.value)
    assert "line " in str(caught.value)


def test_a_framework_is_for_whom_hived_s_annotation_says() -> None:
    found = example("framework")
    spec = found.spec
    assert (spec.tenant, spec.priority, spec.retry) == ("us", 200, 2)
    worker, watch = spec.roles
    assert (worker.count, worker.completion.min_failed) == (3, 2)
    assert worker.completion.min_succeeded == 3
    assert worker.resources.gpu_milli == 1000
    assert watch.completion.min_succeeded is None
    assert watch.completion.min_failed == 0
    assert dict(spec.env) == {"SEEN": "$(allotment.NVIDIA_VISIBLE_DEVICES)"}
    lent = example(
        "framework", ("priority: 200", "priority: -1\n                leafCellType: K80")
    )
    assert lent.spec.opportunistic
    assert lent.spec.roles[0].gpu_types == ("K80",)
    assert example("framework", ("executionType: Start", "executionType: Create")).held


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("executionType: Start", "executionType: Stop", "must be Start or Create"),
        ("maxRetryCount: 2", "maxRetryCount: -2", "without a limit"),
        ("virtualCluster: us", "virtualCluster:", "virtualCluster: must be a text"),
        ("leafCellNumber: 1", "leafCellNumber: x", "leafCellNumber: must be a whole number"),
        ("      task: *task", "      task: {pod: {spec: {containers: []}}}", "must be one"),
        ("taskNumber: 1\n", "taskNumber: 1\n      dependOn: []\n", "waits for another role"),
        ("taskRoles:", "taskRole:", "did you mean `taskRoles`"),
        ("name: watch\n", "name: ''\n", "has no name"),
    ],
)  # fmt: skip
def test_what_would_make_it_another_framework_is_refused(
    old: str, new: str, wrong: str
) -> None:
    with pytest.raises(BadInput) as caught:
        example("framework", (old, new))
    assert wrong in str(caught.value)
    assert "line " in str(caught.value)


def test_roles_of_two_tenants_are_no_job() -> None:
    text = (EXAMPLES / "framework.yaml").read_text()
    first = text[text.index("    - name: worker") : text.index("    - name: watch")]
    second = first.replace("- name: worker", "- name: other").replace("&task", "")
    two = text[: text.index("    - name: watch")] + second.replace(": us\n", ": them\n")
    with pytest.raises(BadInput, match="differs from that of the first role"):
        read_job(two.encode(), source="two.yaml")


def test_texts_made_anew_for_each_task_have_a_bound() -> None:
    with pytest.raises(BadInput, match="keep long scripts in a file"):
        example(
            "jobset",
            ("{<<: *job, parallelism: 2, completions: 2}",
             "{<<: *job, parallelism: 400000, completions: 400000}"),
        )  # fmt: skip


def test_what_is_not_known_of_a_task_stays_as_kubernetes_leaves_it() -> None:
    text = fill("$(allotment.RANK) of $(allotment.NONE)", {"RANK": "3"}.get)
    assert text == "3 of $(NONE)"


def test_a_file_of_nothing_but_odd_values_is_refused_in_words() -> None:
    kinds = {"jobset.x-k8s.io/v1alpha2": "JobSet", "trainer.kubeflow.org/v1alpha1": "TrainJob"}
    for version, kind in kinds.items():
        for odd in ("[]", "7", "{a: [1]}", "{replicas: x}", "text", "null", "{trainer: 1}"):
            text = f"{{apiVersion: {version}, kind: {kind}, metadata: {odd}, spec: {odd}}}"
            with pytest.raises(BadInput):
                read_job(text.encode(), source="job")


def test_every_refusal_says_what_it_refuses() -> None:
    tables = [
        value
        for module in (framework, job_set, runtime, train_job)
        for value in vars(module).values()
        if isinstance(value, dict) and all(isinstance(key, str) for key in value)
    ]
    rules: list[Any] = [rule for table in tables for rule in table.values()]
    assert all(rule.why for rule in rules if isinstance(rule, Refused))
    assert len(rules) > 100

"""What a pod of others claims, and what of that is granted: whatever it says."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.backends.kubernetes.foreign import MOST_PODS, Claim, Flaw, Rules, claim_of
from allotment.backends.kubernetes.objects import MOST, Pod, milli, read, whole
from allotment.model.quantity import GIB, Resources
from allotment.model.spec import Arch
from allotment.wiring.kubernetes import read_hived

ALLOWED = {"team-a": ("lab/nlp", "lab/urgent", "shop"), "hived": ("vc1", "vc2")}
RULES = Rules("k8s", ALLOWED, read_hived)
GPU = {"limits": {"nvidia.com/gpu": "2", "cpu": "4", "memory": "8Gi"}}


def a_pod(
    annotations: Any = None, labels: Any = None, namespace: str = "team-a", **spec: Any
) -> Pod:
    tree = {
        "metadata": {
            "name": "p",
            "namespace": namespace,
            "uid": "u",
            "annotations": annotations,
            "labels": labels,
        },
        "spec": {
            "schedulerName": "allotment",
            "containers": [{"image": "i:1", "resources": GPU}],
            **spec,
        },
    }
    pod = read(json.dumps(tree).encode(), Pod)
    assert pod is not None
    return pod


def asking(amounts: dict[str, str], **more: str) -> dict[str, Any]:
    return {"image": "i", "resources": {"requests": amounts}, **more}


@pytest.mark.parametrize(
    ("before", "devices"),
    [
        ([("8", "")], 8),
        ([("1", "Always")], 3),
        ([("4", "Always"), ("4", "Always")], 10),
        ([("4", "Always"), ("8", ""), ("1", "Always")], 12),
        ([("8", ""), ("4", "Always")], 8),
    ],
)
def test_containers_that_run_beside_the_others_count_as_well(
    before: list[tuple[str, str]], devices: int
) -> None:
    inits = [asking({"nvidia.com/gpu": n}, restartPolicy=policy) for n, policy in before]
    need = claim_of(a_pod(initContainers=inits), RULES).need
    assert need.gpu_milli == devices * 1000


def test_what_is_asked_for_a_pod_as_a_whole_counts() -> None:
    need = claim_of(a_pod(resources={"requests": {"cpu": "9", "memory": "1Gi"}}), RULES).need
    assert (need.cpu_milli, need.memory) == (9000, 8 * GIB)


def flaw_of(pod: Pod) -> Flaw:
    with pytest.raises(Flaw) as flaw:
        claim_of(pod, RULES)
    return flaw.value


def test_a_single_pod_is_for_the_first_of_what_its_namespace_may() -> None:
    claim = claim_of(a_pod(nodeSelector={"nvidia.com/gpu.product": "NVIDIA A100"}), RULES)
    assert (claim.tenant, claim.queue, claim.gang, claim.size) == ("lab", "nlp", "", 1)
    assert claim.need == Resources(gpu_milli=2000, cpu_milli=4000, memory=8 * GIB)
    assert (claim.types, claim.device) == (("nvidia-a100",), "nvidia.com/gpu")
    assert claim.image == "i:1"


@pytest.mark.parametrize(
    ("words", "whom"),
    [
        ({"allotment.io/tenant": "shop"}, ("shop", "")),
        ({"allotment.io/tenant": "shop", "allotment.io/queue": "any"}, ("shop", "any")),
        ({"allotment.io/queue": "urgent"}, ("lab", "urgent")),
        ({"kueue.x-k8s.io/queue-name": "urgent"}, ("lab", "urgent")),
        ({"scheduling.volcano.sh/queue-name": "default"}, ("lab", "nlp")),
    ],
)
def test_a_pod_chooses_among_what_its_namespace_may(
    words: dict[str, str], whom: tuple[str, str]
) -> None:
    for pod in (a_pod(words), a_pod(None, words)):
        claim = claim_of(pod, RULES)
        assert (claim.tenant, claim.queue) == whom


@pytest.mark.parametrize(
    "words",
    [
        {"allotment.io/tenant": "bank"},
        {"allotment.io/tenant": "lab", "allotment.io/queue": "prod"},
        {"allotment.io/tenant": "lab/nlp"},
        {"allotment.io/tenant": "x" * 100_000},
    ],
)
def test_a_pod_gets_no_tenant_by_claiming_it(words: dict[str, str]) -> None:
    assert flaw_of(a_pod(words)).reason in ("NotAllowed", "BadName")


def test_a_namespace_that_is_not_named_is_not_taken() -> None:
    flaw = flaw_of(a_pod(namespace="kube-system"))
    assert flaw.reason == "NamespaceNotTaken"
    assert "namespaces" in str(flaw)


OWNER = [{"kind": "Job", "name": "train", "uid": "12345678-9", "controller": True}]


@pytest.mark.parametrize(
    ("words", "gang", "size", "source"),
    [
        ({"allotment.io/gang": "g", "allotment.io/gang-size": "4"}, "team-a/g", 4, ""),
        (
            {
                "kueue.x-k8s.io/pod-group-name": "g",
                "kueue.x-k8s.io/pod-group-total-count": "3",
            },
            "team-a/g", 3, "",
        ),
        (
            {
                "pod-group.scheduling.sigs.k8s.io/name": "g",
                "pod-group.scheduling.sigs.k8s.io/min-available": "2",
            },
            "team-a/g", 2, "",
        ),
        (
            {
                "scheduling.k8s.io/group-name": "g",
                "scheduling.volcano.sh/group-min-member": "5",
            },
            "team-a/g", 5, "",
        ),
        (
            {
                "jobset.sigs.k8s.io/jobset-name": "g",
                "jobset.sigs.k8s.io/jobset-uid": "12345678-9",
                "jobset.sigs.k8s.io/restart-attempt": "2",
            },
            "team-a/g.12345678.2", 0,
            "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team-a/jobsets/g",
        ),
        (  # a TrainJob's, whose runtime has a pod group made
            {"jobset.sigs.k8s.io/jobset-name": "t", "scheduling.x-k8s.io/pod-group": "g"},
            "team-a/g", 0, "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team-a/podgroups/g",
        ),
        (
            {"scheduling.x-k8s.io/pod-group": "g"},
            "team-a/g", 0, "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team-a/podgroups/g",
        ),
        (
            {"scheduling.k8s.io/group-name": "g"},
            "team-a/g", 0, "/apis/scheduling.volcano.sh/v1beta1/namespaces/team-a/podgroups/g",
        ),
    ],
)  # fmt: skip
def test_the_forms_in_use_make_gangs(
    words: dict[str, str], gang: str, size: int, source: str
) -> None:
    claim = claim_of(a_pod(words), RULES)
    assert (claim.gang, claim.size, claim.source) == (gang, size, source)


def test_pods_of_a_job_set_are_in_the_order_of_its_jobs() -> None:
    def index(job: str, pod: str) -> int:
        words = {
            "jobset.sigs.k8s.io/jobset-name": "g",
            "jobset.sigs.k8s.io/job-global-index": job,
            "batch.kubernetes.io/job-completion-index": pod,
        }
        return claim_of(a_pod(words), RULES).index

    assert index("0", "0") < index("0", "7") < index("1", "0") < index("2", "9")
    assert index("x", "-1") == index("9" * 40, "") == 0


def test_a_pod_of_the_workload_api_asks_its_workload() -> None:
    ref = {"name": "w", "podGroup": "workers", "podGroupReplicaKey": "1"}
    claim = claim_of(a_pod(workloadRef=ref), RULES)
    assert claim.gang == "team-a/w.workers.1"
    assert claim.source.endswith("/namespaces/team-a/workloads/w#workers")


def test_a_pod_of_a_scheduling_group_asks_its_pod_group() -> None:
    claim = claim_of(a_pod(schedulingGroup={"podGroupName": "g.0"}), RULES)
    assert (claim.gang, claim.size, claim.may_exceed) == ("team-a/g.0", 0, True)
    assert claim.source == "/apis/scheduling.k8s.io/*/namespaces/team-a/podgroups/g.0"
    assert claim_of(a_pod(schedulingGroup={}), RULES).gang == ""
    assert flaw_of(a_pod(schedulingGroup={"podGroupName": "../x"})).reason == "BadName"


def test_pods_of_a_job_are_a_gang_where_the_job_says_so() -> None:
    tree = json.loads(
        json.dumps({"metadata": {"ownerReferences": OWNER}, "spec": {"containers": []}})
    )
    tree["metadata"] |= {"name": "p", "namespace": "team-a", "uid": "u"}
    alone = read(json.dumps(tree).encode(), Pod)
    tree["metadata"]["annotations"] = {"allotment.io/gang-size": "2"}
    gang = read(json.dumps(tree).encode(), Pod)
    assert alone is not None
    assert gang is not None
    assert claim_of(alone, RULES).gang == ""
    assert claim_of(gang, RULES).gang == "team-a/train.12345678"


HIVED = """\
virtualCluster: vc1
priority: 1000
leafCellType: A100
leafCellNumber: 1
affinityGroup:
  name: group
  members:
  - {podNumber: 2, leafCellNumber: 1}
  - {podNumber: 1, leafCellNumber: 4}
"""


def hived(text: str) -> Pod:
    bare = [{"resources": {"limits": {"hivedscheduler.microsoft.com/x": "1", "cpu": "1"}}}]
    words = {"hivedscheduler.microsoft.com/pod-scheduling-spec": text}
    return a_pod(words, namespace="hived", containers=bare)


def test_hiveds_annotation_says_gang_tenant_devices_and_priority() -> None:
    claim = claim_of(hived(HIVED), RULES)
    assert (claim.gang, claim.size, claim.tenant) == ("hived/group", 3, "vc1")
    assert claim.need == Resources(gpu_milli=1000, cpu_milli=1000)
    assert (claim.priority, claim.types, claim.preemptible) == (1000, ("A100",), False)
    larger = claim_of(hived(HIVED.replace("Number: 1\naff", "Number: 4\naff")), RULES)
    assert (larger.need.gpu_milli, larger.terms) == (4000, claim.terms)
    idle = claim_of(hived("{virtualCluster: vc2, priority: -1, leafCellNumber: 8}"), RULES)
    assert (idle.gang, idle.opportunistic, idle.need.gpu_milli) == ("", True, 8000)


@pytest.mark.parametrize(
    "text",
    [
        "", "virtualCluster: [", "{virtualCluster: vc1}",
        "{virtualCluster: lab, leafCellNumber: 1}",
        "&a [*a, *a]", "a: &x [1]\n" + "b: [*x, *x]\n" * 10_000, "x" * 250_000,
        "{virtualCluster: vc1, leafCellNumber: 99999999999999999999}", "\x00\x01", "---\n---\n",
        "!!python/object/apply:os.system [id]", "[" * 50_000,
    ],
)  # fmt: skip
def test_a_bad_annotation_of_hived_is_a_flaw(text: str) -> None:
    assert flaw_of(hived(text)).reason in ("HiveDSpec", "NotAllowed")


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        ("0", "GangSize"), ("-3", "BadNumber"), ("1e9", "BadNumber"), ("٣", "BadNumber"),
        ("9" * 5000, "BadNumber"), (str(MOST_PODS + 1), "GangTooLarge"), ("", "GangSize"),
    ],
)  # fmt: skip
def test_an_odd_size_of_a_gang_is_a_flaw(size: str, reason: str) -> None:
    words = {"allotment.io/gang": "g", "allotment.io/gang-size": size}
    assert flaw_of(a_pod(words)).reason == reason


@pytest.mark.parametrize("name", ["../../../secrets/s", "a/b", "?x", "", "é", "a\nb"])
def test_the_name_of_a_group_leads_nowhere_else(name: str) -> None:
    assert flaw_of(a_pod({"scheduling.x-k8s.io/pod-group": name})).reason == "BadName"
    if name:
        ref = {"name": name, "podGroup": "w"}
        assert flaw_of(a_pod(workloadRef=ref)).reason == "BadName"


REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": [{"x": 1}]}


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"schedulingGates": [{"name": "other/gate"}]}, "SchedulingGated"),
        ({"nodeSelector": {"kubernetes.io/hostname": "n1"}}, "NodeSelector"),
        ({"nodeSelector": {"kubernetes.io/os": "windows"}}, "NodeSelector"),
        ({"affinity": {"nodeAffinity": REQUIRED}}, "Affinity"),
        ({"containers": [asking({"nvidia.com/mig-1g.5gb": "1"})]}, "Devices"),
        ({"initContainers": [asking({"huawei.com/Ascend310": "1"})]}, "Devices"),
        ({"resourceClaims": [{"name": "gpu"}]}, "ResourceClaims"),
        ({"containers": [{"image": "i"}] * 251}, "TooLarge"),
        ({"affinity": {"podAntiAffinity": REQUIRED}}, "Affinity"),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
         "TopologySpread"),
        ({"containers": [{"resources": {"limits": {"nvidia.com/gpu": 1, "amd.com/gpu": 1}}}]},
         "TwoKindsOfDevices"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_refused_in_words(spec: dict[str, Any], reason: str) -> None:
    assert flaw_of(a_pod(**spec)).reason == reason


def test_rules_that_are_kept_are_no_flaw() -> None:
    claim = claim_of(
        a_pod(
            nodeSelector={"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64"},
            affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
            topologySpreadConstraints=[{"whenUnsatisfiable": "ScheduleAnyway"}],
            terminationGracePeriodSeconds=10**9,
        ),
        RULES,
    )
    assert claim.arch is Arch.ARM64
    assert claim.grace_ms == 3_600_000


@pytest.mark.parametrize("text", ["1e999999999", "9" * 100_000, "1e400", "1E99999", "-1e99999"])
def test_an_enormous_amount_takes_no_time(text: str) -> None:
    for amount in (milli(text), whole(text)):
        assert amount in (0, MOST)


TEXT = st.text(max_size=30)
WORDS = st.dictionaries(
    st.sampled_from(
        [
            "allotment.io/gang", "allotment.io/gang-size", "allotment.io/tenant",
            "allotment.io/queue", "allotment.io/priority", "scheduling.k8s.io/group-name",
            "kueue.x-k8s.io/pod-group-name", "scheduling.x-k8s.io/pod-group",
            "hivedscheduler.microsoft.com/pod-scheduling-spec",
            "batch.kubernetes.io/job-completion-index",
        ]
    ),
    TEXT,
)  # fmt: skip


@given(WORDS, st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), TEXT))
def test_whatever_a_pod_says_is_a_claim_or_a_flaw(
    words: dict[str, str], amounts: dict[str, str]
) -> None:
    pod = a_pod(words, containers=[{"resources": {"requests": amounts}}])
    try:
        claim = claim_of(pod, RULES)
    except Flaw:
        pass
    else:
        assert isinstance(claim, Claim)
        assert 0 <= claim.size <= MOST_PODS
        assert f"{claim.tenant}/{claim.queue}" in ("lab/nlp", "lab/urgent") or (
            claim.tenant == "shop"
        )

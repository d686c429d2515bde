"""The pure parts of the Kubernetes backend: what is asked for, and what an answer means."""

import asyncio
import base64
import json
import re
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from ruamel.yaml import YAML

from allotment.backends.kubernetes.client import lines_of
from allotment.backends.kubernetes.discover import (
    joined,
    nodes_of,
    others_of,
    report_of,
    telling,
)
from allotment.backends.kubernetes.disruption import deletion
from allotment.backends.kubernetes.enter import exit_code
from allotment.backends.kubernetes.events import Said
from allotment.backends.kubernetes.guest_end import end_of
from allotment.backends.kubernetes.kubeconfig import access_of
from allotment.backends.kubernetes.objects import KubeNode, Pod, milli, read, whole
from allotment.backends.kubernetes.parts import FROM_HOST, Sight, abilities_by
from allotment.backends.kubernetes.preparing import doing
from allotment.backends.kubernetes.request import (
    MOST_OPEN,
    MOST_SHARED,
    Names,
    Place,
    begun_on,
    binding_of,
    missing_paths,
    pod_of,
    secret_of,
    secrets_of,
    variables_of,
)
from allotment.backends.kubernetes.rights import NAMED, RIGHTS
from allotment.backends.kubernetes.status import (
    Told,
    hindrance,
    is_pull_refused,
    pull_error,
    report,
    runs_on,
)
from allotment.backends.kubernetes.usage import Use, use_of
from allotment.cli.doctor_kubernetes import rights_findings, unseen_findings, version_finding
from allotment.model.diagnosis import Exit, Owner, RetryClass
from allotment.model.engines import Ability, EngineSetup, EngineType
from allotment.model.errors import BackendError
from allotment.model.ids import AttemptNo, JobId, TaskIndex, TaskKey
from allotment.model.others import NOBODY, Others
from allotment.model.quantity import GIB, MIB, Resources
from allotment.model.reports import Seen
from allotment.service.ports import Binding, DataMount, GangLaunch, Identity, TaskLaunch

KEY = TaskKey(JobId(7), AttemptNo(2), TaskIndex(1))
TASK = TaskLaunch(
    key=KEY,
    name="main.1",
    binding=Binding("n3", (4, 5)),
    argv=("python3", "train.py", "$(HOME) $$ $A"),
    env=(("A", "1"), ("CUDA_VISIBLE_DEVICES", "5,6")),
    resources=Resources(gpu_milli=2000, cpu_milli=1500, memory=100 * MIB),
)
GANG = GangLaunch(
    tasks=(TASK,),
    workdir="/state/outputs/7/attempt-2",
    identity=Identity(1000, 1001, (7,)),
    read_only=("/state/attempts/7/2",),
    writable=("/state/outputs/7/attempt-2",),
    labels=(("user", "a b"),),
)
NAMES = Names("allot-1-7-2-1", "token")
PLACE = Place("allot-1", "pytorch:1", "nvidia.com/gpu")
OPS = Path(__file__).parents[3] / "ops" / "kubernetes"


def a_pod(**status: object) -> Pod:
    return msgspec.convert(
        {"metadata": {"name": "p", "uid": "u"}, "spec": {"nodeName": "n1"}, "status": status},
        Pod,
    )


@pytest.mark.parametrize(
    ("word", "label"),
    [
        ("a b", "a-b"),
        ("josé@lab", "jos--lab"),
        ("", ""),
        ("名前", "7ec26292"),
        ("x" * 63, "x" * 63),
        ("x" * 200, f"{'x' * 54}-aa20c23e"),
        ("y" * 53 + "-" * 12 + "z", f"{'y' * 53}--96bf3e10"),
        ("-.a.-", "a"),
    ],
)
def test_any_word_is_a_label_that_kubernetes_takes(word: str, label: str) -> None:
    gang = replace(GANG, labels=(("user", word),))
    pod = pod_of(gang, replace(TASK, name=f"{word}.0"), NAMES, PLACE)
    assert pod["metadata"]["labels"]["allotment.io/user"] == label
    for value in pod["metadata"]["labels"].values():
        assert re.fullmatch(r"(([A-Za-z0-9][A-Za-z0-9_.-]{0,61})?[A-Za-z0-9])?", value)


def ended(code: int, reason: str = "Error", message: str = "", **more: object) -> Pod:
    state = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    return a_pod(
        phase="Succeeded" if code == 0 else "Failed",
        containerStatuses=[{"name": "task", "state": state}],
        **more,
    )


def waiting(reason: str, message: str = "") -> Pod:
    state = {"waiting": {"reason": reason, "message": message}}
    return a_pod(phase="Pending", containerStatuses=[{"name": "task", "state": state}])


def a_node(**more: object) -> KubeNode:
    tree = {
        "metadata": {
            "name": "n1",
            "labels": {
                "nvidia.com/gpu.product": "NVIDIA A100-SXM4-80GB",
                "nvidia.com/gpu.memory": "81920",
                "topology.kubernetes.io/zone": "z1",
            },
        },
        "spec": more.pop("spec", {}),
        "status": {
            "allocatable": {"cpu": "7910m", "memory": "32Gi", "nvidia.com/gpu": "4"},
            "nodeInfo": {"architecture": "amd64", "bootID": more.pop("boot", "b1")},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.4"}],
            "conditions": [
                {"type": "Ready", "status": more.pop("ready", "True")},
                *({"type": kind, "status": status} for kind, status in more.items()),
            ],
        },
    }
    return msgspec.convert(tree, KubeNode)


def test_a_pod_is_what_its_task_asked_for() -> None:
    pod = pod_of(GANG, TASK, NAMES, PLACE)
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    amounts = {"cpu": "1500m", "memory": str(100 * MIB), "nvidia.com/gpu": "2"}
    assert container["resources"] == {"requests": amounts, "limits": amounts}
    assert container["image"] == "pytorch:1"
    assert container["command"] == ["python3", "train.py", "$$(HOME) $$$$ $$A"]
    assert spec["securityContext"]["runAsUser"] == 1000
    assert spec["securityContext"]["supplementalGroups"] == [7]
    assert pod["metadata"]["labels"]["allotment.io/user"] == "a-b"
    assert spec["restartPolicy"] == "Never"
    assert "nodeName" not in spec, "it is bound when its gang may begin"
    assert {t["key"] for t in spec["tolerations"]} >= {"nvidia.com/gpu", "allotment"}
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts == {"/dev/shm", "/state/outputs/7/attempt-2"}


def test_a_task_without_gpus_sees_none() -> None:
    task = replace(TASK, binding=Binding("n3"), resources=Resources(cpu_milli=100))
    (container,) = pod_of(GANG, task, NAMES, PLACE)["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "100m"}
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container["env"]


def test_what_a_user_names_is_in_a_secret_that_goes_with_its_pods() -> None:
    gang = replace(GANG, named=frozenset({"A"}))
    task = replace(TASK, env=(("A", "1"), ("RANK", "3")))
    name = secrets_of("allot-1", gang, "token")[KEY]
    secret = secret_of(name, variables_of(gang, task).hidden, [("p", "u1"), ("q", "u2")])
    assert secret["data"] == {"A": base64.b64encode(b"1").decode()}
    owners = secret["metadata"]["ownerReferences"]
    assert [(each["kind"], each["uid"]) for each in owners] == [("Pod", "u1"), ("Pod", "u2")]
    (container,) = pod_of(gang, task, Names("p", "t", name), PLACE)["spec"]["containers"]
    (source,) = container["envFrom"]
    assert source["secretRef"]["name"] == secret["metadata"]["name"]
    assert container["env"] == [{"name": "RANK", "value": "3"}]


def test_a_pod_that_begins_at_once_has_its_node_and_variables_and_needs_no_secret() -> None:
    task = replace(TASK, env=(("A", "1 $(B)"), ("PATH", "/usr/bin")))
    assert variables_of(GANG, task) == ({"A": "1 $(B)"}, {})
    assert not secrets_of("p", GANG.only((task,)), "token")
    whole = pod_of(GANG, task, NAMES, PLACE)
    (container,) = whole["spec"]["containers"]
    assert container["env"] == [{"name": "A", "value": "1 $$(B)"}]
    assert "envFrom" not in container
    begun = begun_on("n3", whole)
    assert begun["spec"].pop("nodeName") == "n3"
    assert begun == whole, "all else is the same"


def test_what_a_user_names_or_is_long_is_in_a_secret() -> None:
    assert variables_of(replace(GANG, named=frozenset({"A"})), TASK) == ({}, {"A": "1"})
    long = "x" * MOST_OPEN
    assert variables_of(GANG, replace(TASK, env=(("A", long),))) == ({}, {"A": long})


def test_tasks_with_the_same_variables_share_a_secret_as_far_as_it_names_their_pods() -> None:
    def task(index: int, value: str) -> TaskLaunch:
        key = replace(KEY, index=index)
        return replace(TASK, key=key, env=(("A", value), ("N", f"{index}")))

    tasks = [task(index, "1") for index in range(MOST_SHARED + 1)] + [task(500, "2")]
    gang = replace(GANG, tasks=tuple(tasks), named=frozenset({"A"}))
    names = secrets_of("p", gang, "token")
    assert list(names) == [each.key for each in tasks]
    shared = Counter(names.values())
    assert sorted(shared.values()) == [1, 1, MOST_SHARED]


def test_what_an_image_says_of_itself_is_left_to_it() -> None:
    task = replace(TASK, argv=(), env=(("HOME", "/home/a"), ("PATH", "/opt/bin"), ("B", "2")))
    gang = replace(GANG, named=frozenset({"PATH"}))
    assert variables_of(gang, task) == ({"B": "2"}, {"PATH": "/opt/bin"})
    (container,) = pod_of(gang, task, NAMES, PLACE)["spec"]["containers"]
    assert "command" not in container, "the image's own is meant"


def test_folders_are_on_volumes_or_missed() -> None:
    sight = Sight({"/shared": "data", "/scratch": FROM_HOST})
    gang = replace(GANG, read_only=("/shared/images", "/home/me", "/state/attempts/7/2"))
    assert missing_paths(gang, KEY, sight) == ["/home/me"]
    spec = pod_of(gang, TASK, NAMES, replace(PLACE, sight=sight))["spec"]
    kinds = {name for place in spec["volumes"] for name in place if name != "name"}
    assert kinds == {"emptyDir", "hostPath", "persistentVolumeClaim"}


def test_a_pod_is_shown_parts_of_what_is_shared_and_nothing_beside_them() -> None:
    sight = Sight(shared={"/s/environments": FROM_HOST, "/s/data": "data", "/nfs": "data"})
    data = DataMount("/s/data/d1/trees/x", "/data/words"), DataMount("/nfs/b", "/b", write=True)
    kept = ("/s/environments/made/k",)
    gang = replace(GANG, read_only=kept, kept=kept, data=data)
    spec = pod_of(gang, TASK, NAMES, replace(PLACE, sight=sight))["spec"]
    places = {place["name"]: place for place in spec["volumes"]}
    shown = {
        mount["mountPath"]: (
            places[mount["name"]].get("hostPath", {}).get("path"),
            mount.get("subPath"),
            mount["readOnly"],
        )
        for mount in spec["containers"][0]["volumeMounts"]
        if "readOnly" in mount
    }
    assert shown == {
        "/s/environments/made/k": ("/s/environments/made/k", None, True),
        "/data/words": (None, "d1/trees/x", True),
        "/b": (None, "b", False),
    }
    claims = [each for each in spec["volumes"] if "persistentVolumeClaim" in each]
    assert len(claims) == 1, "a kubelet waits for ever for a claim that a pod has twice"
    assert missing_paths(gang, KEY, Sight(shared={"/nfs": "data"})) == [
        "/s/environments/made/k",
        "/s/data/d1/trees/x",
    ]


def test_no_path_that_a_user_names_is_shown_for_being_shared() -> None:
    sight = Sight(shared={"/s": FROM_HOST})
    gang = replace(GANG, read_only=("/s/data/d1/trees/x",))
    assert missing_paths(gang, KEY, sight) == ["/s/data/d1/trees/x"]
    assert sight.parts(gang) == []


def test_nothing_is_mounted_into_a_volume_that_others_see() -> None:
    sight = Sight({"/scratch": FROM_HOST}, {"/s": FROM_HOST})
    assert sight.why_not([DataMount("/s/a", "/data/a")]) == ""
    assert "/scratch/a is in /scratch" in sight.why_not([DataMount("/s/a", "/scratch/a")])
    assert "nodes do not see /home/a" in sight.why_not([DataMount("/home/a", "/data/a")])
    assert "has a colon" in sight.why_not([DataMount("/s/a", "/data/a:b")])


def test_what_an_engine_can_do_follows_from_what_its_pods_see() -> None:
    def sees(**more: object) -> frozenset[Ability]:
        setup = EngineSetup("k", EngineType.KUBERNETES, **more)  # pyright: ignore[reportArgumentType]
        return abilities_by(setup, Path("/s"))

    assert sees() == frozenset()
    assert sees(shared=(("/nfs", "c"),)) == {Ability.FOLDERS}
    assert sees(shared=(("/s/data", "c"),)) == {Ability.DATASETS, Ability.FOLDERS}
    assert sees(shared=(("/s", FROM_HOST),)) == {
        Ability.DATASETS,
        Ability.ENVIRONMENTS,
        Ability.FOLDERS,
    }
    assert Ability.VERSIONS in sees(volumes=(("/s", FROM_HOST),))


def test_a_binding_is_for_just_this_pod() -> None:
    binding = binding_of("p", "uid-1", "n3")
    assert binding["metadata"] == {"name": "p", "uid": "uid-1"}
    assert binding["target"]["name"] == "n3"


@pytest.mark.parametrize(
    ("text", "amount"),
    [("2", 2000), ("1500m", 1500), ("1e1", 10_000), (0.5, 500), ("5Q", 0), ("", 0), ("-1", 0)],
)
def test_amounts_are_read(text: str | float, amount: int) -> None:
    assert milli(text) == amount


def test_sizes_are_read_and_bounded() -> None:
    assert whole("16Gi") == 16 * GIB
    assert whole("128974848") == 128974848
    assert whole("129M") == 129_000_000
    assert whole("9999999E") == 2**53


def test_an_object_that_cannot_be_read_is_none() -> None:
    assert read(b'{"metadata": {"name": "p", "labels": null}, "spec": {"x": [1]}}', Pod)
    assert read(b'{"metadata": []}', Pod) is None
    assert read(b'{"spec": {"containers": "none"}}', Pod) is None


# ── nodes ───────────────────────────────────────────────────────────────────────────────


def test_nodes_are_found_with_their_devices() -> None:
    control = a_node(spec={"taints": [{"key": "node-role.kubernetes.io/master"}]})
    (node,) = nodes_of(
        [a_node(), replace(control, metadata=replace(control.metadata, name="m"))]
    )
    assert (node.name, node.cpu_milli, node.memory) == ("n1", 7910, 32 * GIB)
    assert [device.type for device in node.devices] == ["nvidia-a100-sxm4-80gb"] * 4
    assert node.devices[0].memory == 80 * GIB
    assert node.labels == (("zone", "z1"),)
    assert node.address == "10.0.0.4"


@pytest.mark.parametrize(
    ("labels", "kept"),
    [
        ({"cloud.google.com/gke-nodepool": "a100"}, {"pool": "a100"}),
        ({"eks.amazonaws.com/nodegroup": "g5", "allotment.io/pool": "mine"}, {"pool": "mine"}),
        ({"karpenter.sh/nodepool": "spot", "allotment.io/price": "9.80"},
         {"pool": "spot", "price": "9.80"}),
        ({"node.kubernetes.io/instance-type": "p5.48xlarge"}, {"pool": "p5.48xlarge"}),
        ({"topology.kubernetes.io/pool": "x", "agentpool": "y"}, {"pool": "y"}),
        ({"karpenter.sh/nodepool": ""}, {}),
    ],
)  # fmt: skip
def test_the_pool_of_a_node_is_what_its_cloud_calls_it(
    labels: dict[str, str], kept: dict[str, str]
) -> None:
    like = a_node()
    found = replace(
        like, metadata=replace(like.metadata, labels={**labels, "some.other/label": "x"})
    )
    (node,) = nodes_of([found])
    assert dict(node.labels) == kept
    assert telling(found) == {key: labels[key] for key in labels}


@pytest.mark.parametrize(
    ("found", "closed"),
    [
        (a_node(), ""),
        (a_node(ready="False"), "not ready"),
        (a_node(ready="Unknown"), "silent"),
        (a_node(spec={"unschedulable": True}), "cordoned"),
        (a_node(spec={"taints": [{"key": "mine", "effect": "NoSchedule"}]}), "tainted"),
        (a_node(spec={"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]}), ""),
        (a_node(spec={"taints": [{"key": "allotment", "effect": "NoSchedule"}]}), ""),
        (
            a_node(
                spec={
                    "taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]
                }
            ),
            "",
        ),
        (
            a_node(
                spec={
                    "taints": [
                        {
                            "key": "node.kubernetes.io/network-unavailable",
                            "effect": "NoSchedule",
                        }
                    ]
                }
            ),
            "tainted",
        ),
        (a_node(MemoryPressure="False"), ""),
        (a_node(MemoryPressure="True"), "short of memory"),
        (a_node(DiskPressure="True"), "short of disk space"),
        (a_node(PIDPressure="True"), "short of process numbers"),
    ],
)
def test_a_node_is_closed_for_a_reason(found: KubeNode, closed: str) -> None:
    (node,) = nodes_of([a_node()])
    told = report_of(node, found)
    assert told.alive
    assert closed in told.closed
    assert bool(told.closed) is bool(closed)


def test_a_node_is_lost_only_when_it_is_gone() -> None:
    (node,) = nodes_of([a_node()])
    assert not report_of(node, None).alive
    assert report_of(node, a_node(ready="Unknown")).alive, "what it runs may run on"


def test_nodes_join_when_they_take_work_and_leave_when_they_are_gone() -> None:
    (node,) = nodes_of([a_node()])
    assert joined([], [a_node()]) == (node,)
    assert joined([], [a_node(ready="False")]) == ()
    assert joined([node], []) == ()
    larger = a_node()
    amounts = {**(larger.status.allocatable or {}), "nvidia.com/gpu": "8"}
    larger = replace(larger, status=replace(larger.status, allocatable=amounts))
    (changed,) = joined([node], [larger])
    assert len(changed.devices) == 8
    known = replace(changed, engine="k8s")
    assert joined([known], [a_node()]) == (changed,), "its kubelet may just have started"
    assert joined([known], [a_node(ready="Unknown")]) == (changed,)


def test_what_others_ask_for_is_counted() -> None:
    (node,) = nodes_of([a_node()])
    pod = msgspec.convert(
        {
            "spec": {
                "containers": [
                    {
                        "resources": {
                            "requests": {"cpu": "1"},
                            "limits": {"nvidia.com/gpu": "1"},
                        }
                    },
                    {"resources": {"limits": {"memory": "1Gi", "cpu": "500m"}}},
                ],
                "initContainers": [{"resources": {"requests": {"cpu": "2"}}}],
            }
        },
        Pod,
    )
    assert use_of(pod) == Use(2000, GIB, 1)
    assert use_of(replace(pod, status=replace(pod.status, phase="Failed"))) == Use()
    used = others_of(node, a_node(), use_of(pod))
    assert used == Others((("nvidia-a100-sxm4-80gb", 1),), 2000, GIB, "Kubernetes")
    assert others_of(node, a_node(), Use()) == NOBODY


def test_devices_that_are_not_offered_any_more_are_not_to_be_had() -> None:
    (node,) = nodes_of([a_node()])
    found = a_node()
    status = replace(found.status, allocatable={"nvidia.com/gpu": "3"})
    others = others_of(node, replace(found, status=status), Use(devices=1))
    ((_, count),) = others.devices
    assert count == 2
    assert others.words() == (
        "2 GPU used by others on Kubernetes, 1 of them not offered there now"
    )


# ── ends ────────────────────────────────────────────────────────────────────────────────

ENDS = {
    "succeeded": (ended(0, "Completed"), Told(), {"code": 0}),
    "failed": (ended(3), Told(), {"code": 3}),
    "out of memory": (ended(137, "OOMKilled"), Told(), {"signal": 9, "oom": True}),
    "no program": (ended(128, "StartError", 'exec: "/x": no such file or directory'), Told(),
                   {"code": 127}),
    "stopped": (ended(143), Told(is_stopped=True), {"code": 143}),
}  # fmt: skip


@pytest.mark.parametrize(("pod", "told", "wanted"), ENDS.values(), ids=ENDS)
def test_ends_of_its_own_are_told(pod: Pod, told: Told, wanted: dict[str, object]) -> None:
    found = report(KEY, pod, told, a_node())
    assert found is not None
    assert found.exit is not None
    assert found.seen is Seen.ENDED
    assert {name: getattr(found.exit, name) for name in wanted} == wanted
    assert not found.exit.platform_error


OTHERS_DOING = {
    "refused": a_pod(phase="Failed", reason="OutOfcpu", message="too little"),
    "evicted": a_pod(phase="Failed", reason="Evicted", message="disk pressure"),
    "devices": a_pod(phase="Failed", reason="UnexpectedAdmissionError", message="none left"),
    "preempted": ended(143, conditions=[{"type": "DisruptionTarget", "status": "True",
                                         "reason": "PreemptionByScheduler"}]),
    "deleted": replace(ended(143), metadata=replace(ended(1).metadata, deletion_timestamp="t")),
}  # fmt: skip


def test_a_pod_that_was_deleted_is_told_so_though_its_container_is_gone() -> None:
    """A busy kubelet may tell that a pod failed and no more."""
    failed = a_pod(phase="Failed")
    gone = replace(failed, metadata=replace(failed.metadata, deletion_timestamp="t"))
    found = report(KEY, gone, Told(), a_node())
    assert found is not None
    assert found.exit is not None
    assert "its pod was deleted in Kubernetes" in found.exit.platform_error


@pytest.mark.parametrize("pod", OTHERS_DOING.values(), ids=OTHERS_DOING)
def test_what_others_did_is_not_the_jobs_fault(pod: Pod) -> None:
    found = report(KEY, pod, Told(), a_node())
    assert found is not None
    assert found.exit is not None
    assert found.exit.platform_error
    assert not found.exit.ok


@pytest.mark.parametrize(
    ("said", "short"),
    [
        ("The node was low on resource: memory. Container task was using 9Mi", "memory"),
        ("The node was low on resource: ephemeral-storage. Threshold", "disk space"),
        ("Pod was rejected: The node had condition: [DiskPressure]. ", "disk space"),
        ("The node was low on resource: pids. ", "process numbers"),
        ("The node was low on resource: hugepages. ", "room"),
    ],
)
def test_what_a_node_was_short_of_is_told(said: str, short: str) -> None:
    found = report(KEY, a_pod(phase="Failed", reason="Evicted", message=said), Told(), a_node())
    assert found is not None
    assert found.diagnosis is not None
    assert found.diagnosis.cause == f"Its node was short of {short}, and evicted it."
    assert found.diagnosis.retry is RetryClass.PLATFORM
    assert found.diagnosis.evidence in said


def test_a_kubelet_before_1_22_calls_a_pod_failed_while_it_runs_on() -> None:
    early = a_pod(phase="Failed", reason="Evicted", message="low on resource: memory")
    assert runs_on(early)
    late = ended(137)
    assert not runs_on(replace(late, status=replace(late.status, reason="Evicted")))
    assert not runs_on(ended(3))


@pytest.mark.parametrize(
    "said",
    [
        "Pod ephemeral local storage usage exceeds the total limit of containers 8Mi. ",
        'Container task exceeded its local ephemeral storage limit "8Mi". ',
    ],
)
def test_who_fills_a_disk_beyond_the_own_limit_is_no_matter_of_the_platform(said: str) -> None:
    pod = a_pod(phase="Failed", reason="Evicted", message=said)
    found = report(KEY, pod, Told(), a_node())
    assert found is not None
    assert found.exit == Exit(disk_limit_hit=True)
    exit_, why = end_of(pod, is_stopped=False)
    assert exit_.disk_limit_hit
    assert why is not None
    assert (why.code, why.owner) == ("disk_limit", Owner.USER)


def test_what_saves_and_ends_well_since_it_was_deleted_is_not_done() -> None:
    state = {"exitCode": 0, "reason": "Completed", "finishedAt": "2026-01-01T00:00:31Z"}
    pod = a_pod(phase="Succeeded", containerStatuses=[
        {"name": "task", "state": {"terminated": state}}])  # fmt: skip

    def told(at: str, told: Told) -> Exit | None:
        meta = replace(pod.metadata, deletion_timestamp=at, deletion_grace_period_seconds=30)
        found = report(KEY, replace(pod, metadata=meta), told, a_node())
        return found.exit if found is not None else None

    cut = told("2026-01-01T00:01:00Z", Told())
    assert cut is not None
    assert cut.lost
    assert told("2026-01-01T00:01:00Z", Told(is_stopped=True)) == Exit(code=0)
    assert told("2026-01-01T00:02:00Z", Told()) == Exit(code=0), "it was over before"


def test_who_deleted_a_pod_is_told_by_events() -> None:
    def why(*events: tuple[str, str]) -> str:
        found = deletion([Said(reason=reason, message=message) for reason, message in events])
        return found.why if found is not None else ""

    assert why(("Started", ""), ("Killing", "Stopping container task")) == ""
    preempted = ("Preempted", "Preempted by default/urgent on node n1")
    assert preempted[1] in why(preempted, ("Killing", ""))
    assert "NoExecute" in why(("TaintManagerEviction", "Marking for deletion"))


def test_a_reboot_is_not_the_jobs_fault() -> None:
    found = report(KEY, ended(137), Told(boot="b0"), a_node(boot="b1"))
    assert found is not None
    assert found.exit is not None
    assert "restarted" in found.exit.platform_error


def test_a_pod_that_has_not_begun_is_no_news() -> None:
    assert report(KEY, waiting("ContainerCreating"), Told(), a_node()) is None
    assert report(KEY, a_pod(phase="Pending"), Told(), a_node()) is None


@pytest.mark.parametrize(
    ("pod", "waited_s", "retry"),
    [
        (waiting("InvalidImageName"), 0, RetryClass.NEVER),
        (waiting("ErrImagePull", "manifest unknown"), 0, RetryClass.NEVER),
        (waiting("ErrImagePull", "pull access denied"), 0, RetryClass.NEVER),
        (waiting("ImagePullBackOff", "dial tcp: timeout"), 500, RetryClass.PLATFORM),
        (waiting("ImagePullBackOff", "dial tcp: timeout"), 10, None),
        (waiting("ContainerCreating"), 500, None),
    ],
)
def test_images_that_cannot_be_had(pod: Pod, waited_s: float, retry: RetryClass | None) -> None:
    _, diagnosis = hindrance(pod, waited_s)
    assert (diagnosis.retry if diagnosis else None) is retry


def test_a_registry_that_is_away_is_told_as_such_though_its_node_pauses() -> None:
    refused = "dial tcp 10.0.0.1:443: connect: connection refused"
    said = f"rpc error: code = Unknown desc = failed to pull image: {refused}"
    why = pull_error(waiting("ErrImagePull", said))
    assert why == f"failed to pull image: {refused}"
    pod = waiting("ImagePullBackOff", 'Back-off pulling image "r/a:1"')
    assert is_pull_refused(pod)
    assert not pull_error(pod)
    text, found = hindrance(pod, 500, why)
    assert text == why
    assert found is not None
    assert found.cause == "The registry of its image did not answer its node."
    assert (found.code, found.evidence) == ("image_pull", why)
    denied = "pull access denied, repository does not exist or may require authorization: "
    for said, code in (
        (f"{denied}authorization failed: no basic auth credentials", "image_denied"),
        (f"{denied}server message: insufficient_scope: authorization failed", "image_missing"),
    ):
        _, found = hindrance(pod, 0, said)
        assert found is not None
        assert found.code == code
    _, found = hindrance(pod, 0, "manifest unknown")
    assert found is not None
    assert found.code == "image_missing"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ([("Pulling", 'Pulling image "r/a:1"')], "pulls its image r/a:1"),
        ([("Pulling", 'Pulling image "r/a:1"'), ("Pulled", "Successfully pulled")], ""),
        ([("FailedMount", "no claim"), ("Odd", "x")], "cannot mount its folders yet: no claim"),
        ([("FailedCreatePodSandBox", "no network")], "cannot prepare it yet: no network"),
        ([], ""),
    ],
)
def test_what_a_node_does_before_a_task_begins(said: list[tuple[str, str]], words: str) -> None:
    assert doing([Said(reason=reason, message=message) for reason, message in said]) == words


@pytest.mark.parametrize(
    ("claims", "ready", "waited_s", "ends"),
    [
        ([{"name": "devices"}], "False", 400, True),
        ([{"name": "devices"}], "False", 200, False),
        ([{"name": "devices"}], "True", 400, False),
        ([], "False", 400, False),
    ],
)
def test_devices_that_a_driver_does_not_prepare_are_not_waited_for_without_end(
    claims: list[object], ready: str, waited_s: float, ends: bool
) -> None:
    condition = {"type": "PodReadyToStartContainers", "status": ready}
    state = {"waiting": {"reason": "ContainerCreating"}}
    tree = {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"resourceClaims": claims},
        "status": {
            "phase": "Pending",
            "conditions": [condition],
            "containerStatuses": [{"name": "task", "state": state}],
        },
    }
    why, _ = hindrance(msgspec.convert(tree, Pod), waited_s)
    assert ("did not prepare its devices" in why) is ends


def test_what_does_not_begin_is_not_waited_for_without_end() -> None:
    assert hindrance(waiting("CreateContainerConfigError", "no Secret"), 100)[0]
    assert hindrance(a_pod(phase="Pending"), 1000)[0]
    assert not hindrance(a_pod(phase="Pending"), 10)[0]


# ── asking ──────────────────────────────────────────────────────────────────────────────


def test_lines_are_put_together() -> None:
    async def story() -> list[bytes]:
        async def pieces():
            for piece in (b"a", b"b\nc\n", b"", b"d", b"e"):
                yield piece

        return [line async for line in lines_of(pieces())]

    assert asyncio.run(story()) == [b"ab\n", b"c\n", b"de"]


def test_exit_codes_of_exec_are_read() -> None:
    cause = {"reason": "ExitCode", "message": "7"}
    failed = {"status": "Failure", "message": "no", "details": {"causes": [cause]}}
    assert exit_code(json.dumps(failed).encode()) == 7
    assert exit_code(b'{"status": "Success"}') == 0
    assert exit_code(b"no JSON") == 255


def a_kubeconfig(folder: Path, **user: object) -> str:
    tree = {
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": "https://k:6443/"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "n"}}],
        "users": [{"name": "u", "user": user}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(tree))
    return str(path)


def test_a_kubeconfig_is_read(tmp_path: Path) -> None:
    access = access_of(a_kubeconfig(tmp_path, token="t"))
    assert (access.server, access.namespace, access.token) == ("https://k:6443", "n", "t")
    plugin = access_of(a_kubeconfig(tmp_path, exec={"command": "login", "args": ["-x"]})).plugin
    assert plugin is not None
    assert (plugin.command, plugin.args) == ("login", ("-x",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "current-context is missing"),
        ("[", "not valid YAML"),
        ("root:x:0", "it is not a kubeconfig"),
        ("current-context: c\ncontexts: []", "there is no context c"),
    ],
)
def test_a_kubeconfig_that_is_wrong_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "k").write_text(text)
    with pytest.raises(BackendError, match=said):
        access_of(str(tmp_path / "k"))


# ── rights ──────────────────────────────────────────────────────────────────────────────


def granted(file: str) -> set[tuple[str, str]]:
    """Return what the role of a manifest allows: verbs and resources."""
    role, *_ = YAML(typ="safe", pure=True).load_all((OPS / file).read_text())
    return {
        (verb, resource)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }


def test_the_manifests_grant_what_is_needed_and_no_more() -> None:
    for file, everywhere in (("role.yaml", False), ("cluster-role.yaml", True)):
        rights = (*RIGHTS, *NAMED)
        wanted = {(r.verb, r.resource) for r in rights if r.everywhere is everywhere}
        assert granted(file) == wanted


def test_rights_that_are_missing_are_named_one_by_one() -> None:
    found = list(rights_findings(RIGHTS[:1] + RIGHTS[-1:], len(RIGHTS), "ns"))
    assert [finding.level for finding in found] == ["bad", "warn"]
    assert "no right to list nodes: finding nodes" in found[0].text
    assert "no right to get pods/exec in namespace ns" in found[1].text


def test_pods_of_others_that_may_not_be_listed_are_a_finding() -> None:
    assert list(unseen_findings(RIGHTS, [])) == []
    found = list(unseen_findings(RIGHTS, ["team-a", "team-b"]))
    assert [finding.level for finding in found] == ["bad", "bad"]
    wanted = "no right to list pods in all namespaces: pods of team-a, team-b are not placed"
    assert found[0].text == wanted


@pytest.mark.parametrize(
    ("minor", "level"), [(19, "bad"), (20, "ok"), (36, "ok"), (60, "warn")]
)
def test_versions_are_judged(minor: int, level: str) -> None:
    assert version_finding((1, minor), "https://k").level == level

"""Operators on a real Kubernetes: what they make of their own example files is placed as one
gang."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.integration.kubernetes.test_more_nodes import may_place
from tests.support import operators
from tests.support.cluster import until
from tests.support.kubernetes import IMAGE, IS_NEWER, MARKS, Kubernetes
from tests.support.on_kubernetes import OnKubernetes

pytestmark = [*MARKS, pytest.mark.may_skip(operators.WHY)]

HERE = "kubeflow-jobs"
Tree = dict[str, Any]


@pytest.fixture
def service(kubernetes: Kubernetes) -> Iterator[OnKubernetes]:
    for document in may_place(HERE):
        kubernetes.apply(document)
    made = Path(tempfile.mkdtemp(prefix="allot-test-", dir="/var/tmp"))
    (made / "state").mkdir()
    running = OnKubernetes(made / "state", kubernetes, f", namespaces: {{{HERE}: lab}}")
    try:
        running.up()
        yield running
    finally:
        running.down()
        kubernetes.clear()
        shutil.rmtree(made, ignore_errors=True)


def test_the_pods_of_a_pytorch_job_are_placed_together(
    service: OnKubernetes, kubernetes: Kubernetes, folder: Path
) -> None:
    if IS_NEWER:
        pytest.skip("the operator's definition is of apiextensions/v1beta1, gone since 1.22")
    operators.skip_without("pytorch-operator")
    definition = operators.shared("pytorch-operator", "crd.yaml")
    example = operators.shared("pytorch-operator", "pytorch_job_sendrecv.yaml")
    kubernetes.kubectl("apply", "-f", str(definition))
    options = (
        f"-kubeconfig={kubernetes.admin}", "-monitoring-port=0", "-json-log-format=false",
        f"-namespace={HERE}", f"-init-container-image={IMAGE}",
    )  # fmt: skip
    env = {"KUBEFLOW_NAMESPACE": HERE, "KUBECONFIG": str(kubernetes.admin)}
    job: Tree = YAML(typ="safe").load(example)  # pyright: ignore[reportUnknownMemberType]
    job["metadata"]["namespace"] = HERE
    for role in job["spec"]["pytorchReplicaSpecs"].values():
        template = role["template"]
        template["metadata"] = {"annotations": {"allotment.io/gang-size": "4"}}
        template["spec"] |= {"schedulerName": "allotment", "hostNetwork": True}

    def pods() -> list[Tree]:
        return kubernetes.get("pods", "-n", HERE)["items"]

    try:
        with operators.running(folder, "pytorch-operator", options, env):
            kubernetes.apply(job)
            until(
                lambda: (
                    len(found := pods()) == 4 and all(p["spec"].get("nodeName") for p in found)
                ),
                "the four pods of the example to be placed",
            )
        (row,) = [row for row in service.jobs() if row["tasks"] == 4]
        assert row["name"].startswith(f"{HERE}/{job['metadata']['name']}.")
        assert row["user"] == f"kubernetes/{HERE}"
    finally:
        kubernetes.kubectl("delete", "-f", str(definition), "--wait=false")
        words = ("--all", "-n", HERE, "--force", "--grace-period=0")
        kubernetes.kubectl("delete", "pods", *words)

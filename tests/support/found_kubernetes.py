"""A Kubernetes that is there already, for tests: `ALLOT_TEST_KUBECONFIG` names it.

It has to be of the tests' own: they cordon its nodes, and delete all pods of `default` and of
the namespaces that they make. One that is in use is refused. Its daemons are not theirs: what
kills those is skipped.
"""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes import GPUS, MANIFESTS, NAMESPACE, WHY, Kubernetes

MOST = 2
"""Of its nodes that are used."""


class FoundKubernetes(Kubernetes):
    """A cluster, asked by a kubeconfig of its administrator."""

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        super().__init__(folder, ())
        self.admin = kubeconfig
        self._refuse_in_use()
        found = self.get("nodes")["items"]
        names = sorted(node["metadata"]["name"] for node in found if _takes_pods(node))
        self.nodes = tuple(names[:MOST])

    def _refuse_in_use(self) -> None:
        """Raise where somebody's pods, or service, would be deleted with what is ours."""
        spaces = self.get("namespaces")["items"]
        if any(
            space["metadata"]["name"] == NAMESPACE and space["status"]["phase"] == "Active"
            for space in spaces
        ):
            raise RuntimeError(
                f"{self.admin}: there is a namespace {NAMESPACE}, which these tests delete; if "
                f"it is of an earlier run: kubectl delete -k {MANIFESTS}"
            )
        if pods := self.get("pods", "-n", "default")["items"]:
            name = pods[0]["metadata"]["name"]
            raise RuntimeError(
                f"{self.admin}: there is a pod default/{name}, and these tests delete it: "
                "name a cluster of their own, or delete it"
            )

    def start_all(self) -> None:
        """Make our account, and have two nodes offer GPUs, which are only counted."""
        self.apply_manifests()
        self.until(
            lambda: self.write_account(self.kubeconfig, NAMESPACE), "the service account"
        )
        for name in self.nodes:
            offered = self.get("node", name)["status"]["allocatable"]
            if "nvidia.com/gpu" not in offered:
                self.offer(name, GPUS)

    def write_kubeconfig(self, path: Path, token: str, namespace: str = "default") -> None:
        words = ("config", "view", "--raw", "--minify", "--flatten", "-o", "json")
        config = json.loads(self.kubectl(*words))
        (context,) = config["contexts"]
        context["context"]["namespace"] = namespace
        (user,) = config["users"]
        user["user"] = {"token": token}
        path.write_text(json.dumps(config))
        path.chmod(0o600)

    def _patch_status(self, node: str, status: object) -> None:
        def is_put() -> bool:
            there = self.get("node", node)
            _merge(there["status"], status)
            words = ("replace", "--raw", f"/api/v1/nodes/{node}/status", "-f", "-")
            with contextlib.suppress(RuntimeError):  # its kubelet reported meanwhile
                self.kubectl(*words, text=json.dumps(there))
                return True
            return False

        self.until(is_put, f"the status of {node} to be written")

    def kill(self, name: str) -> None:
        pytest.skip(f"{WHY}: {name} is not killed in a cluster that is there")

    def stop_all(self) -> None:
        self.kubectl("delete", "-k", str(MANIFESTS), "--ignore-not-found", "--wait=false")


def _takes_pods(node: dict[str, Any]) -> bool:
    taints = node["spec"].get("taints") or ()
    return not any("node-role.kubernetes.io/" in taint["key"] for taint in taints)


def _merge(into: dict[str, Any], more: Any) -> None:
    for key, value in more.items():
        if isinstance(value, dict):
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = value

"""A service whose jobs are pods of a test's own Kubernetes."""

from pathlib import Path
from typing import Any

from tests.support.cluster import RealCluster, until
from tests.support.kubernetes import IMAGE, NAMESPACE, Kubernetes

CONFIG = """\
engines:
  k8s: {{type: kubernetes, kubeconfig: {kubeconfig}, image: "{image}"{more}}}
nodes:
- names: [{nodes}]
  cpu: 2
  memory: 2000MiB
  disk: 1GiB
  gpu: {{type: gpu, count: 4}}
  engine: k8s
tenants: {{lab: {{}}}}
"""
OVER = {"succeeded", "failed", "cancelled", "timed_out"}


class OnKubernetes(RealCluster):
    """A service, as the account that our manifests make."""

    def __init__(self, state: Path, kubernetes: Kubernetes, more: str = "") -> None:
        text = CONFIG.format(
            kubeconfig=kubernetes.kubeconfig, image=IMAGE, more=more,
            nodes=", ".join(kubernetes.nodes),
        )  # fmt: skip
        super().__init__(state, text)
        self.kubernetes = kubernetes

    def clear(self) -> None:
        """End all jobs and pods, and have every node take jobs."""
        self.allot("cancel", "--all", "--yes")
        self.kubernetes.clear()
        until(lambda: {row["state"] for row in self.jobs()} <= OVER, "jobs to be over")

    def jobs(self) -> list[dict[str, Any]]:
        return self.get("/v1/jobs")["items"]

    def job(self, job: int) -> dict[str, Any]:
        return self.get(f"/v1/jobs/{job}")

    def output(self, job: int) -> str:
        return self.allot("logs", str(job)).stdout

    def node(self, name: str) -> dict[str, Any]:
        return next(node for node in self.get("/v1/nodes") if node["name"] == name)

    def pods_of(self, job: int) -> list[dict[str, Any]]:
        """Return the pods of a job that are there."""
        pods = self.kubernetes.pods()
        # …-JOB-ATTEMPT-INDEX
        return [pod for pod in pods if pod["metadata"]["name"].split("-")[-3:-2] == [str(job)]]

    def occupy(self, name: str, node: str, gpus: int) -> None:
        """Run a pod of somebody else on a node."""
        pod = {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "nodeName": node, "hostNetwork": True, "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "c", "image": IMAGE, "command": ["sleep", "1000"],
                    "resources": {"limits": {"nvidia.com/gpu": gpus, "cpu": "100m",
                                             "memory": "16Mi"}},
                }],
            },
        }  # fmt: skip
        self.kubernetes.apply(pod)


__all__ = ["NAMESPACE", "OnKubernetes"]

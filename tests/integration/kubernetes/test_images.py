"""On a real Kubernetes, a job goes to the node whose kubelet says that it has its image."""

from tests.support.cluster import until
from tests.support.kubernetes import IMAGE, MARKS
from tests.support.on_kubernetes import OnKubernetes
from tests.support.on_slurm import shell
from tests.support.patience import PATIENCE_S

pytestmark = MARKS

ONLY_THERE = "localhost/only-there:1"
IMAGES_S = 60
"""A kubelet looks at its images every 30 s."""


def test_a_job_goes_to_the_node_with_its_image(cluster: OnKubernetes) -> None:
    kubernetes = cluster.kubernetes
    first, second = kubernetes.nodes
    plain = cluster.submit(shell("echo on $ALLOT_NODE"))
    cluster.wait_for(plain, "succeeded")
    assert first in cluster.output(plain)
    assert kubernetes.ctr(second, "images", "tag", IMAGE, ONLY_THERE) is not None
    try:
        until(
            lambda: ONLY_THERE in str(kubernetes.get("node", second)["status"]["images"]),
            "the kubelet to say that it has the image",
            PATIENCE_S + IMAGES_S,
        )
        job = cluster.submit(shell("echo on $ALLOT_NODE", image=ONLY_THERE))
        cluster.wait_for(job, "succeeded")
        assert second in cluster.output(job)
        assert "where its image is already" in cluster.allot("show", str(job)).stdout
        # Another job that has to be on both nodes waits for neither.
        both = cluster.submit(shell("echo on $ALLOT_NODE", count=2, resources={"gpu": 3}))
        cluster.wait_for(both, "succeeded")
    finally:
        kubernetes.ctr(second, "images", "rm", ONLY_THERE)

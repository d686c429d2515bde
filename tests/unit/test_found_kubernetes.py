"""A cluster that is named for tests is not taken from those who use it."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.found_kubernetes import FoundKubernetes
from tests.support.kubernetes import NAMESPACE


def a_namespace(name: str, phase: str = "Active") -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"phase": phase}}


def found(folder: Path, *spaces: dict[str, Any], pods: tuple[str, ...] = ()) -> FoundKubernetes:
    """Find a cluster with these namespaces, and pods in `default`."""

    class Answering(FoundKubernetes):
        def get(self, *words: str) -> Any:
            listed = {
                "namespaces": list(spaces),
                "pods": [{"metadata": {"name": name}} for name in pods],
            }
            return {"items": listed.get(words[0], [])}

    return Answering(folder, folder / "kubeconfig")


def test_a_cluster_that_nobody_uses_is_taken(tmp_path: Path) -> None:
    ending = a_namespace(NAMESPACE, "Terminating")
    assert found(tmp_path, a_namespace("default"), ending).nodes == ()


def test_a_cluster_with_a_service_of_somebody_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=f"namespace {NAMESPACE}, which these tests delete"):
        found(tmp_path, a_namespace("default"), a_namespace(NAMESPACE))


def test_a_cluster_with_pods_of_somebody_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="a pod default/web, and these tests delete it"):
        found(tmp_path, a_namespace("default"), pods=("web",))

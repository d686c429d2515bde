"""The manifests that are printed, and the folder of them that kubectl takes as it is."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from allotment.backends.kubernetes.manifests import manifests, rules
from allotment.backends.kubernetes.rights import FOREIGN, FOREIGN_NAMED, NAMED, RIGHTS
from allotment.backends.kubernetes.service_pod import LOOK, STATE, service_pod
from allotment.wire.config import engines_in
from tests.support.patience import PATIENCE_S

OPS = Path(__file__).parents[3] / "ops"
FOLDER = OPS / "kubernetes"


def in_folder() -> list[dict[str, Any]]:
    """Return the objects of the folder, in the namespace that it puts them in."""
    yaml = YAML(typ="safe", pure=True)
    chosen = yaml.load(FOLDER / "kustomization.yaml")
    found = [
        each
        for name in chosen["resources"]
        for each in yaml.load_all(FOLDER / name)  # pyright: ignore[reportUnknownVariableType]
    ]
    for each in found:
        if each["kind"] in {"ServiceAccount", "Role", "RoleBinding"}:
            each["metadata"]["namespace"] = chosen["namespace"]
        for subject in each.get("subjects", ()):
            subject["namespace"] = chosen["namespace"]
    return found


def allowed(manifest: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in manifest.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_folder_has_just_what_is_printed() -> None:
    def key(each: dict[str, Any]) -> str:
        rest = {name: value for name, value in each.items() if name != "rules"}
        return json.dumps([rest, sorted(allowed(each))], sort_keys=True)

    assert sorted(map(key, manifests())) == sorted(map(key, in_folder()))


def test_the_folder_of_the_service_has_just_what_is_printed() -> None:
    yaml = YAML(typ="safe", pure=True)
    there: list[Any] = list(yaml.load_all(OPS / "kubernetes-service" / "service.yaml"))  # pyright: ignore[reportUnknownArgumentType]
    config = there[0]["data"]["config.yaml"]
    assert there == service_pod("allotment:0.1", config)
    (setup,) = engines_in(config.encode(), source="config.yaml")
    assert (setup.kubeconfig, setup.namespace) == ("in-cluster", "allotment")


@pytest.mark.parametrize(("answer", "code"), [(b"200 OK", 0), (b"503 Not now", 1)])
def test_a_probe_tells_what_the_socket_answers(
    tmp_path: Path, answer: bytes, code: int
) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "allot.sock"))
        listening.listen()
        script = LOOK.format(tmp_path, "readyz")
        with subprocess.Popen([sys.executable, "-IS", "-c", script]) as probe:
            taken, _ = listening.accept()
            with taken:
                assert taken.recv(1024).startswith(b"GET /readyz HTTP/1.0\r\n")
                taken.sendall(b"HTTP/1.1 " + answer + b"\r\n\r\n")
            assert probe.wait(PATIENCE_S) == code


def test_a_service_in_a_pod_is_one_and_not_root() -> None:
    *_, found = service_pod("image:1", "")
    pod = found["spec"]["template"]["spec"]
    assert (found["spec"]["replicas"], found["spec"]["strategy"]) == (1, {"type": "Recreate"})
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {"name": "ALLOT_STATE", "value": STATE} in pod["containers"][0]["env"]


def test_each_right_is_given_where_it_is_needed() -> None:
    made = {(each["kind"], each["metadata"]["name"]): each for each in manifests()}
    for kind, name, rights in (
        ("Role", "allotment", [each for each in (*RIGHTS, *NAMED) if not each.everywhere]),
        ("ClusterRole", "allotment", [each for each in (*RIGHTS, *NAMED) if each.everywhere]),
    ):
        wanted = {(each.group, each.resource, each.verb) for each in rights}
        assert allowed(made[kind, name]) == wanted
    assert {"list", "watch"} == {
        verb for _, what, verb in allowed(made["ClusterRole", "allotment"]) if what == "pods"
    }


def test_the_right_to_give_claims_is_of_the_whole_cluster() -> None:
    """The API server looks for it there, as 1.36 shows (`AuthorizedForBinding`)."""
    right = ("resource.k8s.io", "resourceclaims/binding", "patch")
    which = [(each["kind"], each["metadata"]["name"]) for each in manifests("jobs", ["team-a"])
             if right in allowed(each)]  # fmt: skip
    assert which == [("ClusterRole", "allotment")]


def test_rules_allow_no_verb_that_is_needed_of_other_objects_only() -> None:
    rights = (*FOREIGN, *FOREIGN_NAMED)
    given = allowed({"rules": rules(rights)})
    assert given == {(each.group, each.resource, each.verb) for each in rights}


def test_a_namespace_of_a_tenant_has_what_tasks_need_and_nothing_for_the_rest() -> None:
    made = [each for each in manifests(of_tenants=["jobs-lab"]) if each not in manifests()]
    assert [(each["kind"], each["metadata"]["name"]) for each in made] == [
        ("Namespace", "jobs-lab"), ("Role", "allotment"), ("RoleBinding", "allotment"),
    ]  # fmt: skip
    assert made[2]["subjects"] == [
        {"kind": "ServiceAccount", "name": "allotment", "namespace": "allotment"}
    ]
    (own,) = (each for each in manifests() if each["kind"] == "Role")
    assert made[1]["rules"] == own["rules"]


@pytest.mark.parametrize(
    ("namespace", "name"), [("allotment", "allotment"), ("jobs", "allotment-jobs")]
)
def test_two_services_of_a_cluster_keep_their_own_bindings(namespace: str, name: str) -> None:
    bound = [
        each for each in manifests(namespace, ["team-a"]) if each["kind"].endswith("Binding")
    ]
    assert {each["metadata"].get("namespace"): each["metadata"]["name"] for each in bound} == {
        namespace: "allotment",
        None: name,
        "team-a": name,
    }
    assert {each["subjects"][0]["namespace"] for each in bound} == {namespace}

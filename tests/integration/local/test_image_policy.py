"""A tenant may use some images alone: at submission, at fetching ahead, and at the start."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.registry import (
    MARKS,
    Job,
    Registry,
    WithUsers,
    a_file,
    a_registry,
    a_service,
    busybox,
)

pytestmark = MARKS
LIMITS = "limits: {backoff: {first: 100ms, most: 200ms}, platform_retries: 1}\n"


PLAIN = "{name: x, image: 'IMAGE', command: 'true', tenant: ann, resources: {cpu: 0.1}}"
SWEEP = """\
{name: x, image: 'IMAGE', command: 'echo {lr}', tenant: ann, resources: {cpu: 0.1},
 sweep: {parameters: {lr: [1, 2]}}}
"""
TRAIN_JOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: x}
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template:
        spec: {containers: [{name: pytorch, image: IMAGE, command: [python]}]}
"""


def config(*of_ann: str, borrow: bool = True) -> str:
    """Write a configuration in which one tenant of two may use only some images."""
    own = f"images: {json.dumps(of_ann)}, " if of_ann else ""
    share = f"guaranteed: {{cpu: 0.5, memory: 512MiB}}, borrow: {str(borrow).lower()}"
    return (
        f"tenants:\n  ann: {{{own}users: [ann, root], {share}}}\n"
        f"  ben: {{users: [ben, root], {share}}}\n{LIMITS}"
    )


@pytest.fixture
def registry(reachable: Path) -> Iterator[Registry]:
    with a_registry(reachable / "registry") as made:
        yield made


@pytest.fixture
def service(reachable: Path, registry: Registry) -> Iterator[WithUsers]:
    with a_service(reachable, config(f"{registry.host}/vision/*")) as made:
        yield made


def applied(service: WithUsers, text: str) -> dict[str, Any]:
    """Put another configuration in force; give what was told of it."""
    status, plan = service.ask("POST", "/v1/config:apply", {"text": text})
    assert status == 200, plan
    return plan


def test_only_what_is_allowed_is_accepted_whichever_way_it_comes(
    service: WithUsers, registry: Registry, reachable: Path
) -> None:
    image = busybox(a_file("n", "it"))
    exact = registry.push("vision/bb", [image])
    assert registry.push("nlp/bb", [image]) == exact
    fine, other = f"{registry.host}/vision/bb:1", f"{registry.host}/nlp/bb:1"
    assert service.run(fine, "cat /n", "ann").output == "it"
    assert service.run(other, "cat /n", "ben").output == "it"
    said = (
        f"Tenant ann may not use the image {other}. It may use only {registry.host}/vision/*."
    )
    assert said in service.refused(other, "ann")
    odd = f"{other}@{exact}", f"{registry.host}.example.org/vision/bb:1", "evil.org/vision/bb"
    for hostile in odd:
        assert f"may use only {registry.host}/vision/*" in service.refused(hostile, "ann")
    done = service.allot("run", "--image", other, "--tenant", "ann", "--", "true", user="ann")
    assert done.returncode != 0
    assert said in done.stderr
    path = reachable / "job.yaml"
    for form, words in (
        (PLAIN, ["submit"]),
        (PLAIN, ["submit", "--dry-run"]),
        (SWEEP, ["sweep", "submit"]),
        (TRAIN_JOB, ["submit"]),
    ):
        path.write_text(form.replace("IMAGE", other))
        done = service.allot(*words, str(path), user="ann")
        assert done.returncode != 0
        assert said in done.stderr
    first = service.submitted(fine, "exit 3", "ann")
    service.wait_for(first, "failed")
    done = service.allot("clone", str(first), "--set", f"image={other}", user="ann")
    assert done.returncode != 0
    assert said in done.stderr


def test_what_no_tenant_of_a_user_may_use_is_not_fetched_ahead(
    service: WithUsers, registry: Registry
) -> None:
    for name in ("vision/bb", "nlp/bb"):
        registry.push(name, [busybox()])
    fine, other = f"{registry.host}/vision/bb:1", f"{registry.host}/nlp/bb:1"
    assert service.allot("image", "warm", fine, user="ann").returncode == 0
    for verb in ("warm", "pull"):
        done = service.allot("image", verb, other, user="ann")
        assert done.returncode != 0
        assert f"may use only {registry.host}/vision/*" in done.stderr
    assert service.ask_as("ben", "POST", "/v1/images:warm", {"image": other})[0] == 200
    wish = {"requirements": ["six"], "image": other}
    status, told = service.ask_as("ann", "POST", "/v1/environments:build", wish)
    assert (status, "may use only" in json.dumps(told)) == (403, True)


def test_a_rule_that_became_stricter_holds_for_what_waits(
    service: WithUsers, registry: Registry
) -> None:
    exact = registry.push("vision/bb", [busybox()])
    name = f"{registry.host}/vision/bb"
    applied(service, config(f"{registry.host}/vision/*", borrow=False))
    cpu = {"resources": {"cpu": 0.5}}
    runs = service.submitted(
        f"{name}:1", "while [ ! -e /tmp/end ]; do sleep 0.05; done", "ann", **cpu
    )
    service.wait_for(runs, "running")
    waits = service.submitted(f"{name}:1", "true", "ann", **cpu)
    by_digest = service.submitted(f"{name}@{exact}", "true", "ann", **cpu)
    status, plan = service.ask(
        "POST", "/v1/config:plan", {"text": config("docker.io/*", borrow=False)}
    )
    assert status == 200
    assert "3 job(s) of tenant ann have images that `images` does not allow" in str(plan)
    applied(service, config("docker.io/*", borrow=False))
    assert service.state_of(runs) == "running"
    service.ask("POST", f"/v1/jobs/{runs}:cancel", {})
    service.wait_for(waits, "failed")
    found = Job(service, waits).diagnosis
    assert (found["code"], found["owner"], found["retry"]) == (
        "image_not_allowed", "user", "never",
    )  # fmt: skip
    assert f"may not use the image {name}:1@{exact}" in found["evidence"]
    service.wait_for(by_digest, "failed")
    _, seen = service.ask_as("ben", "GET", f"/v1/jobs/{waits}")
    assert name not in json.dumps(seen)


def test_bytes_are_allowed_wherever_they_lie_if_they_are_named(
    service: WithUsers, registry: Registry
) -> None:
    exact = registry.push("nlp/bb", [busybox()])
    applied(service, config(f"*@{exact}"))
    name = f"{registry.host}/nlp/bb"
    assert service.run(f"{name}:1@{exact}", "true", "ann").state == "succeeded"
    said = service.refused(f"{name}:1", "ann")
    assert "only certain digests" in said
    other = registry.push("nlp/other", [busybox(a_file("n"))])
    assert "may use only" in service.refused(f"{registry.host}/nlp/other@{other}", "ann")

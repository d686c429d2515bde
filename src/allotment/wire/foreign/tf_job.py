"""Kubeflow's TFJob: roles of a TensorFlow cluster, which find each other by TF_CONFIG."""

from allotment.model.spec import Dialect
from allotment.wire.foreign.fields import READ, Fields, Refused, Remarks
from allotment.wire.foreign.job import Role, begin, finish, read_policy, read_roles
from allotment.wire.job_file import JobFile
from allotment.wire.tree import Plain, Tree

SPEC: Fields = {
    "tfReplicaSpecs": READ,
    "runPolicy": READ,
    "successPolicy": READ,
    "enableDynamicWorker": Refused("lets workers come and go", "take it out"),
}
ROLES = ("Chief", "Master", "Worker", "PS", "Evaluator")
LEADERS = ("chief", "master")


def read_tf_job(plain: Plain, tree: Tree | None, source: str) -> JobFile:
    """Read a TFJob. Raises BadInput."""
    told = Remarks()
    draft, _, body = begin(plain, told)
    spec = told.map(body, ("spec",), SPEC)
    found = spec.get("tfReplicaSpecs")
    draft.roles = read_roles(found, ("spec", "tfReplicaSpecs"), ROLES, told)
    read_policy(draft, spec.get("runPolicy"), ("spec", "runPolicy"), told)
    _say_what_decides(draft.roles, spec.get("successPolicy"), told)
    return finish(draft, Dialect.TF_JOB, told, tree, source)


def _say_what_decides(roles: list[Role], rule: Plain, told: Remarks) -> None:
    """Have the chief's success be the job's, or that of all workers: the rest serves them."""
    if rule not in (None, "", "AllWorkers"):
        told.refuse(("spec", "successPolicy"), "must be '' or AllWorkers")
    leads = [role for role in roles if role.name in LEADERS and rule != "AllWorkers"]
    for role in leads or [role for role in roles if role.name == "worker"]:
        role.decides = len(roles) > 1

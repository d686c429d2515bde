"""Which images a job may name, by what the configuration says of its tenant.

It is looked at before a registry is asked, and again when an attempt starts: a rule that became
stricter holds for what waits.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from allotment.engine.state import State
from allotment.model.datasets import is_member
from allotment.model.diagnosis import Diagnosis, Owner, RetryClass
from allotment.model.errors import Code
from allotment.model.ids import Actor
from allotment.model.image_names import BadReference, parse
from allotment.model.image_rules import may_name, needs_digest
from allotment.model.spec import JobSpec
from allotment.model.tenancy import Config, Tenant
from allotment.model.unusable import Matter, Unusable
from allotment.service.access import is_admin

_MOST_RULES: Final = 8
_MOST_TENANTS: Final = 4
_MOST_JOBS: Final = 10
_NOT_ALLOWED: Final = Matter(
    "image_not_allowed", Code.FORBIDDEN, Owner.USER, RetryClass.NEVER,
    "Name one of these, or ask the administrator (`images` of the tenant).",
)  # fmt: skip
_BY_DIGEST: Final = (
    "Perhaps only certain digests of this image are allowed: name one (…@sha256:…)."
)


class ImageNotAllowed(Unusable):
    """The configuration lets none of these tenants use an image."""

    def __init__(self, image: str, tenants: Sequence[Tenant]) -> None:
        self._tenant = tenants[0].name
        by_digest = any(needs_digest(tenant.images, image) for tenant in tenants)
        super().__init__(_NOT_ALLOWED, _told(image, tenants), _BY_DIGEST if by_digest else "")

    def diagnosis(self) -> Diagnosis:
        """Return what is told of a job; others than its owner do not hear which image it is."""
        cause = f"Tenant {self._tenant} may not use its image."
        found = super().diagnosis()
        return msgspec.structs.replace(found, cause=cause, evidence=self.cause)


def _told(image: str, tenants: Sequence[Tenant]) -> str:
    try:
        name = parse(image)
    except BadReference as error:
        return f"Image {image} {error}. {_allowed(tenants)}."
    if len(tenants) > 1:
        return f"No tenant of yours may use the image {name}. {_allowed(tenants)}."
    tenant = tenants[0]
    return (
        f"Tenant {tenant.name} may not use the image {name}. It may use only {_rules(tenant)}."
    )


def _allowed(tenants: Sequence[Tenant]) -> str:
    told = [
        f"Tenant {tenant.name} may use only {_rules(tenant)}"
        for tenant in tenants[:_MOST_TENANTS]
    ]
    left = len(tenants) - len(told)
    return "; ".join((*told, *([f"{left:,} more tenants have other rules"] if left else [])))


def _rules(tenant: Tenant) -> str:
    return _listed(list(map(str, tenant.images)), _MOST_RULES)


def _listed(words: Sequence[str], most: int) -> str:
    more = f" and {len(words) - most:,} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def check_image(state: State, spec: JobSpec) -> None:
    """Raise ImageNotAllowed where a job's tenant may not use the image it names."""
    tenant = state.cluster.tenants.get(spec.tenant)
    if spec.image and tenant is not None and not may_name(tenant.images, spec.image):
        raise ImageNotAllowed(spec.image, [tenant])


def check_own_image(state: State, spec: JobSpec, owner: Actor) -> None:
    """Raise ImageNotAllowed as `check_image`, to those alone who may submit to the tenant.

    Others are refused by the engine, and hear nothing of what is allowed.
    """
    tenant = state.cluster.tenants.get(spec.tenant)
    if tenant is not None and (is_admin(owner) or is_member(owner, tenant)):
        check_image(state, spec)


def check_fetched(state: State, image: str, actor: Actor) -> None:
    """Raise ImageNotAllowed where no tenant that a user may submit to may use an image."""
    if is_admin(actor):
        return
    theirs = [tenant for tenant in state.config.tenants if is_member(actor, tenant)]
    if theirs and not any(may_name(tenant.images, image) for tenant in theirs):
        raise ImageNotAllowed(image, theirs)


def forbidden_then(state: State, config: Config) -> Iterator[str]:
    """Yield what another configuration forbids of jobs that are not over. O(jobs)."""
    for tenant in config.tenants:
        if not tenant.images:
            continue
        theirs = [
            job
            for job in state.jobs.values()
            if job.spec.tenant == tenant.name and not (job.state.finished or job.spec.offered)
        ]
        named = {job.spec.image for job in theirs if job.spec.image}
        bad = {image for image in named if not may_name(tenant.images, image)}
        jobs = [str(job.id) for job in theirs if job.spec.image in bad]
        if jobs:
            yield (
                f"{len(jobs):,} job(s) of tenant {tenant.name} have images that `images` does "
                f"not allow, and fail when they start next: {_listed(jobs, _MOST_JOBS)}"
            )

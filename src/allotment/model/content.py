"""What a job brings to its nodes, and finds there if another job brought it before.

Not code: it is small, of one user, and another with almost every job.
"""

from enum import StrEnum

import msgspec

from allotment.model.node_runs import NodeRuns
from allotment.model.spec import JobSpec


class ContentKind(StrEnum):
    """What a content is to a job."""

    IMAGE = "image"
    ENVIRONMENT = "environment"
    DATA = "data"


class Content(msgspec.Struct, frozen=True, gc=False):
    """An image, an environment or a version of a dataset, by its name."""

    kind: ContentKind
    name: str
    """As jobs have it: the image, the environment's key, `TENANT/NAME@VERSION`."""


class Held(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which nodes have a content."""

    nodes: NodeRuns = ()
    bytes: int = 0
    """How large it is; 0 where that is not known."""


def brought_by(spec: JobSpec) -> tuple[Content, ...]:
    """Return all that a job brings. What every node sees without it is not among that."""
    found: dict[Content, None] = {}
    if spec.image:
        found[Content(ContentKind.IMAGE, spec.image)] = None
    if spec.environment is not None and spec.environment.key:
        found[Content(ContentKind.ENVIRONMENT, spec.environment.key)] = None
    for use in spec.data:
        if use.digest and use.fetched:
            found[Content(ContentKind.DATA, str(use))] = None
    return tuple(found)

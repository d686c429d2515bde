"""A gang of pods that others made → the job that it is here. Pure."""

from collections.abc import Mapping

from allotment.backends.kubernetes.foreign import Claim
from allotment.backends.kubernetes.gangs import Gang
from allotment.model.ids import Actor
from allotment.model.quantity import Millis, Resources
from allotment.model.spec import Arch, Checkpoint, GiveWay, JobSpec, Offered, TaskRole
from allotment.service.ports import Offer

Alike = tuple[Resources, tuple[str, ...], Arch]


def owner_of(namespace: str) -> Actor:
    """Return whose the pods of a namespace are: no user of this machine is called so."""
    return Actor(f"kubernetes/{namespace}")


def offer_of(gang: Gang, engine: str, types_of: Mapping[str, tuple[str, ...]]) -> Offer:
    """Return a gang as a job. `types_of` are the types of devices, by what Kubernetes calls
    them, where a node may have devices of another maker.

    The pods that need the same are a role. A job that has to go ends: who made its pods makes
    new ones, which wait anew.
    """
    first = gang.claims[0]
    roles: dict[Alike, list[Claim]] = {}
    for claim in gang.claims:
        types = claim.types or types_of.get(claim.device, ())
        roles.setdefault((claim.need, types, claim.arch), []).append(claim)
    namespace = first.name.partition("/")[0]
    spec = JobSpec(
        name=first.gang if len(gang.claims) > 1 else first.name,
        tenant=first.tenant,
        queue=first.queue or "default",
        roles=tuple(
            TaskRole(
                name="pods" if number == 1 else f"pods-{number}",
                count=len(claims),
                command="",
                resources=need,
                gpu_types=types,
                arch=arch,
            )
            for number, ((need, types, arch), claims) in enumerate(roles.items(), 1)
        ),
        priority=first.priority,
        image=first.image,
        checkpoint=Checkpoint(grace_ms=Millis(max(c.grace_ms for c in gang.claims))),
        preemptible=first.preemptible,
        pin=first.pin,
        opportunistic=first.opportunistic,
        on_eviction=GiveWay.CANCEL,
        labels=(("namespace", namespace),),
        engine=engine,
        offered=tuple(
            Offered(claim.name, claim.uid) for claims in roles.values() for claim in claims
        ),
    )
    return Offer(gang.key, owner_of(namespace), spec)

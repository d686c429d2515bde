"""What the resource claims of a pod that others made ask for, as far as it is granted. Pure.

Granted are the plain shapes: so many devices of a class that tasks get, or all that a node has
of it. All else is a flaw, in words.
"""

from collections.abc import Sequence

from allotment.backends.kubernetes.claims import MOST
from allotment.backends.kubernetes.device_objects import Request, ResourceClaim
from allotment.backends.kubernetes.foreign import Flaw, Wanted
from allotment.backends.kubernetes.inventory import Inventory
from allotment.backends.kubernetes.objects import Pod

EXACT = "ExactCount"
WHOSE = ("Pod", "PodGroup")
"""What claims are made for by templates."""
MOST_CLAIMS = 8
"""Of one pod."""


def names_of(pod: Pod) -> list[str]:
    """Return the claims of a pod, by name in its namespace. Raises Flaw where one is yet to be
    made."""
    made = {each.name: each for each in pod.status.resource_claim_statuses or ()}
    found: list[str] = []
    for each in pod.spec.resource_claims or ():
        name = each.resource_claim_name
        if not name and each.name in made:
            name = made[each.name].resource_claim_name
            if not name:
                continue  # its template asks for nothing
        if not name:
            template = (each.resource_claim_template_name or "")[:100]
            raise Flaw(
                "ClaimNotMade", f"its claim of template {template} has not been made yet"
            )
        found.append(name)
    return found


def wanted_by(pod: Pod, inventory: Inventory) -> Wanted:
    """Return how many devices of which types a pod asks for by its claims. Raises Flaw."""
    names = names_of(pod)
    if len(names) > MOST_CLAIMS:
        raise Flaw(
            "TooManyClaims", f"it has {len(names)} claims, and {MOST_CLAIMS} are the most"
        )
    count, types = 0, dict[str, None]()
    for name in names:
        claim = inventory.claim(f"{pod.metadata.namespace}/{name}")
        if claim is None:
            raise Flaw("ClaimMissing", f"there is no ResourceClaim {name[:100]}")
        asked = asked_by(claim, pod, inventory)
        if sum(number for number, _ in asked) > MOST:
            raise Flaw(
                "ClaimTooLarge",
                f"ResourceClaim {name[:100]} asks for more than {MOST} devices, which no claim "
                "is given",
            )
        for number, kinds in asked:
            if types and set(kinds) != set(types):
                raise Flaw("TwoKindsOfDevices", "its claims ask for devices of different types")
            count, types = count + number, types | dict.fromkeys(kinds)
    return Wanted(count, tuple(types))


def asked_by(
    claim: ResourceClaim, pod: Pod, inventory: Inventory
) -> list[tuple[int, Sequence[str]]]:
    """Return how many devices of which types a pod's claim asks for, by its requests. Raises
    Flaw."""
    _check(claim, pod)
    requests = claim.spec.devices.requests or ()
    return [_asked(claim, request, inventory) for request in requests]


def _check(claim: ResourceClaim, pod: Pod) -> None:
    """Refuse a claim that is not this pod's alone. Raises Flaw."""
    name = claim.metadata.name[:100]
    if claim.users - {pod.metadata.uid} or (claim.devices and not claim.users):
        raise Flaw("ClaimTaken", f"ResourceClaim {name} is given to others already")
    owners = [
        each
        for each in claim.metadata.owner_references or ()
        if each.kind in WHOSE and each.uid != pod.metadata.uid
    ]
    if owners:
        raise Flaw("ClaimShared", f"ResourceClaim {name} is that of {owners[0].kind} "
                   f"{owners[0].name[:100]}, and Allotment shares none")  # fmt: skip
    if claim.spec.devices.constraints:
        raise Flaw("ClaimConstraints", f"ResourceClaim {name} has constraints, which Allotment "
                   "does not keep")  # fmt: skip


def _asked(
    claim: ResourceClaim, request: Request, inventory: Inventory
) -> tuple[int, Sequence[str]]:
    """Return how many devices of which types a request is for. Raises Flaw."""
    what = f"request {request.name[:63]} of ResourceClaim {claim.metadata.name[:100]}"
    asked = request.exactly
    if asked is None:
        raise Flaw("ClaimChoice", f"{what} leaves a choice (firstAvailable)")
    for field, has in (
        ("selectors", asked.selectors),
        ("adminAccess", asked.admin_access),
        ("tolerations", asked.tolerations),
        ("capacity", asked.capacity),
    ):
        if has:
            raise Flaw("ClaimShape", f"{what} has {field}, which Allotment does not keep")
    meant, name = inventory.meant_by(asked.device_class_name), asked.device_class_name[:100]
    if not meant.types:
        why = "of which no node has a device that Allotment gives"
        raise Flaw("ClaimClass", f"{what} is for class {name}, {why}")
    if both := sorted(meant.types & meant.not_types):
        why = f"which means some devices of type {both[0]} and not others"
        raise Flaw("ClaimClass", f"{what} is for class {name}, {why}")
    types = sorted(meant.types)
    match asked.allocation_mode or EXACT:
        case "ExactCount":
            return max(1, asked.count), types
        case "All" if len(meant.counts) == 1:
            return next(iter(meant.counts)), types
        case "All":
            least, most = min(meant.counts), max(meant.counts)
            raise Flaw(
                "ClaimAll",
                f"{what} is for all devices of a node, and nodes have {least} to {most} of "
                f"class {name}: say how many",
            )
        case mode:
            raise Flaw("ClaimShape", f"{what} has the mode {mode[:63]}, which is not known")

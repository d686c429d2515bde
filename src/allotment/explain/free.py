"""What is free of what a job asks for, what too little is free of, and what is borrowed."""

from collections.abc import Mapping

import msgspec

from allotment.core.cluster import Cluster
from allotment.core.dimensions import types_wanted
from allotment.core.gang import Gang
from allotment.core.request import Request, total_of
from allotment.model.amounts import CPU, DISK, GPU, GPU_MEMORY, MEMORY, short, vector_of
from allotment.model.ledger import Entitlement
from allotment.model.quantity import Resources

_WORDS = {
    GPU: "GPU",
    CPU: "CPU",
    MEMORY: "memory",
    DISK: "disk",
    GPU_MEMORY: "GPU memory",
}


def free_for(cluster: Cluster, requests: tuple[Request, ...]) -> Resources:
    """Sum up what is free on open nodes, without devices of types that no task asks for.

    O(devices) where a gang is for some of several types, else as quick as `Ledger.free`.
    """
    free, types = cluster.ledger.free(), types_wanted(cluster, requests)
    if not types:
        return free
    found = [
        (max(0, book.device_milli[index]), max(0, book.device_memory[index]))
        for book in cluster.ledger.books.values()
        for index, kind in enumerate(book.types)
        if book.open and kind in types and index not in book.bad
    ]
    milli, memory = (sum(amounts) for amounts in zip((0, 0), *found, strict=True))
    return msgspec.structs.replace(free, gpu_milli=milli, gpu_memory=memory)


def lacking(cluster: Cluster, requests: tuple[Request, ...]) -> tuple[str, ...]:
    """Return in words of what too little is free for a gang, wherever it were put."""
    whole = short(total_of(requests), cluster.ledger.free())
    found = {part: _WORDS[part] for part in whole}
    if len(cluster.device_types) > 1:
        found |= _lacking_by_type(cluster, requests)
    return tuple(found[part] for part in _WORDS if part in found)


def _lacking_by_type(cluster: Cluster, requests: tuple[Request, ...]) -> Mapping[str, str]:
    """Name the types of devices of which too little is free, by what there is too little of."""
    kinds = {request.types for request in requests if request.types and request.need.gpu_milli}
    missing: dict[str, list[str]] = {}
    for types in sorted(kinds):
        alike = tuple(request for request in requests if request.types == types)
        for part in short(total_of(alike), free_for(cluster, alike)):
            if part in (GPU, GPU_MEMORY):
                missing.setdefault(part, []).append(" or ".join(types))
    return {part: f"{_WORDS[part]} ({', '.join(types)})" for part, types in missing.items()}


def borrowed_by(cluster: Cluster, gang: Gang) -> tuple[str, ...]:
    """Return the resources that a gang has on loan; none of one that is there by right.

    Where its tenant would have room for all of them, it is there on loan as a whole.
    """
    if gang.entitlement is not Entitlement.OPPORTUNISTIC:
        return ()
    whole = tuple(vector_of(gang.held()))
    if gang.opportunistic:
        return whole
    return cluster.guarantee.borrowed_parts(gang) or whole

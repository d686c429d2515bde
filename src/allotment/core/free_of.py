"""What is free of what a job asks for: of devices, those of the types it takes alone."""

from collections.abc import Mapping

import msgspec

from allotment.core.cluster import Cluster
from allotment.core.request import Request, total_of
from allotment.model.quantity import Resources

_WORDS = {
    "gpu_milli": "GPU",
    "cpu_milli": "CPU",
    "memory": "memory",
    "disk": "disk",
    "gpu_memory": "GPU memory",
}


def free_for(cluster: Cluster, requests: tuple[Request, ...]) -> Resources:
    """Sum up what is free on open nodes, without devices of types that no task asks for.

    O(devices) where a gang is for some of several types, else as quick as `Ledger.free`.
    """
    free, types = cluster.ledger.free(), types_wanted(cluster, requests)
    if not types:
        return free
    devices, memory = cluster.ledger.free_devices(types)
    return msgspec.structs.replace(free, gpu_milli=devices, gpu_memory=memory)


def types_wanted(cluster: Cluster, requests: tuple[Request, ...]) -> tuple[str, ...]:
    """Return the types of devices that a gang may have; none where it may have every one."""
    asking = [request for request in requests if request.need.gpu_milli]
    if not asking or len(cluster.device_types) <= 1:
        return ()
    if not all(request.types for request in asking):
        return ()
    return tuple(sorted({kind for request in asking for kind in request.types}))


def lacking(cluster: Cluster, requests: tuple[Request, ...]) -> tuple[str, ...]:
    """Return in words of what too little is free for a gang, wherever it were put."""
    whole = total_of(requests).short_of(cluster.ledger.free())
    found = {name: _WORDS[name] for name in _WORDS if name in whole}
    if len(cluster.device_types) > 1:
        found |= _lacking_by_type(cluster, requests)
    return tuple(found[name] for name in _WORDS if name in found)


def _lacking_by_type(cluster: Cluster, requests: tuple[Request, ...]) -> Mapping[str, str]:
    """Name the types of devices of which too little is free, by what there is too little of."""
    kinds = {request.types for request in requests if request.types and request.need.gpu_milli}
    short: dict[str, list[str]] = {}
    for types in sorted(kinds):
        alike = tuple(request for request in requests if request.types == types)
        for name in total_of(alike).short_of(free_for(cluster, alike)):
            if name.startswith("gpu_"):
                short.setdefault(name, []).append(" or ".join(types))
    return {name: f"{_WORDS[name]} ({', '.join(types)})" for name, types in short.items()}

"""A task that gets devices by name → the claim for them, and what that is given. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from allotment.backends.kubernetes.device_objects import GROUP, parts_of
from allotment.backends.kubernetes.named import NamedDevice
from allotment.backends.kubernetes.record import Launched
from allotment.backends.kubernetes.request import LAUNCH, SERVICE

MOST = 32
"""Devices of one claim."""
KIND = "ResourceClaim"

Tree = dict[str, Any]
ConfigOf = Callable[[str], Sequence[Tree]]
"""How the devices of a class are set up."""


def claim_of(record: Launched, service: str, devices: Sequence[NamedDevice]) -> Tree:
    """Return the claim of a task, by the name of its pod. It goes when that goes or has ended,
    as Kubernetes does with claims that a pod controls."""
    owner = {
        "apiVersion": "v1", "kind": "Pod", "name": record.name, "uid": record.uid,
        "controller": True,
    }  # fmt: skip
    requests = [
        {
            "name": name,
            "exactly": {
                "deviceClassName": of,
                "allocationMode": "ExactCount",
                "count": sum(each.of == of for each in devices),
            },
        }
        for of, name in _requests(devices).items()
    ]
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": KIND,
        "metadata": {
            "name": record.name,
            "labels": {SERVICE: service, LAUNCH: record.token},
            "ownerReferences": [owner],
        },
        "spec": {"devices": {"requests": requests}},
    }


def own_status(record: Launched, devices: Sequence[NamedDevice], config_of: ConfigOf) -> Tree:
    """Return what a task's claim is given."""
    requests = _requests(devices)
    config = [
        {"source": "FromClass", "requests": [name], **each}
        for of, name in requests.items()
        for each in config_of(of)
    ]
    given = [(requests[each.of], each) for each in devices]
    return status_of(given, config, record.node, (record.name, record.uid))


def status_of(
    given: Sequence[tuple[str, NamedDevice]],
    config: Sequence[Tree],
    node: str,
    pod: tuple[str, str],
) -> Tree:
    """Return what a claim is given: these very devices, each for a request, on a node, for a
    pod of this name and uid."""
    results = [_result(request, device) for request, device in given]
    on_node = {"key": "metadata.name", "operator": "In", "values": [node]}
    name, uid = pod
    return {
        "allocation": {
            "devices": {"results": results, **({"config": list(config)} if config else {})},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [on_node]}]},
        },
        "reservedFor": [{"resource": "pods", "name": name, "uid": uid}],
    }


NOTHING_GIVEN: Tree = {"allocation": None, "reservedFor": None}
"""The status of a claim that nobody has."""


def _requests(devices: Sequence[NamedDevice]) -> Mapping[str, str]:
    """Return the name of the request for each class."""
    classes = dict.fromkeys(each.of for each in devices)
    return {of: f"devices-{number}" for number, of in enumerate(classes)}


def _result(request: str, device: NamedDevice) -> Tree:
    driver, pool, name = parts_of(device.id)
    skips = {"skipNodeOperations": list(device.skips)} if device.skips else {}
    return {"request": request, "driver": driver, "pool": pool, "device": name, **skips}

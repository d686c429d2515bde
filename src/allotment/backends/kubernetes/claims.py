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

ConfigOf = Callable[[str], Sequence[dict[str, Any]]]
"""How the devices of a class are set up."""


def claim_of(record: Launched, service: str, devices: Sequence[NamedDevice]) -> dict[str, Any]:
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


def status_of(
    record: Launched, devices: Sequence[NamedDevice], config_of: ConfigOf
) -> dict[str, Any]:
    """Return what a claim is given: these very devices, on its task's node, for its pod."""
    requests = _requests(devices)
    config = [
        {"source": "FromClass", "requests": [name], **each}
        for of, name in requests.items()
        for each in config_of(of)
    ]
    results = [_result(requests, each) for each in devices]
    on_node = {"key": "metadata.name", "operator": "In", "values": [record.node]}
    return {
        "allocation": {
            "devices": {"results": results, **({"config": config} if config else {})},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [on_node]}]},
        },
        "reservedFor": [{"resource": "pods", "name": record.name, "uid": record.uid}],
    }


def _requests(devices: Sequence[NamedDevice]) -> Mapping[str, str]:
    """Return the name of the request for each class."""
    classes = dict.fromkeys(each.of for each in devices)
    return {of: f"devices-{number}" for number, of in enumerate(classes)}


def _result(requests: Mapping[str, str], device: NamedDevice) -> dict[str, Any]:
    driver, pool, name = parts_of(device.id)
    skips = {"skipNodeOperations": list(device.skips)} if device.skips else {}
    return {
        "request": requests[device.of],
        "driver": driver,
        "pool": pool,
        "device": name,
    } | skips

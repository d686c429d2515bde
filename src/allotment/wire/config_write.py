"""A configuration back into what `read_config` reads; reading it gives the same."""

from collections.abc import Iterator, Sequence
from shlex import join

import msgspec

from allotment.model.cluster import Device, Nic, Node
from allotment.model.dated import as_written
from allotment.model.engines import EngineSetup, RestSetup
from allotment.model.quantity import NOTHING, Resources
from allotment.model.spec import Arch
from allotment.model.tenancy import Config, DatedChange, Limits, Tenant
from allotment.wire.amounts import write_duration, write_milli, write_size
from allotment.wire.cells_write import shares_to_wire, topology_to_wire
from allotment.wire.config_budgets import budgets_to_wire
from allotment.wire.config_objectives import objectives_to_wire, write_percent
from allotment.wire.config_shape import ALL
from allotment.wire.dated_write import differing, period_to_wire
from allotment.wire.fields import OTHER_ARCH
from allotment.wire.mlflow_shape import mlflow_to_wire
from allotment.wire.pools_shape import pools_to_wire
from allotment.wire.preempt_rules import rules_to_wire
from allotment.wire.queues_write import queues_to_wire, shared_to_wire
from allotment.wire.tree import Plain

Written = dict[str, Plain]


def config_to_wire(config: Config) -> Written:
    """Return a configuration in full, defaults included, without its changes in force.

    Nodes are numbered by their order when it is read again, and so are their devices.
    """
    config = as_written(config)
    cells = topology_to_wire(config.topology, config.nodes) if config.topology.types else None
    return {
        **({"engines": _engines(config)} if config.engines else {}),
        "nodes": [node_to_wire(node) for node in config.nodes],
        **({"cells": cells} if cells else {}),
        "tenants": {
            tenant.name: _tenant(
                tenant, [each for each in config.changes if each.tenant == tenant.name]
            )
            for tenant in config.tenants
        },
        **({"default_tenant": config.default_tenant} if config.default_tenant else {}),
        **shared_to_wire(config.share, 1000),
        "visibility": config.visibility.value,
        "limits": _limits(config.limits),
        **({"pools": pools_to_wire(config.pools)} if config.pools else {}),
        **({"mlflow": mlflow_to_wire(config.mlflow)} if config.mlflow else {}),
        **({"pythons": config.pythons} if config.pythons else {}),
    }


def node_to_wire(node: Node) -> Written:
    """Return a node in full, as the configuration writes it."""
    return {
        "name": node.name,
        "cpu": write_milli(node.cpu_milli),
        "memory": write_size(node.memory),
        "disk": write_size(node.disk),
        "gpu": [_gpus(alike) for alike in _runs(node.devices)],
        "arch": node.arch.value if node.arch is not Arch.ANY else OTHER_ARCH,
        "address": node.address,
        "labels": dict(node.labels),
        **({"nics": [_nic(nic) for nic in node.nics]} if node.nics else {}),
        **({"engine": node.engine} if node.engine else {}),
    }


def _engines(config: Config) -> Written:
    return {
        engine.name: {
            "type": engine.type.value,
            **{key: value for key in ENGINE_WORDS if (value := getattr(engine, key))},
            **({"accounts": dict(engine.accounts)} if engine.accounts else {}),
            **_qos(engine),
            **({"rest": _rest(engine.rest)} if engine.rest else {}),
            **({"volumes": dict(engine.volumes)} if engine.volumes else {}),
            **({"shared": dict(engine.shared)} if engine.shared else {}),
            **_after("force_after", engine.force_after_ms),
            **_after("fence_after", engine.fence_after_ms),
            **_namespaces(engine),
            **({"schedulers": list(engine.schedulers)} if engine.schedulers else {}),
            **({"visible": list(engine.visible)} if engine.visible else {}),
            **({"labels": list(engine.labels)} if engine.labels else {}),
            **_tenant_namespaces(engine),
        }
        for engine in config.engines
    }


def _qos(engine: EngineSetup) -> Written:
    for_all: Written = {ALL: engine.qos} if engine.qos else {}
    of_tenants: Written = dict(engine.qos_of)
    if of_tenants:
        return {"qos": {**for_all, **of_tenants}}
    return {"qos": engine.qos} if engine.qos else {}


def _tenant_namespaces(engine: EngineSetup) -> Written:
    found: Written = dict(engine.tenant_namespaces)
    if found.keys() == {ALL}:
        return {"tenant_namespaces": found[ALL]}
    return {"tenant_namespaces": found} if found else {}


def _namespaces(engine: EngineSetup) -> Written:
    whose: Written = {name: list(words) for name, words in engine.namespaces}
    return {"namespaces": whose} if whose else {}


ENGINE_WORDS = (
    "partition", "reservation", "kubeconfig", "context", "namespace", "image", "folder",
    "apptainer",
)  # fmt: skip


def _rest(rest: RestSetup) -> Written:
    is_socket = rest.server.startswith("unix:")
    told = {
        "socket" if is_socket else "url": rest.server.removeprefix("unix:"),
        "token": rest.token_file,
        "token_command": join(rest.token_command),
        "user": rest.user,
    }
    return {key: value for key, value in told.items() if value}


def _after(key: str, for_ms: int) -> Written:
    return {key: write_duration(for_ms)} if for_ms else {}


def _nic(nic: Nic) -> Written:
    return {"name": nic.name, "near": list(nic.near)}


def _runs(devices: Sequence[Device]) -> Iterator[list[Device]]:
    """Cut a row of devices where the next is of another kind."""
    run: list[Device] = []
    for device in devices:
        if run and _kind(run[0]) != _kind(device):
            yield run
            run = []
        run.append(device)
    if run:
        yield run


def _kind(device: Device) -> tuple[str, int, bool, bool]:
    return device.type, device.memory, device.virtual, bool(device.uuid)


def _gpus(alike: Sequence[Device]) -> Written:
    uuids: list[Plain] = [device.uuid for device in alike if device.uuid]
    return {
        "type": alike[0].type,
        "count": len(alike),
        "memory": write_size(alike[0].memory),
        "virtual": alike[0].virtual,
        **({"uuids": uuids} if uuids else {}),
    }


def _tenant(tenant: Tenant, changes: Sequence[DatedChange]) -> Written:
    dated = [_dated(tenant, change) for change in changes if change.share is not None]
    return {
        "guaranteed": _resources(tenant.guaranteed),
        "users": list(tenant.users),
        "groups": list(tenant.groups),
        **({"images": [str(rule) for rule in tenant.images]} if tenant.images else {}),
        "borrow": tenant.borrow,
        **({"cells": shares_to_wire(tenant.cells)} if tenant.cells else {}),
        **({"pins": list(tenant.pins)} if tenant.pins else {}),
        "preempt": tenant.preempt.value,
        **rules_to_wire(tenant),
        **({"per_user": _cap(tenant.per_user)} if tenant.per_user != NOTHING else {}),
        **shared_to_wire(tenant.share, tenant.weight_milli),
        **(
            {"objectives": objectives}
            if (objectives := objectives_to_wire(tenant.objectives))
            else {}
        ),
        **({"budgets": budgets_to_wire(tenant.budgets)} if tenant.budgets else {}),
        **({"changes": list[Plain](dated)} if dated else {}),
        "queues": queues_to_wire(tenant, changes),
    }


def _dated(tenant: Tenant, change: DatedChange) -> Written:
    assert change.share is not None, "only what a tenant is guaranteed is written here"
    share = msgspec.structs.asdict(change.share)
    if change.share.per_user is None:
        del share["per_user"]
    then = _guaranteed(msgspec.structs.replace(tenant, **share))
    differs = differing(_guaranteed(tenant), then, _USUAL)
    if "cells" in differs:
        differs.pop("guaranteed", None)  # It follows from them.
    return {**period_to_wire(change), **differs}


_USUAL: Written = {"guaranteed": {}, "cells": {}, "borrow": True, "weight": 1, "per_user": {}}
"""What may change by date of a tenant, and what it is where it is not written."""


def _guaranteed(tenant: Tenant) -> Written:
    return {
        "guaranteed": _resources(tenant.guaranteed),
        "borrow": tenant.borrow,
        "cells": shares_to_wire(tenant.cells),
        "per_user": _cap(tenant.per_user),
        **shared_to_wire(tenant.share, tenant.weight_milli),
    }


def _cap(cap: Resources) -> Written:
    """Write what is capped alone: 0 means no cap."""
    parts = msgspec.structs.astuple(cap)
    written = _resources(cap).items()
    return {key: amount for (key, amount), part in zip(written, parts, strict=True) if part}


def _resources(amount: Resources) -> Written:
    return {
        "gpu": write_milli(amount.gpu_milli),
        "cpu": write_milli(amount.cpu_milli),
        "memory": write_size(amount.memory),
        "disk": write_size(amount.disk),
        "gpu_memory": write_size(amount.gpu_memory),
    }


def _limits(limits: Limits) -> Written:
    return {
        "platform_retries": limits.platform_retries,
        "backoff": {
            "first": write_duration(limits.backoff_first_ms),
            "most": write_duration(limits.backoff_most_ms),
        },
        "phase": write_duration(limits.phase_ms),
        "barrier": write_duration(limits.barrier_ms),
        "keep_finished": limits.keep_finished,
        "keep_history": write_duration(limits.keep_history_ms),
        "task_log": write_size(limits.task_log_bytes),
        "task_pids": limits.task_pids,
        "image_store": write_size(limits.image_store),
        "pull": write_duration(limits.pull_ms),
        "code_files": limits.code_files,
        "code_bytes": write_size(limits.code_bytes),
        "code_store": write_size(limits.code_store),
        "environment_store": write_size(limits.environment_store),
        "data_store": write_size(limits.data_store),
        "data_files": limits.data_files,
        "data_cache": write_size(limits.data_cache),
        "ports": _ports(*limits.ports),
        "half_life": write_duration(limits.half_life_ms),
        "per_user": msgspec.structs.asdict(limits.per_user),
        "predict": write_milli(limits.predict_milli) if limits.predict_milli else "none",
        "breaker": write_percent(limits.breaker_ppm) if limits.breaker_ppm else "none",
    }


def _ports(first: int, end: int) -> str:
    return f"{first}-{end - 1}" if end > first else "none"

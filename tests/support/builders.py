"""Builders that read like the sentence: `a_job().tasks(4).gpus(1).of("vision")`."""

from typing import Self

import msgspec

from allotment.model.cluster import Device, Node
from allotment.model.data_use import DataUse, reference_of
from allotment.model.environment import Environment
from allotment.model.ids import Actor, DeviceIndex, NodeId
from allotment.model.quantity import GIB, Instant, Millis, Resources
from allotment.model.spec import (
    Arch,
    Checkpoint,
    Completion,
    Dependency,
    GiveWay,
    JobSpec,
    TaskRole,
)
from allotment.model.tenancy import Config, Limits, Queue, QueueOrder, Tenant
from allotment.wiring.policies import policies

ALICE = Actor("alice", 1001, ("vision",))
POLICIES = policies()


def gpus(count: float) -> Resources:
    """A share with plenty of everything but devices."""
    return Resources(gpu_milli=round(count * 1000), cpu_milli=10**9, memory=10**15)


class JobBuilder:
    def __init__(self) -> None:
        self._spec = JobSpec(
            name="job",
            tenant="vision",
            roles=(TaskRole(name="main", count=1, command="true", resources=small()),),
        )

    def _with(self, **changes: object) -> Self:
        self._spec = msgspec.structs.replace(self._spec, **changes)
        return self

    def _role(self, **changes: object) -> Self:
        role = msgspec.structs.replace(self._spec.roles[0], **changes)
        return self._with(roles=(role, *self._spec.roles[1:]))

    def tasks(self, count: int) -> Self:
        return self._role(count=count)

    def between(self, least: int, most: int, *, elastic: bool = False) -> Self:
        return self._role(count=most, least=least, elastic=elastic)

    def arch(self, arch: Arch) -> Self:
        return self._role(arch=arch)

    def gpus(self, count: float) -> Self:
        need = msgspec.structs.replace(
            self._spec.roles[0].resources, gpu_milli=round(count * 1000)
        )
        return self._role(resources=need)

    def cpus(self, count: float) -> Self:
        need = msgspec.structs.replace(
            self._spec.roles[0].resources, cpu_milli=round(count * 1000)
        )
        return self._role(resources=need)

    def memory(self, amount: int) -> Self:
        need = msgspec.structs.replace(self._spec.roles[0].resources, memory=amount)
        return self._role(resources=need)

    def disk(self, amount: int) -> Self:
        need = msgspec.structs.replace(self._spec.roles[0].resources, disk=amount)
        return self._role(resources=need)

    def gpu_memory(self, each: int) -> Self:
        need = msgspec.structs.replace(self._spec.roles[0].resources, gpu_memory=each)
        return self._role(resources=need)

    def types(self, *types: str) -> Self:
        return self._role(gpu_types=types)

    def completes(self, min_failed: int = 1, min_succeeded: int | None = None) -> Self:
        return self._role(completion=Completion(min_failed, min_succeeded))

    def also(self, role: TaskRole) -> Self:
        return self._with(roles=(*self._spec.roles, role))

    def grouped(self, size: int, within: str) -> Self:
        return self._role(group=size, group_within=within)

    def of(self, tenant: str, queue: str = "default") -> Self:
        return self._with(tenant=tenant, queue=queue)

    def named(self, name: str) -> Self:
        return self._with(name=name)

    def priority(self, priority: int) -> Self:
        return self._with(priority=priority)

    def weight(self, weight: int) -> Self:
        return self._with(weight=weight)

    def held_on_failure(self, ms: int) -> Self:
        return self._with(hold_on_failure_ms=ms)

    def retry(self, count: int) -> Self:
        return self._with(retry=count)

    def in_image(self, image: str) -> Self:
        return self._with(image=image)

    def in_environment(self, key: str) -> Self:
        return self._with(environment=Environment(key=key))

    def using(self, *versions: str) -> Self:
        """Let it use versions of datasets, by name, whose files go to nodes."""
        named = [found for each in versions if (found := reference_of(each)) is not None]
        uses = (
            DataUse(each.tenant, each.name, each.version, f"/{each.name}", False, "d", True)
            for each in named
        )
        return self._with(data=tuple(uses))

    def not_preemptible(self) -> Self:
        return self._with(preemptible=False)

    def pinned(self, pin: str) -> Self:
        return self._with(pin=pin)

    def opportunistic(self) -> Self:
        return self._with(opportunistic=True)

    def giving_way(self, way: GiveWay) -> Self:
        return self._with(on_eviction=way)

    def within_one(self, level: str) -> Self:
        return self._with(within=level)

    def preferring(self, level: str) -> Self:
        return self._with(prefer=level)

    def after(self, *dependencies: Dependency) -> Self:
        return self._with(depends_on=dependencies)

    def within(self, *, run_ms: int | None = None, queue_ms: int | None = None) -> Self:
        if run_ms is not None:
            self._with(max_run_ms=Millis(run_ms))
        if queue_ms is not None:
            self._with(max_queue_ms=Millis(queue_ms))
        return self

    def due(self, after_ms: int) -> Self:
        return self._with(deadline_ms=Millis(after_ms))

    def checkpointing(self, signal: str = "USR1", grace_ms: int = 3000) -> Self:
        return self._with(checkpoint=Checkpoint(signal=signal, grace_ms=Millis(grace_ms)))

    def spec(self) -> JobSpec:
        return self._spec


def small() -> Resources:
    return Resources(cpu_milli=1000, memory=GIB)


def a_job() -> JobBuilder:
    return JobBuilder()


def a_node(
    number: int = 0, devices: int = 8, kind: str = "A100", memory: int = 80 * GIB
) -> Node:
    return Node(
        id=NodeId(number),
        name=f"n{number}",
        cpu_milli=64_000,
        memory=512 * GIB,
        disk=1000 * GIB,
        devices=tuple(Device(DeviceIndex(i), kind, memory) for i in range(devices)),
    )


def a_tenant(
    name: str,
    guaranteed: float = 0,
    *,
    borrow: bool = True,
    order: QueueOrder = QueueOrder.STRICT,
) -> Tenant:
    return Tenant(name, gpus(guaranteed), (Queue("default", order),), borrow=borrow)


def a_config(
    *tenants: Tenant, nodes: int = 1, devices: int = 8, limits: Limits | None = None
) -> Config:
    return Config(
        nodes=tuple(a_node(i, devices) for i in range(nodes)),
        tenants=tenants,
        limits=limits or Limits(),
    )


NOW = Instant(1_000_000)

"""Pools of nodes, as the configuration says them."""

from collections.abc import Iterator, Mapping
from typing import Annotated, cast

from pydantic import Field, PlainValidator, model_validator

from allotment.model.cluster import Device, Node
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.pools import POOL, UNKNOWN, Pool
from allotment.model.spec import Arch
from allotment.wire import amounts
from allotment.wire.amiss import Amiss
from allotment.wire.amounts import write_milli, write_size
from allotment.wire.fields import (
    Cpu,
    Line,
    Name,
    NameOrNone,
    Size,
    SizeOrNone,
    Word,
    read_gpu_count,
    read_host_arch,
)
from allotment.wire.job_shape import Shape
from allotment.wire.problems import Finding, nearest
from allotment.wire.text import shown
from allotment.wire.tree import Plain

MOST_NODES = 100_000
MOST_PRICE_MILLI = 10**9


def _read_price(value: object) -> int:
    """Read what a node costs for an hour, in thousandths."""
    milli = amounts.read_price(value)
    if milli > MOST_PRICE_MILLI:
        raise Amiss(f"{shown(value)} is more than 1,000,000 for an hour", "check it")
    return milli


def _read_most(value: object) -> int:
    return amounts.read_whole(value, 0, MOST_NODES)


class PoolGpuShape(Shape):
    """The devices of each node."""

    type: Word = Field(examples=["h100"])
    count: Annotated[int, PlainValidator(read_gpu_count)] = Field(examples=["8"])
    memory: SizeOrNone = 0


class PoolShape(Shape):
    """A pool: what a node costs, how many there may be, and what one is like."""

    price: Annotated[int, PlainValidator(_read_price)] | None = Field(
        default=None, examples=["32.77"]
    )
    most: Annotated[int, PlainValidator(_read_most)] | None = Field(
        default=None, examples=["20"]
    )
    cpu: Cpu | None = Field(default=None, examples=["96"])
    memory: Size | None = Field(default=None, examples=["1TiB"])
    disk: SizeOrNone = 0
    gpu: PoolGpuShape | None = Field(default=None, examples=["{type: h100, count: 8}"])
    arch: Annotated[Arch, PlainValidator(read_host_arch)] = Arch.X86_64
    engine: NameOrNone = Field(default="", examples=["kubernetes"])
    labels: dict[Name, Line] = Field(default={}, examples=["{zone: a}"])

    @model_validator(mode="after")
    def _whole_node(self) -> "PoolShape":
        if (self.cpu is None) is not (self.memory is None):
            key = "cpu" if self.cpu is None else "memory"
            raise Amiss("is missing", "say what a node has: cpu, memory and gpu", at=(key,))
        if self.cpu is None:
            for key in ("gpu", "disk", "engine", "labels"):
                if getattr(self, key):
                    message = "is given, and not what else a node has"
                    raise Amiss(message, "add cpu and memory", at=(key,))
        return self


def pools_of(shapes: Mapping[str, PoolShape], engines: list[str]) -> tuple[Pool, ...]:
    """Return the pools that are configured, by name."""
    sole = engines[0] if len(engines) == 1 else ""
    return tuple(
        Pool(
            name,
            UNKNOWN if shape.price is None else shape.price,
            UNKNOWN if shape.most is None else shape.most,
            _node(name, shape, shape.engine or sole),
        )
        for name, shape in sorted(shapes.items())
    )


def _node(name: str, shape: PoolShape, engine: str) -> Node | None:
    if shape.cpu is None or shape.memory is None:
        return None
    gpu = shape.gpu
    devices = (
        tuple(
            Device(DeviceIndex(at), gpu.type, gpu.memory, virtual=False)
            for at in range(gpu.count)
        )
        if gpu is not None
        else ()
    )
    labels = tuple(sorted({**shape.labels, POOL: name}.items()))
    return Node(
        NodeId(0), name, shape.cpu, shape.memory, shape.disk, devices, shape.arch,
        labels=labels, engine=engine,
    )  # fmt: skip


def wrong_pools(shapes: Mapping[str, PoolShape], engines: list[str]) -> Iterator[Finding]:
    """Find pools of engines that there are not, or of none where there are several."""
    for name, shape in shapes.items():
        if shape.engine and shape.engine not in engines:
            hint = nearest(shape.engine, engines, what="engines")
            yield ("pools", name, "engine"), f"there is no engine {shape.engine}", hint
        elif shape.cpu is not None and not shape.engine and len(engines) > 1:
            message = "is missing, and there are several engines"
            yield ("pools", name, "engine"), message, f"add engine: {engines[0]}"


def pools_to_wire(pools: tuple[Pool, ...]) -> dict[str, Plain]:
    """Return pools as the configuration writes them."""
    return {pool.name: _written(pool) for pool in pools}


def _written(pool: Pool) -> dict[str, Plain]:
    node = pool.node
    said: dict[str, Plain] = {}
    if pool.price_milli != UNKNOWN:
        said["price"] = write_milli(pool.price_milli)
    if pool.most != UNKNOWN:
        said["most"] = pool.most
    if node is None:
        return said
    first = next(iter(node.devices), None)
    gpu: dict[str, Plain] = {}
    if first is not None:
        gpu = {"type": first.type, "count": len(node.devices)}
        gpu |= {"memory": write_size(first.memory)} if first.memory else {}
    labels = {name: value for name, value in node.labels if name != POOL}
    return {
        **said,
        "cpu": write_milli(node.cpu_milli),
        "memory": write_size(node.memory),
        **({"disk": write_size(node.disk)} if node.disk else {}),
        **({"gpu": gpu} if gpu else {}),
        "arch": node.arch.value,
        **({"engine": node.engine} if node.engine else {}),
        **({"labels": cast("Plain", labels)} if labels else {}),
    }

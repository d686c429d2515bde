"""Guarantees: filled in where they are silent, and checked against what there is."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from allotment.model.cluster import Node
from allotment.model.quantity import NOTHING, Resources, show_bytes, show_milli
from allotment.model.tenancy import Config, Tenant
from allotment.wire.config_shape import GuaranteedShape, TenantShape
from allotment.wire.tree import Place
from allotment.wire.words import NAME

UNNAMED = "default"
MOST_NAMED = 6
"""Tenants that a message lists."""


def _count(unit: str) -> Callable[[int], str]:
    return lambda amount: f"{show_milli(amount)} {unit}"


PARTS: tuple[tuple[str, str, Callable[[int], str]], ...] = (
    ("gpu", "gpu_milli", _count("GPU")),
    ("cpu", "cpu_milli", _count("CPU")),
    ("memory", "memory", show_bytes),
    ("disk", "disk", show_bytes),
    ("gpu_memory", "gpu_memory", show_bytes),
)
"""Key, field, and how an amount of it is written."""


def share_of(shape: GuaranteedShape, capacity: Resources) -> Resources:
    """Return a guarantee with its missing parts filled in.

    A missing part is in the proportion that the guarantee's GPUs have to the cluster's; without
    GPUs, memory and disk are in that of its CPUs. An empty guarantee is nothing.
    """
    part, whole = _proportion(shape, capacity)
    amounts: dict[str, int] = {}
    for key, field, _ in PARTS:
        given: int | None = getattr(shape, key)
        follows = bool(shape.gpu) or "gpu" not in key
        fair: int = getattr(capacity, field) * part // whole if follows else 0
        amounts[field] = fair if given is None else given
    return Resources(**amounts)


def _proportion(shape: GuaranteedShape, capacity: Resources) -> tuple[int, int]:
    """Find the first resource that says how large a share is meant."""
    for key, field, _ in PARTS[:2]:
        given: int | None = getattr(shape, key)
        if given:
            whole: int = getattr(capacity, field)
            return (min(given, whole), whole) if whole else (0, 1)
    return 0, 1


def over_capacity(
    tenants: Sequence[Tenant], shapes: Mapping[str, TenantShape], capacity: Resources
) -> Iterator[tuple[Place, str, str]]:
    """Return a problem for each resource that is guaranteed beyond what there is."""
    for key, field, show in PARTS:
        there: int = getattr(capacity, field)
        guaranteed = {tenant.name: int(getattr(tenant.guaranteed, field)) for tenant in tenants}
        total = sum(guaranteed.values())
        if total > there:
            who = _list(key, guaranteed, shapes, show)
            yield (
                _place(key, guaranteed, shapes),
                f"all guarantees of {key} add up to {show(total)}, which is "
                f"{show(total - there)} more than there is: {who}",
                "lower a guarantee, or add nodes",
            )


def _place(key: str, guaranteed: Mapping[str, int], shapes: Mapping[str, TenantShape]) -> Place:
    """Point at the largest guarantee that was written down."""
    written = [name for name in guaranteed if getattr(shapes[name].guaranteed, key) is not None]
    if not written:
        return ("tenants",)
    return ("tenants", max(written, key=lambda name: guaranteed[name]), "guaranteed", key)


def _list(
    key: str,
    guaranteed: Mapping[str, int],
    shapes: Mapping[str, TenantShape],
    show: Callable[[int], str],
) -> str:
    largest = sorted(
        (name for name in guaranteed if guaranteed[name]), key=lambda n: -guaranteed[n]
    )
    words = [
        f"{name} {show(guaranteed[name])}"
        + (" (in proportion)" if getattr(shapes[name].guaranteed, key) is None else "")
        for name in largest[:MOST_NAMED]
    ]
    if len(largest) > MOST_NAMED:
        words.append(f"and {len(largest) - MOST_NAMED} more")
    return ", ".join(words)


def equal_shares(nodes: Sequence[Node], groups: Sequence[str]) -> Config:
    """Return one tenant for each group, with equal shares; the first gets the rest."""
    names = _tenant_names(groups) or {UNNAMED: ""}
    whole = sum((node.total() for node in nodes), NOTHING)
    share = _divided(whole, len(names))
    rest = whole - share * len(names)
    tenants = tuple(
        Tenant(
            name,
            share + rest if at == 0 else share,
            groups=(group,) if group else (),
        )
        for at, (name, group) in enumerate(names.items())
    )
    return Config(tuple(nodes), tenants, default_tenant=tenants[0].name)


def _divided(whole: Resources, parts: int) -> Resources:
    """Divide, devices only as wholes; device memory goes with the devices."""
    devices = whole.gpu_milli // 1000 // parts
    return Resources(
        gpu_milli=devices * 1000,
        cpu_milli=whole.cpu_milli // parts,
        memory=whole.memory // parts,
        disk=whole.disk // parts,
        gpu_memory=whole.gpu_memory * devices * 1000 // whole.gpu_milli if devices else 0,
    )


def _tenant_names(groups: Sequence[str]) -> dict[str, str]:
    """Return each group a tenant's name: its own, as far as it is one."""
    names: dict[str, str] = {}
    for group in dict.fromkeys(groups):
        word = "".join(letter if NAME.fullmatch("a" + letter) else "-" for letter in group)
        word = word.lstrip("._-")[:100] or UNNAMED
        name, suffix = word, 1
        while name in names:
            suffix += 1
            name = f"{word}-{suffix}"
        names[name] = group
    return names

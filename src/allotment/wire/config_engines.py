"""Which engine runs which node: as the nodes say it, or as the engines find them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from shlex import split

import msgspec

from allotment.model.cluster import Node
from allotment.model.engines import ANY_ENGINE, EngineSetup, EngineType, RestSetup
from allotment.model.ids import NodeId
from allotment.wire.config_shape import ALL, ConfigShape, EngineShape
from allotment.wire.problems import Finding, nearest
from allotment.wire.tree import Place

Found = Mapping[str, Sequence[Node]]
"""The nodes that an engine finds, by its name."""


def engines_of(shape: ConfigShape) -> tuple[EngineSetup, ...]:
    """Return the engines that are configured, in their order."""
    return tuple(
        EngineSetup(
            name,
            engine.type,
            engine.partition,
            tuple(sorted(engine.accounts.items())),
            engine.qos.get(ALL, ""),
            engine.kubeconfig,
            engine.context,
            engine.namespace,
            engine.image,
            tuple(sorted(engine.volumes.items())),
            engine.force_after,
            tuple(sorted((name, tuple(whose)) for name, whose in engine.namespaces.items())),
            engine.folder,
            _rest_of(engine),
            engine.reservation,
            engine.apptainer,
            tuple(sorted((tenant, qos) for tenant, qos in engine.qos.items() if tenant != ALL)),
            tuple(engine.schedulers),
            engine.fence_after,
            tuple(engine.visible),
            tuple(sorted(engine.tenant_namespaces.items())),
            tuple(engine.labels),
            tuple(sorted(engine.shared.items())),
        )
        for name, engine in shape.engines.items()
    )


def _rest_of(engine: EngineShape) -> RestSetup | None:
    told = engine.rest
    if told is None:
        return None
    server = told.url or f"unix:{told.socket}"
    return RestSetup(server, told.token, tuple(split(told.token_command)), told.user)


def with_engines(
    shape: ConfigShape, listed: Sequence[Node], found: Found
) -> tuple[tuple[Node, ...], list[Finding]]:
    """Return the nodes, each with its engine, and all contradictions.

    An engine of which no node is listed has all that it finds.
    """
    names = list(shape.engines)
    if not names:
        return tuple(listed), list(_unknown(shape, names))
    wrong = [*_wrong(shape), *_unknown(shape, names)]
    sole = names[0] if len(names) == 1 else ""
    nodes = [msgspec.structs.replace(node, engine=node.engine or sole) for node in listed]
    if not all(node.engine for node in nodes) and not wrong:
        hint = "list the machines under `nodes`, each with its engine"
        wrong.append((("hardware",), "does not say which engine runs its machines", hint))
    taken = {node.name: node.engine for node in nodes}
    ids = count(len(nodes))
    for name in names:
        if any(node.engine == name for node in nodes):
            continue
        if not found.get(name):
            hint = f"list them: nodes: [{{name: n1, cpu: 8, memory: 32GiB, engine: {name}}}]"
            wrong.append((("engines", name), "has no nodes that are known", hint))
        for node in found.get(name, ()):
            if other := taken.get(node.name):
                message = f"finds node {node.name}, which engine {other} has already"
                hint = "list the nodes of one of them under `nodes`"
                wrong.append((("engines", name), message, hint))
                break
            taken[node.name] = name
            nodes.append(msgspec.structs.replace(node, id=NodeId(next(ids)), engine=name))
    return tuple(nodes), wrong


def _wrong(shape: ConfigShape) -> Iterator[Finding]:
    """Find engines that are in each other's way, and names that mean something else."""
    seen: dict[tuple[str, ...], str] = {}
    for name, engine in shape.engines.items():
        what = engine.type.value, engine.partition, engine.kubeconfig, engine.context
        if name == ANY_ENGINE:
            hint = f"in a job, `engine: {ANY_ENGINE}` means several: take another name"
            yield ("engines", name), "cannot be the name of an engine", hint
        if what in seen:
            same = f"partition {engine.partition}" if engine.partition else "this machine"
            if engine.type is EngineType.KUBERNETES:
                same = "that cluster"
            yield ("engines", name), f"is {same}, as is {seen[what]}", "take one of them out"
        seen.setdefault(what, name)
        for key, tenants in (("accounts", engine.accounts), ("qos", engine.qos)):
            for tenant in tenants.keys() - shape.tenants.keys() - {ALL}:
                hint = nearest(tenant, list(shape.tenants), what="tenants")
                yield ("engines", name, key, tenant), "there is no such tenant", hint
        yield from _wrong_spaces(name, engine, shape)
        for namespace, whose in engine.namespaces.items():
            for tenant in {word.partition("/")[0] for word in whose} - shape.tenants.keys():
                hint = nearest(tenant, list(shape.tenants), what="tenants")
                at = ("engines", name, "namespaces", namespace)
                yield at, f"there is no tenant {tenant}", hint


def _wrong_spaces(name: str, engine: EngineShape, shape: ConfigShape) -> Iterator[Finding]:
    """Find tenants whose pods would be in no namespace of their own."""
    named = engine.tenant_namespaces
    at: Place = ("engines", name, "tenant_namespaces")
    for tenant in named.keys() - shape.tenants.keys() - {ALL}:
        yield (
            (*at, tenant),
            "there is no such tenant",
            nearest(tenant, list(shape.tenants), what="tenants"),
        )
    for tenant in shape.tenants if named else ():
        space = named.get(tenant) or named.get(ALL, "").replace("{tenant}", tenant)
        place = (*at, tenant) if tenant in named else at
        if space and not NAMESPACE.fullmatch(space):
            hint = f"name one: tenant_namespaces: {{{tenant}: NAMESPACE}}"
            yield place, f"{space} cannot be the name of a namespace", hint
        elif space in engine.namespaces:
            message = f"{space} is among `namespaces`, where others make pods"
            yield place, message, "take another one for tasks"


NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""What Kubernetes allows."""


def _unknown(shape: ConfigShape, names: list[str]) -> Iterator[Finding]:
    """Find nodes of engines that there are not, or of none where there are several."""
    for at, node in enumerate(shape.nodes or ()):
        place: Place = ("nodes", at, "engine")
        if node.engine and not names:
            hint = "add `engines: {here: {type: local}}`, or take it out"
            yield place, f"there is no engine {node.engine}", hint
        elif node.engine and node.engine not in names:
            hint = nearest(node.engine, names, what="engines")
            yield place, f"there is no engine {node.engine}", hint
        elif not node.engine and len(names) > 1:
            yield place, "is missing, and there are several engines", f"add engine: {names[0]}"

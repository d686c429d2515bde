"""Changing the configuration while jobs run: first what it would do, then doing it."""

import asyncio
from collections.abc import Callable

import msgspec

from allotment.engine.foresee import Foresight, digest, foresee
from allotment.model.commands import ApplyConfig
from allotment.model.dated import as_written
from allotment.model.errors import Code, Problem, Rejected
from allotment.model.ids import Actor
from allotment.model.quantity import Resources, show_resources
from allotment.model.tenancy import Config, Tenant
from allotment.service.access import may_administer
from allotment.service.config_view import (
    ConfigChange,
    ConfigInForce,
    ConfigPlan,
    DemotedJob,
)
from allotment.service.dated import coming, dated, over
from allotment.service.pipeline import Pipeline


class ConfigFiles(msgspec.Struct, frozen=True):
    """How configurations are read, written and kept: what `wire` and the state folder do."""

    read: Callable[[bytes, str], tuple[Config, tuple[Problem, ...]]]
    """Turns a file's text and name into a configuration and warnings. Raises BadInput."""
    write: Callable[[Config], str]
    """Writes a configuration in full, as `read` takes it."""
    keep: Callable[[bytes], None]
    """Keeps the text where the next start finds it."""


class Reconfiguring:
    """The use cases around `allot config plan` and `apply`."""

    def __init__(self, pipeline: Pipeline, files: ConfigFiles) -> None:
        self._pipeline = pipeline
        self._read, self._write, self._keep = files.read, files.write, files.keep
        self._one_at_a_time = asyncio.Lock()

    def in_force(self, actor: Actor) -> ConfigInForce:
        """Give the configuration. Raises Rejected."""
        may_administer(actor)
        config = as_written(self._pipeline.state.config)
        return ConfigInForce(digest(config), self._write(config))

    async def plan(self, text: bytes, source: str, actor: Actor) -> ConfigPlan:
        """Say what a configuration would change. Raises BadInput, Rejected."""
        may_administer(actor)
        config, warnings = await asyncio.to_thread(self._read, text, source)
        state = self._pipeline.state
        old, image = as_written(state.config), msgspec.msgpack.encode(state.image())
        now = self._pipeline.clock.now()
        found = await asyncio.to_thread(foresee, image, config, state, now)
        said = (*(str(each) for each in warnings), *over(config, now))
        plan = self._words(old, config, found, said)
        return msgspec.structs.replace(plan, coming=coming(config, now))

    async def apply(self, text: bytes, source: str, expect: str, actor: Actor) -> ConfigPlan:
        """Put a configuration in force, whole or not at all; durable on return.

        Jobs run on. `expect` is the digest of the configuration it was planned against, ''
        for whichever is in force. Raises BadInput, Rejected.
        """
        async with self._one_at_a_time:
            plan = await self.plan(text, source, actor)
            if plan.refusal:
                raise Rejected(Code.CONFLICT, plan.refusal)
            if expect and digest(self._pipeline.state.config) != expect:
                raise Rejected(
                    Code.CONFLICT,
                    f"The configuration in force is {plan.current}, not {expect}: somebody "
                    "changed it since.",
                    "Look again: allot config plan FILE.",
                )
            config, _ = self._read(text, source)
            await self._pipeline.command(ApplyConfig(config), actor)
            await asyncio.to_thread(self._keep, text)
            return msgspec.structs.replace(plan, applied=True)

    def _words(
        self, old: Config, new: Config, found: Foresight, warnings: tuple[str, ...]
    ) -> ConfigPlan:
        jobs = self._pipeline.state.jobs
        return ConfigPlan(
            current=digest(old),
            proposed=digest(new),
            changes=tuple(differences(old, new)),
            refusal=found.refusal,
            demoted=tuple(
                DemotedJob(loss.job, jobs[loss.job].spec.name, loss.tenant)
                for loss in found.demoted
                if loss.job in jobs
            ),
            unpromised=found.unpromised,
            stranded=found.stranded,
            borrowing=found.borrowing,
            warnings=warnings,
        )


# ── differences ─────────────────────────────────────────────────────────────────────────


def differences(old: Config, new: Config) -> list[ConfigChange]:
    """List what comes, goes and changes: nodes, cells, tenants, limits."""
    return [
        *_nodes(old, new),
        *_cells(old, new),
        *_tenants(old, new),
        *dated(old, new),
        *_limits(old, new),
    ]


def _nodes(old: Config, new: Config) -> list[ConfigChange]:
    before = {node.name: node for node in old.nodes}
    after = {node.name: node for node in new.nodes}
    found = [
        ConfigChange("-", f"node {name}", show_resources(node.total()))
        for name, node in before.items()
        if name not in after
    ]
    for name, node in after.items():
        if name not in before:
            found.append(ConfigChange("+", f"node {name}", show_resources(node.total())))
            continue
        was = before[name]
        # Ids are given by the engine: two readings of one file may number differently.
        if msgspec.structs.replace(node, id=was.id) != was:
            then, now = show_resources(was.total()), show_resources(node.total())
            detail = f"{then} → {now}" if then != now else "details"
            types = tuple(d.type for d in was.devices), tuple(d.type for d in node.devices)
            if types[0] != types[1]:
                detail += f", devices {_tally(types[0])} → {_tally(types[1])}"
            found.append(ConfigChange("~", f"node {name}", detail))
    return found


def _tally(types: tuple[str, ...]) -> str:
    kinds = {kind: types.count(kind) for kind in types}
    return ", ".join(f"{count}×{kind}" for kind, count in kinds.items()) or "none"


def _cells(old: Config, new: Config) -> list[ConfigChange]:
    found: list[ConfigChange] = []
    before = {kind.name: kind for kind in old.topology.types}
    after = {kind.name: kind for kind in new.topology.types}
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            sign = "+" if name not in before else "-" if name not in after else "~"
            kind = after.get(name) or before[name]
            found.append(
                ConfigChange(sign, f"cell type {name}", f"{kind.count} × {kind.child}")
            )
    roots = _names(old), _names(new)
    found += [ConfigChange("-", f"cell {name}") for name in roots[0] - roots[1]]
    found += [ConfigChange("+", f"cell {name}") for name in roots[1] - roots[0]]
    pins = {p.id for p in old.topology.pins}, {p.id for p in new.topology.pins}
    found += [ConfigChange("-", f"pinned cell {name}") for name in sorted(pins[0] - pins[1])]
    found += [ConfigChange("+", f"pinned cell {name}") for name in sorted(pins[1] - pins[0])]
    return sorted(found, key=lambda change: (change.what, change.sign))


def _names(config: Config) -> set[str]:
    return {root.name for root in config.topology.roots}


def _tenants(old: Config, new: Config) -> list[ConfigChange]:
    before = {tenant.name: tenant for tenant in old.tenants}
    after = {tenant.name: tenant for tenant in new.tenants}
    found = [
        ConfigChange("-", f"tenant {name}", _owed(before[name]))
        for name in before
        if name not in after
    ]
    for name, tenant in after.items():
        was = before.get(name)
        if was is None:
            found.append(ConfigChange("+", f"tenant {name}", _owed(tenant)))
        elif was != tenant:
            then, now = _owed(was), _owed(tenant)
            words = f"{then} → {now}" if then != now else "queues, members or rights"
            found.append(ConfigChange("~", f"tenant {name}", words))
    return found


def _owed(tenant: Tenant) -> str:
    cells = [f"{share.count} {share.type}" for share in tenant.cells if share.count]
    cells += [f"pinned {pin}" for pin in tenant.pins]
    if cells:
        return ", ".join(cells)
    return show_resources(tenant.guaranteed) if tenant.guaranteed != Resources() else "nothing"


def _limits(old: Config, new: Config) -> list[ConfigChange]:
    found = [
        ConfigChange("~", f"limits.{name}", f"{getattr(old.limits, name)} → {value}")
        for name, value in msgspec.structs.asdict(new.limits).items()
        if getattr(old.limits, name) != value
    ]
    if old.default_tenant != new.default_tenant:
        then, now = old.default_tenant or "none", new.default_tenant or "none"
        found.append(ConfigChange("~", "default_tenant", f"{then} → {now}"))
    return found

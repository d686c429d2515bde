"""Changing the configuration while jobs run: first what it would do, then doing it."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from allotment.engine.foresee import Foresight, digest, foresee
from allotment.model.cluster import Node
from allotment.model.commands import ApplyConfig
from allotment.model.dated import as_written
from allotment.model.errors import Code, Problem, Rejected
from allotment.model.ids import SYSTEM, Actor
from allotment.model.quantity import show_resources
from allotment.model.tenancy import Config
from allotment.service.access import may_administer
from allotment.service.cell_changes import cell_changes, guarantee_change, guarantee_words
from allotment.service.config_view import (
    ConfigChange,
    ConfigInForce,
    ConfigPlan,
    DemotedJob,
    StuckJob,
)
from allotment.service.dated import coming, dated, over
from allotment.service.image_policy import forbidden_then
from allotment.service.pipeline import Pipeline
from allotment.service.queue_changes import keys_changed, queue_changes


class ConfigFiles(msgspec.Struct, frozen=True):
    """How configurations are read, written and kept: what `wire` and the state folder do."""

    read: Callable[[bytes, str], tuple[Config, tuple[Problem, ...]]]
    """Turns a file's text and name into a configuration and warnings. Raises BadInput."""
    write: Callable[[Config], str]
    """Writes a configuration in full, as `read` takes it."""
    announce: Callable[[bytes], None]
    """Keeps the text of a configuration that is about to be applied."""
    found: Callable[[str, Sequence[Node]], tuple[Config, tuple[Problem, ...]]]
    """Takes note of the nodes that an engine has found, and reads what is kept with them.
    Raises BadInput."""
    keep: Callable[[], None]
    """Lets the next start find what was announced; without it, the log decides there."""


class Reconfiguring:
    """The use cases around `allot config plan` and `apply`."""

    def __init__(self, pipeline: Pipeline, files: ConfigFiles) -> None:
        self._pipeline = pipeline
        self._read, self._write = files.read, files.write
        self._announce, self._keep = files.announce, files.keep
        self.found = files.found
        self.one_at_a_time = asyncio.Lock()
        self._last = ("", SYSTEM)
        """The configuration that was applied last since the start, and who did."""

    def in_force(self, actor: Actor) -> ConfigInForce:
        """Return the configuration. Raises Rejected."""
        may_administer(actor)
        config = as_written(self._pipeline.state.config)
        return ConfigInForce(digest(config), self._write(config))

    async def plan(self, text: bytes, source: str, actor: Actor) -> ConfigPlan:
        """Return what a configuration would change. Raises BadInput, Rejected."""
        may_administer(actor)
        config, warnings = await asyncio.to_thread(self._read, text, source)
        state = self._pipeline.state
        old, image = as_written(state.config), msgspec.msgpack.encode(state.image())
        now = self._pipeline.clock.now()
        found = await asyncio.to_thread(foresee, image, config, state, now)
        said = (
            *(each.in_file(source) for each in warnings),
            *over(config, state.wall(now)),
            *forbidden_then(state, config),
        )
        plan = self._words(old, config, found, said)
        return msgspec.structs.replace(plan, coming=coming(config, state.wall(now)))

    async def apply(self, text: bytes, source: str, expect: str, actor: Actor) -> ConfigPlan:
        """Put a configuration in force, whole or not at all; durable on return.

        Jobs run on. `expect` is the digest of the configuration it was planned against, ''
        for the one in force now. Raises BadInput, Rejected.
        """
        may_administer(actor)
        expect = expect or digest(self._pipeline.state.config)
        async with self.one_at_a_time:
            plan = await self.plan(text, source, actor)
            current = digest(self._pipeline.state.config)
            if current not in (expect, plan.proposed):
                raise self._overtaken(current, expect)
            if plan.refusal:
                raise Rejected(Code.CONFLICT, plan.refusal)
            config, _ = self._read(text, source)
            await asyncio.to_thread(self._announce, text)
            await self._pipeline.command(ApplyConfig(config), actor)
            self._last = (plan.proposed, actor)
            await asyncio.to_thread(self._keep)
            return msgspec.structs.replace(plan, applied=True)

    def _overtaken(self, current: str, expect: str) -> Rejected:
        """Return the refusal: somebody was faster; and who, if that is known."""
        who = str(self._last[1]) if self._last[0] == current else "somebody"
        return Rejected(
            Code.CONFLICT,
            f"The configuration in force is {current}, not {expect}: {who} changed it since. "
            "Nothing was applied.",
            "Look again at what would change now: allot config plan FILE.",
        )

    def _words(
        self, old: Config, new: Config, found: Foresight, warnings: tuple[str, ...]
    ) -> ConfigPlan:
        jobs = self._pipeline.state.jobs
        current, proposed = digest(old), digest(new)
        changes = tuple(differences(old, new))
        if not changes and current != proposed:
            changes = (ConfigChange("~", "details", "that are not told one by one"),)
        return ConfigPlan(
            current=current,
            proposed=proposed,
            changes=changes,
            refusal=found.refusal,
            demoted=tuple(
                DemotedJob(loss.job, jobs[loss.job].spec.name, loss.tenant)
                for loss in found.demoted
                if loss.job in jobs
            ),
            unreserved=found.unreserved,
            stranded=found.stranded,
            borrowing=found.borrowing,
            stuck=tuple(
                StuckJob(each.job, jobs[each.job].spec.name, each.tenant, each.why)
                for each in found.stuck
                if each.job in jobs
            ),
            warnings=warnings,
        )


# ── differences ─────────────────────────────────────────────────────────────────────────


def differences(old: Config, new: Config) -> list[ConfigChange]:
    """Return what comes, goes and changes: nodes, cells, tenants, limits."""
    return [
        *_nodes(old, new),
        *cell_changes(old, new),
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


def _tenants(old: Config, new: Config) -> list[ConfigChange]:
    before = {tenant.name: tenant for tenant in old.tenants}
    after = {tenant.name: tenant for tenant in new.tenants}
    found = [
        ConfigChange("-", f"tenant {name}", guarantee_words(before[name]))
        for name in before
        if name not in after
    ]
    for name, tenant in after.items():
        was = before.get(name)
        if was is None:
            found.append(ConfigChange("+", f"tenant {name}", guarantee_words(tenant)))
        elif was != tenant:
            then, now = guarantee_change(was, tenant)
            guaranteed = f"{then} → {now}" if then != now else ""
            if words := "; ".join(filter(None, (guaranteed, keys_changed(was, tenant)))):
                found.append(ConfigChange("~", f"tenant {name}", words))
            found += queue_changes(was, tenant)
    return found


def _limits(old: Config, new: Config) -> list[ConfigChange]:
    found = [
        ConfigChange("~", f"limits.{name}", f"{getattr(old.limits, name)} → {value}")
        for name, value in msgspec.structs.asdict(new.limits).items()
        if getattr(old.limits, name) != value
    ]
    if old.default_tenant != new.default_tenant:
        then, now = old.default_tenant or "none", new.default_tenant or "none"
        found.append(ConfigChange("~", "default_tenant", f"{then} → {now}"))
    if old.visibility is not new.visibility:
        found.append(ConfigChange("~", "visibility", f"{old.visibility} → {new.visibility}"))
    if old.mlflow != new.mlflow:
        was, becomes = (each.address if each else "none" for each in (old.mlflow, new.mlflow))
        found.append(ConfigChange("~", "mlflow", f"{was} → {becomes}"))
    if old.pythons != new.pythons:
        then, now = old.pythons or "none", new.pythons or "none"
        found.append(ConfigChange("~", "pythons", f"{then} → {now}"))
    if old.share is not new.share:
        found.append(ConfigChange("~", "share", f"{old.share} → {new.share}"))
    return found

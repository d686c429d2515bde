"""What a service's history knows beyond a trace: jobs as they were asked for, and the shares.

A trace has alike tasks and one owner of all. A history replayed has the jobs' own roles,
queues, places, dependencies and arrays, and tenants with their guarantees, as these changed.
"""

from collections.abc import Container, Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from allotment.model.cells import Topology
from allotment.model.cluster import Node
from allotment.model.dated import settled
from allotment.model.ids import JobId
from allotment.model.quantity import Millis
from allotment.model.spec import NEVER, Dialect, JobSpec, TaskRole
from allotment.model.tenancy import (
    Config,
    Limits,
    Queue,
    QueueOrder,
    QueueState,
    RankBy,
    Tenant,
)
from allotment.sim.trace import TraceJob

ANY_NODE = "node"
"""The level that needs no label."""


class DatedConfig(msgspec.Struct, frozen=True):
    """Who shared the cluster from an instant on."""

    after_ms: int
    """From the first submission of the trace; negative for what held before."""
    config: Config


class Wishes(msgspec.Struct, frozen=True):
    """Beside each job of a trace, in its order, what was asked for; and whose the cluster was.

    Jobs are named by the ids they had: those of the trace, as numbers.
    """

    specs: tuple[JobSpec, ...]
    shares: tuple[DatedConfig, ...]
    keeps_orders: bool = False
    """Whether queues go on as configured, whatever the policy says of passing."""

    def queues(self) -> Iterator[Queue]:
        """Return the queues that there were at any time."""
        for share in self.shares:
            for tenant in share.config.tenants:
                yield from tenant.queues

    def configs(
        self, nodes: tuple[Node, ...], limits: Limits, order: QueueOrder | None
    ) -> Iterator[tuple[int, Config]]:
        """Return the configurations one after another, each with its `after_ms`.

        All queues get `order` unless it is None, and unless they go on as configured the
        policy ranks their jobs, not they. Every user with a job has a place in all of them, and
        all may submit, also where a queue takes no more: who may was settled when it happened.
        On other nodes guarantees are counted: cells are of the machines there were.
        """
        rank = None if self.keeps_orders else RankBy.SUBMITTED
        for share in self.shares:
            config = settled(share.config)
            config = config if config.nodes == nodes else _counted(config)
            tenants = _with_all(config.tenants, self.specs)
            open_to_all = tuple(_open(tenant, order, rank) for tenant in tenants)
            limits = replace(limits, predict_milli=share.config.limits.predict_milli)
            config = replace(config, nodes=nodes, tenants=open_to_all, limits=limits)
            yield share.after_ms, config


class Again:
    """Asks for the jobs of a history again, under the ids that they get now."""

    def __init__(self, wishes: Wishes, nodes: tuple[Node, ...]) -> None:
        self._specs = wishes.specs
        self._ids: dict[JobId, JobId] = {}
        self._levels = {ANY_NODE} | {name for node in nodes for name, _ in node.labels}
        self._levels |= {
            word
            for share in wishes.shares
            if share.config.nodes == nodes
            for kind in share.config.topology.types
            for word in _words(kind.name)
        }

    def spec(self, job: TraceJob, place: int, there: Container[JobId]) -> JobSpec:
        """Return the job at a place of the trace; it depends on what is still `there`."""
        spec = self._specs[place]
        ids = ((self._ids.get(other.job), other) for other in spec.depends_on)
        return replace(
            spec,
            name=job.id,
            depends_on=tuple(
                replace(other, job=id) for id, other in ids if id is not None and id in there
            ),
            within=spec.within if spec.within in self._levels else "",
            prefer=spec.prefer if spec.prefer in self._levels else "",
            roles=tuple(map(self._role, spec.roles)),
        )

    def _role(self, role: TaskRole) -> TaskRole:
        """Let the groups of a role lie anywhere where there is no such level."""
        if not role.group or role.group_within in self._levels:
            return role
        return replace(role, group=0, group_within="")

    def came(self, job: TraceJob, id: JobId) -> None:
        """Note under which id a job came."""
        self._ids[JobId(int(job.id))] = id


def _words(kind: str) -> Iterator[str]:
    """Return the words for the level of a cell type: its name, and the last parts of it."""
    parts = kind.split("-")
    return ("-".join(parts[at:]) for at in range(len(parts)))


def bare(spec: JobSpec) -> JobSpec:
    """Leave of a job what decides where and when it runs."""
    return replace(
        spec,
        name="",
        roles=tuple(
            TaskRole(
                role.name,
                role.count,
                "",
                role.resources,
                role.gpu_types,
                role.arch,
                group=role.group,
                group_within=role.group_within,
                least=role.least,
                elastic=role.elastic,
            )
            for role in spec.roles
        ),
        image="",
        env=(),
        secrets=(),
        workdir="",
        data_dir="",
        code_dir="",
        output_dir="",
        max_queue_ms=NEVER,
        checkpoint=None,
        hold_on_failure_ms=Millis(0),
        dialect=Dialect.NATIVE,
    )


def _with_all(tenants: Sequence[Tenant], specs: Iterable[JobSpec]) -> Iterator[Tenant]:
    """Add the tenants and queues that jobs name and the configuration of the day does not."""
    named: dict[str, dict[str, None]] = {}
    for spec in specs:
        named.setdefault(spec.tenant, {})[spec.queue] = None
    for tenant in tenants:
        there = {queue.name for queue in tenant.queues}
        missing = tuple(Queue(name) for name in named.pop(tenant.name, {}) if name not in there)
        yield replace(tenant, queues=(*tenant.queues, *missing))
    for name, queues in named.items():
        yield Tenant(name, queues=tuple(map(Queue, queues)))


def _counted(config: Config) -> Config:
    tenants = tuple(replace(tenant, cells=(), pins=()) for tenant in config.tenants)
    return replace(config, tenants=tenants, topology=Topology())


def _open(tenant: Tenant, order: QueueOrder | None, rank: RankBy | None) -> Tenant:
    queues = tuple(
        replace(
            queue,
            order=order or queue.order,
            rank=rank or queue.rank,
            state=queue.state if queue.state is QueueState.STOPPED else QueueState.OPEN,
            max_waiting=None,
        )
        for queue in tenant.queues
    )
    return replace(tenant, queues=queues, users=(), groups=())

"""Everything a run depends on."""

from collections import Counter
from collections.abc import Mapping

import msgspec

from allotment.model.cells import Topology
from allotment.model.cluster import Node
from allotment.model.quantity import DEVICE
from allotment.model.tenancy import Limits, Queue, RankBy, ShareBy, Tenant
from allotment.sim.catalogue import BY_RUN_TIMES, Recipe, goes_by_run_times, recipe, rule
from allotment.sim.cluster import words_of
from allotment.sim.outages import Outage
from allotment.sim.replayed_wishes import Wishes
from allotment.sim.settings import Settings
from allotment.sim.speeds import Factors, Pairs, Rates, Speeds
from allotment.sim.trace import Trace, TraceJob


class Owners(msgspec.Struct, frozen=True):
    """Whose a simulated cluster is: tenants with their guarantees, counted or in cells."""

    tenants: tuple[Tenant, ...]
    topology: Topology = Topology()
    share: ShareBy = ShareBy.FIRST_COME
    """Which tenant comes next."""
    half_life_ms: int = Limits().half_life_ms
    source: str = ""
    """The file that says so."""
    queues: tuple[str, ...] = ()
    """Tenants with queues in that file that are left out: a trace names no queue."""

    def warnings(self) -> tuple[str, ...]:
        """Return what of the file a simulation does not take."""
        if not self.queues:
            return ()
        names = ", ".join(self.queues[:5]) + (" and others" if len(self.queues) > 5 else "")
        return (
            f"{self.source}: the queues of {names} are left out, with their guarantees, limits "
            "and caps. A trace names no queue: each tenant has one, in the policy's order.",
        )

    def in_words(self) -> str:
        """Return who they are: shared by 2 tenants as in own.yaml."""
        first = self.tenants[0].name
        count = len(self.tenants)
        who = f"owned by tenant {first}" if count == 1 else f"shared by {count:,} tenants"
        return f"{who} as in {self.source}" if self.source else who


class Scenario(msgspec.Struct, frozen=True):
    """The same scenario gives the same events, byte for byte, on every machine."""

    trace: Trace
    nodes: tuple[Node, ...]
    policy: str = "fifo"
    settings: Settings = Settings()
    seed: int = 0
    rates: Rates | None = None
    """Steps a second by device type, model and devices; None where speed is the same."""

    pairs: Pairs | None = None
    """The same of two jobs that share devices."""
    custom: Recipe | None = None
    """A policy of somebody's own, under that name; None for those of the catalogue."""

    wishes: Wishes | None = None
    """What a service's history knows beyond its trace; None where there is no more."""

    outages: tuple[Outage, ...] = ()
    """When nodes took no work in a history that is played again."""

    owners: Owners | None = None
    """The tenants of the nodes; None where all jobs wait in one queue. The trace names them."""

    drawn: bool = False
    """Whether what pictures of nodes, devices and single jobs need is kept as well."""

    used: Mapping[str, int] = {}
    """How much in a hundred a model uses of its devices, for policies that go by it."""

    def to_draw(self) -> "Scenario":
        """Return the same, with what pictures need kept. It changes no event."""
        return msgspec.structs.replace(self, drawn=True)

    def recipe(self) -> Recipe:
        """Return how the policy is put together. Raises UnknownPolicy."""
        return self.custom or recipe(self.policy)

    def warnings(self) -> tuple[str, ...]:
        """Return what looks wrong in what is played, or is not taken."""
        return self.trace.warnings + (self.owners.warnings() if self.owners is not None else ())

    def cluster(self) -> str:
        """Describe the cluster: its nodes, and who shares them."""
        nodes = words_of(self.nodes)
        return f"{nodes}, {self.owners.in_words()}" if self.owners is not None else nodes

    def rule(self) -> str:
        """Return in a line what the policy does."""
        recipe = self.recipe()
        as_configured = self._as_configured() and not self.settings.order
        return recipe.says if as_configured else rule(recipe, self.settings)

    def is_clairvoyant(self) -> bool:
        """Whether it is told run times that nobody could know, and goes by them."""
        if self.settings.estimates not in ("exact", "noisy"):
            return False
        by_queues = any(map(self._looks_ahead, self._as_configured()))
        return by_queues or goes_by_run_times(self.recipe(), self.settings)

    def _as_configured(self) -> tuple[Queue, ...]:
        """Return the queues that go on as a service had them."""
        wishes = self.wishes
        return tuple(wishes.queues()) if wishes is not None and wishes.keeps_orders else ()

    def _looks_ahead(self, queue: Queue) -> bool:
        by_order = queue.order in BY_RUN_TIMES and not self.settings.order
        return by_order or queue.rank is RankBy.SHORTEST

    def speeds(self) -> Speeds:
        """Return how fast jobs run where."""
        settings = self.settings
        factors = Factors(
            settings.across_nodes,
            settings.across_switches,
            settings.across_racks,
            settings.interference,
        )
        return Speeds(self.nodes, factors, self.rates, self.pairs)

    def types(self) -> tuple[str, ...]:
        """Return the device types as the cluster lists them, if speed differs by type."""
        if self.rates is None:
            return ()
        types = [device.type for node in self.nodes for device in node.devices]
        return tuple(dict.fromkeys(types))

    def speed_by_type(self, job: TraceJob) -> dict[str, float]:
        """Return a job's speed on each type; 0 where it is not known."""
        key = (job.model, job.gpu_milli // DEVICE)
        rates = self.rates or {}
        return {kind: rates.get(kind, {}).get(key, 0.0) for kind in self.types()}

    def popularity(self) -> Counter[int]:
        """Count tasks by how many devices one needs, for placing that goes by it."""
        if self.settings.placing != "fgd":
            return Counter()
        counts: Counter[int] = Counter()
        for job in self.trace.jobs:
            counts[-(-job.need.gpu_milli // DEVICE)] += job.tasks
        return counts

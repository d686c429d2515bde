"""The queues of a tenant, as they are written, into the model's tree; and what is amiss."""

from collections.abc import Iterator, Mapping

import msgspec

from allotment.model.quantity import Millis
from allotment.model.queue_tree import flaws
from allotment.model.tenancy import NO_TERMS, Queue, RankBy, Tenant, Terms
from allotment.wire.config_shape import AUTO_SLICE, QueueShape, TenantShape
from allotment.wire.problems import Finding, nearest
from allotment.wire.tree import Place

OF_LEAVES = frozenset({
    "order", "rank", "overtaken", "time_slice", "affinity", "migrate", "grow", "pack",
})  # fmt: skip
"""Keys that matter only in a leaf."""


class ReadQueues(msgspec.Struct):
    """The queues that were read, with their places in the file."""

    queues: tuple[Queue, ...]
    places: dict[str, Place]
    found: list[Finding]
    said: dict[str, set[str]] = {}
    """What is said of each that matters only in a leaf."""

    def idle(self) -> Iterator[Finding]:
        """Return a finding for each key without effect: its queue has others inside it."""
        for name in dict.fromkeys(queue.parent for queue in self.queues if queue.parent):
            for key in sorted(self.said[name]):
                message = (
                    f"has no effect: queue {name} has queues inside it, and its jobs are there"
                )
                yield (*self.places[name], key), message, "write it at those"

    def staying(self) -> Iterator[Finding]:
        """Return which keys of queues have no effect where tenants have cells."""
        for queue in self.queues:
            if queue.by_affinity:
                message = "has no effect: tenants have cells, which say where gangs go"
                yield (*self.places[queue.name], "affinity"), message, "take it out"
            if queue.migrates:
                message = "has no effect: tenants have cells, and no gang moves within them"
                yield (*self.places[queue.name], "migrate"), message, "take it out"
            if queue.grow_ms:
                message = "has no effect: tenants have cells, and no gang grows within them"
                yield (*self.places[queue.name], "grow"), message, "take it out"

    def amiss(self, tenant: Tenant) -> Iterator[Finding]:
        """Return all contradictions, once the tenant is put together."""
        yield from self.found
        for flaw in flaws(tenant) if not self.found else ():
            place = self.places[flaw.queue]
            yield (*place, flaw.key) if flaw.key else place, flaw.message, flaw.hint


def tree_of(tenant: Place, shape: TenantShape) -> ReadQueues:
    """Read a tenant's queues: nested as they are written, or under the `parent` they name."""
    tree = ReadQueues((), {}, [], {})
    queues: list[Queue] = []
    todo = dict(shape.queues)
    paths: dict[str, str] = {}
    while todo:
        for key, item in list(todo.items()):
            parent = _path(item.parent, paths, tree.places)
            if parent is None:
                continue
            paths[key] = f"{parent}.{key}" if parent else key
            queues += _queues((*tenant, "queues", key), key, parent, item, tree)
            del todo[key]
            break
        else:
            tree.found += _lost(tenant, shape.queues, todo, tree.places)
            break
    tree.queues = tuple(_depth_first(queues, ""))
    return tree


def _path(parent: str, paths: Mapping[str, str], places: Mapping[str, Place]) -> str | None:
    """Return the whole path of a parent, '' for the tenant itself; None while not known."""
    if not parent:
        return ""
    return paths.get(parent) or (parent if parent in places else None)


def _queues(
    place: Place, name: str, parent: str, shape: QueueShape, tree: ReadQueues
) -> Iterator[Queue]:
    path = f"{parent}.{name}" if parent else name
    if path in tree.places:
        tree.found.append((place, f"there is another queue {path}", "rename one"))
        return
    tree.places[path] = place
    tree.said[path] = shape.model_fields_set & OF_LEAVES
    yield Queue(
        path,
        shape.order,
        RankBy.ROUND_ROBIN if shape.time_slice else shape.rank,
        shape.share,
        shape.weight,
        parent=parent,
        state=shape.state,
        terms=_terms(shape),
        limit=shape.limit.amounts(),
        max_jobs=shape.max_jobs,
        max_waiting=shape.max_waiting,
        per_user=shape.per_user.amounts(),
        per_group=shape.per_group.amounts(),
        time_slice_ms=shape.slice_ms,
        slices_by_cost=shape.time_slice == AUTO_SLICE,
        migrates=shape.migrate,
        grow_ms=shape.grow or Millis(0),
        packs=shape.pack,
        by_affinity=shape.affinity,
    )
    for key, item in shape.queues.items():
        if item.parent:
            where = (*place, "queues", key, "parent")
            message = f"is given, and {key} is inside {path} already"
            tree.found.append((where, message, "take it out"))
        yield from _queues((*place, "queues", key), key, path, item, tree)


def _terms(shape: QueueShape) -> Terms:
    terms = Terms(
        shape.guaranteed.amounts(),
        shape.soft_limit.amounts(),
        shape.lend,
        shape.borrow,
        shape.overtaken or 0,
    )
    return terms if terms != NO_TERMS else NO_TERMS


def _lost(
    tenant: Place,
    given: Mapping[str, QueueShape],
    lost: Mapping[str, QueueShape],
    places: Mapping[str, Place],
) -> Iterator[Finding]:
    """Find queues whose parent is not there, or whose parents go round in a circle."""
    for key, item in lost.items():
        where = (*tenant, "queues", key, "parent")
        if item.parent in lost:
            way = [key]
            while way[-1] in lost and lost[way[-1]].parent not in way:
                way.append(lost[way[-1]].parent)
            if way[-1] in lost:
                round_again = [*way, lost[way[-1]].parent]
                message = f"is inside itself: {' in '.join(round_again)}"
                yield where, message, "move one of them to the top"
            continue
        known = [name for name in dict.fromkeys((*given, *places)) if name != key]
        yield where, f"there is no queue {item.parent}", nearest(item.parent, known, "queues")


def _depth_first(queues: list[Queue], parent: str) -> Iterator[Queue]:
    for queue in queues:
        if queue.parent == parent:
            yield queue
            yield from _depth_first(queues, queue.name)

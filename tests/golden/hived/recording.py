"""What was recorded of HiveD: operations, each with its outcome and the state after.

The shapes are those of ../shared/hived-vectors/README.md; what the comparison does not need
is left out. Nothing here is a word of ours: translation is `cluster` and `decisions`.
"""

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import zstandard

Word = str | int | bool | None
"""A name as YAML reads it: an address may be a number, and `y` and `N` are truth values."""


class Fields(msgspec.Struct, frozen=True, rename="camel"):
    """HiveD's own files are in camel case."""


class CellTypeSpec(Fields, frozen=True):
    child_cell_type: str
    child_cell_number: int
    is_node_level: bool = False


class CellSpec(Fields, frozen=True):
    """A physical cell as written down: what is not given has a default."""

    cell_type: Word = None
    cell_address: Word = None
    pinned_cell_id: str = ""
    cell_children: list["CellSpec"] | None = None


class PhysicalCluster(Fields, frozen=True):
    cell_types: dict[str, CellTypeSpec]
    physical_cells: list[CellSpec]


class VirtualCell(Fields, frozen=True):
    cell_type: Word
    cell_number: int


class PinnedCell(Fields, frozen=True):
    pinned_cell_id: str


class VirtualCluster(Fields, frozen=True):
    virtual_cells: list[VirtualCell] = []
    pinned_cells: list[PinnedCell] = []


class Configuration(Fields, frozen=True):
    physical_cluster: PhysicalCluster
    virtual_clusters: dict[str, VirtualCluster]


class Member(Fields, frozen=True):
    pod_number: int
    leaf_cell_number: int


class AffinityGroup(Fields, frozen=True):
    name: str
    members: list[Member]


class Spec(Fields, frozen=True):
    """A pod's scheduling spec, with HiveD's defaults."""

    priority: int
    leaf_cell_number: int
    virtual_cluster: str | None = None
    leaf_cell_type: str = ""
    pinned_cell_id: str = ""
    lazy_preemption_enable: bool = False
    ignore_k8s_suggested_nodes: bool = msgspec.field(
        default=True, name="ignoreK8sSuggestedNodes"
    )
    affinity_group: AffinityGroup | None = None


class Pod(msgspec.Struct, frozen=True):
    uid: str
    name: str
    spec: Spec


# ── what HiveD answered ───────────────────────────────────────────────────────────────────


class Done(msgspec.Struct, frozen=True, tag_field="kind", tag="ok"):
    nodes: list[str] = []


class BoundPod(msgspec.Struct, frozen=True):
    node: str
    leaf_cells: list[int]
    preassigned_cell_types: list[str] = []


class VirtualMember(msgspec.Struct, frozen=True):
    leaf_cell_number: int
    pods: list[list[str]]


class PhysicalMember(msgspec.Struct, frozen=True):
    leaf_cell_number: int
    pods: list[BoundPod]


class Bind(msgspec.Struct, frozen=True, tag_field="kind", tag="bind"):
    cell_chain: str
    group_bind_info: list[list[BoundPod]]
    """By ascending number of leaves, then pod by pod."""
    virtual_placement: list[VirtualMember] | None = None


class Wait(msgspec.Struct, frozen=True, tag_field="kind", tag="wait"):
    reason: str


class Preempt(msgspec.Struct, frozen=True, tag_field="kind", tag="preempt"):
    victims_by_node: dict[str, list[str]]
    group_physical_placement: list[PhysicalMember]
    virtual_placement: list[VirtualMember] | None = None


class UserError(msgspec.Struct, frozen=True, tag_field="kind", tag="user_error"):
    code: int
    message: str


class Panic(msgspec.Struct, frozen=True, tag_field="kind", tag="internal_panic"):
    message: str


Outcome = Done | Bind | Wait | Preempt | UserError | Panic


# ── the state it was in afterwards ────────────────────────────────────────────────────────


class Group(msgspec.Struct, frozen=True):
    state: str
    """Allocated, Preempting or BeingPreempted."""
    vc: str
    has_virtual_placement: bool
    allocated_pods: list[str] | None = None
    lazy_preempted_by: str = ""


class Leaf(msgspec.Struct, frozen=True):
    state: str
    """Free (and bad or bound), Used, Reserving (used by one, meant for another) or Reserved."""
    priority: int
    healthy: bool
    virtual_cell: str = ""
    using_group: str = ""
    reserving_group: str = ""


class State(msgspec.Struct, frozen=True):
    groups: dict[str, Group]
    leaf_cells_not_idle: dict[str, Leaf]
    vc_free_cell_num: dict[str, dict[str, int]]
    """Cells still owed, by tenant and `chain|level`, leaves being level 1."""
    doomed_bad_cells: dict[str, list[str]]


# ── what was done ─────────────────────────────────────────────────────────────────────────


class Operation(msgspec.Struct, frozen=True, tag_field="op"):
    """One operation, and what came of it."""

    outcome: Outcome
    state: State | None = None
    note: str = ""


class Init(Operation, frozen=True, tag="init", kw_only=True):
    """Start, or start again: the state before is forgotten."""

    config: Configuration


class AllHealthy(Operation, frozen=True, tag="set_all_nodes_healthy"):
    pass


class Healthy(Operation, frozen=True, tag="set_healthy_node", kw_only=True):
    node: str


class Bad(Operation, frozen=True, tag="set_bad_node", kw_only=True):
    node: str


class Schedule(Operation, frozen=True, tag="schedule", kw_only=True):
    pod: Pod
    phase: str
    suggested_nodes: list[str] | None = None
    """None stands for all."""


class Add(Operation, frozen=True, tag="add_allocated_pod", kw_only=True):
    pod_uid: str


class Delete(Operation, frozen=True, tag="delete_allocated_pod", kw_only=True):
    pod_uid: str


class Forget(Operation, frozen=True, tag="delete_unallocated_pod", kw_only=True):
    pod_uid: str


Op = Init | AllHealthy | Healthy | Bad | Schedule | Add | Delete | Forget


class Written(msgspec.Struct, frozen=True):
    """A scenario as it lies in the archive, for what is given on as it was written."""

    name: str
    ops: list[dict[str, Any]]


class Scenario(msgspec.Struct, frozen=True):
    name: str
    description: str
    ops: list[Op]
    hits_known_bug: str = ""


def scenarios(archive: Path) -> Iterator[Scenario]:
    """Read the scenarios one by one, by name as they lie in the archive.

    Raises OSError, zstandard.ZstdError, tarfile.TarError or msgspec.ValidationError.
    """
    decoder = msgspec.json.Decoder(Scenario)
    yield from map(decoder.decode, _files(archive))


def written(archive: Path) -> Iterator[Written]:
    """Read the same as it is written. Raises as `scenarios`."""
    decoder = msgspec.json.Decoder(Written)
    yield from map(decoder.decode, _files(archive))


def _files(archive: Path) -> Iterator[bytes]:
    with (
        archive.open("rb") as stored,
        zstandard.ZstdDecompressor().stream_reader(stored) as plain,
        tarfile.open(fileobj=plain, mode="r|") as files,
    ):
        for entry in files:
            if not entry.name.endswith(".json") or entry.name.endswith("INDEX.json"):
                continue
            file = files.extractfile(entry)
            if file is not None:
                yield file.read()

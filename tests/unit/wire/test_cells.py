"""Cells in the configuration: how hardware lies together, and who is guaranteed what of it."""

from pathlib import Path

import msgspec
import pytest

from allotment.model.cells import CellShare, CellType, PinnedCell, RootCell, Topology
from allotment.model.errors import BadInput
from allotment.model.events import ConfigApplied, Record
from allotment.model.ids import SYSTEM, NodeId, Seq
from allotment.model.quantity import GIB, Instant, Resources
from allotment.model.tenancy import Config
from allotment.store.sqlite import SqliteStore
from allotment.wire.config import config_to_wire, read_config


def read(text: str) -> tuple[Config, list[str]]:
    config, warnings = read_config(text.encode(), source="c.yaml", machine=None)
    return config, [str(warning) for warning in warnings]


def problems(text: str) -> list[str]:
    with pytest.raises(BadInput) as caught:
        read(text)
    return [str(problem) for problem in caught.value.problems]


def nodes(*names: str, gpu: str = "{type: V100, count: 8, memory: 32GiB}") -> str:
    of = f", gpu: {gpu}" if gpu else ""
    rows = "".join(f"  - {{name: {n}, cpu: 64, memory: 256GiB{of}}}\n" for n in names)
    return f"nodes:\n{rows}"


TYPES = """\
cells:
  types:
    v100-switch: {of: V100, count: 2}
    v100-socket: {of: v100-switch, count: 2}
    v100-node: {of: v100-socket, count: 2, node: true}
    v100-rack: {of: v100-node, count: 4}
"""
RACK = f"""\
{nodes("n1", "n2", "n3", "n4")}\
{TYPES}\
  roots:
    - {{type: v100-rack, name: r1, nodes: [n1, n2, n3, n4]}}
"""
PINNED = f"""\
{RACK}\
  pins:
    - {{id: own, type: v100-socket, node: n3, device: 5}}
"""


def test_cells_pins_and_shares_get_to_their_places() -> None:
    text = f"""\
{PINNED}\
tenants:
  vision: {{cells: {{v100-node: 3, v100-rack: 0}}, pins: [own]}}
  nlp: {{cells: {{v100-rack/v100-switch: 2}}}}
  guests:
"""
    config, warnings = read(text)
    assert warnings == []
    assert config.topology == Topology(
        (
            CellType("v100-switch", "V100", 2),
            CellType("v100-socket", "v100-switch", 2),
            CellType("v100-node", "v100-socket", 2, is_node=True),
            CellType("v100-rack", "v100-node", 4),
        ),
        (RootCell("v100-rack", "r1", (NodeId(0), NodeId(1), NodeId(2), NodeId(3))),),
        # Device 5 lies in the second socket, which begins with leaf 4.
        (PinnedCell("own", "v100-socket", NodeId(2), 4),),
    )
    vision, nlp, guests = config.tenants
    assert vision.cells == (CellShare("v100-node", 3), CellShare("v100-rack", 0))
    assert vision.pins == ("own",)
    assert nlp.cells == (CellShare("v100-switch", 2, "v100-rack"),)
    assert vision.guaranteed == Resources(28_000, 224_000, 896 * GIB, 0, 896 * GIB)
    assert nlp.guaranteed == Resources(4000, 32_000, 128 * GIB, 0, 128 * GIB)
    assert guests.guaranteed == Resources()


def test_a_configuration_with_cells_is_written_so_that_it_reads_back() -> None:
    for text in (
        f"{PINNED}tenants: {{a: {{cells: {{v100-node: 3}}, pins: [own]}}, b: }}",
        "hardware: [8 x dgx-a100 in racks of 4, 2 x cpu-32]\ntenants: {a: {cells: {core: 9}}}",
        f"{MIXED}tenants: {{a: {{cells: {{v100-node: 1}}, pins: [half]}}}}",
        MIXED.replace("n1", "n" * 240) + "tenants: {a: {cells: {v100-node: 1}, pins: [half]}}",
    ):
        config, _ = read(text)
        written = msgspec.json.encode(config_to_wire(config)).decode()
        assert read(written) == (config, [])


def test_cells_are_in_the_log_as_they_were_read(tmp_path: Path) -> None:
    config, _ = read(f"{MIXED}tenants: {{a: {{cells: {{v100-node: 1}}, pins: [half]}}}}")
    record = Record(Seq(1), Instant(0), SYSTEM, ConfigApplied(config))
    store = SqliteStore.open(tmp_path)
    try:
        store.append([record])
        assert list(store.records()) == [record]
    finally:
        store.close()


# ── heterogeneous ───────────────────────────────────────────────────────────────────────

MIXED = """\
nodes:
  - name: n1
    cpu: 40
    memory: 40GiB
    gpu: [{type: V100, count: 2, memory: 32GiB}, {type: T4, count: 2, memory: 16GiB}]
  - {name: n2, cpu: 8, memory: 8GiB}
  - {name: n3, cpu: 16, memory: 80GiB}
cells:
  types:
    v100-node: {of: V100, count: 2, node: true}
    t4-node: {of: T4, count: 2, node: true}
    cpu-node: {of: core, count: 8, node: true}
  roots:
    - {type: v100-node, nodes: [n1]}
    - {type: t4-node, nodes: [n1]}
    - {type: cpu-node, nodes: [n2]}
    - {type: cpu-node, nodes: [n3]}
  pins:
    - {id: half, type: T4, node: n1, device: 3}
"""


def test_a_node_with_two_types_lies_in_two_chains() -> None:
    config, _ = read(f"{MIXED}tenants: {{a: {{cells: {{v100-node: 1}}, pins: [half]}}}}")
    v100, t4, first, second = config.topology.roots
    assert (v100.name, v100.devices) == ("n1", ())
    assert (t4.name, t4.devices) == ("n1.t4-node", ((2, 3),))
    assert (first.name, second.name) == ("n2", "n3")
    assert config.topology.pins == (PinnedCell("half", "T4", NodeId(0), 1),)
    # Three of the four devices, and as much of the host.
    assert config.tenants[0].guaranteed == Resources(3000, 30_000, 30 * GIB, 0, 80 * GIB)


def test_unequal_nodes_count_as_the_poorest_of_their_chain() -> None:
    config, _ = read(f"{MIXED}tenants: {{a: {{cells: {{cpu-node: 2}}}}, b: }}")
    assert config.tenants[0].guaranteed == Resources(0, 16_000, 16 * GIB)


def test_devices_lie_in_the_order_that_is_given() -> None:
    text = f"""\
{nodes("n1")}\
{TYPES}\
  roots:
    - {{type: v100-node, nodes: [n1], devices: [[0, 4, 1, 5, 2, 6, 3, 7]]}}
  pins:
    - {{id: p, type: v100-switch, node: n1, device: 5}}
tenants: {{a: {{pins: [p]}}}}
"""
    config, _ = read(text)
    assert config.topology.roots[0].devices == ((0, 4, 1, 5, 2, 6, 3, 7),)
    assert config.topology.pins[0].leaf == 2
    written = msgspec.json.encode(config_to_wire(config)).decode()
    assert read(written) == (config, [])


# ── a type more than once ───────────────────────────────────────────────────────────────

TWO_CHAINS = f"""\
{nodes("n1", "n2", "n3", "n4", "n5")}\
{TYPES}\
  roots:
    - {{type: v100-rack, nodes: [n1, n2, n3, n4]}}
    - {{type: v100-node, nodes: [n5]}}
"""


def test_a_type_in_two_chains_is_named_with_its_chain() -> None:
    text = f"{TWO_CHAINS}tenants: {{a: {{cells: {{v100-rack/v100-node: 4}}}}}}"
    assert read(text)[0].tenants[0].cells == (CellShare("v100-node", 4, "v100-rack"),)
    assert problems(f"{TWO_CHAINS}tenants: {{a: {{cells: {{v100-node: 4}}}}}}") == [
        "line 16: tenants.a.cells.v100-node: there are v100-node in more than one chain of "
        "cells (write v100-rack/v100-node or v100-node/v100-node)"
    ]


# ── promises ────────────────────────────────────────────────────────────────────────────


def test_shares_that_do_not_fit_by_shape_say_which_level_lacks_what() -> None:
    text = f"""\
{PINNED}\
tenants:
  vision: {{cells: {{v100-node: 3}}, pins: [own]}}
  nlp: {{cells: {{v100-switch: 2}}}}
  speech: {{cells: {{v100-switch: 1}}}}
"""
    assert problems(text) == [
        "line 18: tenants.nlp.cells.v100-switch: all shares of v100-switch of v100-rack add up "
        "to 3, with room for 2 beside larger cells: 1 too many (nlp 2, speech 1) (lower a "
        "share, or add roots)"
    ]


@pytest.mark.parametrize(
    ("tenant", "problem"),
    [
        ("{cells: {v100-nod: 1}}", "tenants.a.cells.v100-nod: there is no cell type v100-nod "
         "(did you mean `v100-node`?)"),
        ("{cells: {v100-row/v100-node: 1}}", "tenants.a.cells.v100-row/v100-node: there is no "
         "root of type v100-row (write v100-node)"),
        ("{cells: {v100-node: -1}}", "tenants.a.cells.v100-node: must be at least 0, not -1"),
        ("{cells: {v100-rack: 2}}", "tenants.a.cells.v100-rack: all shares of v100-rack add up "
         "to 2, with room for 0: 2 too many (a 2) (lower a share, or add roots)"),
        ("{pins: [owm]}", "tenants.a.pins[0]: there is no pinned cell owm (did you mean "
         "`own`?)"),
        ("{pins: [own, own]}", "tenants.a.pins[1]: own is listed twice (name it once)"),
        ("{pins: [own], guaranteed: {gpu: 5}}", "tenants.a.guaranteed.gpu: is 5 GPU, and the "
         "tenant's cells hold 4 GPU (remove it: the cells are the guarantee)"),
        ("{pins: [own]}\n  b: {pins: [own]}", "tenants.b.pins[0]: own is a's own already (give "
         "it to one tenant)"),
        ("{pins: [own]}\n  b: {guaranteed: {gpu: 1}}", "tenants.b.guaranteed.gpu: is "
         "guaranteed without cells, where other tenants have theirs (give it `cells`, or take "
         "this out: it may use idle devices)"),
    ],
)  # fmt: skip
def test_a_tenants_cells_that_cannot_be(tenant: str, problem: str) -> None:
    found = problems(f"{PINNED}tenants:\n  a: {tenant}\n")
    assert [line.partition(": ")[2] for line in found if problem in line] == [problem]


def test_a_guarantee_beside_cells_may_say_the_same() -> None:
    text = f"{PINNED}tenants: {{a: {{pins: [own], guaranteed: {{gpu: 4, cpu: 32}}}}}}"
    assert read(text)[0].tenants[0].guaranteed.cpu_milli == 32_000


def test_without_a_tenant_that_has_cells_guarantees_are_counted() -> None:
    config, _ = read(f"{RACK}tenants: {{a: {{guaranteed: {{gpu: 16}}}}, b: }}")
    assert config.tenants[0].guaranteed.cpu_milli == 128_000


def test_what_nobody_has_is_fine_and_told() -> None:
    text = PINNED.replace("n4, cpu", "n4, labels: {}, cpu") + "tenants: {a: }"
    assert read(text)[1] == [
        "line 15: cells.pins[0]: own belongs to no tenant: it can be borrowed, and is "
        "guaranteed to none (add `pins: [own]` to a tenant)"
    ]
    assert read(f"{RACK}tenants: {{a: {{cells: {{v100-rack: 0}}}}}}")[1] == []


def test_what_lies_in_no_cell_is_told() -> None:
    text = f"""\
{nodes("n1", "n2", "n3")}\
cells:
  types: {{half: {{of: V100, count: 4, node: true}}}}
  roots: [{{type: half, nodes: [n1]}}]
tenants: {{a: }}
"""
    assert read(text)[1] == [
        "line 7: cells.roots: n2, n3 lie in no cell: no tenant can be guaranteed them",
        "line 7: cells.roots: some devices of n1 lie in no cell",
    ]


# ── what cannot be ──────────────────────────────────────────────────────────────────────

ROOT = "cells.roots[0]"


@pytest.mark.parametrize(
    ("types", "problem"),
    [
        ("a: {of: b, count: 2, node: true}, b: {of: c, count: 1}, c: {of: a, count: 1}",
         "cells.types.c.of: is made of itself: a of b of c of a (end it with a device "
         "type)"),
        ("a: {of: a, count: 2}", "cells.types.a.of: is made of itself: a of a (end it "
         "with a device type)"),
        ("a: {of: V100, count: 8}", f"{ROOT}.type: a has no type of a whole machine in it: a "
         "of V100 (set node: true for that type)"),
        ("a: {of: b, count: 1, node: true}, b: {of: V100, count: 8, node: true}",
         f"{ROOT}.type: a has machines within a machine: a and b (set node: true for one type "
         "only)"),
        ("a: {of: V1000, count: 8, node: true}", "cells.types.a.of: there is neither a cell "
         "type nor a device V1000 (did you mean `V100`?)"),
        ("a: {of: V100, count: 9, node: true}", f"{ROOT}.nodes[0]: n1 has 8 V100, and a a has "
         "9 (list its devices under `nodes`, or make another type)"),
        ("a: {of: V100, count: 0, node: true}", "cells.types.a.count: must be at least 1, not "
         "0"),
        ("b: {of: V100, count: 8, node: true}", f"{ROOT}.type: there is no cell type a (cell "
         "types: b)"),
        ("b: {of: a, count: 8, node: true}", f"{ROOT}.type: a is what b is made of, and no "
         "type of its own (such as b)"),
        ("a: {of: b, count: 2}, b: {of: V100, count: 8, node: true}", f"{ROOT}.nodes: has 1, "
         "and a a is 2 nodes (list them all, in the order in which they lie)"),
        ("a: {of: b, count: 100000, node: true}, b: {of: core, count: 100000}",
         f"{ROOT}.type: a has 10,000,000,000 leaves on each node, and 1,024 are accepted "
         "(check the counts)"),
    ],
)  # fmt: skip
def test_types_that_cannot_be(types: str, problem: str) -> None:
    text = f"""\
{nodes("n1")}\
cells:
  types: {{{types}}}
  roots: [{{type: a, nodes: [n1]}}]
tenants: {{t: }}
"""
    assert problem in [line.partition(": ")[2] for line in problems(text)]


@pytest.mark.parametrize(
    ("roots", "problem"),
    [
        ("{type: v100-node, nodes: [n8]}", f"{ROOT}.nodes[0]: there is no node n8 (nodes: "
         "n1, n2, n3, n4, n5)"),
        ("{type: pair, nodes: [n1, n1]}", f"{ROOT}.nodes[1]: n1 is listed twice (name each "
         "node once)"),
        ("{type: v100-node, nodes: [n1]}, {type: v100-node, nodes: [n1]}",
         "cells.roots[1].nodes[0]: n1 lies in another cell by its V100: "
         "cells.roots[0].nodes[0] (name it in one of the two)"),
        ("{type: pair, nodes: [n1, n2]}, {type: v100-node, nodes: [n2]}",
         "cells.roots[1].nodes[0]: n2 lies in another cell by its V100: "
         "cells.roots[0].nodes[1] (name it in one of the two)"),
        ("{type: v100-node, name: r, nodes: [n1]}, {type: v100-node, name: r, nodes: [n2]}",
         "cells.roots[1].name: r is the name of cells.roots[0] too (rename one)"),
        ("{type: v100-node, nodes: [n1], devices: [[0, 1, 2, 3, 4, 5, 6, 8]]}",
         f"{ROOT}.devices[0][7]: n1 has no device 8: it has 8 (they count from 0)"),
        ("{type: v100-node, nodes: [n1], devices: [[0, 1, 2, 3, 4, 5, 6, 6]]}",
         f"{ROOT}.devices[0][7]: device 6 is listed twice (name each once)"),
        ("{type: v100-node, nodes: [n1], devices: [[0, 1]]}",
         f"{ROOT}.devices[0]: has 2 devices, and a v100-node has 8 (list all of them)"),
        ("{type: pair, nodes: [n1, n2], devices: [[0]]}",
         f"{ROOT}.devices: has 1 lists for 2 nodes (give one list for each node, or none)"),
        ("{type: t4-node, nodes: [n3], devices: [[0]]}",
         f"{ROOT}.devices[0][0]: device 0 of n3 is a V100 (name those that are T4)"),
        ("{type: v100-node, nodes: [n4]}", f"{ROOT}.nodes[0]: n4 has 0 V100, and a v100-node "
         "has 8 (list its devices under `nodes`, or make another type)"),
        ("{type: pair, nodes: [n1, n5]}", f"{ROOT}.nodes[1]: n5 is arm64, and n1 x86_64 "
         "(cells of one type are alike: make two types)"),
        ("{nodes: [n1]}", f"{ROOT}.type: is missing (add type: v100-rack)"),
    ],
)  # fmt: skip
def test_roots_that_cannot_be(roots: str, problem: str) -> None:
    text = f"""\
{nodes("n1", "n2")}\
  - {{name: n3, cpu: 8, memory: 8GiB, gpu: [{{type: V100, count: 1}}, {{type: T4, count: 1}}]}}
  - {{name: n4, cpu: 8, memory: 8GiB}}
  - {{name: n5, cpu: 8, memory: 8GiB, arch: arm64, gpu: {{type: V100, count: 8}}}}
{TYPES}\
    pair: {{of: v100-node, count: 2}}
    t4-node: {{of: T4, count: 1, node: true}}
  roots: [{roots}]
tenants: {{t: }}
"""
    assert problem in [line.partition(": ")[2] for line in problems(text)]


@pytest.mark.parametrize(
    ("pins", "problem"),
    [
        ("{id: p, type: v100-node, node: n9}", "cells.pins[0].node: there is no node n9 ("
         "nodes: n1, n2, n3, n4)"),
        ("{id: p, type: v100-nodes, node: n1}", "cells.pins[0].type: there is no cell type "
         "v100-nodes (did you mean `v100-node`?)"),
        ("{id: p, type: v100-socket, node: n1}", "cells.pins[0].device: is missing: n1 has "
         "more than one v100-socket (name any of its devices, such as device: 0)"),
        ("{id: p, type: V100, node: n1, device: 8}", "cells.pins[0].device: device 8 of n1 is "
         "in no V100 (`cells.roots` says which devices lie where)"),
        ("{id: p, type: v100-node, node: n1}, {id: p, type: v100-node, node: n2}",
         "cells.pins[1].id: p is given twice (choose another id)"),
        ("{id: p, type: v100-node, node: n1}, {id: q, type: V100, node: n1, device: 1}",
         "cells.pins[1]: q and p have hardware in common (pin cells that lie apart)"),
    ],
)  # fmt: skip
def test_pins_that_cannot_be(pins: str, problem: str) -> None:
    found = problems(f"{RACK}  pins: [{pins}]\ntenants: {{t: }}")
    assert problem in [line.partition(": ")[2] for line in found]


def test_a_leaf_that_may_be_a_device_somebody_forgot_is_told() -> None:
    text = f"""\
{nodes("n1", gpu="")}\
cells:
  types: {{n: {{of: V100, count: 8, node: true}}}}
  roots: [{{type: n, nodes: [n1]}}]
tenants: {{t: {{cells: {{n: 1}}}}}}
"""
    config, warnings = read(text)
    assert warnings == [
        "line 4: cells.types.n.of: no machine has a device V100: these cells are equal shares "
        "of CPU and memory (write core if you mean that)"
    ]
    assert config.tenants[0].guaranteed == Resources(0, 64_000, 256 * GIB)


def test_a_root_has_no_name_of_a_node_unless_it_is_that_node() -> None:
    rack = f"{RACK}tenants: {{vision: {{cells: {{v100-rack: 1}}}}}}\n"
    assert problems(rack.replace("name: r1", "name: n2")) == [
        "line 13: cells.roots[0].name: n2 is the name of a node too, of which it is "
        "not made alone (choose another name)"
    ]
    one = rack.replace("count: 4}", "count: 1}").replace("[n1, n2, n3, n4]", "[n1]")
    assert read(one.replace("name: r1", "name: n1"))[0].topology.roots[0].name == "n1"

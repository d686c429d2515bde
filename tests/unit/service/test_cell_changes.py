"""What `allot config plan` says of cells that come, go and change."""

import pytest

from allotment.engine.foresee import digest
from allotment.model.tenancy import Config
from allotment.service.reconfigure import differences
from allotment.wire.config import read_config

TEXT = """\
nodes:
  - {names: [n1, n2, n3, n4, n5], cpu: 40, memory: 512GiB, gpu: {type: V100, count: 8}}
  - {name: m1, cpu: 32, memory: 256GiB, gpu: [{type: MI100, count: 4}, {type: T4, count: 2}]}
cells:
  types:
    v-socket: {of: V100, count: 4}
    v-node: {of: v-socket, count: 2, node: true}
    v-rack: {of: v-node, count: 2}
    w-node: {of: V100, count: 8, node: true}
    mi-node: {of: MI100, count: 4, node: true}
    t4-node: {of: T4, count: 2, node: true}
  roots:
    - {type: v-rack, name: r1, nodes: [n1, n2]}
    - {type: v-node, nodes: [n3]}
    - {type: v-node, nodes: [n4]}
    - {type: v-node, nodes: [n5]}
    - {type: mi-node, nodes: [m1]}
    - {type: t4-node, nodes: [m1], devices: [[5, 4]]}
  pins:
    - {id: own, type: v-socket, node: n2, device: 4}
tenants:
  vision: {cells: {v-node/v-socket: 2, t4-node: 0}, pins: [own]}
  nlp: {cells: {v-rack/v-node: 1, v-node/v-node: 1}}
"""


def config(text: str) -> Config:
    return read_config(text.encode(), source="test", machine=None)[0]


def told(was: str, now: str) -> list[str]:
    """Return what changes when a part of the text is replaced."""
    assert was in TEXT
    old, new = config(TEXT), config(TEXT.replace(was, now))
    assert digest(old) != digest(new)
    return [
        f"{change.sign} {change.what}" + (f": {change.detail}" if change.detail else "")
        for change in differences(old, new)
        if not change.what.startswith("tenant")
    ]


def test_the_same_is_no_change() -> None:
    assert differences(config(TEXT), config(TEXT)) == []


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        (
            "node: n2, device: 4",
            "node: n2, device: 0",
            ["~ pinned cell own: v-socket at n2:4 → v-socket at n2:0"],
        ),
        (
            "{id: own, type: v-socket",
            "{id: own, type: V100",
            ["~ pinned cell own: v-socket at n2:4 → V100 at n2:4"],
        ),
        ("    - {type: v-node, nodes: [n5]}\n", "", ["- cell n5: v-node"]),
        ("{type: v-node, nodes: [n5]}", "{type: w-node, nodes: [n5]}",
         ["~ cell n5: v-node → w-node"]),
        ("w-node: {of: V100, count: 8", "w-node: {of: V100, count: 2",
         ["~ cell type w-node: 8 × V100 → 2 × V100"]),
        (
            "    - {type: mi-node, nodes: [m1]}\n",
            "",
            ["- cell m1: mi-node", "~ cell m1.t4-node: its name is m1 now"],
        ),
        ("[[5, 4]]", "[[4, 5]]", ["~ cell m1.t4-node: other devices, or in another order"]),
        ("name: r1", "name: r9", ["~ cell r1: its name is r9 now"]),
        ("[n1, n2]}\n", "[n2, n1]}\n", ["~ cell r1: nodes n1, n2 → n2, n1"]),
    ],
)  # fmt: skip
def test_a_change_is_told_by_what_it_is(was: str, now: str, expected: list[str]) -> None:
    assert told(was, now) == expected


def guaranteed(text: str) -> dict[str, str]:
    changes = differences(config(TEXT), config(text))
    return {
        change.what: change.detail for change in changes if change.what.startswith("tenant")
    }


def test_shares_name_the_chain_where_their_type_does_not_tell() -> None:
    fewer = TEXT.replace("v-node/v-node: 1}", "v-node/v-node: 0}")
    assert guaranteed(fewer) == {
        "tenant nlp": "1 v-node of v-rack, 1 v-node → 1 v-node of v-rack",
    }


def test_a_share_of_nothing_may_change_too() -> None:
    assert guaranteed(TEXT.replace("t4-node: 0", "mi-node: 0")) == {
        "tenant vision": "2 v-socket of v-node, 0 t4-node → 2 v-socket of v-node, 0 mi-node",
    }


def test_a_pinned_cell_of_another_type_is_worth_less() -> None:
    told = guaranteed(TEXT.replace("{id: own, type: v-socket", "{id: own, type: V100"))
    assert told["tenant vision"].startswith("12 GPU, ")
    assert " → 9 GPU, " in told["tenant vision"]

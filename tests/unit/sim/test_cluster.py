"""Clusters from short descriptions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.sim.cluster import BadCluster, cluster_of, words_of


def test_nodes_by_devices() -> None:
    nodes = cluster_of("16x8")
    assert len(nodes) == 16
    assert {len(node.devices) for node in nodes} == {8}
    assert [node.id for node in nodes] == list(range(16))
    assert len({node.name for node in nodes}) == 16
    assert words_of(nodes) == "16 nodes × 8 gpu"


def test_types_side_by_side() -> None:
    nodes = cluster_of("4x8xV100 + 1x4xK80+2x8xV100")
    assert [node.devices[0].type for node in nodes] == ["V100"] * 4 + ["K80"] + ["V100"] * 2
    assert [node.id for node in nodes] == list(range(7))
    assert words_of(nodes) == "6 nodes × 8 V100, 1 node × 4 K80"


def test_a_type_may_look_like_numbers() -> None:
    assert cluster_of("2x8x16x8")[0].devices[0].type == "16x8"


def racks_of(text: str) -> list[str]:
    return [dict(node.labels).get("rack", "") for node in cluster_of(text)]


def test_racks() -> None:
    assert racks_of("4x2/2") == ["rack0", "rack0", "rack1", "rack1"]
    assert racks_of("1x2/1") == ["rack0"]


def test_racks_are_filled_within_their_part() -> None:
    assert racks_of("1x8+4x8/2") == ["", "rack0", "rack0", "rack1", "rack1"]
    assert racks_of("4x8/2+2x8/2") == [f"rack{n}" for n in (0, 0, 1, 1, 2, 2)]
    assert racks_of("2x8xA/2+2x8xB/1") == ["rack0", "rack0", "rack1", "rack2"]


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("16x8/3", "Write 18x8/3, or 15x8/3+1x8/1"),
        ("5x2xA100/2", "Write 6x2xA100/2, or 4x2xA100/2+1x2xA100/1"),
        ("2x8/4", "Write 4x8/4, or 2x8/2"),
    ],
)
def test_racks_are_full(text: str, instead: str) -> None:
    with pytest.raises(BadCluster) as caught:
        cluster_of(text)
    assert f"'{text}': " in str(caught.value)
    assert "do not fill racks of" in str(caught.value)
    assert instead in str(caught.value)
    for better in instead.removeprefix("Write ").split(", or "):
        assert cluster_of(better)


def test_nodes_without_devices() -> None:
    assert words_of(cluster_of("3x0")) == "3 nodes × 0 no device"


@pytest.mark.parametrize(
    "text",
    ["", "x", "16", "16x", "x8", "-1x8", "1.5x8", "16X8", "16x8+", "+", "16x8,4x4", "16 x 8",
     "16x8x", "16x8x-a", "16x8xÄ", "16x8/", "16x8/-1"],
)  # fmt: skip
def test_what_is_no_cluster_is_told_how_to_write_one(text: str) -> None:
    with pytest.raises(BadCluster, match="is not a cluster: write NODESxDEVICES, such as 16x8"):
        cluster_of(text)


@pytest.mark.parametrize(
    "text",
    ["0x8", "9999999x9999", "16x8+0x4", "100001x1", "60000x8+60000x8", "99999999x8", "1x99999",
     "1x10000"],
)  # fmt: skip
def test_a_cluster_has_at_least_one_node_and_not_too_many_devices(text: str) -> None:
    with pytest.raises(
        BadCluster, match="at least one node, and at most 100,000 nodes and 10,000,000 devices"
    ):
        cluster_of(text)


def test_a_rack_of_nothing() -> None:
    with pytest.raises(BadCluster, match="'16x8/0': a rack has at least one node"):
        cluster_of("16x8/0")


@given(st.text(alphabet="0123456789x+/AB .-", max_size=8))
def test_any_text_is_a_cluster_or_is_told_not_to_be(text: str) -> None:
    if any(len(part) > 4 for part in text.replace("+", "x").replace("/", "x").split("x")):
        return  # Millions of nodes are a cluster too, but take their time.
    try:
        nodes = cluster_of(text)
    except BadCluster:
        return
    assert nodes
    assert words_of(nodes)

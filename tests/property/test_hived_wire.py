"""HiveD's files, damaged in any way: a configuration or a job, or BadInput; never else."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from allotment.model.cell_quota import shortages
from allotment.model.errors import BadInput
from allotment.wire.config import read_config
from allotment.wire.config_text import config_text
from allotment.wire.hived_config import read_hived
from allotment.wire.hived_job import read_pod_spec

CONFIG: dict[str, Any] = {
    "webServerAddress": ":9096",
    "physicalCluster": {
        "cellTypes": {
            "PAIR": {"childCellType": "G", "childCellNumber": 2},
            "NODE": {"childCellType": "PAIR", "childCellNumber": 2, "isNodeLevel": True},
            "RACK": {"childCellType": "NODE", "childCellNumber": 2},
            "HOST": {"childCellType": "C", "childCellNumber": 4, "isNodeLevel": True},
        },
        "physicalCells": [
            {"cellType": "RACK", "cellChildren": [{"cellAddress": "a"}, {"cellAddress": "b"}]},
            {"cellType": "NODE", "cellAddress": "c", "pinnedCellId": "P"},
            {"cellType": "HOST", "cellAddress": "d"},
        ],
        "skuTypes": {"C": {"gpu": 0, "cpu": 1, "memory": "1Gi"}},
    },
    "virtualClusters": {
        "x": {
            "virtualCells": [
                {"cellType": "RACK.NODE", "cellNumber": 1},
                {"cellType": "RACK.NODE.PAIR", "cellNumber": 1},
            ],
            "pinnedCells": [{"pinnedCellId": "P"}],
        },
        "y": {"virtualCells": [{"cellType": "HOST.C", "cellNumber": 2}]},
    },
}
POD: dict[str, Any] = {
    "virtualCluster": "x",
    "priority": 3,
    "pinnedCellId": "",
    "leafCellType": "G",
    "leafCellNumber": 2,
    "lazyPreemptionEnable": True,
    "affinityGroup": {"name": "g", "members": [{"podNumber": 2, "leafCellNumber": 2}]},
}
WORDS = [
    "G",
    "C",
    "PAIR",
    "NODE",
    "RACK",
    "HOST",
    "RACK.NODE",
    "P",
    "a",
    "b",
    "x",
    "",
    "é /",
    "-",
]
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.sampled_from(WORDS) | st.just(10**9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["cellType", "cellAddress", "cellChildren", "name", "NODE"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@st.composite
def damaged(draw: st.DrawFn, right: dict[str, Any]) -> dict[str, Any]:
    """A right file in which a few places are anything at all, or gone."""
    config: Any = json.loads(json.dumps(right))
    for _ in range(draw(st.integers(0, 3))):
        inside: Any = config
        while inside:
            keys = range(len(inside)) if isinstance(inside, list) else list(inside)
            key = draw(st.sampled_from(keys))
            if isinstance(inside[key], (dict, list)) and draw(st.integers(0, 4)):
                inside = inside[key]
                continue
            if draw(st.integers(0, 2)):
                inside[key] = draw(values)
            else:
                del inside[key]
            break
    return config


def check_problems(error: BadInput) -> None:
    assert error.problems
    for problem in error.problems:
        assert str(problem).isprintable()
        assert len(str(problem)) < 700


@given(damaged(CONFIG))
def test_a_configuration_is_read_so_that_ours_reads_back_or_refused(
    config: dict[str, Any],
) -> None:
    try:
        found = read_hived(json.dumps(config).encode(), source="h")
    except BadInput as error:
        check_problems(error)
        return
    assert shortages(found.config.topology, found.config.tenants) == ()
    text = config_text(found.written).encode()
    assert read_config(text, source="c", machine=None)[0] == found.config


@given(damaged(POD))
def test_a_pod_is_read_or_refused(pod: dict[str, Any]) -> None:
    try:
        read_pod_spec(json.dumps(pod).encode(), source="p", name="pod", command="run")
    except BadInput as error:
        check_problems(error)

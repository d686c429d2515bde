"""Cells in the configuration: a value or BadInput; what is written reads back."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from allotment.model.cell_quota import shortages
from allotment.model.errors import BadInput
from allotment.model.quantity import NOTHING
from allotment.wire.config import config_to_wire, read_config

RIGHT: dict[str, Any] = {
    "nodes": [
        {"name": "n1", "cpu": 8, "memory": "8GiB", "gpu": {"type": "A", "count": 4}},
        {"name": "n2", "cpu": 8, "memory": "9GiB", "gpu": {"type": "A", "count": 4}},
        {"name": "n3", "cpu": 3, "memory": "8GiB"},
    ],
    "hardware": ["4 x 2xB in racks of 2 named h"],
    "cells": {
        "types": {
            "pair": {"of": "A", "count": 2},
            "node": {"of": "pair", "count": 2, "node": True},
            "rack": {"of": "node", "count": 2},
            "host": {"of": "core", "count": 3, "node": True},
        },
        "roots": [
            {"type": "rack", "name": "r", "nodes": ["n1", "n2"]},
            {"type": "host", "nodes": ["n3"]},
        ],
        "pins": [{"id": "p", "type": "pair", "node": "n2", "device": 2}],
    },
    "tenants": {
        "a": {"cells": {"node": 1, "2xB-rack": 1}, "pins": ["p"]},
        "b": {"cells": {"pair": 1, "core": 2, "2xB-rack/2xB-node": 1}},
        "c": {},
    },
}
WORDS = ["A", "B", "pair", "node", "rack", "host", "core", "n1", "n2", "n3", "p", "r", "x", ""]
leaves = st.none() | st.booleans() | st.integers(-1, 9) | st.sampled_from(WORDS)
values: st.SearchStrategy[Any] = st.recursive(
    leaves | st.sampled_from(["1 x cpu-2", "3 x 1xA in racks of 3", "2 x A", "n1 x n2"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*WORDS, "of", "count", "node", "type", "nodes", "device"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, Any]:
    """A right configuration in which a few places are anything at all, or gone."""
    config: Any = json.loads(json.dumps(RIGHT))
    for _ in range(draw(st.integers(1, 4))):
        inside: Any = config
        while True:
            keys = range(len(inside)) if isinstance(inside, list) else list(inside)
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            inner = inside[key]
            if isinstance(inner, (dict, list)) and draw(st.integers(0, 3)):
                inside = inner
                continue
            if draw(st.booleans()):
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


@given(damaged())
def test_a_damaged_configuration_is_read_or_refused(config: dict[str, Any]) -> None:
    try:
        read, _ = read_config(json.dumps(config).encode(), source="c", machine=None)
    except BadInput as error:
        check_problems(error)
        return
    assert shortages(read.topology, read.tenants) == ()
    capacity = sum((node.total() for node in read.nodes), start=NOTHING)
    promised = sum((tenant.guaranteed for tenant in read.tenants), start=NOTHING)
    assert promised.fits_in(capacity)
    written = json.dumps(config_to_wire(read)).encode()
    assert read_config(written, source="c", machine=None)[0] == read


counts = st.integers(0, 3)


@given(counts, counts, counts, counts, counts)
def test_what_can_be_had_reads_back(rack: int, node: int, pair: int, a: int, core: int) -> None:
    config = json.loads(json.dumps(RIGHT))
    config["tenants"]["b"] = {
        "cells": {"rack": rack, "node": node, "pair": pair, "A": a, "core": core}
    }
    try:
        read, _ = read_config(json.dumps(config).encode(), source="c", machine=None)
    except BadInput:
        # Tenant a has one node of two, and a pin in the other.
        assert rack or node or pair * 2 + a > 2 or core > 3
        return
    assert not rack
    assert not node
    written = json.dumps(config_to_wire(read)).encode()
    assert read_config(written, source="c", machine=None)[0] == read

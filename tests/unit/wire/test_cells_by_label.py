"""Cell types in the configuration whose cells are made by the labels of nodes."""

import pytest

from allotment.model.errors import BadInput
from allotment.model.tenancy import Config
from allotment.wire.config import cell_types_in, config_to_wire, read_config
from allotment.wire.config_text import config_text

NODES = "".join(
    f"- {{name: n{n}, cpu: 8, memory: 8GiB, gpu: {{type: H100, count: 2}}, "
    f"labels: {{zone: {'a' if n < 5 else 'b'}, rack: r{(n + 1) // 2}}}}}\n"
    for n in range(1, 9)
)
RACK = "rack: {of: host, count: 2, label: example.com/rack}"
ZONE = "zone: {of: rack, count: 2, label: topology.kubernetes.io/zone}"
HOST = "host: {of: H100, count: 2, node: true}"


def read(*types: str, more: str = "", nodes: str = NODES) -> tuple[Config, list[str]]:
    lines = "".join(f"    {each}\n" for each in types)
    cells = f"cells:\n  types:\n{lines}{more}"
    text = f"nodes:\n{nodes}{cells}tenants: {{lab: {{cells: {{rack: 2}}}}}}\n"
    config, warnings = read_config(text.encode(), source="c.yaml", machine=None)
    return config, [str(each) for each in warnings]


def test_labels_make_the_roots_and_reading_what_is_written_gives_the_same() -> None:
    config, warnings = read(HOST, RACK, ZONE)
    assert not warnings
    roots = [(root.type, root.name, root.nodes) for root in config.topology.roots]
    assert roots == [("zone", "a", (0, 1, 2, 3)), ("zone", "b", (4, 5, 6, 7))]
    text = config_text(config_to_wire(config))
    assert "roots: []" in text
    assert read_config(text.encode(), source="c", machine=None)[0] == config
    assert cell_types_in(text.encode()) == config.topology.types


def test_what_makes_no_whole_cell_is_a_warning_and_not_an_error() -> None:
    without = "\n".join(NODES.split("\n")[1:])
    config, warnings = read(HOST, RACK, nodes=without)
    assert [root.name for root in config.topology.roots] == ["r2", "r3", "r4"]
    assert warnings[-1] == (
        "line 12: cells.types.rack.label: rack r1 has 1 node (n2), not 2: in no cell of rack "
        "(correct the labels of its nodes, or add a type of that size)"
    )


def test_guarantees_that_do_not_fit_are_told_with_what_labels_leave_out() -> None:
    with pytest.raises(BadInput) as caught:
        read(HOST, RACK, nodes="\n".join(NODES.split("\n")[1:4]) + "\n")
    said = [str(each) for each in caught.value.problems]
    assert any("rack r1 has 1 node (n2), not 2" in each for each in said)
    assert any("1 too many (lab 2)" in each for each in said)


@pytest.mark.parametrize(
    ("types", "more", "said"),
    [
        (
            (HOST, "rack: {of: host, count: 2}", ZONE),
            "",
            "cells.types.rack.label: is missing: zone of rack is found by labels "
            "(name the label of nodes that says in which they lie)",
        ),
        (
            (HOST, RACK),
            "  roots: [{type: rack, nodes: [n1, n2]}]\n",
            "cells.types.rack.label: makes the cells of rack, and `roots` lists some, too "
            "(take one of the two out)",
        ),
        (
            ("host: {of: H100, count: 2, node: true, label: zone}", RACK),
            "",
            "cells.types.host.label: is zone, and each node is a host (label: node)",
        ),
        (
            (HOST, RACK, "zone: {of: rack, count: 2, label: other.org/rack}"),
            "",
            "cells.types.zone.label: is the label of a cell within it, too",
        ),
        (
            ("rack: {of: H100, count: 2, label: rack}",),
            "",
            "cells.types.rack.label: is given, and rack has no type of a whole machine in it: "
            "rack of H100 (set node: true for that type)",
        ),
        (
            (HOST, RACK, "other: {of: host, count: 4, label: zone}"),
            "",
            "n1 lies in another cell by its H100",
        ),
    ],
)
def test_labels_that_make_no_cells_are_refused(
    types: tuple[str, ...], more: str, said: str
) -> None:
    with pytest.raises(BadInput) as caught:
        read(*types, more=more)
    assert said in "\n".join(str(each) for each in caught.value.problems)

"""`allot tenants` where shares are cells."""

from allotment.cli.tenant_table import notes, rows
from allotment.model.quantity import NOTHING
from allotment.service.cells_view import DownPart, TenantCells
from allotment.service.views import TenantView


def a_view(name: str, *cells: TenantCells) -> TenantView:
    return TenantView(name, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, 0, 0, (), "", cells)


def test_cells_of_one_type_in_several_chains_are_told_apart() -> None:
    shown = [
        a_view(
            "a",
            TenantCells("node", "rack", guaranteed=2),
            TenantCells("node", "node", guaranteed=1),
        ),
        a_view("b", TenantCells("K80", "k-node", borrowed=1), TenantCells("rack", "rack")),
    ]
    assert [row[:2] for row in rows(shown)] == [
        ("a", "node of rack"),
        ("", "node"),
        ("b", "K80"),
        ("", "rack"),
    ]


def test_a_note_tells_them_apart_too() -> None:
    lost = TenantCells("V100", "rack", guaranteed=2, lost=1)
    shown = [a_view("a", lost), a_view("b", TenantCells("V100", "node"))]
    assert notes(shown, 0) == ["a: 1 of 2 V100 of rack are not available now"]


def test_a_note_names_the_pin_and_what_of_its_cell_is_down() -> None:
    pinned = TenantCells(
        "switch", "rack", pin="own", guaranteed=1, lost=1, down=(DownPart("n4:2", 5_000),)
    )
    assert notes([a_view("a", pinned)], 65_000) == [
        "a: 1 of 1 switch (pin own) are not available now (n4:2 for 1m)"
    ]

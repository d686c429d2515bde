"""docs/metrics.md defines every number there is."""

import re
from pathlib import Path

import pytest
from msgspec.structs import fields

from allotment.metrics.summary import Fairness, Sla, Summary, TenantBlock, WaitParts

PAGE = Path(__file__).parents[3] / "docs/metrics.md"


@pytest.mark.parametrize("kind", [Summary, Fairness, Sla, TenantBlock, WaitParts])
def test_every_number_is_defined(kind: type) -> None:
    section = PAGE.read_text("utf-8").partition("# Numbers of a run")[2]
    told = set(re.findall(r"`(\w+)`", section))
    assert {field.name for field in fields(kind)} <= told

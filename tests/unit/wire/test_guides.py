"""What the guides show is accepted, without a warning, and they name every key."""

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from allotment.model.cluster import Node
from allotment.model.ids import NodeId
from allotment.model.quantity import GIB
from allotment.wire.cells_shape import CellsShape, CellTypeShape, PinShape, RootShape
from allotment.wire.classic_shape import ClassicJob, ClassicPort, ClassicRole
from allotment.wire.config import read_config
from allotment.wire.config_shape import (
    BackoffShape,
    ConfigShape,
    GpuShape,
    GuaranteedShape,
    LimitsShape,
    NodeShape,
    TenantShape,
)
from allotment.wire.job import read_job
from allotment.wire.job_shape import (
    ArrayShape,
    BatchShape,
    CheckpointShape,
    CompletionShape,
    JobShape,
    PortShape,
    ResourcesShape,
    RoleShape,
)

GUIDE = Path(__file__).parents[3] / "docs" / "guide"
JOBS = (GUIDE / "job-spec.md").read_text(encoding="utf-8")
CONFIGS = (GUIDE / "config.md").read_text(encoding="utf-8")
CELLS = (GUIDE / "cells.md").read_text(encoding="utf-8")
HERE = Node(NodeId(0), "here", 8000, 32 * GIB, 100 * GIB)
FOUND = {"gpus": (Node(NodeId(0), "n1", 8000, 32 * GIB, 0),)}


def blocks(page: str) -> list[str]:
    return re.findall(r"^```(?:yaml|json)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", blocks(JOBS))
def test_a_job_of_the_guide_is_accepted(block: str) -> None:
    assert read_job(block.encode(), source="guide", environ={"HUB_TOKEN": "x"}).warnings == ()


@pytest.mark.parametrize("block", [*blocks(CONFIGS), *blocks(CELLS)])
def test_a_configuration_of_the_guide_is_accepted(block: str) -> None:
    assert read_config(block.encode(), source="guide", machine=HERE, found=FOUND)[1] == ()


@pytest.mark.parametrize(
    ("page", "shape"),
    [
        *((JOBS, shape) for shape in (JobShape, RoleShape, ResourcesShape, CompletionShape)),
        *((JOBS, shape) for shape in (CheckpointShape, ArrayShape, PortShape, BatchShape)),
        *((JOBS, shape) for shape in (ClassicJob, ClassicRole, ClassicPort)),
        *((CONFIGS, shape) for shape in (ConfigShape, NodeShape, GpuShape, TenantShape)),
        *((CONFIGS, shape) for shape in (GuaranteedShape, LimitsShape, BackoffShape)),
        *((CELLS, shape) for shape in (CellsShape, CellTypeShape, RootShape, PinShape)),
    ],
)
def test_every_key_is_in_the_guide(page: str, shape: type[BaseModel]) -> None:
    for name, field in shape.model_fields.items():
        assert re.search(rf"\b{field.alias or name}\b", page), f"{name} is not described"

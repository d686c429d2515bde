"""Outputs that are versions already are not saved twice."""

import pytest

from allotment.model.datasets import DataKind, Dataset, DataVersion
from allotment.model.quantity import WallTime
from allotment.service.data.saving import made_before

VERSIONS = (
    DataVersion(1, "a", 1, 1, WallTime(100), "ann"),
    DataVersion(2, "b", 1, 1, WallTime(200), "ben"),
    DataVersion(3, "c", 1, 1, WallTime(300), "ann"),
)
DATASET = Dataset("vision", "results", "id", DataKind.MANAGED, "ann", versions=VERSIONS)


@pytest.mark.parametrize(
    ("digest", "ended", "number"),
    [("a", 100, 1), ("a", 99, 1), ("a", 101, 0), ("b", 100, 0), ("c", 100, 3), ("d", 0, 0)],
)
def test_a_version_of_these_outputs(digest: str, ended: int, number: int) -> None:
    assert made_before(DATASET, digest, "ann", WallTime(ended)) == number

"""What too little is free of, in words."""

import pytest

from allotment.core.request import shape_of
from allotment.explain.free import lacking
from allotment.model.tenancy import Config
from tests.support.builders import a_job, a_node, a_tenant
from tests.support.world import World

TWO_TYPES = Config((a_node(0, 2, "A100"), a_node(1, 4, "T4")), (a_tenant("vision", 6),))


@pytest.mark.parametrize(
    ("types", "devices", "words"),
    [
        ((), 6, ()),
        ((), 7, ("GPU",)),
        (("A100",), 3, ("GPU (A100)",)),
        (("A100",), 2, ()),
        (("A100", "T4"), 7, ("GPU (A100 or T4)",)),
    ],
)
def test_types_are_named_where_a_job_names_them(
    types: tuple[str, ...], devices: int, words: tuple[str, ...]
) -> None:
    cluster = World(TWO_TYPES).state.cluster
    spec = a_job().gpus(1).tasks(devices).types(*types).spec()
    assert lacking(cluster, shape_of(spec).requests) == words

"""Network cards of nodes in the configuration."""

import msgspec
import pytest

from allotment.model.cluster import Nic
from allotment.model.errors import BadInput
from allotment.wire.config import config_to_wire, read_config

FOUR = """\
nodes:
  - name: n1
    cpu: 8
    memory: 8GiB
    gpu: {type: V100, count: 4}
    nics: [{name: mlx5_0, near: [0, 1]}, {name: mlx5_1, near: [2, 3]}]
tenants: {vision: {}}
"""


def test_cards_are_read_and_written_back() -> None:
    config, _ = read_config(FOUR.encode(), source="c.yaml", machine=None)
    assert config.nodes[0].nics == (Nic("mlx5_0", (0, 1)), Nic("mlx5_1", (2, 3)))
    assert config.nodes[0].nics_of((1, 2)) == ("mlx5_0", "mlx5_1")
    assert config.nodes[0].nics_of(()) == ()
    again, _ = read_config(
        msgspec.json.encode(config_to_wire(config)), source="again", machine=None
    )
    assert again == config


@pytest.mark.parametrize(
    ("was", "wrong", "said"),
    [
        ("near: [0, 1]", "near: [0, 4]", "there is no device 4: the node has 4"),
        ("near: [0, 1]", "near: []", "a list of device indexes"),
        ("near: [0, 1]", "near: 1", "a list of device indexes"),
        ("mlx5_1", "mlx5_0", "mlx5_0 is there already"),
    ],
)
def test_what_is_wrong_with_a_card_is_told_with_its_line(
    was: str, wrong: str, said: str
) -> None:
    with pytest.raises(BadInput) as refused:
        read_config(FOUR.replace(was, wrong).encode(), source="c.yaml", machine=None)
    assert said in str(refused.value)
    assert "line 6" in str(refused.value)

"""Pools of nodes in the configuration."""

import pytest

from allotment.model.errors import BadInput
from allotment.model.pools import POOL, UNKNOWN, Pool
from allotment.model.quantity import GIB
from allotment.model.spec import Arch
from allotment.model.tenancy import Config
from allotment.wire.config import config_to_wire, read_config
from allotment.wire.config_text import config_text

REST = "nodes: [{name: n0, cpu: 4, memory: 8GiB}]\ntenants: {vision: }\n"


def read(pools: str, rest: str = REST) -> Config:
    return read_config(f"{rest}pools: {pools}\n".encode(), source="c.yaml", machine=None)[0]


@pytest.mark.parametrize(
    ("text", "pool"),
    [
        ("{price: 32.77, most: 20}", Pool("big", 32_770, 20)),
        ("{most: 0}", Pool("big", UNKNOWN, 0)),
        ("{}", Pool("big")),
    ],
)
def test_a_pool_has_a_price_and_a_bound(text: str, pool: Pool) -> None:
    config = read(f"{{big: {text}}}")
    assert config.pools == (pool,)
    written = config_text(config_to_wire(config)).encode()
    assert read_config(written, source="c.yaml", machine=None)[0] == config


def test_a_pool_says_what_its_nodes_are_like() -> None:
    config = read(
        "{big: {price: 5, cpu: 96, memory: 1TiB, disk: 2TiB, arch: arm64, labels: {zone: a}, "
        "gpu: {type: gh200, count: 4, memory: 96GiB}}}"
    )
    node = config.pools[0].node
    assert node is not None
    assert (node.cpu_milli, node.memory, node.arch) == (96_000, 1024 * GIB, Arch.ARM64)
    assert node.labels == ((POOL, "big"), ("zone", "a"))
    assert [device.type for device in node.devices] == ["gh200"] * 4
    written = config_text(config_to_wire(config)).encode()
    assert read_config(written, source="c.yaml", machine=None)[0] == config


ENGINES = (
    "engines: {a: {type: local}, b: {type: slurm, partition: main}}\n"
    "nodes: [{name: n0, cpu: 4, memory: 8GiB, engine: a}, "
    "{name: n1, cpu: 4, memory: 8GiB, engine: b}]\ntenants: {vision: }\n"
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{price: $5}", "a price for an hour"),
        ("{price: -1}", "must not be negative"),
        ("{price: 0.0001}", "finer than a thousandth"),
        ("{price: 2000000}", "is more than 1,000,000 for an hour"),
        ("{most: -1}", "must be at least 0"),
        ("{cpu: 4}", "say what a node has: cpu, memory and gpu"),
        ("{gpu: {type: t4, count: 1}}", "add cpu and memory"),
        ("{prise: 5}", "price"),
        ("", "must be a map of keys, not nothing"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words.replace("$", r"\$")):
        read(f"{{big: {text}}}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{cpu: 4, memory: 8GiB, engine: c}", "there is no engine c"),
        ("{cpu: 4, memory: 8GiB}", "is missing, and there are several engines"),
    ],
)
def test_the_engine_of_a_pool_is_known(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        read(f"{{big: {text}}}", ENGINES)

"""Worlds whose shares are cells, from a configuration as its administrator writes it."""

from allotment.model.tenancy import Config
from allotment.wire.config import read_config
from tests.support.world import World


def cell_config(text: str) -> Config:
    config, _ = read_config(text.encode(), source="cells.yaml", machine=None)
    return config


def a_cell_world(text: str) -> World:
    return World(cell_config(text))

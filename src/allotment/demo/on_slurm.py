"""The demo on a Slurm cluster that is there: which partition and which nodes it plays on."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from allotment.backends.slurm import client
from allotment.backends.slurm.discover import nodes_of, report_of
from allotment.backends.slurm.told import SlurmNode
from allotment.demo.own_service import Engine
from allotment.demo.setting import Setting, TooSmall, setting_on_cluster
from allotment.model.cluster import Node

UP_S = 150.0
"""With pilots the service is asked to come up while Slurm gives it nodes."""


class OnSlurm(msgspec.Struct, frozen=True):
    """What a person wants of the demo on Slurm."""

    partition: str = ""
    """One that is large enough is found where none is named."""
    native: bool = False
    folder: str = ""
    """Where the service's folder is made; '' for the home folder."""


def on_slurm(wanted: OnSlurm) -> tuple[Setting, Engine]:
    """Find a partition that holds the demo, and what a service on it is started with.

    Raises BackendError where Slurm does not answer, and TooSmall.
    """
    found = asyncio.run(client.nodes())
    names = [wanted.partition] if wanted.partition else asyncio.run(_partitions())
    name, setting = _first_that_holds(names, found, native=wanted.native)
    words = ("--slurm", name) if wanted.native else ("--slurm", name, "--pilot")
    return setting, Engine(words, wanted.folder or str(Path.home()), UP_S)


async def _partitions() -> list[str]:
    """Return the partitions by name, first the one that Slurm takes by itself."""
    said = (await client.run("sinfo", "-h", "-o", "%P")).split()
    return [name.rstrip("*") for name in sorted(said, key=lambda name: (name[-1] != "*", name))]


def _first_that_holds(
    names: Sequence[str], found: Sequence[SlurmNode], *, native: bool
) -> tuple[str, Setting]:
    trouble = TooSmall("Slurm has no partition.")
    for name in names:
        try:
            ready = [node for node in nodes_of(found, name) if _is_ready(node, found)]
            where = f"partition {name}"
            return name, setting_on_cluster(ready, where, divides=not native, whole_cpus=native)
        except TooSmall as error:
            trouble = error
    raise trouble


def _is_ready(node: Node, found: Sequence[SlurmNode]) -> bool:
    told = report_of(node, next(each for each in found if each.name == node.name))
    return told.alive and not told.closed

"""A service whose jobs run in a Slurm partition: its nodes, and what Slurm cannot do."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog

from allotment.api.state_folder import write_whole
from allotment.model.cells import Topology
from allotment.model.cluster import Node
from allotment.model.errors import BackendError, BadInput, EngineAway, Problem
from allotment.model.spec import GiveWay
from allotment.model.tenancy import Config

log = structlog.get_logger("allot.wiring")

KEPT = "slurm-partition"
"""In the state folder: so that a later start does not run a cluster's jobs on this machine."""

PILOT = "slurm-pilot"
"""In the state folder: its nodes are held as a whole."""

FIRST_S, AGAIN_S = 30.0, 3.0
"""How long a start waits for Slurm: where it can go on without, not for long."""


def partition_of(folder: Path, wanted: str) -> str:
    """Return the partition of a state folder, '' where its jobs run here. Raises BadInput."""
    path = folder / KEPT
    kept = path.read_text().strip() if path.exists() else ""
    if kept and wanted and kept != wanted:
        raise BadInput((
            Problem(
                f"the jobs of {folder} run in partition {kept}, not in {wanted}",
                hint="leave out --slurm, or take another state folder",
            ),
        ))  # fmt: skip
    return kept or wanted


def keep(folder: Path, partition: str, *, pilot: bool) -> None:
    """Remember the partition for later starts, and how it is used."""
    if pilot:
        write_whole(folder / PILOT, b"", 0o600)
    write_whole(folder / KEPT, f"{partition}\n".encode(), 0o600)


def described(partition: str) -> tuple[tuple[Node, ...], Topology]:
    """Return the nodes of a partition, and how they lie together below Slurm's switches.

    Raises BadInput, BackendError.
    """
    from allotment.backends.slurm import client  # noqa: PLC0415
    from allotment.backends.slurm.switches import switches_of, topology_of  # noqa: PLC0415

    nodes = discovered(partition, is_first=True)
    with ThreadPoolExecutor(1) as pool:
        said = pool.submit(lambda: asyncio.run(client.switches())).result()
    return nodes, topology_of(nodes, switches_of(said))


def is_pilot(folder: Path, *, wanted: bool) -> bool:
    """Whether the nodes of a state folder's partition are held as a whole. Raises BadInput."""
    kept = (folder / PILOT).exists()
    if wanted and not kept and (folder / KEPT).exists():
        raise BadInput((
            Problem(
                f"the jobs of {folder} are Slurm jobs of their own",
                hint="leave out --pilot, or take another state folder",
            ),
        ))  # fmt: skip
    return kept or wanted


def discovered(partition: str, *, is_first: bool) -> tuple[Node, ...]:
    """Return the nodes of a partition as Slurm knows them. Raises BadInput, BackendError.

    None where Slurm does not answer and this is not the first start: what runs goes on, and
    the configuration in force knows the nodes.
    """
    from allotment.backends.slurm import client  # noqa: PLC0415
    from allotment.backends.slurm.discover import nodes_of  # noqa: PLC0415
    from allotment.backends.slurm.switches import labelled, switches_of  # noqa: PLC0415

    try:
        with ThreadPoolExecutor(1) as pool:  # where we are, a loop runs already
            patience_s = FIRST_S if is_first else AGAIN_S
            found = pool.submit(lambda: asyncio.run(client.nodes(patience_s))).result()
            switches = pool.submit(lambda: asyncio.run(client.switches())).result()
    except EngineAway as error:
        if not is_first:
            log.warning("Slurm does not answer; its jobs go on", why=str(error))
            return ()
        raise BackendError(
            f"Slurm does not answer: {error}. Try `sinfo` on this machine: it needs Slurm's "
            "commands, slurm.conf, and munge running with the key of the cluster."
        ) from error
    nodes = labelled(nodes_of(found, partition), switches_of(switches))
    if not nodes:
        there = sorted({name for node in found for name in node.partitions})
        raise BadInput((
            Problem(
                f"Slurm has no partition {partition} with nodes",
                hint=f"partitions there: {', '.join(there[:20]) or 'none'}",
            ),
        ))  # fmt: skip
    return nodes


def problems_of(
    config: Config, nodes: tuple[Node, ...], *, pilot: bool = False
) -> Iterator[Problem]:
    """Find what a configuration wants that the partition has not, or Slurm cannot do."""
    there = {node.name: node for node in nodes}
    for node in config.nodes if nodes else ():
        real = there.get(node.name)
        if real is None:
            yield Problem(f"Slurm's partition has no node {node.name}", "nodes")
        elif len(node.devices) > len(real.devices):
            yield Problem(
                f"node {node.name} has {len(real.devices)} GPUs in Slurm, not "
                f"{len(node.devices)}",
                "nodes",
            )
    if pilot:
        return
    for tenant in config.tenants:
        if tenant.on_eviction is GiveWay.SUSPEND:
            yield Problem(
                "a job that Slurm suspends keeps its GPUs",
                f"tenants.{tenant.name}.on_eviction",
                hint="requeue",
            )
    kinds = {kind.name: kind for kind in config.topology.types}
    for kind in kinds.values():
        if kind.is_node and kind.child in kinds:
            yield Problem(
                f"Slurm picks the GPUs of a job itself, so no cell may be smaller than a node, "
                f"and {kind.name} is made of {kind.child}",
                f"cells.types.{kind.name}",
                hint=f"make {kind.name} of devices, or hold whole nodes: --pilot",
            )

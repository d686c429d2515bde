"""The partitions of a Slurm cluster: their nodes, and whether a configuration agrees."""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog

from allotment.model.cells import Topology
from allotment.model.cluster import Node
from allotment.model.engines import EngineSetup, EngineType
from allotment.model.errors import BackendError, BadInput, EngineAway, NoNodes, Problem
from allotment.rights.writing import sync, write_whole

log = structlog.get_logger("allot.wiring")

KEPT = "slurm-partition"
"""In the state folder: so that a later start does not run a cluster's jobs on this machine."""

PILOT = "slurm-pilot"
"""In the state folder: its nodes are held as a whole."""

FIRST_S, AGAIN_S = 30.0, 3.0
"""How long a start waits for Slurm: where it can go on without, not for long."""


def kept_in(folder: Path) -> str:
    """Return the partition that `--slurm` gave a state folder; '' if none."""
    path = folder / KEPT
    return path.read_text().strip() if path.exists() else ""


def partition_of(folder: Path, wanted: str) -> str:
    """Return the partition of a state folder, '' if its jobs run here. Raises BadInput."""
    kept = kept_in(folder)
    if kept and wanted and kept != wanted:
        raise BadInput((
            Problem(
                f"the jobs of {folder} run in partition {kept}, not in {wanted}",
                hint="leave out --slurm, or take another state folder",
            ),
        ))  # fmt: skip
    return kept or wanted


def unanswered(error: EngineAway, setup: EngineSetup | None = None) -> BackendError:
    """Return the error that Slurm does not answer, and what to try."""
    from allotment.backends.slurm.advice import advice_of  # noqa: PLC0415

    rest = setup.rest if setup is not None else None
    advice = advice_of(str(error), over_rest=rest is not None)
    where = ""
    if setup is not None and rest is not None:
        where = f" slurmrestd is looked for at {rest.server} (engines.{setup.name}.rest)."
    return BackendError(f"Slurm does not answer: {error}. {advice}{where}")


def keep(folder: Path, partition: str, *, pilot: bool) -> None:
    """Write down the partition for later starts, and how it is used."""
    if pilot:
        write_whole(folder / PILOT, b"")
    write_whole(folder / KEPT, f"{partition}\n".encode())
    sync(folder)


def described(partition: str) -> tuple[tuple[Node, ...], Topology]:
    """Return the nodes of a partition, and how they lie together below Slurm's switches.

    Raises BadInput, BackendError.
    """
    from allotment.backends.groups import topology_of  # noqa: PLC0415
    from allotment.backends.slurm import client  # noqa: PLC0415
    from allotment.backends.slurm.switches import switches_of  # noqa: PLC0415

    try:
        nodes = discovered(EngineSetup("", EngineType.SLURM, partition), is_first=True)
    except EngineAway as error:
        raise unanswered(error) from error
    with ThreadPoolExecutor(1) as pool:
        said = pool.submit(lambda: asyncio.run(client.switches())).result()
    return nodes, topology_of(nodes, switches_of(said))


def is_pilot(folder: Path, *, wanted: bool) -> bool:
    """Whether whole nodes of a state folder's partition are held. Raises BadInput."""
    kept = (folder / PILOT).exists()
    if wanted and not kept and (folder / KEPT).exists():
        raise BadInput((
            Problem(
                f"the jobs of {folder} are Slurm jobs of their own",
                hint="leave out --pilot, or take another state folder",
            ),
        ))  # fmt: skip
    return kept or wanted


def discovered(setup: EngineSetup, *, is_first: bool) -> tuple[Node, ...]:
    """Return the nodes of a partition as Slurm knows them. Raises NoNodes, EngineAway.

    Only the first time does it wait long: a later start can go on without an answer.
    """
    with ThreadPoolExecutor(1) as pool:  # where we are, a loop runs already
        looked = pool.submit(
            lambda: asyncio.run(_look(setup, FIRST_S if is_first else AGAIN_S))
        )
        nodes, there = looked.result()
    if not nodes:
        raise NoNodes((
            Problem(
                f"Slurm has no partition {setup.partition} with nodes",
                hint=f"partitions there: {', '.join(there[:20]) or 'none'}",
            ),
        ))  # fmt: skip
    return nodes


async def _look(setup: EngineSetup, patience_s: float) -> tuple[tuple[Node, ...], list[str]]:
    """Return the nodes of a partition, and the names of all partitions."""
    from allotment.backends.slurm.calls import calls_of  # noqa: PLC0415
    from allotment.backends.slurm.discover import nodes_of  # noqa: PLC0415
    from allotment.backends.slurm.switches import labelled, switches_of  # noqa: PLC0415

    slurm = calls_of(setup)
    try:
        async with asyncio.timeout(patience_s):
            found = await slurm.nodes()
        switches = await slurm.switches()
    except TimeoutError:
        raise EngineAway(f"no answer in {patience_s:.0f} s") from None
    finally:
        slurm.close()
    there = sorted({name for node in found for name in node.partitions})
    return labelled(nodes_of(found, setup.partition), switches_of(switches)), there


def wrong_charges(setup: EngineSetup) -> Iterator[Problem]:
    """Return problems: accounts and qualities of service that Slurm does not know.

    Where Slurm's database does not answer there are none: Slurm itself refuses then.
    """
    accounts = {account for _, account in setup.accounts}
    qos = {setup.qos, *dict(setup.qos_of).values()} - {""}
    if not accounts and not qos:
        return
    wanted = {"account": accounts, **({"qos": qos} if qos else {})}
    place = f"engines.{setup.name}"
    for kind, names in wanted.items():
        try:
            with ThreadPoolExecutor(1) as pool:
                there = pool.submit(_names_of, kind).result()
        except BackendError as error:
            log.warning("Slurm's accounting does not answer", engine=setup.name, why=str(error))
            return
        if there is None:
            if kind == "qos":
                hint = "take it out, or set AccountingStorageType in slurm.conf"
                yield Problem(
                    "is given, and Slurm keeps no accounts", f"{place}.qos", hint=hint
                )
            continue
        key = "accounts" if kind == "account" else kind
        for name in sorted(name for name in names if name.lower() not in there):
            hint = (
                f"there: {', '.join(sorted(there)[:20])}; `sacctmgr add {kind} {name}` adds it"
            )
            yield Problem(f"Slurm has no {kind} {name}", f"{place}.{key}", hint=hint)


def _names_of(kind: str) -> frozenset[str] | None:
    from allotment.backends.slurm import client  # noqa: PLC0415

    return asyncio.run(client.names(kind))


SYSTEM = "Slurm"


def problems_of(
    nodes: Sequence[Node], found: Sequence[Node], system: str = SYSTEM
) -> Iterator[Problem]:
    """Return problems: what configured nodes have and their engine does not."""
    there = {node.name: node for node in found}
    for node in nodes:
        real = there.get(node.name)
        if real is None:
            whose = "Slurm's partition" if system == SYSTEM else system
            hint = f"take it out of the list; there: {', '.join(sorted(there)[:20])}"
            yield Problem(f"{whose} has no node {node.name}", "nodes", hint=hint)
        elif len(node.devices) > len(real.devices):
            yield Problem(
                f"node {node.name} has {len(real.devices)} GPUs in {system}, not "
                f"{len(node.devices)}",
                "nodes",
                hint=f"list {len(real.devices)}, or correct what {system} counts",
            )

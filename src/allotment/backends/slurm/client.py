"""The commands of Slurm, run beside the event loop. Thin: what they say is read elsewhere."""

import os
from collections.abc import Mapping, Sequence
from secrets import token_hex

from allotment.backends.program import said_by
from allotment.backends.slurm.accounts_read import (
    FIELDS,
    Accounted,
    accounted_in,
    counts_in,
)
from allotment.backends.slurm.reservations import SlurmReservation, reservations_of
from allotment.backends.slurm.settings import Partition, partition_of, settings_of
from allotment.backends.slurm.status import ROW, Rows, rows_of
from allotment.backends.slurm.told import SlurmNode, nodes_from
from allotment.backends.slurm.usage import NodeLine, lines_of
from allotment.model.errors import BackendError, EngineAway

PATIENCE_S = 30.0
"""Longer than Slurm's own MessageTimeout, by default 10 s, and a fail-over of its commands."""

AWAY = (
    "unable to contact slurm controller",
    "connection refused",
    "connection timed out",
    "socket timed out",
    "zero bytes were transmitted",
    "transport endpoint is not connected",
    "slurm backup controller in standby",
    "munge",
    "protocol authentication error",
    "invalid authentication credential",
    "slurm temporarily unable to accept job",
    "resource temporarily unavailable",
)
"""What Slurm says that can't answer now, and would later."""

OVER = ("already completing or completed", "invalid job id specified")
"""What Slurm says of a job that has ended, and of one that it has forgotten since."""


LINE = "NodeList:|,StateLong:|,CPUsState:|,Memory:|,AllocMem:|,Gres:|,GresUsed:|,Reason:|"
"""The format of `sinfo` that `usage.lines_of` reads."""

NO_ACCOUNTS = "not running a supported accounting_storage plugin"
"""What `sacctmgr` says where slurm.conf has AccountingStorageType=accounting_storage/none."""

NO_JSON = ("unrecognized option", "invalid option")


async def nodes(patience_s: float = PATIENCE_S) -> tuple[SlurmNode, ...]:
    """Return all nodes of the cluster. Raises BackendError."""
    command = ("scontrol", "--json", "show", "node")
    try:
        said = await run(*command, patience_s=patience_s)
    except BackendError as error:
        if not any(word in str(error) for word in NO_JSON):
            raise
        command = ("sinfo", "--json")  # before 23.02; since then that has no nodes
        said = await run(*command, patience_s=patience_s)
    try:
        return nodes_from(said, f"`{' '.join(command)}`")
    except EngineAway:
        await run("sinfo", "-h", "-o", "%n", patience_s=patience_s)  # It says why, in words.
        raise


def close() -> None:
    """Do nothing: a command keeps nothing open."""


async def switches() -> str:
    """Return the text of Slurm's switches, '' where it knows none. Raises BackendError."""
    return await run("scontrol", "--oneliner", "show", "topology")


async def lines(partition: str) -> Sequence[NodeLine]:
    """Return a line for each node of a partition: its state, and what of it is allocated.

    It costs a small part of `nodes` on a large cluster. Raises BackendError.
    """
    return lines_of(await run("sinfo", "-h", "-N", "-p", partition, "-O", LINE))


async def reservations() -> tuple[SlurmReservation, ...]:
    """Return all reservations. Raises BackendError."""
    return reservations_of(await run("scontrol", "--oneliner", "show", "reservations"))


async def partition(name: str) -> Partition | None:
    """Return the settings of a partition; None where Slurm has none. Raises BackendError."""
    try:
        return partition_of(await run("scontrol", "--oneliner", "show", "partition", name))
    except EngineAway:
        raise
    except BackendError as error:
        if "not found" in str(error).lower():
            return None
        raise


async def names(kind: str) -> frozenset[str] | None:
    """Return the accounts or qualities of service there are, as `account` or `qos`.

    None where Slurm keeps no accounts. Raises BackendError.
    """
    try:
        said = await run(
            "sacctmgr", "-nP", "show", kind, f"format={kind if kind != 'qos' else 'name'}"
        )
    except EngineAway:
        raise
    except BackendError as error:
        if NO_ACCOUNTS in str(error).lower():
            return None
        raise
    return frozenset(said.lower().split())


async def counts_gpus() -> bool:
    """Return whether Slurm's accounts say how devices are used. Raises BackendError."""
    try:
        return counts_in(await run("sacctmgr", "-nP", "show", "tres", "format=type,name"))
    except EngineAway:
        raise
    except BackendError as error:
        if NO_ACCOUNTS in str(error).lower():
            return False
        raise


async def accounted(jobs: Sequence[str]) -> Mapping[str, Accounted]:
    """Return what the accounts have of ended jobs, by number. Raises BackendError."""
    return accounted_in(
        await run("sacct", "-anP", f"--jobs={','.join(jobs)}", f"--format={FIELDS}")
    )


async def settings() -> dict[str, str]:
    """Return Slurm's own configuration. Raises BackendError."""
    return settings_of(await run("scontrol", "show", "config"))


async def state_of(node: str) -> tuple[str, str]:
    """Return state and reason of one node in Slurm's words. Raises BackendError."""
    said = (await run("sinfo", "-h", "-n", node, "-o", "%T|%E")).partition("\n")[0]
    state, _, reason = said.partition("|")
    return state.lower(), reason.strip()


async def jobs(name: str = "") -> Rows:
    """Return the jobs that Slurm remembers, ended ones too. Raises BackendError."""
    mark = token_hex(8)
    only = [f"--name={name}"] if name else []
    # Not on the command line, which other users can read while it runs.
    said = await run("squeue", "-h", "-t", "all", *only, env={"SQUEUE_FORMAT": mark + ROW})
    return rows_of(said, mark)


async def submit(options: Sequence[str], script: str, env: Mapping[str, str] = {}) -> str:
    """Submit the batch script in a file; return the number of its job. Raises BackendError."""
    said = await run("sbatch", "--parsable", *options, script, env=env)
    return said.strip().partition(";")[0]


async def cancel(job: str, *, signal: str = "") -> None:
    """Cancel a job, or send its processes a signal. A job that is over is no error."""
    how = [f"--signal={signal}", "--full"] if signal else []
    try:
        await run("scancel", *how, job)
    except EngineAway:
        raise
    except BackendError as error:
        if not any(word in str(error).lower() for word in OVER):
            raise


async def drain(node: str, reason: str) -> None:
    """Make Slurm start nothing new on a node. Raises BackendError."""
    words = f"reason={plain(reason)}"
    await run("scontrol", "update", f"nodename={node}", "state=drain", words)


async def resume(node: str) -> None:
    """Make Slurm use a drained node again. Raises BackendError."""
    await run("scontrol", "update", f"nodename={node}", "state=resume")


def plain(reason: str) -> str:
    """Return a reason as one line without quotes, which Slurm's listings would break at."""
    return " ".join(reason.replace('"', "'").replace("|", "/").split())[:200]


def surroundings() -> list[str]:
    """Return the variables that Slurm's commands need of our environment: `NAME=value`."""
    conf = os.environ.get("SLURM_CONF", "")
    return [
        f"PATH={os.environ.get('PATH', '/usr/bin:/bin')}",
        "LC_ALL=C",
        "TZ=UTC",
        *([f"SLURM_CONF={conf}"] if conf else []),
    ]


async def run(
    command: str, *words: str, patience_s: float = PATIENCE_S, env: Mapping[str, str] = {}
) -> str:
    """Run a command of Slurm and return its output. `env` is added to its environment.

    Raises EngineAway where Slurm does not answer, and BackendError where it refuses.
    """
    around = dict(word.split("=", 1) for word in surroundings())
    try:
        code, said, wrong = await said_by(
            command, *words, patience_s=patience_s, env={**around, **env}
        )
    except TimeoutError:
        raise EngineAway(f"`{command}` did not answer in {patience_s:.0f} s") from None
    except OSError as error:
        raise BackendError(f"`{command}` cannot be run: {error.strerror}") from error
    if code == 0:
        return said.decode(errors="replace")
    text = wrong.decode(errors="replace").replace(f"{command}: error: ", "")
    trouble = " ".join(text.split())[:500] or "no reason given"
    kind = EngineAway if any(word in trouble.lower() for word in AWAY) else BackendError
    raise kind(f"{command}: {trouble}")

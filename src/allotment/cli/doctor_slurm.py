"""What `allot doctor` looks at where the jobs run in a partition of Slurm."""

import asyncio
import contextlib
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from allotment.cli.doctor_finding import Finding, Level
from allotment.cli.words import count
from allotment.client import ApiError, Client, Unreachable
from allotment.model.engines import EngineSetup, EngineType, RestSetup
from allotment.model.errors import BackendError

if TYPE_CHECKING:
    from allotment.backends.slurm.reservations import SlurmReservation
    from allotment.backends.slurm.settings import Partition
    from allotment.backends.slurm.told import SlurmNode

KEPT, PILOT, CONFIG = "slurm-partition", "slurm-pilot", "config.yaml"
OLDEST = (22, 5)
PROBE_S = 8
"""How long a node may be waited for that is to be looked at from inside."""
MOST_NAMED = 5
DOWN = frozenset({"DOWN", "ERROR"})
SLOW = "batch_sched_delay"
EPILOG = "allotment-epilog"


def slurm(folder: Path) -> list[Finding]:
    """Return findings on each Slurm of a service: its partition, and its nodes."""
    return [each for setup in _setups(folder) for each in asyncio.run(_look(folder, setup))]


def _setups(folder: Path) -> Iterator[EngineSetup]:
    """Go through the engines of Slurm: of the command line, and of the configuration."""
    kept = folder / KEPT
    if kept.exists():
        kind = EngineType.PILOT if (folder / PILOT).exists() else EngineType.SLURM
        yield EngineSetup("", kind, kept.read_text().strip())
        return
    path = folder / CONFIG
    if path.exists():
        from allotment.wire.config import engines_in  # noqa: PLC0415 - only here

        for setup in engines_in(path.read_bytes(), source=str(path)):
            if setup.type in (EngineType.SLURM, EngineType.PILOT):
                yield setup


async def _look(folder: Path, setup: EngineSetup) -> list[Finding]:
    from allotment.backends.slurm import client  # noqa: PLC0415 - only here
    from allotment.backends.slurm.advice import advice_of  # noqa: PLC0415
    from allotment.backends.slurm.calls import calls_of  # noqa: PLC0415

    name, slurm = setup.partition, calls_of(setup)
    found = [*rest_findings(setup.rest), *await _whose(setup.rest)] if setup.rest else []
    settings: dict[str, str] = {}
    try:
        if not setup.rest:
            settings = await client.settings()
            found += settings_findings(settings)
        partition = await slurm.partition(name)
        nodes = [node for node in await slurm.nodes() if name in node.partitions]
        reserved = await slurm.reservations() if setup.reservation else ()
    except BackendError as error:
        place = f"engine {setup.name}: " if setup.name else ""
        advice = advice_of(str(error), over_rest=setup.rest is not None)
        told = f"{advice} Running tasks continue."
        return [*found, Finding("slurm", Level.BAD, f"{place}{error}", told)]
    finally:
        slurm.close()
    found += partition_findings(name, partition, nodes)
    if partition is None:
        return found
    found += [*node_findings(nodes), *_closed(nodes), *_compared(folder, setup.name, nodes)]
    found += accounts_findings(settings, setup)
    found += reservation_findings(setup, reserved, {node.name for node in nodes})
    if setup.type is EngineType.PILOT:
        from allotment.cli import doctor_pilots  # noqa: PLC0415 - only here

        pilots = doctor_pilots.findings(folder, setup.name)
        return [*found, *epilog_findings(settings), *pilots]
    if setup.type is EngineType.SLURM and not setup.rest:
        found.append(await _mpi())
    if setup.type is EngineType.SLURM:
        found += [images_finding(setup), datasets_finding()]
    return [*found, await _from_inside(folder, setup)]


def reservation_findings(
    setup: EngineSetup, reserved: Sequence["SlurmReservation"], nodes: Collection[str]
) -> Iterator[Finding]:
    """Return whether the reservation that the configuration names is of use."""
    name = setup.reservation
    its = next((each for each in reserved if each.name == name), None)
    if not name:
        return
    if its is None:
        there = ", ".join(sorted(each.name for each in reserved)) or "none"
        yield Finding(
            "reservation", Level.WARN, f"Slurm has no reservation {name}; it has {there}",
            f"Make it (scontrol create reservation reservationname={name} …), or correct "
            "`reservation` under `engines`. Until then jobs run outside of it.",
        )  # fmt: skip
    elif nodes and not set(nodes).intersection(its.nodes):
        yield Finding(
            "reservation", Level.WARN, f"{name} has no node of partition {setup.partition}",
            f"scontrol update reservationname={name} nodes=…",
        )  # fmt: skip
    elif its.is_maintenance:
        yield Finding(
            "reservation", Level.WARN,
            f"{name} is for maintenance: while it lasts, its nodes take no new work here",
            f"scontrol update reservationname={name} flags-=maint",
        )  # fmt: skip
    else:
        mine = len(set(nodes).intersection(its.nodes))
        yield Finding("reservation", Level.OK, f"{name}: {count(mine, 'node')}")


def images_finding(setup: EngineSetup) -> Finding:
    """Return what runs jobs with an image."""
    from allotment.backends.slurm.apptainer import program_of  # noqa: PLC0415 - only here

    if program := program_of(setup):
        return Finding("images", Level.OK, f"jobs with an image run by {program}")
    return Finding(
        "images", Level.NOTE, "jobs with an image are refused: Apptainer is not here",
        "Install Apptainer here and on all nodes, or name it: `apptainer` under `engines`.",
    )  # fmt: skip


def datasets_finding() -> Finding:
    """Return what shows datasets to jobs."""
    from allotment.backends.slurm.backend import bubblewrap  # noqa: PLC0415 - only here

    if program := bubblewrap():
        return Finding("datasets", Level.OK, f"datasets are shown to jobs by {program}")
    return Finding(
        "datasets", Level.NOTE,
        "jobs with datasets are refused: bubblewrap is not here",
        "Install bubblewrap here and on all nodes (`apt install bubblewrap`).",
    )  # fmt: skip


def rest_findings(rest: RestSetup) -> Iterator[Finding]:
    """Return who else could come by the token with which slurmrestd is asked."""
    if rest.token_file:
        with contextlib.suppress(OSError):
            if Path(rest.token_file).stat().st_mode & 0o077:
                yield Finding(
                    "token", Level.BAD, f"others than its owner may read {rest.token_file}",
                    f"chmod 600 {rest.token_file}: its holder can act as the user.",
                )  # fmt: skip
    place = urlsplit(rest.server)
    if place.scheme == "http" and place.hostname not in ("localhost", "127.0.0.1", "::1"):
        yield Finding(
            "slurmrestd", Level.WARN, f"the token goes to {place.netloc} unencrypted",
            "Let a proxy with TLS stand before slurmrestd (https://…), or use a socket.",
        )  # fmt: skip


async def _whose(rest: RestSetup) -> list[Finding]:
    """Return whose the token is, where it lets the service not act for its users."""
    from allotment.backends.slurm.token import SlurmLogin, name_of  # noqa: PLC0415 - only here

    login, me = SlurmLogin(rest), name_of(os.geteuid())
    try:
        shown = await login.token()
    except BackendError:
        return []  # It is told of where Slurm is asked.
    if not shown.text or login.user in (me, "slurm"):
        return []
    return [Finding(
        "token", Level.WARN,
        f"it is {login.user}'s: unless that is SlurmUser, jobs of others are refused",
        f"`scontrol token username={me} lifespan=…` makes a suitable one.",
    )]  # fmt: skip


async def _mpi() -> Finding:
    """Look for what `mpi: pmix` and `pmi2` need."""
    from allotment.backends.slurm import client  # noqa: PLC0415 - only here

    try:
        said = await client.run("srun", "--mpi=list")
    except BackendError as error:
        return Finding("mpi", Level.NOTE, f"not checked: {error}")
    missing = [kind for kind in ("pmix", "pmi2") if kind not in said.split()]
    if not missing:
        return Finding("mpi", Level.OK, "Slurm has pmix and pmi2")
    kinds = " and no ".join(missing)
    return Finding(
        "mpi", Level.NOTE, f"Slurm has no {kinds}: such jobs would not start",
        "Install Slurm's plugins for MPI on all nodes (Debian: slurm-wlm-basic-plugins).",
    )  # fmt: skip


def settings_findings(settings: Mapping[str, str]) -> Iterator[Finding]:
    """Return findings on Slurm's own configuration."""
    version, conf = settings.get("SLURM_VERSION", "?"), settings.get("SLURM_CONF", "?")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers < OLDEST:
        yield Finding("slurm", Level.BAD, f"version {version}", "22.05 or newer is needed.")
    else:
        yield Finding("slurm", Level.OK, f"version {version}, {conf}")
    select = settings.get("SelectType", "")
    if "cons_tres" not in select:
        yield Finding(
            "slurm.conf", Level.BAD, f"SelectType={select}: it does not count CPUs and GPUs",
            "Set SelectType=select/cons_tres and SelectTypeParameters=CR_Core_Memory.",
        )  # fmt: skip
    if SLOW not in settings.get("SchedulerParameters", ""):
        yield Finding(
            "slurm.conf", Level.NOTE, "Slurm waits up to 3 s before it starts a job",
            f"SchedulerParameters={SLOW}=0,sched_interval=2 starts jobs sooner.",
        )  # fmt: skip


def accounts_findings(settings: Mapping[str, str], setup: EngineSetup) -> Iterator[Finding]:
    """Return that Slurm takes no jobs of users whom it does not know."""
    enforced = settings.get("AccountingStorageEnforce", "")
    if setup.type is EngineType.SLURM and "associations" in enforced:
        account = setup.accounts[0][1] if setup.accounts else "ACCOUNT"
        yield Finding(
            "accounts", Level.NOTE, "Slurm refuses jobs of users without an association",
            f"Each user needs one: sacctmgr add user NAME account={account}",
        )  # fmt: skip


def epilog_findings(settings: Mapping[str, str]) -> Iterator[Finding]:
    """Return whether a program clears up on a node after a pilot that could not."""
    set_ = [
        value for name, value in settings.items() if re.fullmatch(r"Epilog(\[\d+\])?", name)
    ]
    there = ", ".join(value for value in set_ if value != "(null)")
    if not there:
        yield Finding(
            "epilog", Level.WARN, "none in slurm.conf: if a pilot and its slurmstepd are "
            "killed while tasks are frozen, these stay until the next pilot comes",
            f"Copy ops/slurm/{EPILOG} to the nodes, and set Epilog= to it in slurm.conf.",
        )  # fmt: skip
    elif EPILOG not in there:
        yield Finding(
            "epilog", Level.NOTE, f"{there}: whether it runs {EPILOG} cannot be seen from here",
            f"Have it run ops/slurm/{EPILOG}, if it does not.",
        )  # fmt: skip
    else:
        yield Finding("epilog", Level.OK, there)


def partition_findings(
    name: str, partition: "Partition | None", nodes: Sequence["SlurmNode"]
) -> Iterator[Finding]:
    """Return findings on the settings of the partition."""
    if partition is None:
        yield Finding(
            "partition", Level.BAD, f"Slurm has no partition {name}",
            "`sinfo` lists those there are; jobs of this state folder cannot start.",
        )  # fmt: skip
        return
    limit = f"{partition.max_min} min at most" if partition.max_min else "no time limit"
    text = f"{name}: {count(len(nodes), 'node')}, {limit}"
    if not partition.is_up:
        advice = f"scontrol update partitionname={name} state=up"
        yield Finding("partition", Level.BAD, f"{text}, closed in Slurm", advice)
    elif partition.preempts:
        yield Finding(
            "partition", Level.WARN, f"{text}; other jobs of Slurm may preempt ours",
            "Set PreemptMode=OFF for it: Allotment decides which job gives way.",
        )  # fmt: skip
    elif partition.root_only and os.geteuid():
        advice = "Run the service as root, or set RootOnly=NO."
        yield Finding("partition", Level.BAD, f"{text}; only root may submit to it", advice)
    else:
        yield Finding("partition", Level.OK, text)


def node_findings(nodes: Sequence["SlurmNode"]) -> Iterator[Finding]:
    """Return the nodes that Slurm cannot use, by what is wrong."""
    invalid = [node for node in nodes if "INVALID_REG" in node.words]
    if invalid:
        yield Finding(
            "nodes", Level.BAD, f"with less than slurm.conf says: {_named(invalid)}",
            "Where it is GPUs: a Gres=gpu:… in slurm.conf needs a line in gres.conf with File= "
            "for each device, on the node itself; a Count= alone is not enough.",
        )  # fmt: skip
    down = [node for node in nodes if DOWN & set(node.words) and node not in invalid]
    if down:
        yield Finding(
            "nodes", Level.WARN, f"down: {_named(down)}",
            "Check slurmd there; then `scontrol update nodename=… state=resume`.",
        )  # fmt: skip


def _closed(nodes: Sequence["SlurmNode"]) -> Iterator[Finding]:
    """Return the nodes that Slurm itself or somebody drained, with the reasons."""
    from allotment.backends.slurm.nodes import OURS  # noqa: PLC0415 - only here

    closed = [node for node in nodes if "DRAIN" in node.words and not DOWN & set(node.words)]
    theirs = [node for node in closed if not node.reason.startswith(OURS)]
    if theirs:
        yield Finding(
            "nodes", Level.NOTE, f"drained in Slurm: {_named(theirs)}",
            "They take no new work. Repair them; then "
            "`scontrol update nodename=… state=resume`.",
        )  # fmt: skip


def _named(nodes: Sequence["SlurmNode"]) -> str:
    names = [f"{node.name} ({node.reason})" if node.reason else node.name for node in nodes]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _compared(folder: Path, engine: str, nodes: Sequence["SlurmNode"]) -> Iterator[Finding]:
    """Compare the nodes of the service with those of the partition."""
    try:
        with Client(state=str(folder), timeout=5) as client:
            ours = {node.name for node in client.nodes() if node.engine == engine}
    except (Unreachable, ApiError):
        return
    there = {node.name for node in nodes}
    for names, text, advice in (
        (there - ours, "in the partition, and not in the configuration",
         "Add them: `allot config discover --slurm PARTITION` writes how."),
        (ours - there, "in the configuration, and not in the partition",
         "Take them out of `nodes` (allot config apply), or add them to the partition."),
    ):  # fmt: skip
        if names:
            named = ", ".join(sorted(names)[:MOST_NAMED])
            yield Finding("nodes", Level.WARN, f"{text}: {named}", advice)


async def _from_inside(folder: Path, setup: EngineSetup) -> Finding:
    """Have one node look at the state folder, and for Python."""
    from allotment.backends.slurm import client  # noqa: PLC0415 - only here
    from allotment.backends.slurm.request import PYTHON  # noqa: PLC0415

    kept = folder.absolute() / "engines" / setup.name if setup.name else folder.absolute()
    runner = next(kept.glob("slurm/task-*.pyz"), None)
    if runner is None:
        return Finding("nodes see", Level.NOTE, "not checked: the service never ran here")
    from allotment.backends.slurm.apptainer import program_of  # noqa: PLC0415
    from allotment.backends.slurm.backend import bubblewrap  # noqa: PLC0415

    program, shows = program_of(setup), bubblewrap()
    look = (
        f'[ -x {PYTHON} ] || echo python; [ -r "$0" ] || echo folder; '
        '[ -z "$1" ] || [ -x "$1" ] || echo apptainer; '
        '[ -z "$2" ] || [ -x "$2" ] || echo bubblewrap; '
        'read -r n </proc/sys/fs/protected_hardlinks; [ "$n" != 0 ] || echo links; echo looked'
    )
    try:
        said = await client.run(
            "srun", f"--partition={setup.partition}", "--nodes=1", "--ntasks=1", "--mem=16M",
            f"--immediate={PROBE_S}", "--time=1", "--mpi=none", "--export=NIL", "--chdir=/",
            "--job-name=allot-doctor", "/bin/sh", "-c", look, str(runner), program, shows,
        )  # fmt: skip
    except BackendError as error:
        return Finding("nodes see", Level.NOTE, f"not checked: {error}")
    if "folder" in said:
        return Finding(
            "nodes see", Level.BAD, f"a node does not see {runner}",
            "Put the state folder on a disk that all nodes have under the same path; users "
            "need to pass through the folders above it.",
        )  # fmt: skip
    if "python" in said:
        return Finding(
            "nodes see", Level.BAD, f"a node has no {PYTHON}", "Install Python 3 on all nodes."
        )
    if "apptainer" in said:
        return Finding(
            "nodes see", Level.BAD, f"a node has no {program}: jobs with an image fail there",
            "Install Apptainer on all nodes, or set `apptainer: none` under `engines`.",
        )  # fmt: skip
    if "bubblewrap" in said:
        return Finding(
            "nodes see", Level.BAD, f"a node has no {shows}: jobs with datasets fail there",
            "Install bubblewrap on all nodes.",
        )  # fmt: skip
    if "links" in said:
        return Finding(
            "nodes see", Level.BAD,
            "a node lets users link to files of others, and so keep versions of datasets",
            "On all nodes: `sysctl fs.protected_hardlinks=1`.",
        )  # fmt: skip
    return Finding("nodes see", Level.OK, f"the state folder, and {PYTHON}")

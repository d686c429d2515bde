"""Simulated worlds: from words and files to runs, and from runs to files."""

import csv
import gc
import sys
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import TextIO

import msgspec

from allotment import __version__
from allotment.model.cluster import Node
from allotment.model.errors import AllotmentError
from allotment.model.quantity import DEVICE, NOTHING, SECOND
from allotment.model.tenancy import ShareBy
from allotment.sim.catalogue import RECIPES, Recipe, UnknownPolicy, recipe
from allotment.sim.cluster import UNTYPED, BadCluster, cluster_of
from allotment.sim.outcome import JobOutcome, Run
from allotment.sim.readers import read_trace
from allotment.sim.run import Progress, simulate, untold
from allotment.sim.scenario import Owners, Scenario
from allotment.sim.settings import BadSetting, Settings, read_settings
from allotment.sim.speeds import REFERENCE, Pairs, Rates
from allotment.sim.trace import BadTrace, Trace
from allotment.wiring.crashed import crashed

LONGEST_CLUSTER = 16 << 20


def open_trace(
    path: Path, format: str = "", tasks: str = "", rates: Rates | None = None
) -> Trace:
    """Read a trace of any known format. Raises BadTrace."""
    return read_trace(path, format, tasks, rates=None if rates is None else rates[REFERENCE])


def open_rates(path: Path) -> Rates:
    """Read a table of throughputs. Raises BadTrace."""
    from allotment.sim.readers.gavel import read_all_rates  # noqa: PLC0415 - seldom

    rates = read_all_rates(path)
    if REFERENCE not in rates:
        raise BadTrace(
            f"{path.name}: no throughputs for {REFERENCE!r}, to which others compare"
        )
    return rates


def open_pairs(path: Path) -> Pairs:
    """Read how fast jobs are that share devices. Raises BadTrace."""
    from allotment.sim.readers.gavel import read_pairs  # noqa: PLC0415 - seldom

    return read_pairs(path)


def open_cluster(text: str) -> tuple[Node, ...]:
    """Read a cluster's nodes: `16x8`, or a file. Raises BadCluster or BadInput."""
    return open_owned(text)[0]


def open_owned(text: str) -> tuple[tuple[Node, ...], Owners | None]:
    """Read a cluster, `16x8` or a configuration file, and what tenants are guaranteed.

    Where no tenant is guaranteed anything and no rule shares the cluster, there are no owners.
    Raises BadCluster or BadInput.
    """
    path = Path(text)
    if not text or (not path.suffix and not path.exists()):
        nodes = cluster_of(text)
        if not any(node.devices for node in nodes):
            raise BadCluster(
                f"{text!r} has no devices, so no job could run: write NODESxDEVICES, such as "
                "16x8 for 16 nodes of 8 devices."
            )
        return nodes, None
    try:
        with path.open("rb") as file:
            data = file.read(LONGEST_CLUSTER)
    except OSError as error:
        why = (error.strerror or "it cannot be read").lower()
        raise BadCluster(
            f"{text}: {why}. Name a cluster file, or write NODESxDEVICES, such as 16x8."
        ) from error
    from allotment.wiring.cluster_file import cluster_in  # noqa: PLC0415 - only for a file

    nodes, owners = cluster_in(data, text)
    guaranteed = any(tenant.guaranteed != NOTHING for tenant in owners.tenants)
    return nodes, owners if guaranteed or owners.share is not ShareBy.FIRST_COME else None


class Wanted(msgspec.Struct, frozen=True):
    """A scenario as it was asked for, in words."""

    trace: str
    cluster: str
    policy: str
    settings: tuple[str, ...] = ()
    seed: int = 0
    format: str = ""
    rates: str = ""
    """A file of throughputs; empty for none."""

    def reads(self) -> tuple[str, ...]:
        """Return the files that the scenario is read from, among names that are none."""
        return (self.trace, self.cluster, self.rates, *policy_files(self.policy))


def scenario(wanted: Wanted) -> Scenario:
    """Return a scenario. Raises BadScenario; cheap checks come first."""
    settings = read_settings(wanted.settings)
    name, custom = open_policy(wanted.policy)
    nodes, owners = open_owned(wanted.cluster)
    check_levels(settings, nodes)
    rates = open_rates(Path(wanted.rates)) if wanted.rates else None
    if rates is not None:
        _check_types(rates, nodes, Path(wanted.rates).name)
    trace = open_trace(Path(wanted.trace), wanted.format, settings.tasks, rates)
    pairs = open_pairs(Path(wanted.rates)) if wanted.rates else None
    if owners is not None:
        check_tenants(trace, owners, wanted.cluster)
    return Scenario(
        trace, nodes, name, settings, wanted.seed, rates, pairs, custom, owners=owners
    )


def check_tenants(trace: Trace, owners: Owners, source: str) -> None:
    """Raise BadCluster for a trace with jobs of tenants that the cluster does not have."""
    known = {tenant.name for tenant in owners.tenants}
    jobs = Counter(job.tenant for job in trace.jobs if job.tenant not in known)
    if jobs:
        named = ", ".join(f"{name} ({count:,} jobs)" for name, count in jobs.most_common(5))
        more = f" and {len(jobs) - 5} more" if len(jobs) > 5 else ""
        raise BadCluster(
            f"{source}: the trace {trace.source} has tenants that are not in it: "
            f"{named}{more}. Add them under `tenants:`; or guarantee no tenant anything, and "
            "set no `share`: then all wait in one queue."
        )


LEVELS_CURE = (
    "Write --cluster 64x8/4 for racks of 4 nodes behind a switch each, or label the nodes of "
    "the cluster file."
)


def check_levels(settings: Settings, nodes: tuple[Node, ...], cure: str = LEVELS_CURE) -> None:
    """Raise BadSetting for a setting of a level that the cluster does not have."""
    labels = {"node", *(label for node in nodes for label, _ in node.labels)}
    asked = {
        f"within={settings.within}": settings.within,
        f"prefer={settings.prefer}": settings.prefer,
        f"across_switches={settings.across_switches}": "switch"
        * (settings.across_switches < 1),
        f"across_racks={settings.across_racks}": "rack" * (settings.across_racks < 1),
    }
    for setting, level in asked.items():
        if level and level not in labels:
            raise BadSetting(
                f"--set {setting}: no node of this cluster is in a {level}. {cure}"
            )


def _check_types(rates: Rates, nodes: tuple[Node, ...], table: str) -> None:
    """Refuse a named type of device of which no speed is told."""
    types = dict.fromkeys(device.type for node in nodes for device in node.devices)
    for kind in types:
        if kind not in rates and kind != UNTYPED:
            near = get_close_matches(kind.lower(), rates, 3) or list(rates)
            raise BadCluster(
                f"{table} has no throughputs for devices of type {kind!r}. Write "
                f"{' or '.join(near)}, or no type: such devices are as fast as {REFERENCE}."
            )


def open_policy(text: str) -> tuple[str, Recipe | None]:
    """Return a policy: by name, or of a Python file that defines `RECIPE`. Raises BadScenario.

    The file is run with the user's own rights.
    """
    if not policy_files(text):
        recipe(text)
        return text, None
    path = Path(text)
    if not path.is_file():
        raise UnknownPolicy(f"{path}: there is no such file.")
    module = ModuleType(f"allot_policy_{path.stem}")
    module.__file__ = text
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        # Not by import: that would leave a cache beside it, and take an old one for it.
        exec(compile(path.read_bytes(), path, "exec"), module.__dict__)
    except Exception as error:
        raise UnknownPolicy(f"{path}: {type(error).__name__}: {error}") from error
    found = getattr(module, "RECIPE", None)
    if not isinstance(found, Recipe):
        raise UnknownPolicy(
            f"{path} defines no RECIPE: see src/allotment/sim/catalogue.py for what one is."
        )
    return path.name if path.stem in RECIPES else path.stem, found


def open_policies(texts: Sequence[str]) -> list[tuple[str, Recipe | None]]:
    """Return policies; files of the same name keep the names that were given."""
    found = [open_policy(text) for text in texts]
    called = Counter(name for name, _ in found)
    return [
        (text if called[name] > 1 else name, custom)
        for text, (name, custom) in zip(texts, found, strict=True)
    ]


def policy_files(*names: str) -> tuple[str, ...]:
    """Return those names of policies that are files."""
    return tuple(name for name in names if name.endswith(".py"))


def run(scenario: Scenario, told: Progress = untold) -> Run:
    """Run a scenario; return its results and how long that took.

    Raises BadScenario, or Crashed when a user's own policy breaks.
    """
    begun = time.perf_counter()
    with _seldom_collected():
        try:
            done = simulate(scenario, told)
        except (AllotmentError, BrokenPipeError):
            raise
        except Exception as error:
            if scenario.custom is None:
                raise
            raise crashed(scenario.policy, error) from error
    wall = time.perf_counter() - begun
    return msgspec.structs.replace(done, wall_s=round(wall, 3), version=__version__)


@contextmanager
def _seldom_collected() -> Generator[None]:
    """Keep the collector off the trace, and off jobs that soon go by themselves."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


# ── files ───────────────────────────────────────────────────────────────────────────────


COLUMNS = (
    "job_id", "tenant", "num_gpus", "submit_time", "start_time", "end_time", "attained_gpu_s",
    "preemptions", "outcome",
)  # fmt: skip


def write_jobs(file: TextIO, jobs: Sequence[JobOutcome]) -> None:
    """Write a row for each job; times in seconds, empty where there is none."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(
        (
            job.id,
            job.tenant,
            _seconds(job.gpu_milli, DEVICE),
            _seconds(job.submit_ms),
            _seconds(job.start_ms) if job.start_ms >= 0 else "",
            _seconds(job.end_ms) if job.end_ms >= 0 else "",
            _seconds(job.attained_ms),
            job.preemptions,
            job.fate,
        )
        for job in jobs
    )


def write_report(file: TextIO, runs: Sequence[Run]) -> None:
    """Write the HTML report of one run or several."""
    from allotment.sim.report import render  # noqa: PLC0415 - only when asked for

    file.write(render(runs))


def _seconds(value: int, unit: int = SECOND) -> str:
    whole, rest = divmod(value, unit)
    return str(whole) if not rest else f"{value / unit:.3f}".rstrip("0")

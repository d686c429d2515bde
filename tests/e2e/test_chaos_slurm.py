"""What may break on a Slurm cluster, broken under load: nothing lost, nothing run twice.

What the service says is checked against marks that the tasks leave on the disk, and against
locks of the kernel's, one a device, that a task holds for as long as a process of it lives.
"""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.chaos import DRAINED_S, Load, Told, check, ended, events_of, unended
from tests.support.cluster import until
from tests.support.on_pilots import runners
from tests.support.on_slurm import OnSlurm, a_shared_folder
from tests.support.slurm import REST_TOOLS, TOOLS, a_slurm
from tests.support.slurm_boot import reboot, running_on

pytestmark = [pytest.mark.slow, pytest.mark.needs_root]

FAULTS = int(os.environ.get("ALLOT_FAULTS", "7"))
"""For each way to run jobs there; `make nightly` makes 200."""
CONFIG = """\
nodes:
- {name: n1, cpu: 4, memory: 2000MiB, disk: 1TiB, gpu: {type: a100, count: 4}}
- {name: n2, cpu: 4, memory: 2000MiB, disk: 1TiB, gpu: {type: a100, count: 4}}
tenants:
  a: {guaranteed: {gpu: 4}, queues: {default: {order: skip}}}
  b: {guaranteed: {gpu: 4}, queues: {default: {order: skip}}}
limits: {platform_retries: 1000, backoff: {first: 100ms, most: 1s}, phase: 15s, barrier: 5s}
"""
"""A task that loses its slurmstepd before its first process is there shows no sign of life, and
Slurm says that it runs: only these limits end it."""
SCRIPT = """\
me=$ALLOT_JOB_ID.$ALLOT_ATTEMPT.$ALLOT_ROLE_INDEX
exec 9>> {marks}/lock.$ALLOT_NODE.$ALLOT_DEVICES
flock -n 9 || echo twice $me on $ALLOT_NODE $ALLOT_DEVICES >> {marks}/marks
echo begin $me >> {marks}/marks
sleep {seconds} || exit
echo end $me >> {marks}/marks
"""
"""Slurm signals all processes of a job, its `sleep` before its shell: that is no end."""


def a_job(marks: Path, rng: random.Random) -> dict[str, object]:
    """Return a gang of one to three short tasks."""
    seconds = rng.choice([0.1, 0.5, 1, 2])
    return {
        "name": "chaos",
        "tenant": rng.choice("ab"),
        "count": rng.choice([1, 2, 3]),
        "command": SCRIPT.format(marks=marks, seconds=seconds),
        "resources": {"gpu": 1, "cpu": 1, "memory": "64MiB"},
    }


class Chaos:
    """Breaks things, and has them mended as an administrator or systemd would."""

    def __init__(self, cluster: OnSlurm, rng: random.Random) -> None:
        self.cluster, self.slurm, self.rng = cluster, cluster.slurm, rng
        self.done: Counter[str] = Counter()

    def strike(self, kind: str) -> None:
        """Do one kind of fault."""
        faults: dict[str, Callable[[], None]] = {
            "service": self._service,
            "slurmctld": self._slurmctld,
            "slurmrestd": self._slurmrestd,
            "slurmd": self._slurmd,
            "slurmstepd": self._slurmstepd,
            "node down": self._node_down,
            "scancel": self._scancel,
            "runner": self._runner,
            "reboot": self._reboot,
        }
        faults[kind]()
        self.done[kind] += 1

    def _service(self) -> None:
        self.cluster.kill()
        self.cluster.up()

    def _slurmctld(self) -> None:
        self.slurm.until_saved()  # What it forgets otherwise is tried in test_lost_state.
        self.slurm.kill("slurmctld")
        self.slurm.start_controller()

    def _slurmrestd(self) -> None:
        self.slurm.kill("slurmrestd")
        time.sleep(self.rng.uniform(0, 2))
        self.slurm.start_rest()

    def _slurmd(self) -> None:
        node = self.rng.choice(["n1", "n2"])
        self.slurm.kill(node)
        time.sleep(self.rng.uniform(0, 1))
        self.slurm.start_node(node)

    def _slurmstepd(self) -> None:
        until(lambda: bool(self.slurm.steps()), "something to run")
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(self.rng.choice(self.slurm.steps()), signal.SIGKILL)

    def _node_down(self) -> None:
        node = self.rng.choice(["n1", "n2"])
        self.slurm.say("scontrol", "update", f"nodename={node}", "state=down", "reason=chaos")
        time.sleep(self.rng.uniform(0, 2))
        if not isinstance(self.cluster, Held):
            # Of a node that is resumed Slurm gives devices to others while it is killing still.
            until(lambda: not running_on(self.slurm, node), "what ran there to be gone")
        self.slurm.say("scontrol", "update", f"nodename={node}", "state=resume")

    def _reboot(self) -> None:
        until(lambda: bool(self._with_gangs()), "a gang to run", DRAINED_S)
        reboot(self.slurm, self.rng.choice(self._with_gangs() or ["n1"]))

    def _with_gangs(self) -> list[str]:
        """Return the nodes where tasks of gangs run."""
        rows = self.cluster.get("/v1/jobs?state=running")["items"]
        return sorted({node for row in rows if row["tasks"] > 1 for node in row["nodes"]})

    def _scancel(self) -> None:
        until(lambda: bool(self.cluster.slurm_jobs()), "something to run")
        with contextlib.suppress(IndexError):
            self.slurm.say("scancel", self.rng.choice(self.cluster.slurm_jobs()))

    def _runner(self) -> None:
        until(lambda: bool(runners(self.cluster.state)), "a node to be held", DRAINED_S)
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(self.rng.choice(runners(self.cluster.state)), signal.SIGKILL)


class OverRest(OnSlurm):
    """A service that asks slurmrestd."""

    def up(self) -> None:
        self.slurm.renew_token(86400)
        url = f"http://127.0.0.1:{self.slurm.rest_port}"
        rest = f'{{url: "{url}", token: {self.slurm.token}}}'
        engine = f"engines: {{gpus: {{type: slurm, partition: main, rest: {rest}}}}}\n"
        self.config.write_text(engine + CONFIG)
        self.until_up(self.start("--config", str(self.config)))


class Held(OnSlurm):
    """A service that holds whole nodes."""

    def up(self) -> None:
        self.until_up(self.start("--slurm", "main", "--pilot", "--config", str(self.config)))


FOR_ALL = ("service", "slurmctld", "slurmd", "node down", "scancel", "reboot")
WAYS = {
    "one job a task": (OnSlurm, (*FOR_ALL, "slurmstepd"), TOOLS),
    "over REST": (OverRest, (*FOR_ALL, "slurmrestd"), REST_TOOLS),
    "held nodes": (Held, (*FOR_ALL, "runner"), TOOLS),
}


@pytest.mark.timeout(2 * DRAINED_S + 20 * FAULTS)
@pytest.mark.parametrize(
    ("engine", "kinds"),
    [
        pytest.param(engine, kinds, id=name, marks=pytest.mark.needs_tool(*tools))
        for name, (engine, kinds, tools) in WAYS.items()
    ],
)
def test_nothing_is_lost_and_nothing_runs_twice(
    engine: type[OnSlurm], kinds: tuple[str, ...]
) -> None:
    rng = random.Random(2026)
    order = [kinds[n % len(kinds)] for n in range(FAULTS)]
    rng.shuffle(order)
    with a_slurm(rest=engine is OverRest) as slurm, a_shared_folder() as folder:
        marks = folder / "marks"
        marks.mkdir()
        (marks / "marks").touch()
        cluster = engine(folder / "state", slurm)
        cluster.config.write_text(CONFIG)
        cluster.up()
        try:
            told, accepted = play(cluster, marks, order, rng)
        finally:
            cluster.down()
            slurm.clear()
    check(told, accepted)


def play(
    cluster: OnSlurm, marks: Path, kinds: list[str], rng: random.Random
) -> tuple[Told, list[int]]:
    """Break things under load; return what is told when all jobs have ended."""
    load, chaos = Load(cluster, partial(a_job, marks)), Chaos(cluster, rng)
    load.start()
    try:
        for kind in kinds:
            time.sleep(rng.uniform(0.2, 1))
            began = time.monotonic()
            chaos.strike(kind)
            print(f"{kind}: {time.monotonic() - began:.1f} s")
    finally:
        load.over.set()
        load.join()
    until(lambda: not unended(cluster, 1), "every job to end", DRAINED_S)
    # What is shown of a job may be ahead of the log: its end is not on disk yet.
    until(lambda: ended(cluster) >= {*load.accepted}, "the end of every job to be in the log")
    print(f"\n{dict(chaos.done)}; {len(load.accepted)} jobs")
    return Told(list(events_of(cluster)), (marks / "marks").read_text()), load.accepted


# ── the checker checked ─────────────────────────────────────────────────────────────────

PLACED = {
    "kind": "AttemptPlaced", "job": 1, "at": 1, "text": "", "seq": 1,
    "detail": {"attempt": 1, "slots": [{"node": 0, "devices": [3]}]},
}  # fmt: skip
OVER = {"kind": "AttemptEnded", "job": 1, "at": 2, "text": "", "seq": 2, "detail": {}}
DONE = {"kind": "JobSucceeded", "job": 1, "at": 2, "text": "", "seq": 3, "detail": {}}
OTHER = {**PLACED, "job": 2}
GOOD = "begin 1.1.0\nend 1.1.0\n"


@pytest.mark.parametrize(
    ("events", "marks", "accepted"),
    [
        ([PLACED, OVER], GOOD, [1]),
        ([PLACED, OVER, DONE], GOOD, [1, 2]),
        ([PLACED, OVER, DONE], GOOD, [1, 1]),
        ([PLACED, OVER, DONE], "begin 1.1.0\n", [1]),
        ([PLACED, OVER, DONE], GOOD + "begin 1.1.0\n", [1]),
        ([PLACED, OVER, DONE], GOOD + "begin 1.2.0\n", [1]),
        ([PLACED, OVER, DONE], GOOD + "twice 1.1.0 on n1 3\n", [1]),
        ([PLACED, DONE], GOOD, [1]),
        (
            [PLACED, OTHER, OVER, DONE, {**DONE, "job": 2}],
            GOOD + GOOD.replace("1.1", "2.1"),
            [1, 2],
        ),
    ],
)
def test_the_checker_sees_what_is_wrong(
    events: list[dict[str, Any]], marks: str, accepted: list[int]
) -> None:
    check(Told([PLACED, OVER, DONE], GOOD), [1])
    with pytest.raises((AssertionError, KeyError)):
        check(Told(events, marks), accepted)

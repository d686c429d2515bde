"""`allot demo`: three teams share a machine or a cluster, told as it happens, and checked.

Everything is real: the service, the jobs, the checkpoints, the evictions. What is shown is
what the service says; what is checked is its event log.

Exit codes: 0 all of it happened · 1 something did not · 130 interrupted.
"""

import contextlib
import importlib.util
import signal
import sys
import time
from collections.abc import Generator

from rich.console import Console
from rich.text import Text

from allotment.client import Client
from allotment.demo import cast, checks, report
from allotment.demo.acts import Story
from allotment.demo.checks import Evidence
from allotment.demo.on_kubernetes import OnKubernetes, on_kubernetes
from allotment.demo.on_slurm import OnSlurm, on_slurm
from allotment.demo.own_service import HERE, Engine, NotUp, OwnService
from allotment.demo.screen import Screen, plain_or_live
from allotment.demo.setting import PLACES, Setting, TooSmall, config_of, setting_of
from allotment.demo.watch import LOOK_S, Stuck, Watch
from allotment.model.cluster import NodeState
from allotment.model.errors import AllotmentError
from allotment.model.lifecycle import JobState

DONE, FAILED, INTERRUPTED = 0, 1, 130
LIMIT_S = 150.0
"""After so long something is wrong, on any machine."""
READY_S = 120.0
"""How long nodes may take to take work."""
PULL_S = 1800.0
"""How long an image may take to be pulled."""

Cluster = OnSlurm | OnKubernetes


class NoImage(Exception):
    """The image cannot be pulled, or cannot run the demo."""


def main(cluster: Cluster | None = None) -> int:
    """Run the demo, here or on a cluster, and return its exit code."""
    console = plain_or_live()
    if importlib.util.find_spec("numpy") is None:
        console.print("The demo trains with numpy, which is not installed: use `make demo`.")
        return FAILED
    try:
        with _ending_politely():
            return _play(console, cluster)
    except KeyboardInterrupt:
        console.print("Interrupted.")
        return INTERRUPTED
    except (NotUp, TooSmall, NoImage, AllotmentError) as error:
        console.print(Text(str(error)), soft_wrap=True)
        return FAILED


@contextlib.contextmanager
def _ending_politely() -> Generator[None]:
    """Clear up after SIGTERM and a closed terminal as after Ctrl-C."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stage(cluster: Cluster | None) -> tuple[Setting, Engine]:
    """Return what is played on, and what runs the jobs there."""
    if isinstance(cluster, OnSlurm):
        return on_slurm(cluster)
    if cluster is not None:
        return on_kubernetes(cluster)
    from allotment.wiring.service import this_machine  # noqa: PLC0415 - a whole world, only here

    return setting_of(this_machine()), HERE


def _play(console: Console, cluster: Cluster | None) -> int:
    setting, engine = _stage(cluster)
    _introduce(console, setting)
    own = OwnService(config_of(setting), engine)
    try:
        with own, Client(state=str(own.state)) as client:
            if setting.pods is not None:
                _pull(console, client, setting)
            good = _tell(console, client, setting, own)
            if setting.pods is not None and setting.pods.kept:
                _clear_up(console, client, setting, setting.pods.kept)
            if not good:
                own.keep()
    finally:
        if own.folder.exists():
            console.print(f"Left for a look inside: {own.folder}", soft_wrap=True)
        else:
            console.print("It left nothing behind: no job, no service, no file.")
    return DONE if good else FAILED


def _introduce(console: Console, setting: Setting) -> None:
    count = len(setting.devices)
    kind = setting.devices[0].type
    devices = f"{count} GPU{'s' if count > 1 else ''} ({kind})"
    if len(setting.nodes) > 1:
        devices += f" on {len(setting.nodes)} nodes"
    note = "The training is small and stays on the CPU; the GPUs are only handed out."
    if setting.virtual:
        devices = f"{count} virtual GPUs"
        owner = "This machine" if setting.pods is None else "The cluster"
        note = f"{owner} has no GPU, so these are only counted; all else is real."
    elif setting.shared:
        note += f" {PLACES // count} processes share one."
    console.print(Text(f"Allotment: three teams share {setting.where}", style="bold"))
    console.print(f"{devices} make {PLACES} places, two guaranteed to each team.")
    console.print(note)
    if setting.pods is not None:
        console.print("Left out: the service sees no files of pods, so no model is fetched.")
        if not setting.pods.kept:
            console.print(
                "Without --volume checkpoints go with their pods: an evicted job starts again."
            )
    console.print("Starting a service for this …")


def _tell(console: Console, client: Client, setting: Setting, own: OwnService) -> bool:
    """Play the story, then report; return whether all of it happened."""
    _until_ready(client)
    began = time.monotonic()
    watch = Watch(client, began + LIMIT_S * setting.pace)
    evidence = Evidence(watch.facts, pods=setting.pods)
    try:
        with Screen(console, watch) as screen:
            Story(client, setting, watch, screen, evidence, own).tell()
    except Stuck as stuck:
        console.print(Text(f"Stuck: {stuck}", style="bold red"), soft_wrap=True)
    verdict = checks.verdict(evidence)
    report.show(console, watch.facts, setting, verdict, time.monotonic() - began)
    return all(check.ok for check in verdict)


def _pull(console: Console, client: Client, setting: Setting) -> None:
    """Have every node pull the image. Raises NoImage."""
    _until_ready(client)
    console.print("Pulling the image on each node …")
    job = client.submit(cast.everywhere(setting)).id
    try:
        ended = client.wait(job, PULL_S)
    except TimeoutError:
        ended = client.job(job)
    if ended.row.state is not JobState.SUCCEEDED:
        found, why = ended.diagnosis, ended.why
        words = f"{found.cause} ({found.evidence}) {found.advice}" if found else ""
        raise NoImage(
            "The demo does not begin: the job that tries its image on all nodes is "
            f"{ended.row.state.value}. {words or (why.message if why else '')}"
        )


def _clear_up(console: Console, client: Client, setting: Setting, kept: str) -> None:
    """Remove the checkpoints from the volume."""
    job = client.submit(cast.tidy(setting, kept)).id
    with contextlib.suppress(TimeoutError):
        if client.wait(job, READY_S).row.state is JobState.SUCCEEDED:
            return
    console.print(f"Its checkpoints stay on the volume: {kept}", soft_wrap=True)


def _until_ready(client: Client) -> None:
    """Wait for the nodes: Slurm may take its time to give them to pilots.

    If it never does, the story says what does not happen.
    """
    end = time.monotonic() + READY_S
    while time.monotonic() < end:
        if all(node.state is NodeState.READY for node in client.nodes()):
            return
        time.sleep(LOOK_S)


if __name__ == "__main__":
    sys.exit(main())

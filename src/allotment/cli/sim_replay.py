"""`allot sim replay`: what the cluster's own history would have been under another policy."""

from typing import Annotated

import typer

from allotment.cli.options import AsJson, State
from allotment.cli.output import say_json, warn
from allotment.cli.period import period
from allotment.cli.sim_options import (
    JobsOut,
    Misused,
    Report,
    Seed,
    Set,
    progress,
    told_as_misuse,
)

EVERYTHING = 1 << 62

EXAMPLES = (
    "\b\nExamples:\n"
    "  allot sim replay --since 30d --policy las2d\n"
    "  allot sim replay --since 1d --policy own\n"
    "  allot sim replay --since 7d --policy easy --report week.html\n"
    "  allot sim replay --since 2026-10-01 --policy fifo --cluster 20x8xA100"
)

OwnCluster = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="16x8|FILE",
        help="Other machines than the service's own.",
        show_default=False,
    ),
]


OnePool = Annotated[
    bool,
    typer.Option(
        "--one-pool", help="Ignore tenants and their guarantees: all jobs share one pool."
    ),
]


def replay(  # noqa: PLR0913, PLR0917 - a flag each
    since: Annotated[
        str, typer.Option("--since", metavar="30d|DATE", help="How far back, or a date.")
    ],
    policy: Annotated[
        str,
        typer.Option(
            "--policy", metavar="NAME", help="One of `allot sim`, or `own`: the service's own."
        ),
    ],
    until: Annotated[
        str,
        typer.Option(
            "--until",
            metavar="7d|DATE",
            help="Up to when; now when left out.",
            show_default=False,
        ),
    ] = "",
    cluster: OwnCluster = "",
    one_pool: OnePool = False,
    set_: Set = None,
    seed: Seed = 0,
    jobs_out: JobsOut = "",
    report: Report = "",
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Play the service's own history under another policy.

    The event log is the trace. A job arrives when it was submitted or released. It runs as
    long as it really did, without suspension and without work that was lost and repeated. The
    machines are the same, down when they were, and jobs start and stop as fast as they did.
    Priorities, dependencies, caps of arrays, places and the tenants' guarantees are as they
    were. A job from before --since arrives at that instant with the rest of its run time; a
    job that had not ended is played as far as it ran. Jobs that never ran are left out. Ended
    jobs are compared with what really happened.
    """  # fmt: skip
    # A whole world, and a client beside it: `allot sim run` does not pay for them.
    from allotment.cli import sim_replay_words as words  # noqa: PLC0415
    from allotment.cli.sim_words import nothing_ran  # noqa: PLC0415
    from allotment.client import Client  # noqa: PLC0415
    from allotment.sim.history import history_of  # noqa: PLC0415
    from allotment.sim.replayed import side_by_side  # noqa: PLC0415
    from allotment.sim.settings import read_settings  # noqa: PLC0415
    from allotment.wiring import history as past  # noqa: PLC0415
    from allotment.wiring import sim as world  # noqa: PLC0415
    from allotment.wiring.outputs import Outputs  # noqa: PLC0415

    pairs = tuple(set_ or ())
    with told_as_misuse():
        reads = (cluster, *world.policy_files(policy))
        outputs = Outputs({"--jobs-out": jobs_out, "--report": report}, reads)
        past.open_policy(policy)
        read_settings(pairs)
        first, last = period(since, until)
        if cluster:
            world.open_cluster(cluster)
        with Client(state=state) as client:
            records = past.records_of(client.events(after=0, limit=EVERYTHING))
            history = history_of(records, first, last)
        if not history.trace.jobs:
            raise Misused(
                words.nothing_ran(history, first, last),
                "Look further back with --since, or see `allot events`.",
            )
        again = past.Again(policy, cluster, pairs, seed, one_pool)
        scenario = past.replayed(history, again)
        if report:
            scenario = scenario.to_draw()
        with progress(len(history.trace.jobs)) as told:
            run = world.run(scenario, told)
        if nothing := nothing_ran([run]):
            raise Misused(nothing)
        outputs.write(
            {
                "--jobs-out": lambda file: world.write_jobs(file, run.jobs),
                "--report": lambda file: world.write_report(file, [run]),
            }
        )
    for warning in run.warnings:
        warn(warning)
    compared = side_by_side(history.happened, run.jobs)
    if as_json:
        say_json(words.machine_form(run, compared, first, last))
    else:
        changed = bool(cluster or one_pool or pairs)
        words.in_words(run, compared, first, last, changed=changed)

"""`allot sim`: try policies on traces, with the code that runs the cluster."""

from typing import Annotated

import typer
from msgspec.structs import replace

from allotment.cli.options import AsJson
from allotment.cli.output import say, say_json, talk, warn
from allotment.cli.sim_generate import EXAMPLES as GENERATE_EXAMPLES
from allotment.cli.sim_generate import generate
from allotment.cli.sim_options import (
    POLICIES,
    SETTINGS,
    ClusterText,
    Format,
    JobsOut,
    Misused,
    PolicyName,
    Rates,
    Report,
    Seed,
    Set,
    TraceFile,
    Workers,
    processes,
    progress,
    progresses,
    told_as_misuse,
)  # fmt: skip
from allotment.cli.sim_replay import EXAMPLES as REPLAY_EXAMPLES
from allotment.cli.sim_replay import replay
from allotment.cli.sim_size import EXAMPLES as SIZE_EXAMPLES
from allotment.cli.sim_size import size
from allotment.cli.sim_words import compared, in_words, machine_form, nothing_ran

sim = typer.Typer(
    help="Try scheduling policies on traces, with the code that runs the cluster.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


@sim.command(
    epilog=f"{SETTINGS}\n\b\nExamples:\n"
    "  allot sim run --trace philly.csv --cluster 64x8 --policy las2d\n"
    "  allot sim run --trace philly.csv.zst --cluster 64x8 --jobs-out jobs.csv\n"
    "  allot sim run --trace a.csv --cluster 9x8 --policy sjf --set estimates=noisy",
)
def run(  # noqa: PLR0913, PLR0917 - a flag each
    trace: TraceFile,
    cluster: ClusterText,
    policy: PolicyName = "fifo",
    set_: Set = None,
    seed: Seed = 0,
    format: Format = "",
    throughputs: Rates = "",
    jobs_out: JobsOut = "",
    report: Report = "",
    as_json: AsJson = False,
) -> None:
    """Play a trace on a simulated cluster under a policy, and print the results.

    A job larger than the cluster is counted and does not run. Files are written when the run
    is over, all or none.
    """
    from allotment.wiring import sim as world  # noqa: PLC0415 - a whole world, only here
    from allotment.wiring.outputs import Outputs  # noqa: PLC0415

    with told_as_misuse():
        wanted = world.Wanted(
            trace, cluster, policy, tuple(set_ or ()), seed, format, throughputs
        )
        outputs = Outputs({"--jobs-out": jobs_out, "--report": report}, wanted.reads())
        scenario = world.scenario(wanted)
        if report:
            scenario = scenario.to_draw()
        _warn(scenario.warnings())
        with progress(len(scenario.trace.jobs)) as told:
            done = world.run(scenario, told)
        if nothing := nothing_ran([done]):
            if as_json:
                say_json(machine_form(done))
            raise Misused(nothing)
        outputs.write(
            {
                "--jobs-out": lambda file: world.write_jobs(file, done.jobs),
                "--report": lambda file: world.write_report(file, [done]),
            }
        )
    if as_json:
        say_json(machine_form(done))
        return
    for line in in_words(done):
        say(line)


@sim.command(
    epilog="\b\nExamples:\n"
    "  allot sim compare --trace ph.csv --cluster 64x8 --policies fifo,srtf,las2d\n"
    "  allot sim compare --trace a.csv --cluster 9x8 --policies sjf --report r.html",
)
def compare(  # noqa: PLR0913, PLR0917 - a flag each
    trace: TraceFile,
    cluster: ClusterText,
    policies: Annotated[
        str, typer.Option("--policies", metavar="A,B,…", help=f"Of {POLICIES}, or your own.")
    ],
    set_: Set = None,
    seed: Seed = 0,
    format: Format = "",
    throughputs: Rates = "",
    workers: Workers = 0,
    report: Report = "",
    as_json: AsJson = False,
) -> None:
    """Play a trace under several policies, side by side.

    Each policy runs in its own process, as many at once as there are CPUs.
    """
    from allotment.wiring import parallel  # noqa: PLC0415
    from allotment.wiring import sim as world  # noqa: PLC0415 - a whole world, only here
    from allotment.wiring.outputs import Outputs  # noqa: PLC0415

    names = [name.strip() for name in policies.split(",") if name.strip()]
    with told_as_misuse():
        if not names:
            raise Misused("--policies names none.", "Write some, such as fifo,las2d,srtf.")
        if len(set(names)) < len(names):
            raise Misused("--policies names one twice.")
        found = world.open_policies(names)
        wanted = world.Wanted(
            trace, cluster, names[0], tuple(set_ or ()), seed, format, throughputs
        )
        outputs = Outputs({"--report": report}, (*wanted.reads(), *world.policy_files(*names)))
        first = world.scenario(wanted)
        if report:
            first = first.to_draw()
        scenarios = [replace(first, policy=policy, custom=custom) for policy, custom in found]
        _warn(first.warnings())
        with progresses([policy for policy, _ in found], len(first.trace.jobs)) as going:
            runs = parallel.run_all(
                scenarios,
                processes(workers),
                lambda _place, done: talk(f"{done.policy}: {done.wall_s:.1f} s"),
                going,
            )
        if nothing := nothing_ran(runs):
            if as_json:
                say_json([machine_form(done) for done in runs])
            raise Misused(nothing)
        outputs.write({"--report": lambda file: world.write_report(file, runs)})
    if as_json:
        say_json([machine_form(done) for done in runs])
        return
    compared(runs)


def _warn(warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        warn(warning)


sim.command(epilog=REPLAY_EXAMPLES)(replay)
sim.command(epilog=GENERATE_EXAMPLES)(generate)
sim.command(epilog=SIZE_EXAMPLES)(size)

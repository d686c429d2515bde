"""What no engine can do is refused when it is asked for, and so never planned."""

from allotment.core.cluster import Cluster
from allotment.core.request import shape_of
from allotment.engine.state import State
from allotment.explain.engines import able, missing, unable
from allotment.model import commands as c
from allotment.model.engines import ANY_ENGINE, Ability
from allotment.model.errors import Code, Rejected
from allotment.model.ids import JobId
from allotment.model.quantity import show_millis
from allotment.model.spec import NEVER, Checkpoint, JobSpec
from allotment.service.ports import Backend, Contained, Limited, engines_for

ON_ONE_NODE = (
    "On one node, take `mpi` out, ask for one task with all that the ranks need, and call "
    "mpirun in its command."
)
INSTEAD = {
    Ability.SUSPENDS: "Let it save and come back: `on_eviction: requeue`, or cancel it.",
    Ability.DIVIDES: "Ask for a whole number of GPUs.",
    Ability.IMAGES: "Take `image` out; images need an engine of type local or pilot whose "
    "machines let its user mount them (`allot doctor`), or Apptainer on Slurm's nodes.",
    Ability.DATASETS: "Take `data` out, or name a folder that the nodes have (`data: /PATH`). "
    "Versions of datasets need an engine of type local or pilot, of type kubernetes with "
    "`shared`, or of type slurm with bubblewrap (`apt install bubblewrap`).",
    Ability.FOLDERS: "Name the folder by its path, if the nodes have it (`data: /PATH`). By "
    "its name it needs an engine of type local or pilot, of type kubernetes with `shared`, or "
    "of type slurm with bubblewrap (`apt install bubblewrap`).",
    Ability.VERSIONS: "Take `save` and `checkpoint.save` out, or name an engine of type "
    "local, slurm or pilot.",
    Ability.ENVIRONMENTS: "Take `environment` out, or bring an `image` that has the packages. "
    "An environment needs an engine of type local, slurm or pilot, or of type kubernetes with "
    "`shared`.",
    Ability.PMI: "`mpi: pmix` and `pmi2` need an engine of type slurm. With pilots, have "
    f"mpirun start the ranks: `mpi: mpirun`. {ON_ONE_NODE}",
    Ability.MPIRUN: f"`mpi: mpirun` needs an engine of type slurm or pilot. {ON_ONE_NODE}",
}
"""What to do where no engine is able to."""
WRITE = "Write `command`; `docker inspect IMAGE` shows the image's Entrypoint and Cmd."


def check_able(command: c.AnyCommand, state: State, backend: Backend | None = None) -> None:
    """Raise Rejected where a command asks for what its engine, or every engine, cannot do."""
    match command:
        case c.SuspendJob(job):
            _check_suspends(job, state)
        case c.SubmitJob(spec=spec) | c.EditJob(spec=spec):
            _check_spec(spec, state.cluster)
            _check_time(spec, backend)
            _check_image(spec, backend)
        case c.SubmitAgain(specs):
            for spec in specs:
                _check_spec(spec, state.cluster)
                _check_time(spec, backend)
                _check_image(spec, backend)
        case _:
            pass


def _check_spec(spec: JobSpec, cluster: Cluster) -> None:
    engines = cluster.ledger.engines
    if spec.engine not in ("", ANY_ENGINE, *engines):
        names = [name for name in engines if name]
        raise Rejected(
            Code.BAD_SPEC,
            f"There is no engine {spec.engine}.",
            f"Engines here: {', '.join(names)}." if names else "Take `engine` out.",
        )
    requests = shape_of(spec).requests
    if engines and not able(cluster, requests):
        asked = missing(cluster, requests)[0]
        raise Rejected(Code.NOT_SUPPORTED, unable(cluster, requests), INSTEAD[asked])


def _check_image(spec: JobSpec, backend: Backend | None) -> None:
    """Raise Rejected where a job would need an image to run in, and has none."""
    if spec.offered:
        return
    if isinstance(backend, Contained) and not (spec.image or backend.default_image):
        raise Rejected(
            Code.NOT_SUPPORTED,
            "The job names no image, and the engine has no default image.",
            "Add `image: …`. An administrator can set one for all: `image` under `engines`.",
        )
    if backend is not None and not all(role.command for role in spec.roles):
        _check_own_command(spec, backend)


def _check_own_command(spec: JobSpec, backend: Backend) -> None:
    """Raise Rejected where nobody runs the command of an image that could not be read here."""
    engines = engines_for(backend, spec.engine).values()
    if not any(isinstance(engine, Contained) for engine in engines):
        why = "runs an image's own command"
        raise Rejected(Code.NOT_SUPPORTED, f"command: is missing, and no engine {why}.", WRITE)
    if any(isinstance(engine, Contained) and engine.leads_commands for engine in engines):
        raise Rejected(
            Code.NOT_SUPPORTED,
            "command: is missing. The image has one, but only its cluster can read it, and "
            "`fence_after` of the engine puts a program before it.",
            WRITE,
        )
    for key, what in (
        ("hold_on_failure", spec.hold_on_failure_ms),
        ("environment", spec.environment),
    ):
        if what:
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"{key}: cannot be used without `command`: the image has one, but only its "
                "cluster can read it.",
                WRITE,
            )


def _check_time(spec: JobSpec, backend: Backend | None) -> None:
    """Raise Rejected where a job wants to run for longer than its engine allows."""
    limit = backend.time_limit() if isinstance(backend, Limited) else None
    grace_ms = (spec.checkpoint or Checkpoint()).grace_ms
    if limit is None or spec.max_run_ms == NEVER:
        return
    if spec.max_run_ms + grace_ms <= limit.most_ms:
        return
    raise Rejected(
        Code.NOT_SUPPORTED,
        f"{limit.where} lets a job run for {show_millis(limit.most_ms)} at most; this one asks "
        f"for {show_millis(spec.max_run_ms)}, and then {show_millis(grace_ms)} of grace.",
        "Ask for less (max_run_time), and save checkpoints; or have the limit raised there.",
    )


def _check_suspends(job: JobId, state: State) -> None:
    """Refuse to suspend a job where it would keep its devices."""
    record, books = state.jobs.get(job), state.cluster.ledger.books
    attempt = record.attempt if record is not None else None
    for slot in attempt.slots if attempt is not None else ():
        if slot.node in books and Ability.SUSPENDS in books[slot.node].lacks:
            on = books[slot.node].engine or "this engine"
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"On {on} a suspended job keeps its GPUs: no other could run there.",
                INSTEAD[Ability.SUSPENDS],
            )

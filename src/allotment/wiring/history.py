"""A service's own history as a scenario: from what its log tells to what is simulated."""

from collections.abc import Iterable, Iterator

import msgspec

from allotment.model import events as e
from allotment.model.errors import BadInput
from allotment.model.ids import Actor, JobId, Seq
from allotment.model.quantity import Instant
from allotment.model.spec import ArraySlice, JobSpec
from allotment.service.views import EventView
from allotment.sim.bad import BadScenario
from allotment.sim.catalogue import Recipe, recipe
from allotment.sim.history import History
from allotment.sim.scenario import Scenario
from allotment.sim.settings import read_settings
from allotment.wire.job import read_job_json
from allotment.wiring.sim import check_levels, open_cluster
from allotment.wiring.sim import open_policy as find_policy

OF_TASKS = "Task"
"""How the kinds of events begin that say nothing of a job as a whole."""


def records_of(events: Iterable[EventView]) -> Iterator[e.Record]:
    """Read events as the service shows them; those of single tasks are left out.

    Raises BadScenario for an event of another version of the service.
    """
    for view in events:
        if not view.kind.startswith(OF_TASKS):
            actor = Actor(view.user, None, view.groups)
            yield e.Record(Seq(view.seq), Instant(view.at), actor, _event(view))


def _event(view: EventView) -> e.AnyEvent:
    detail = view.detail
    try:
        if view.kind == e.JobSubmitted.__name__ and view.job is not None:
            return e.JobSubmitted(view.job, _spec(detail), held=bool(detail.get("held")))
        if view.kind == e.JobEdited.__name__ and view.job is not None:
            return e.JobEdited(JobId(view.job), _spec(detail))
        return msgspec.convert(detail, type=e.AnyEvent)
    except (msgspec.ValidationError, BadInput) as error:
        raise BadScenario(
            f"event {view.seq} ({view.kind}) cannot be read: {error}. The service may be of "
            "another version than this `allot`."
        ) from error


UNSAID = ("secrets",)
"""Keys of a job that are shown, but not as they are."""


def _spec(detail: dict[str, object]) -> JobSpec:
    shown = msgspec.convert(detail.get("spec"), type=dict[str, object])
    kept = {key: value for key, value in shown.items() if key not in UNSAID}
    spec = read_job_json(msgspec.json.encode(kept)).spec
    # The native form is of a job by itself; its place in an array stands beside it.
    array = msgspec.convert(detail.get("array"), type=ArraySlice | None)
    return msgspec.structs.replace(spec, array=array)


class Again(msgspec.Struct, frozen=True):
    """How a history is to be played again, in words."""

    policy: str
    cluster: str = ""
    """Empty for the service's own nodes."""
    settings: tuple[str, ...] = ()
    seed: int = 0
    one_pool: bool = False
    """Leave the tenants' guarantees and queues out: all share one."""


OWN = "own"
"""The policy that the service itself has."""


def open_policy(name: str) -> tuple[str, Recipe | None]:
    """Return a policy: the service's own, or one of the simulator's. Raises BadScenario."""
    if name != OWN:
        return find_policy(name)
    says = "as the service does it, with queues as they are configured"
    return OWN, msgspec.structs.replace(recipe("fifo"), says=says)


def replayed(history: History, again: Again) -> Scenario:
    """Return a scenario of what happened.

    Starting and ending take as long as they really did, unless a setting says otherwise. Raises
    BadScenario.
    """
    nodes = open_cluster(again.cluster) if again.cluster else history.nodes
    if not nodes:
        raise BadScenario("The log does not name the nodes. Give them with --cluster.")
    name, custom = open_policy(again.policy)
    as_it_was: dict[str, object] = {
        "start_ms": history.start_ms,
        "resume_ms": history.start_ms,
        "stop_ms": history.stop_ms,
    }
    if name == OWN:
        as_it_was["estimates"] = "predicted"
    named = {pair.partition("=")[0].strip() for pair in again.settings}
    unsaid = {key: value for key, value in as_it_was.items() if _shown(key) not in named}
    settings = msgspec.structs.replace(read_settings(again.settings), **unsaid)
    check_levels(settings, nodes)
    wishes = msgspec.structs.replace(history.wishes, keeps_orders=name == OWN)
    if again.one_pool:
        wishes = None
    return Scenario(
        history.trace,
        nodes,
        name,
        settings,
        again.seed,
        custom=custom,
        wishes=wishes,
        outages=() if again.cluster else history.outages,
    )


def _shown(field: str) -> str:
    return field.removesuffix("_ms")

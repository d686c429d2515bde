"""A service's own history as a scenario: from what its log tells to what is simulated."""

from collections.abc import Iterable, Iterator

import msgspec

from allotment.model import events as e
from allotment.model.errors import BadInput
from allotment.model.ids import Actor, JobId, Seq
from allotment.model.quantity import Instant
from allotment.model.spec import JobSpec
from allotment.service.views import EventView
from allotment.sim.bad import BadScenario
from allotment.sim.history import History
from allotment.sim.scenario import Scenario
from allotment.sim.settings import read_settings
from allotment.wire.job import read_job_json
from allotment.wiring.sim import open_cluster, open_policy

OF_TASKS = "Task"
"""How the kinds of events begin that say nothing of a job as a whole."""


def records_of(events: Iterable[EventView]) -> Iterator[e.Record]:
    """Read events as the service tells them; those of single tasks are left out.

    Raises BadScenario for one that is of another version of the service.
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
    return read_job_json(msgspec.json.encode(kept)).spec


def replayed(
    history: History, policy: str, cluster: str, settings: tuple[str, ...], seed: int
) -> Scenario:
    """Make a scenario of what happened. An empty `cluster` is the service's own nodes.

    Starting takes as long as it really did unless a setting says otherwise. Raises
    BadScenario.
    """
    nodes = open_cluster(cluster) if cluster else history.nodes
    if not nodes:
        raise BadScenario("The log does not say what nodes there are. Name some: --cluster.")
    chosen = read_settings(settings)
    named = {pair.partition("=")[0].strip() for pair in settings}
    for key, field in (("start", "start_ms"), ("resume", "resume_ms")):
        if key not in named:
            chosen = msgspec.structs.replace(chosen, **{field: history.start_ms})
    name, custom = open_policy(policy)
    return Scenario(history.trace, nodes, name, chosen, seed, custom=custom)

"""What is left of jobs and events for others: everything listed, nothing forgotten."""

from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from allotment.backends.local.images.trouble import ImageTrouble
from allotment.backends.local.images.trouble import Kind as OfImages
from allotment.model import events as e
from allotment.model.content import ContentKind
from allotment.model.datasets import DataKind, Dataset, DataVersion, Grant, Grantee
from allotment.model.diagnosis import Diagnosis, Exit, Owner, RetryClass
from allotment.model.events import Outcome
from allotment.model.ids import AttemptNo, JobId, NodeId, TaskIndex
from allotment.model.ledger import Entitlement
from allotment.model.quantity import Instant, Millis, WallTime
from allotment.model.reasons import StopCause
from allotment.model.spec import Checkpoint, JobSpec, TaskRole
from allotment.model.sweeps import Sweep
from allotment.model.unusable import Unusable
from allotment.service.data.objects.trouble import Kind as OfStores
from allotment.service.data.objects.trouble import StoreTrouble
from allotment.service.environments.lasting import Lasting
from allotment.service.privacy import (
    OF_CHECKPOINT,
    OF_JOB,
    OF_ROLE,
    event_for_others,
    spec_for_others,
)
from tests.support.builders import a_job

SEEN = "KeyError: 'hush'"
FOUND = Diagnosis("python", "It raised.", Owner.USER, RetryClass.UNKNOWN, evidence=SEEN)
JOB, NO, TASK = JobId(1), AttemptNo(1), TaskIndex(0)
FULL = msgspec.structs.replace(
    a_job().gpus(2).spec(),
    image="hush", env=(("A", "hush"),), secrets=(("B", "hush"),), workdir="/hush",
    data_dir="/hush", code_dir="/hush", output_dir="/hush",
    checkpoint=Checkpoint("/hush", Millis(1000), save="hush"),
)  # fmt: skip

EVENTS = [
    e.JobSubmitted(JOB, FULL, "hush", ("hush",)),
    e.JobEdited(JOB, FULL),
    e.CheckpointSaved(JOB, NO, "/hush", 3),
    e.JobFailed(JOB, FOUND),
    e.JobTimedOut(JOB, FOUND),
    e.StopRequested(JOB, NO, StopCause.RUN_TIME, diagnosis=FOUND),
    e.AttemptEnded(JOB, NO, Outcome.FAILED, FOUND),
    e.TaskEnded(JOB, NO, TASK, Exit(platform_error="/hush is not there"), FOUND),
    e.TaskHeld(JOB, NO, TASK, Exit(platform_error="/hush is not there")),
    e.DatasetCreated(Dataset("hush", "hush", "hush", DataKind.FOLDER, "hush", folder="/hush")),
    e.DatasetVersionClosed("hush", "hush", DataVersion(1, "hush", 1, 1, WallTime(1), "hush")),
    e.DatasetGranted("hush", "hush", Grant(Grantee.USER, "hush")),
    e.DatasetRevoked("hush", "hush", Grantee.TENANT, "hush"),
    e.DatasetRemoved("hush", "hush"),
    e.CheckpointKept(JOB, "hush", 3, "hush", "hush"),
    e.CheckpointRestored(JOB, NO, "hush", 3, 500, "hush"),
    e.OutputsSaved(JOB, "hush", "hush"),
    e.ContentSeen("hush", ((NodeId(1), NodeId(3)),), ContentKind.DATA),
    e.SweepSubmitted(JOB, "job", "us", Sweep((("hush", ("hush",)),), metric="hush"), 1),
    e.TrialProposed(JOB, (("hush", "hush"),)),
    e.TaskReady(JOB, NO, TASK, (e.Phase("hush", Instant(0), Millis(1)),)),
    e.TaskStarted(JOB, NO, TASK, 7, (e.Phase("hush", Instant(0), Millis(1)),)),
    *(
        e.AttemptEnded(JOB, NO, Outcome.FAILED, trouble.diagnosis())
        for trouble in (
            *(ImageTrouble(kind, "hush", "hush") for kind in OfImages),
            *(StoreTrouble(kind, "hush", "hush") for kind in OfStores),
            *(Unusable(kind.matter, "hush", "hush") for kind in Lasting.__subclasses__()),
        )
    ),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_what_is_private_is_left_out_and_the_rest_stays(event: e.AnyEvent) -> None:
    left = event_for_others(event)
    assert "hush" not in repr(left)
    assert type(left) is type(event)
    assert getattr(left, "attempt", None) == getattr(event, "attempt", None)
    if isinstance(left, (e.TaskEnded, e.TaskHeld)):
        assert not left.exit.ok  # that it was never run properly is no secret


def test_an_event_without_anything_private_is_passed_on_as_it_is() -> None:
    for event in (e.JobHeld(JOB), e.TaskEnded(JOB, NO, TASK, Exit(0))):
        assert event_for_others(event) is event


def test_a_spec_keeps_what_scheduling_goes_by() -> None:
    left = spec_for_others(FULL)
    assert "hush" not in repr(left)
    assert (left.total(), left.name, left.tenant) == (FULL.total(), FULL.name, FULL.tenant)
    assert [role.command for role in left.roles] == ["***"]
    assert left.checkpoint == Checkpoint("", Millis(1000))


def test_every_field_that_is_kept_exists() -> None:
    for kind, fields in ((JobSpec, OF_JOB), (TaskRole, OF_ROLE), (Checkpoint, OF_CHECKPOINT)):
        assert set(fields) <= set(kind.__struct_fields__)


# ── nothing forgotten ───────────────────────────────────────────────────────────────────

PUBLIC_WORDS = {
    "NodeDrained.reason", "NodeLost.reason", "HealthChanged.code", "HealthChanged.words",
    "HealthChanged.who", "ReservationEnded.name", "JobRequeued.cause", "JobNoted.text",
    "JobCancelled.by", "EventsLost.because", "TaskStarted.engine_job",
    "NodesFound.engine", "NodesFound.came", "NodesFound.changed", "NodesFound.left",
    "StopRequested.signal", "ShrinkRequested.signal",
    "SweepSubmitted.name", "SweepSubmitted.tenant",
    "AttemptPlaced.quota", "AttemptPromoted.quota", "Reserved.quota", "AttemptResumed.quota",
}  # fmt: skip
"""Texts in events that are words of ours, of administrators, or names."""

LEFT_OUT = {
    "JobSubmitted.spec", "JobSubmitted.key", "JobSubmitted.warnings", "JobEdited.spec",
    "JobFailed.diagnosis", "JobTimedOut.diagnosis", "CheckpointSaved.path",
    "StopRequested.diagnosis", "AttemptEnded.diagnosis", "TaskHeld.exit", "TaskEnded.exit",
    "TaskEnded.diagnosis", "SweepSubmitted.sweep", "OutputsSaved.dataset",
    "OutputsSaved.trouble", "TrialProposed.params", "CheckpointKept.path",
    "CheckpointKept.dataset", "CheckpointKept.trouble", "CheckpointRestored.path",
    "CheckpointRestored.dataset", "ContentSeen.name", "TaskReady.phases", "TaskStarted.phases",
    *(
        f"{kind}.{part}"
        for kind, parts in {
            "DatasetVersionClosed": (),
            "DatasetGranted": (),
            "DatasetRevoked": ("who",),
            "DatasetRemoved": (),
        }.items()
        for part in ("tenant", "name", *parts)
    ),
}  # fmt: skip
"""Fields of which `event_for_others` leaves out what a user said or a program wrote."""


def _holds_words(hint: Any) -> bool:
    parts = get_args(hint)
    return (
        hint is str
        or hint in (JobSpec, Diagnosis, Exit, Sweep, e.Phase)
        or any(map(_holds_words, parts))
    )


def test_a_new_text_in_an_event_is_looked_at_before_others_see_it() -> None:
    """A new event with words in it belongs in one of the two lists above."""
    found = {
        f"{kind.__name__}.{name}"
        for kind in get_args(e.AnyEvent)
        for name, hint in get_type_hints(kind).items()
        if name in kind.__struct_fields__ and get_origin(hint) is not dict
        if _holds_words(hint)
    }
    assert found == PUBLIC_WORDS | LEFT_OUT
    assert {type(event).__name__ for event in EVENTS} == {
        "DatasetCreated", *(field.partition(".")[0] for field in LEFT_OUT)
    }  # fmt: skip


def test_what_a_trial_reports_is_its_owners() -> None:
    for event in (e.RungReached(JOB, 0, 10, 0.5), e.TrialMeasured(JOB, 10, 0.5)):
        told = event_for_others(event)
        assert isinstance(told, (e.RungReached, e.TrialMeasured))
        assert (told.step, told.value) == (0, None)


def test_what_nodes_had_of_a_job_is_its_owners() -> None:
    placed = e.AttemptPlaced(JOB, NO, (), Entitlement.GUARANTEED, 7, (), 1, 2, 3)
    left = event_for_others(placed)
    assert left == e.AttemptPlaced(JOB, NO, (), Entitlement.GUARANTEED, 7)

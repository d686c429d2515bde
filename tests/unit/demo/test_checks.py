"""The demo's verdict is worth something: it holds for the whole story, and for no less."""

from pathlib import Path

import msgspec
import pytest

from allotment.demo import cast, report
from allotment.demo.cast import BASE, BROKEN, LARGE, NAMES, OWNER, PROCESSES, TUNE
from allotment.demo.checks import CUDA_OOM, Check, Evidence, verdict
from allotment.demo.facts import Facts
from allotment.demo.setting import (
    Pods,
    Setting,
    TooSmall,
    config_of,
    setting_of,
    setting_on_cluster,
)
from allotment.demo.trained import Metrics, Trained
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.cluster import Device, Node
from allotment.model.diagnosis import Diagnosis, Owner, RetryClass
from allotment.model.engines import EngineSetup, EngineType
from allotment.model.ids import DeviceIndex, JobId, NodeId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import DEVICE, GIB, MIB, Resources
from allotment.model.reasons import Blocked, Reason
from allotment.service.views import EventView
from allotment.wire.config import config_to_wire, read_config
from allotment.wire.job import job_to_wire, read_job
from tests.support.world import World

OOM = Diagnosis(CUDA_OOM, "GPU memory was not enough.", Owner.USER, RetryClass.UNKNOWN)
SAVED = Diagnosis("evicted", "It yielded.", Owner.PLATFORM, RetryClass.PLATFORM)
STEP = 113


def a_machine(gpus: int = 0, memory: int = 4 * GIB) -> Node:
    devices = tuple(
        Device(DeviceIndex(i), "H200", 141 * GIB, f"u{i}", False) for i in range(gpus)
    )
    return Node(NodeId(0), "here", 2000, memory, 0, devices)


class Told(World):
    """The demo's cluster with the demo's jobs, and the test as its machines."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(config_of(setting))
        self.setting = setting
        self.ids: dict[str, JobId] = {}

    def hand_in(self, *names: str) -> None:
        for name in names:
            data = msgspec.json.encode(cast.job(name, self.setting))
            spec = read_job(data, source=name).spec
            self.ids[name] = JobId(self.state.next_job)
            self.do(c.SubmitJob(spec))
        self.cycle()

    def start(self, *names: str) -> None:
        for name in names:
            self.runs(self.ids[name])

    def finish(self, name: str) -> None:
        self.ends(self.ids[name])
        self.cycle()

    def view(self) -> list[EventView]:
        return [as_view(record) for record in self.log]


def as_view(record: e.Record) -> EventView:
    """An event as the service tells it."""
    detail = msgspec.to_builtins(record.event)
    if isinstance(record.event, e.JobSubmitted):
        detail["spec"] = dict(job_to_wire(record.event.spec))
    return EventView(
        record.seq, record.at, type(record.event).__name__, record.job, "me", (), "", detail
    )


@pytest.fixture
def told() -> Told:
    """The whole story, played by hand."""
    world = Told(setting_of(a_machine()))
    world.hand_in(LARGE, BASE)
    world.start(LARGE, BASE)
    world.hand_in(TUNE)
    world.hand_in(BROKEN)
    world.start(BROKEN)
    for _ in range(cast.RETRIES + 1):
        world.wait(1000)
        world.ends(world.ids[BROKEN], 1, OOM)
        world.wait(5000)
        world.cycle()
        if world.is_(world.ids[BROKEN]) is JobState.STARTING:
            world.start(BROKEN)
    world.saves(world.ids[LARGE], 80)
    world.hand_in(OWNER)
    assert world.why(world.ids[OWNER]).reason is Reason.WAITING_FOR_VICTIMS
    world.saves(world.ids[LARGE], STEP)
    world.ends(world.ids[LARGE], 85, SAVED)
    world.cycle()
    world.start(OWNER, TUNE)
    world.finish(BASE)
    world.finish(OWNER)
    world.start(LARGE)
    world.finish(LARGE)
    world.finish(TUNE)
    return world


def evidence_of(views: list[EventView]) -> Evidence:
    facts = Facts()
    facts.take(views)
    model = Trained(Path("model.npz"), 1, 387, 0.99, Metrics(0.99, 300, STEP))
    return Evidence(facts, Blocked(Reason.CAPACITY, "Others hold it."), STEP, model)


def failed(checks: list[Check]) -> set[str]:
    return {check.what for check in checks if not check.ok}


def test_the_whole_story_holds(told: Told) -> None:
    checks = verdict(evidence_of(told.view()))
    assert not failed(checks), "\n".join(f"{check.what}: {check.proof}" for check in checks)


@pytest.mark.parametrize(
    ("kind", "name", "check"),
    [
        (e.BarrierOpened, BASE, "a gang starts together"),
        (e.TaskReady, OWNER, "a gang starts together"),
        (e.JobFailed, BROKEN, "a failing job is retried, then given up with a diagnosis"),
        (e.JobRequeued, BROKEN, "a failing job is retried, then given up with a diagnosis"),
        (e.Reserved, OWNER, "a tenant reclaims its guarantee and has a place reserved"),
        (e.StopRequested, LARGE, "the borrower is warned"),
        (e.CheckpointSaved, LARGE, "it saves a checkpoint and ends by itself"),
        (e.TaskEnded, LARGE, "it saves a checkpoint and ends by itself"),
        (e.JobRequeued, LARGE, "it is evicted and queued again"),
        (e.AttemptPlaced, OWNER, "its job gets the reserved place"),
        (e.AttemptStarted, LARGE, "the borrower finishes from its checkpoint"),
        (e.JobSucceeded, LARGE, "the borrower finishes from its checkpoint"),
        (e.JobSucceeded, TUNE, "all other jobs finish"),
        (e.AttemptEnded, BASE, "no device was ever given twice"),
    ],
)
def test_without_an_event_its_check_fails(
    told: Told, kind: type[e.Event], name: str, check: str
) -> None:
    job = told.ids[name]
    views = [
        view for view in told.view() if not (view.job == job and view.kind == kind.__name__)
    ]
    assert check in failed(verdict(evidence_of(views)))


def test_a_last_checkpoint_of_another_step_is_noticed(told: Told) -> None:
    evidence = evidence_of(told.view())
    evidence.resumed_at_step = 80
    assert failed(verdict(evidence)) == {"the borrower finishes from its checkpoint"}


def test_a_model_worse_than_the_job_said_is_noticed(told: Told) -> None:
    evidence = evidence_of(told.view())
    evidence.trained = Trained(Path("m"), 1, 1, 0.95, Metrics(0.99, 300, STEP))
    assert failed(verdict(evidence)) == {"the trained model is fetched and works"}


def test_a_device_given_twice_is_noticed(told: Told) -> None:
    views = told.view()
    place = next(v for v in views if v.kind == "AttemptPlaced" and v.job == told.ids[BASE])
    other = next(v for v in views if v.kind == "AttemptPlaced" and v.job == told.ids[LARGE])
    stolen = {**place.detail, "slots": other.detail["slots"]}
    views[views.index(place)] = msgspec.structs.replace(place, detail=stolen)
    assert "no device was ever given twice" in failed(verdict(evidence_of(views)))


def test_nothing_at_all_passes_no_check() -> None:
    assert all(not check.ok for check in verdict(Evidence(Facts())))


# ── the report ──────────────────────────────────────────────────────────────────────────


def test_the_courses_add_up(told: Told) -> None:
    facts = evidence_of(told.view()).facts
    courses = {name: report.course_of(facts, name) for name in NAMES}
    assert [courses[name].attempts for name in NAMES] == [2, 1, 1, 3, 1]
    assert courses[BROKEN].end == "failed"
    assert courses[BROKEN].ran == 3000
    assert {courses[name].end for name in NAMES if name != BROKEN} == {"succeeded"}
    assert courses[TUNE].waited >= 15_000


def test_use_is_told_apart_by_grounds(told: Told) -> None:
    uses = report.use_of(evidence_of(told.view()).facts)
    assert uses["vision"].own == 3 * 1000 * DEVICE, "the broken job, three seconds"
    assert uses["vision"].borrowed > 0
    assert uses["nlp"].own > 0


# ── the setting ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("gpus", [0, 1, 2, 3, 4, 6, 8])
def test_any_machine_makes_six_places(gpus: int) -> None:
    machine = a_machine(gpus)
    setting = setting_of(machine)
    data = msgspec.json.encode(config_to_wire(config_of(setting)))
    config, warnings = read_config(data, source="demo", machine=machine)
    assert not warnings
    assert all(device.virtual is (gpus == 0) for device in config.nodes[0].devices)
    world = Told(setting)
    world.hand_in(LARGE, BASE)
    assert all(world.is_(job) is JobState.STARTING for job in world.ids.values())
    world.hand_in(TUNE)
    blocked = world.why(world.ids[TUNE])
    assert blocked.reason is Reason.CAPACITY
    assert blocked.message.endswith("of: GPU."), "only devices are short"


def test_a_place_is_enough_for_one_process() -> None:
    place = setting_of(a_machine()).place
    assert Resources(gpu_milli=DEVICE, cpu_milli=250, memory=GIB // 2) == place
    with pytest.raises(TooSmall, match="768 MiB of memory, and this machine has 512"):
        setting_of(a_machine(memory=GIB // 2))


def test_all_places_are_asked_for() -> None:
    assert sum(PROCESSES[name] for name in (BROKEN, LARGE, BASE)) == 6


def nodes_with(*gpus: int, cpus: int = 4) -> list[Node]:
    return [
        Node(
            NodeId(n), f"n{n}", cpus * 1000, 2000 * MIB, GIB,
            tuple(Device(DeviceIndex(i), "a100") for i in range(count)),
        )
        for n, count in enumerate(gpus)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("gpus", "divides", "taken"),
    [
        ((4, 4), False, [3, 3]), ((8,), True, [6]), ((1, 0, 8), False, [1, 5]),
        ((2, 2), True, [2, 1]), ((1, 0), True, [1]), ((2,) * 9, False, [1] * 6),
    ],
)  # fmt: skip
def test_nodes_of_a_cluster_make_six_places(
    gpus: tuple[int, ...], divides: bool, taken: list[int]
) -> None:
    setting = setting_on_cluster(nodes_with(*gpus, cpus=8), "partition x", divides=divides)
    assert [len(node.devices) for node in setting.nodes] == taken
    assert sum(taken) * DEVICE // setting.place.gpu_milli == 6
    world = Told(setting)
    world.hand_in(LARGE, BASE)
    assert all(world.is_(job) is JobState.STARTING for job in world.ids.values())
    world.hand_in(TUNE)
    blocked = world.why(world.ids[TUNE])
    assert blocked.reason is Reason.CAPACITY


def test_what_a_cluster_lacks_for_the_demo_is_said() -> None:
    with pytest.raises(TooSmall, match="needs 6 GPUs of one type, and partition x has 5"):
        setting_on_cluster(nodes_with(5), "partition x", divides=False)
    with pytest.raises(TooSmall, match="needs a CPU and"):
        setting_on_cluster(nodes_with(6), "partition x", divides=False, whole_cpus=True)


def test_of_pods_nothing_is_believed_that_no_output_says(told: Told) -> None:
    saves = "it saves a checkpoint and ends by itself"
    resumes = "the borrower finishes from its checkpoint"
    engine = EngineSetup("k8s", EngineType.KUBERNETES)
    evidence = evidence_of(told.view())
    evidence.trained, evidence.pods = None, Pods(engine, "/kept")
    assert failed(verdict(evidence)) == {saves, resumes}
    evidence.stopped_at_step = STEP
    assert failed(verdict(evidence)) == set()
    evidence.resumed_at_step = 0
    assert failed(verdict(evidence)) == {resumes}
    evidence.pods = Pods(engine)
    checks = verdict(evidence)
    assert failed(checks) == set()
    assert resumes not in {check.what for check in checks}

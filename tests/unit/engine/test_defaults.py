"""What a job does not name comes with its devices, so that it never borrows for a default."""

from collections.abc import Mapping

import msgspec
import pytest
from msgspec.structs import replace

from allotment.model import commands as c
from allotment.model.cluster import Device, Node
from allotment.model.events import JobEdited, JobSubmitted
from allotment.model.ids import DeviceIndex, JobId, NodeId
from allotment.model.ledger import Entitlement
from allotment.model.quantity import GIB, MIB, Resources
from allotment.model.spec import USUAL, JobSpec, TaskRole
from allotment.model.tenancy import Config, Queue, QueueOrder, Tenant
from allotment.wire.job import apply_set, job_to_wire, read_job
from tests.support.world import World

OWN = Entitlement.GUARANTEED
Machine = tuple[int, float, float]
"""Devices, CPUs, GiB of memory."""


def a_machine(number: int, machine: Machine) -> Node:
    devices, cpus, memory = machine
    return Node(
        NodeId(number),
        f"n{number}",
        round(cpus * 1000),
        round(memory * GIB),
        disk=0,
        devices=tuple(Device(DeviceIndex(at), "A100", 80 * GIB) for at in range(devices)),
    )


def shared(guaranteed: Mapping[str, Resources], *machines: Machine) -> Config:
    nodes = tuple(a_machine(number, machine) for number, machine in enumerate(machines))
    queues = (Queue("default", QueueOrder.SKIP),)
    return Config(
        nodes, tuple(Tenant(name, share, queues) for name, share in guaranteed.items())
    )


def in_proportion(gpu: int, machine: Machine) -> Resources:
    """Return the share that a guarantee of so many devices brings."""
    devices, cpus, memory = machine
    cpu = round(cpus * 1000) * gpu // devices
    return Resources(gpu * 1000, cpu, round(memory * GIB) * gpu // devices)


def a_file(tenant: str = "lab", **keys: object) -> JobSpec:
    body = {"name": "j", "tenant": tenant, "command": "x", **keys}
    return read_job(msgspec.json.encode(body), source="test").spec


def submitted(world: World, spec: JobSpec) -> JobId:
    event = world.do(c.SubmitJob(spec))[0].event
    assert isinstance(event, JobSubmitted)
    world.cycle()
    return event.job


def need(world: World, job: JobId, role: int = 0) -> Resources:
    return world.job(job).spec.roles[role].resources


def grounds(world: World, job: JobId) -> Entitlement:
    attempt = world.job(job).attempt
    assert attempt is not None
    return attempt.entitlement


def test_one_device_of_two_guaranteed_is_no_loan_where_cpus_are_few() -> None:
    machine = (8, 2, 24)
    guaranteed = {"lab": in_proportion(2, machine), "team": in_proportion(6, machine)}
    world = World(shared(guaranteed, machine))
    jobs = [submitted(world, a_file(resources={"gpu": 1})) for _ in range(2)]
    assert [grounds(world, job) for job in jobs] == [OWN, OWN]
    assert need(world, jobs[0]).cpu_milli == 250
    assert need(world, jobs[0]).memory == USUAL.memory


@pytest.mark.parametrize(
    "machine", [(8, 2, 24), (7, 3, 1.7), (3, 1, 0.5), (8, 0.1, 1), (1, 64, 512)]
)
@pytest.mark.parametrize("gpu", [0.3, 0.5, 1, 2])
def test_as_many_as_are_guaranteed_devices_are_never_loans(
    machine: Machine, gpu: float
) -> None:
    for guaranteed in range(1, machine[0] + 1):
        world = World(shared({"lab": in_proportion(guaranteed, machine)}, machine))
        per_device = int(1 / gpu) if gpu < 1 else 1
        fit = guaranteed * per_device if gpu < 1 else guaranteed // int(gpu)
        jobs = [submitted(world, a_file(resources={"gpu": gpu})) for _ in range(fit)]
        assert all(grounds(world, job) is OWN for job in jobs)
        many = World(shared({"lab": in_proportion(guaranteed, machine)}, machine))
        if fit:
            gang = submitted(many, a_file(resources={"gpu": gpu}, count=fit))
            assert grounds(many, gang) is OWN


def test_what_is_named_is_taken_as_it_is() -> None:
    machine = (8, 2, 24)
    world = World(shared({"lab": in_proportion(2, machine)}, machine))
    job = submitted(world, a_file(resources={"gpu": 1, "cpu": 1}))
    assert need(world, job).cpu_milli == 1000
    assert grounds(world, job) is Entitlement.OPPORTUNISTIC
    assert need(world, submitted(world, a_file())) == USUAL


def test_of_rich_machines_it_is_the_usual() -> None:
    machine = (8, 64, 512)
    world = World(shared({"lab": in_proportion(2, machine)}, machine))
    job = submitted(world, a_file(resources={"gpu": 2}))
    assert (need(world, job).cpu_milli, need(world, job).memory) == (1000, 512 * MIB)


def test_uneven_machines_keep_a_cpu_for_each_of_their_devices() -> None:
    poor, rich = (8, 4, 8), (0, 64, 512)
    guaranteed = {name: Resources(4000, 34_000, 200 * GIB) for name in ("lab", "team")}
    world = World(shared(guaranteed, poor, rich))
    jobs = [
        submitted(world, a_file(tenant, resources={"gpu": 1}))
        for tenant in ("lab", "team")
        for _ in range(4)
    ]
    assert need(world, jobs[0]).cpu_milli == 500
    assert [grounds(world, job) for job in jobs] == [OWN] * 8


def test_a_guarantee_without_any_cpu_leaves_the_usual() -> None:
    world = World(shared({"lab": Resources(2000, 0, 8 * GIB)}, (8, 64, 512)))
    assert need(world, submitted(world, a_file(resources={"gpu": 1}))).cpu_milli == 1000


def test_an_edit_and_another_tenant_choose_anew() -> None:
    machine = (8, 2, 24)
    rich = Resources(2000, 1500, 4 * GIB)
    guaranteed = {"lab": Resources(2000, 500, GIB // 2), "team": rich, "other": Resources(4000)}
    world = World(shared(guaranteed, machine))
    submitted(world, a_file("team", resources={"gpu": 8, "cpu": 0.1}))
    job = submitted(world, a_file(resources={"gpu": 1}, opportunistic=True))
    assert need(world, job) == Resources(1000, 250, 256 * MIB)

    def edit(change: str) -> Resources:
        record = world.do(c.EditJob(job, apply_set(world.job(job).spec, [change])))[-1]
        assert isinstance(record.event, JobEdited)
        return need(world, job)

    assert edit("resources.gpu=2") == Resources(2000, 500, 512 * MIB)
    assert edit("resources.gpu=4") == Resources(4000, 1000, 512 * MIB)
    assert edit("tenant=team") == Resources(4000, 1000, 512 * MIB)
    assert edit("resources.gpu=1") == Resources(1000, 250, 512 * MIB)


def test_what_was_chosen_is_not_written_as_if_its_owner_had() -> None:
    machine = (8, 2, 24)
    world = World(shared({"lab": in_proportion(2, machine)}, machine))
    spec = world.job(submitted(world, a_file(resources={"gpu": 1, "memory": "1GiB"}))).spec
    assert spec.roles[0].by_default == ("cpu",)
    written = job_to_wire(spec)["roles"]
    assert isinstance(written, dict)
    assert written["main"] == {
        "count": 1, "command": "x", "resources": {"memory": "1GiB", "gpu": 1},
    }  # fmt: skip


def test_the_classic_form_leaves_out_as_well() -> None:
    role = {"taskNumber": 1, "command": "x", "gpuNumber": 1, "memoryMB": 100}
    body = {"jobName": "j", "virtualCluster": "lab", "taskRoles": [{"name": "a", **role}]}
    spec = read_job(msgspec.json.encode(body), source="test").spec
    assert spec.roles[0].by_default == ("cpu",)
    assert TaskRole("a", 1, "x").by_default == ()


def test_of_uneven_machines_those_of_the_named_type_count() -> None:
    poor, rich = a_machine(0, (8, 2, 24)), a_machine(1, (8, 64, 512))
    poor = replace(poor, devices=tuple(replace(each, type="T4") for each in poor.devices))
    tenant = Tenant("lab", Resources(4000, 10**6, 2**50), (Queue("default", QueueOrder.SKIP),))
    world = World(Config((poor, rich), (tenant,)))
    for kind, cpus in (("A100", 1000), ("T4", 250), ("", 250)):
        named = {"gpu_type": kind} if kind else {}
        job = submitted(world, a_file(resources={"gpu": 1, **named}))
        assert need(world, job).cpu_milli == cpus

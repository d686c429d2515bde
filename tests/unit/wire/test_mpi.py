"""Jobs with MPI: what stands in the file, what cannot be used with it, and who refuses them."""

from itertools import product

import pytest
from msgspec.structs import replace

from allotment.backends.kubernetes.backend import KubernetesBackend
from allotment.backends.local.backend import LocalBackend
from allotment.backends.pilot.backend import PilotBackend
from allotment.backends.slurm.backend import SlurmBackend
from allotment.model import commands as c
from allotment.model.engines import lacks_of
from allotment.model.errors import BadInput, Rejected
from allotment.model.spec import Completion, Mpi
from allotment.service.abilities import check_able
from allotment.wire.job import job_to_wire, read_job
from tests.support.builders import a_config, a_job, a_node, a_tenant
from tests.support.world import World


def read(text: str) -> object:
    return read_job(text.encode(), source="job").spec


@pytest.mark.parametrize("how", ["pmix", "pmi2", "mpirun"])
def test_it_is_read_and_written(how: str) -> None:
    spec = read_job(
        f"{{name: a, command: ./ring, count: 4, mpi: {how}}}".encode(), source="job"
    ).spec
    assert spec.mpi is Mpi(how)
    assert job_to_wire(spec)["mpi"] == how
    # Where the first starts the others, its end is that of all.
    assert spec.roles[0].completion == Completion(1, 1 if how == "mpirun" else None)


@pytest.mark.parametrize(
    ("beside", "wrong"),
    [
        ("mpi: openmpi, command: x", "mpi: must be pmix, pmi2 or mpirun"),
        ("mpi: pmix, roles: {a: {command: x}, b: {command: y}}", "with several roles"),
        ("mpi: pmix, command: x, count: {min: 1, max: 2, elastic: true}", "an elastic role"),
        ("mpi: pmix, command: x, engine: any", "cannot be used with `engine: any`"),
        ("mpi: pmi2, command: '#!/bin/sh', batch: {tasks: 2}", "cannot be used with batch"),
        ("mpi: mpirun, command: x, count: 3, completion: {min_succeeded: 2}", "is more than 1"),
    ],
)
def test_what_cannot_stand_beside_it(beside: str, wrong: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(f"{{name: a, {beside}}}")
    assert wrong in str(caught.value)


@pytest.mark.parametrize(
    ("engine", "how"),
    [
        *product((LocalBackend, KubernetesBackend), (Mpi.PMIX, Mpi.PMI2, Mpi.MPIRUN)),
        *product((PilotBackend,), (Mpi.PMIX, Mpi.PMI2)),
    ],
)
def test_engines_that_cannot_start_ranks_refuse_it_by_name(
    engine: type[LocalBackend | PilotBackend | KubernetesBackend], how: Mpi
) -> None:
    node = replace(a_node(0, 4, "A100"), engine="here", lacks=lacks_of(engine.abilities))
    world = World(replace(a_config(a_tenant("vision", 4)), nodes=(node,)))
    spec = replace(a_job().tasks(2).gpus(1).spec(), mpi=how)
    with pytest.raises(Rejected, match=r"No engine here can .* ranks?") as caught:
        check_able(c.SubmitJob(spec), world.state)
    assert "engine of type slurm" in caught.value.hint
    able = replace(node, lacks=lacks_of(SlurmBackend.abilities))
    world = World(replace(a_config(a_tenant("vision", 4)), nodes=(able,)))
    check_able(c.SubmitJob(spec), world.state)

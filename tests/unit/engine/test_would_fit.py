"""What is advised with a refusal: what would fit, or another way."""

import pytest

from allotment.model.errors import Rejected
from allotment.model.quantity import GIB
from tests.support.builders import JobBuilder, a_job
from tests.support.cells import a_cell_world

CELLS = """\
hardware:
  - 2 x dgx-v100 named v
  - 1 x 4xT4 with 16 cpus and 64GiB named g
  - 1 x cpu-32 named c
tenants:
  mixed: {cells: {core: 8, V100: 4}}
  small: {cells: {dgx-v100-switch: 2}}
  whole: {cells: {4xT4-node: 1}}
  plain: {cells: {core: 4}, borrow: false}
  guest: {}
  nobody: {borrow: false}
"""


def job(tenant: str, gpus: float, cpus: float = 1, memory: int = GIB) -> JobBuilder:
    return a_job().of(tenant).gpus(gpus).cpus(cpus).memory(memory).not_preemptible()


@pytest.mark.parametrize(
    ("asked", "advised"),
    [
        (job("plain", 0, 30), "A task of 4 CPU, 1 GiB memory would fit."),
        (job("plain", 0, 1, 90 * GIB), "A task of 1 CPU, 16 GiB memory would fit."),
        (job("small", 8), "A task of 4 GPU, 1 CPU, 1 GiB memory would fit."),
        (job("whole", 1, 17), "A task of 1 GPU, 16 CPU, 1 GiB memory would fit."),
        (
            job("whole", 2, 64, 100 * GIB),
            "A task of 2 GPU, 16 CPU, 64 GiB memory would fit.",
        ),
        (
            job("small", 1).tasks(4).grouped(4, "dgx-v100-switch"),
            "2 of its tasks would fit within one dgx-v100-switch, not 4.",
        ),
        (
            job("mixed", 1).types("T4"),
            "Ask for V100; or remove `preemptible: false`, so that it may borrow; or ask the "
            "administrator for cells of T4.",
        ),
        (
            job("guest", 1),
            "Remove `preemptible: false`, so that it may borrow; or ask the administrator "
            "for cells.",
        ),
        (job("nobody", 0), "Ask the administrator for cells."),
        (job("plain", 1).types("V100"), "Ask the administrator for cells of V100."),
    ],
)
def test_what_would_fit_is_told(asked: JobBuilder, advised: str) -> None:
    world = a_cell_world(CELLS)
    with pytest.raises(Rejected) as caught:
        world.submit(asked)
    assert caught.value.hint == advised


@pytest.mark.parametrize(
    "fits",
    [
        job("plain", 0, 4),
        job("plain", 0, 1, 16 * GIB),
        job("small", 4),
        job("whole", 1, 16),
        job("whole", 2, 16, 64 * GIB),
        job("small", 1).tasks(2).grouped(2, "dgx-v100-switch"),
        job("mixed", 1).types("V100"),
    ],
)
def test_what_is_advised_is_accepted(fits: JobBuilder) -> None:
    a_cell_world(CELLS).submit(fits)


MEMORY = """\
nodes:
  - {name: g1, cpu: 16, memory: 64GiB, gpu: {type: T4, count: 4, memory: 16GiB}}
cells:
  types: {t-node: {of: T4, count: 4, node: true}}
  roots: [{type: t-node, nodes: [g1]}]
tenants:
  whole: {cells: {t-node: 1}}
"""


@pytest.mark.parametrize("gpus", [0.5, 2])
def test_less_memory_of_each_device_is_advised(gpus: float) -> None:
    world = a_cell_world(MEMORY)
    asked = a_job().of("whole").gpus(gpus)
    with pytest.raises(Rejected) as caught:
        world.submit(asked.gpu_memory(20 * GIB))
    assert caught.value.hint == (
        f"A task of {gpus} GPU, 16 GiB GPU memory, 1 CPU, 1 GiB memory would fit."
    )
    world.submit(asked.gpu_memory(16 * GIB))

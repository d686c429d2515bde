"""What would be free if hardware were back, or if others left it."""

from collections.abc import Callable

from allotment.core.trial import Trial
from allotment.explain.mended import let_others_go, mend_all
from allotment.model import commands as c
from allotment.model.health import HealthReport, Source
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.others import Others
from allotment.model.quantity import GIB
from allotment.model.reports import NodeReport, OthersReport
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.world import World

Mend = Callable[[Trial], None]


def free(world: World) -> int:
    return world.state.cluster.ledger.whole_free_of("A100")


def free_after(world: World, mend: Mend) -> int:
    with Trial(world.state.cluster) as trial:
        mend(trial)
        return free(world)


def test_hardware_that_is_broken_lost_or_drained_is_back() -> None:
    world = World(a_config(a_tenant("vision", 4), nodes=3, devices=4))
    world.submit(a_job().gpus(2))
    world.cycle()
    assert free_after(world, mend_all) == 10
    report = HealthReport(NodeId(0), Source.PROBE, False, DeviceIndex(3), "gpu_ecc")
    world.tell(report)
    world.do(c.DrainNode(NodeId(1)))
    world.tell(NodeReport(NodeId(2), alive=False))
    assert free(world) == 1
    assert free_after(world, mend_all) == 10
    assert free_after(world, let_others_go) == 1
    assert free(world) == 1, "it was only tried"


def test_what_others_use_is_free_again_and_what_is_broken_is_not() -> None:
    world = World(a_config(a_tenant("vision", 4), nodes=2, devices=4))
    world.tell(HealthReport(NodeId(0), Source.PROBE, False, DeviceIndex(3), "gpu_ecc"))
    for node, there in ((0, 2), (1, 4)):
        use = Others((("A100", there),), 64_000, GIB, "Slurm")
        world.tell(OthersReport(NodeId(node), use))
    assert free(world) == 1
    assert free_after(world, let_others_go) == 7
    assert free_after(world, mend_all) == 2
    job = world.submit(a_job().gpus(4))
    world.cycle()
    assert (
        "would fit if others did not use these nodes beside Allotment: n0"
        in world.why(job).message
    )


def test_a_machine_that_others_have_whole_is_free_without_them() -> None:
    world = World(a_config(a_tenant("vision", 4), nodes=2, devices=0))
    ledger = world.state.cluster.ledger
    world.tell(OthersReport(NodeId(0), Others(cpu_milli=64_000, where="Slurm")))
    world.do(c.DrainNode(NodeId(1)))
    books = [ledger.books[NodeId(node)] for node in (0, 1)]
    with Trial(world.state.cluster) as trial:
        let_others_go(trial)
        assert [book.open for book in books] == [True, False]
        assert books[0].cpu == 64_000
    with Trial(world.state.cluster) as trial:
        mend_all(trial)
        assert books[1].open
        assert books[0].cpu == 0

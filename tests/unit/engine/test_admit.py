"""What can never start is refused when it is submitted, with what would fit instead."""

import msgspec
import pytest

from allotment.model.commands import EditJob
from allotment.model.errors import Code, Rejected
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.quantity import GIB
from allotment.model.spec import Arch
from tests.support.builders import JobBuilder, a_config, a_job, a_node, a_tenant
from tests.support.cells import a_cell_world
from tests.support.world import World

CELLS = """\
hardware:
  - 4 x dgx-v100 in racks of 2
  - 1 x mi100-8
cells:
  pins:
    - {id: own, type: dgx-v100-socket, node: n4, device: 4}
    - {id: theirs, type: dgx-v100-switch, node: n4, device: 0}
tenants:
  vision: {cells: {dgx-v100-node: 2, dgx-v100-switch: 1}, pins: [own]}
  nlp: {cells: {mi100-8-node: 1}, pins: [theirs], borrow: false}
  guest: {}
"""


def refused(world: World, job: JobBuilder) -> tuple[Code, str, str]:
    with pytest.raises(Rejected) as caught:
        world.submit(job)
    return caught.value.code, caught.value.message, caught.value.hint


def warnings(world: World, job: JobBuilder) -> tuple[str, ...]:
    return world.job(world.submit(job)).warnings


def pinned(pin: str, tenant: str = "vision") -> JobBuilder:
    return a_job().of(tenant).gpus(1).pinned(pin)


# ── pinned cells ────────────────────────────────────────────────────────────────────────


def test_only_the_owner_of_a_pinned_cell_may_name_it() -> None:
    world = a_cell_world(CELLS)
    assert refused(world, pinned("onw")) == (
        Code.BAD_SPEC,
        "There is no pinned cell 'onw'.",
        "Pinned cells of tenant vision: own.",
    )
    assert refused(world, pinned("theirs")) == (
        Code.BAD_SPEC,
        "Pinned cell 'theirs' belongs to tenant nlp, not to vision.",
        "Pinned cells of tenant vision: own.",
    )
    assert refused(world, pinned("own", "guest")) == (
        Code.BAD_SPEC,
        "Pinned cell 'own' belongs to tenant vision, not to guest.",
        "Tenant guest has no pinned cells: remove `pin`.",
    )
    world.submit(pinned("own"))


def test_a_pin_means_nothing_where_shares_are_counted() -> None:
    world = World(a_config(a_tenant("vision", 8)))
    assert refused(world, pinned("own"))[1] == "There is no pinned cell 'own'."


def test_a_pinned_job_runs_nowhere_else() -> None:
    world = a_cell_world(CELLS)
    first, second = (world.submit(pinned("own").gpus(3)) for _ in range(2))
    world.cycle()
    assert world.job(first).attempts[0].entitlement is Entitlement.GUARANTEED
    assert not world.job(second).attempts
    said = refused(world, pinned("own").gpus(8))
    assert said == (
        Code.NEVER_FITS,
        "It needs 8 GPU, 1 CPU, 1 GiB memory; the pinned cell own is 1 dgx-v100-socket "
        "(4 × V100). With `pin` it runs nowhere else.",
        "A task of 4 GPU, 1 CPU, 1 GiB memory would fit.",
    )


# ── what is idle ────────────────────────────────────────────────────────────────────────


def test_an_opportunistic_job_must_be_able_to_borrow() -> None:
    world = a_cell_world(CELLS)
    idle = a_job().of("vision").gpus(1).opportunistic()
    assert refused(world, idle.pinned("own"))[:1] == (Code.BAD_SPEC,)
    assert refused(world, a_job().of("vision").opportunistic().not_preemptible()) == (
        Code.BAD_SPEC,
        "It is opportunistic, so it must be preemptible: it always borrows.",
        "Remove `preemptible: false`, or `opportunistic`.",
    )
    assert refused(world, a_job().of("nlp").gpus(1).opportunistic()) == (
        Code.NEVER_FITS,
        "It is opportunistic, and tenant nlp may not borrow.",
        "Remove `opportunistic`, or submit it for another tenant.",
    )
    assert warnings(world, a_job().of("vision").tasks(4).gpus(8).opportunistic()) == ()
    assert refused(world, a_job().of("vision").tasks(5).gpus(8).types("V100").opportunistic())[
        1:
    ] == (
        "It needs 5 × (8 GPU, 1 CPU, 1 GiB memory), and no arrangement on these 5 node(s) has "
        "room for it.",
        "Of its 5 tasks, 4 would fit together.",
    )


# ── sizes ───────────────────────────────────────────────────────────────────────────────


def test_a_gang_larger_than_its_tenants_cells_may_borrow_and_is_told() -> None:
    world = a_cell_world(CELLS)
    assert warnings(world, a_job().of("vision").tasks(2).gpus(8)) == ()
    assert warnings(world, a_job().of("vision").tasks(3).gpus(8)) == (
        "it can only borrow, and may be evicted at any time: it is larger than what the cells "
        "of tenant vision can hold (its cells are 2 dgx-v100-node (8 × V100 each), "
        "1 dgx-v100-switch (2 × V100))",
    )
    # Who owns nothing is told nothing: it always borrows.
    assert warnings(world, a_job().of("guest").tasks(3).gpus(8)) == ()


def test_a_gang_that_may_not_borrow_must_fit_in_its_tenants_cells() -> None:
    world = a_cell_world(CELLS)
    job = a_job().of("vision").tasks(3).gpus(8).not_preemptible()
    assert refused(world, job) == (
        Code.NEVER_FITS,
        "It needs 3 × (8 GPU, 1 CPU, 1 GiB memory): that is larger than what tenant vision "
        "owns: its cells are 2 dgx-v100-node (8 × V100 each), 1 dgx-v100-switch (2 × V100). "
        "With `preemptible: false` it may not borrow.",
        "Of its 3 tasks, 2 would fit together.",
    )
    world.submit(a_job().of("vision").tasks(2).gpus(8).not_preemptible())


def test_a_gang_too_large_for_the_cluster_is_told_what_would_fit_there() -> None:
    world = a_cell_world(CELLS)
    message, hint = refused(world, a_job().of("vision").tasks(7).gpus(8))[1:]
    assert message.endswith(
        ". To borrow does not help: no arrangement on these 5 node(s) has room for it."
    )
    assert hint == "Of its 7 tasks, 4 would fit together."
    assert refused(world, a_job().of("guest").gpus(9).types("V100")) == (
        Code.NEVER_FITS,
        "It needs 9 GPU, 1 CPU, 1 GiB memory, and tenant guest owns no cells. To borrow does "
        "not help: no arrangement on these 5 node(s) has room for it.",
        "A task of 8 GPU, 1 CPU, 1 GiB memory would fit.",
    )


def test_a_share_of_the_host_goes_with_each_device() -> None:
    world = a_cell_world(CELLS)
    job = a_job().of("vision").tasks(2).gpus(2).cpus(30).memory(GIB).not_preemptible()
    world.submit(job)  # Each takes a whole node of 40 CPUs.
    job = a_job().of("vision").gpus(2).cpus(50).not_preemptible()
    assert refused(world, job)[2] == "A task of 2 GPU, 40 CPU, 1 GiB memory would fit."


def test_hardware_that_a_tenant_does_not_own_is_borrowed_or_refused() -> None:
    world = a_cell_world(CELLS)
    assert warnings(world, a_job().of("vision").gpus(1).types("MI100")) == (
        "it can only borrow, and may be evicted at any time: tenant vision has no cell of "
        "MI100 (its cells are 2 dgx-v100-node (8 × V100 each), 1 dgx-v100-switch (2 × V100))",
    )
    assert refused(world, a_job().of("nlp").gpus(1).types("V100", "A100")) == (
        Code.NEVER_FITS,
        "Tenant nlp owns no cell of V100 or A100: its cells are 1 mi100-8-node (8 × MI100). "
        "The tenant may not borrow.",
        "Ask for MI100; or ask the administrator for cells of V100 or A100.",
    )
    message = refused(world, a_job().of("vision").gpus(1).types("H100"))[1]
    assert "owns no cell of H100" in message


def test_an_edit_is_checked_too() -> None:
    world = a_cell_world(CELLS)
    job = world.submit(pinned("own"))
    assert job == JobId(1)
    with pytest.raises(Rejected, match="no pinned cell"):
        world.do(EditJob(job, pinned("gone").spec()))


# ── levels ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "level", ["node", "rack", "dgx-v100-rack", "socket", "dgx-v100-switch"]
)
def test_levels_of_cells_go_by_type_by_node_and_by_the_last_part(level: str) -> None:
    world = a_cell_world(CELLS)
    world.submit(a_job().of("vision").gpus(2).within_one(level))
    world.submit(a_job().of("vision").gpus(2).preferring(level))


def test_a_level_that_there_is_not_is_refused_with_those_there_are() -> None:
    world = a_cell_world(CELLS)
    for job in (a_job().within_one("row"), a_job().preferring("row")):
        assert refused(world, job.of("vision").gpus(1)) == (
            Code.BAD_SPEC,
            "No cell here is a 'row', so no job can run within one.",
            "Levels here: node, dgx-v100-switch, dgx-v100-socket, dgx-v100-node, "
            "dgx-v100-rack, mi100-8-hive, mi100-8-node; or the last part of such a name.",
        )


def test_a_gang_larger_than_the_cell_it_must_lie_within_is_refused() -> None:
    world = a_cell_world(CELLS)
    job = a_job().of("vision").tasks(3).gpus(2).within_one("socket")
    message, hint = refused(world, job)[1:]
    assert message.startswith(
        "It needs 3 × (2 GPU, 1 CPU, 1 GiB memory), all within one socket: that is larger"
    )
    assert hint == "Of its 3 tasks, 2 would fit together."


def test_less_memory_of_each_gpu_is_advised_where_shares_are_counted() -> None:
    nodes = (a_node(0, kind="A100", memory=80 * GIB), a_node(1, kind="T4", memory=16 * GIB))
    world = World(msgspec.structs.replace(a_config(a_tenant("vision", 8)), nodes=nodes))
    for types, most in (((), 80), (("T4",), 16)):
        job = a_job().types(*types)
        code, message, hint = refused(world, job.gpus(2).gpu_memory(100 * GIB))
        assert code is Code.NEVER_FITS
        of = "".join(f" of type {kind}" for kind in types)
        assert message == (
            f"It asks for 100 GiB of the memory of each GPU, and no GPU{of} here has more "
            f"than {most} GiB."
        )
        assert hint == f"Ask for at most {most} GiB (`gpu_memory`)."
        world.submit(job.gpus(2).gpu_memory(most * GIB))
    # Here it is the number of devices that is too much.
    assert "no arrangement" in refused(world, a_job().gpus(9).gpu_memory(80 * GIB))[1]


def test_a_type_that_no_node_has_is_named() -> None:
    world = World(a_config(a_tenant("vision", 8)))
    code, message, hint = refused(world, a_job().gpus(2).types("H100"))
    assert code is Code.NEVER_FITS
    assert message == "It asks for GPUs of type H100, and no node has any."
    assert hint == "Types here: A100."


def test_a_kind_of_machine_that_there_is_none_of_is_named() -> None:
    world = World(a_config(a_tenant("vision", 0), devices=0))
    with pytest.raises(Rejected) as caught:
        world.submit(a_job().gpus(1))
    assert caught.value.message == "It asks for GPUs, and no node here has any."
    assert "allot up --state /tmp/try --gpus 8" in caught.value.hint
    with pytest.raises(Rejected) as caught:
        world.submit(a_job().gpus(0).arch(Arch.ARM64))
    assert caught.value.message == (
        "It needs machines of architecture arm64, and no node is one."
    )
    assert caught.value.hint.startswith("Architectures here: x86_64.")


def test_a_label_that_no_node_has_is_refused_as_a_level() -> None:
    config = a_config(a_tenant("vision", 8), nodes=2)
    nodes = tuple(msgspec.structs.replace(n, labels=(("rack", "r"),)) for n in config.nodes)
    world = World(msgspec.structs.replace(config, nodes=nodes))
    for level in ("rack", "node"):
        world.submit(a_job().within_one(level))
        world.submit(a_job().preferring(level))
        world.submit(a_job().tasks(2).grouped(2, level))
    for job in (a_job().within_one("row"), a_job().tasks(2).grouped(2, "row")):
        code, message, hint = refused(world, job)
        assert code is Code.BAD_SPEC
        assert message == "No node here has a label 'row', so no job can run within one."
        assert hint == "Levels here: node, rack."


def test_more_memory_than_any_gpu_has_is_refused_in_whole_gib() -> None:
    small = a_config(a_tenant("vision", 8)).nodes[0]
    for memory, advised in ((80 * GIB + 1, "80 GiB"), (GIB // 2, "512 MiB")):
        devices = tuple(msgspec.structs.replace(d, memory=memory) for d in small.devices)
        node = msgspec.structs.replace(small, devices=devices)
        config = a_config(a_tenant("vision", 8))
        world = World(msgspec.structs.replace(config, nodes=(node,)))
        _, _, hint = refused(world, a_job().gpus(1).gpu_memory(memory + 1))
        assert hint == f"Ask for at most {advised} (`gpu_memory`)."
        world.submit(a_job().gpus(1).gpu_memory(memory))

"""Jobs go to nodes that have what they bring, among nodes that are alike, and nowhere else."""

import msgspec
import pytest
from msgspec.structs import replace

from allotment.engine import held_content
from allotment.engine.apply import apply
from allotment.engine.state import Image, State
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.code import CodeBundle
from allotment.model.content import Content, ContentKind, Held, brought_by
from allotment.model.ids import JobId, NodeId
from allotment.model.node_runs import MOST_RUNS, is_in, nodes_from, runs_of, size_of
from allotment.model.others import Others
from allotment.model.quantity import DAY, GIB, WallTime
from allotment.model.reports import ContentReport, OthersReport
from allotment.model.tenancy import Config
from allotment.store import codec
from tests.support.builders import NOW, POLICIES, a_config, a_job, a_tenant
from tests.support.cells import cell_config
from tests.support.world import World

IMAGE = "registry.example.org/vision/torch:2.9"
WORDS = "vision/words@3"
DATA = Content(ContentKind.DATA, WORDS)
COUNTED = a_config(a_tenant("vision", 32), a_tenant("nlp"), nodes=4)
RACKS = """
nodes:
- names: [n0, n1, n2, n3, n4, n5, n6, n7]
  cpu: 64
  memory: 512GiB
  disk: 1TiB
  gpu: {type: A100, count: 8}
cells:
  types:
    host: {of: A100, count: 8, node: true}
    rack: {of: host, count: 4}
  roots: [{type: rack, nodes: [n0, n1, n2, n3]}, {type: rack, nodes: [n4, n5, n6, n7]}]
tenants:
  vision: {cells: {rack: 1, host: 1}}
  nlp: {}
"""


def image_named(image: str) -> Content:
    return Content(ContentKind.IMAGE, image)


def has(world: World, *nodes: int, image: str = IMAGE) -> None:
    has_all(world, {image_named(image): nodes})


def has_all(world: World, told: dict[Content, tuple[int, ...]], *sizes: int) -> None:
    """Have nodes have contents of some sizes, which are not known where none is given."""
    for (content, nodes), size in zip(told.items(), sizes or (0, 0, 0), strict=False):
        world.tell(ContentReport(content, runs_of(map(NodeId, nodes)), size))


def where(world: World, job: JobId) -> list[int]:
    return sorted({slot.node for slot in world.job(job).attempts[-1].slots})


def placed(world: World, devices: float = 8, tasks: int = 1, image: str = IMAGE) -> JobId:
    job = world.submit(a_job().in_image(image).tasks(tasks).gpus(devices))
    world.cycle()
    return job


def with_image_on(world: World, *nodes: int) -> None:
    """Have a job ask for the image that is never placed, and nodes have it."""
    world.submit(a_job().in_image(IMAGE), held=True)
    has(world, *nodes)


# ── where a job goes ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("config", [COUNTED, cell_config(RACKS)], ids=["counted", "cells"])
def test_a_job_goes_to_the_node_with_its_image_and_says_so(config: Config) -> None:
    world = World(config)
    with_image_on(world, 2)
    job = placed(world)
    assert where(world, job) == [2]
    assert world.job(job).attempts[-1].with_image == 1
    other = placed(world, image="another:1")
    assert where(world, other) != [2]
    assert world.job(other).attempts[-1].with_image == 0


def test_a_gang_has_as_many_of_its_nodes_with_the_image_as_there_are() -> None:
    world = World(COUNTED)
    with_image_on(world, 1, 3)
    job = placed(world, tasks=3)
    assert where(world, job) == [1, 2, 3]
    assert world.job(job).attempts[-1].with_image == 2


def test_a_part_of_a_node_goes_where_as_much_is_left_and_not_elsewhere() -> None:
    world = World(COUNTED)
    for _ in range(3):
        placed(world, 6, image="other:1")
    with_image_on(world, 1, 3)
    job = placed(world, 1)
    assert where(world, job) == [1]  # node 3 is empty: packing comes first


def test_the_place_that_is_had_without_is_kept_where_no_node_is_alike() -> None:
    world = World(COUNTED)
    placed(world, 1, image="other:1")
    with_image_on(world, 1, 2, 3)
    assert where(world, placed(world, 1)) == [0]


def test_beside_borrowers_only_empty_nodes_are_exchanged() -> None:
    world = World(a_config(a_tenant("vision", 32), a_tenant("nlp"), nodes=5))
    for _ in range(3):
        world.submit(a_job().of("nlp").gpus(6))
    world.cycle()
    with_image_on(world, 1, 4)
    assert where(world, placed(world, 1)) == [0]
    assert where(world, placed(world, 8)) == [4]


def test_machines_of_one_make_may_differ_by_a_little_memory() -> None:
    amounts = 503 * GIB, 256 * GIB, 503 * GIB - 37_000_000, 503 * GIB
    nodes = tuple(
        replace(node, memory=memory)
        for node, memory in zip(COUNTED.nodes, amounts, strict=True)
    )
    for has_it, goes_to in ((1, 0), (2, 2)):
        world = World(replace(COUNTED, nodes=nodes))
        with_image_on(world, has_it)
        assert where(world, placed(world)) == [goes_to]


@pytest.mark.parametrize("what", ["labels", "type", "more", "others", "shut", "reserved"])
def test_a_node_that_is_otherwise_is_not_taken(what: str) -> None:
    config = a_config(a_tenant("vision", 8), nodes=2)
    first, second = config.nodes
    devices = second.devices
    changed = {
        "labels": replace(second, labels=(("rack", "r2"),)),
        "type": replace(second, devices=tuple(replace(d, type="H100") for d in devices)),
        "more": replace(second, devices=(*devices, replace(devices[0], index=8))),
    }
    world = World(replace(config, nodes=(first, changed.get(what, second))))
    if what == "others":
        world.tell(OthersReport(NodeId(1), Others((), 30_000)))
    elif what == "shut":
        world.do(c.DrainNode(NodeId(1)))
    elif what == "reserved":
        begin = WallTime(NOW + DAY)
        world.do(c.ReserveNodes("later", begin, WallTime(begin + DAY), (NodeId(1),)))
    with_image_on(world, 1)
    job = world.submit(a_job().in_image(IMAGE).gpus(2).within(run_ms=1000))
    world.cycle()
    assert where(world, job) == [0]


def test_in_cells_only_neighbours_are_exchanged() -> None:
    world = World(cell_config(RACKS))
    with_image_on(world, 5)
    # To take node 5 would take the other rack apart, which is guaranteed as a whole.
    assert where(world, placed(world)) == [0]
    # In that rack it is as good as any.
    assert where(world, placed(world)) == [5]


def test_a_reserved_place_stays_and_so_do_its_victims() -> None:
    def told(*nodes: int) -> list[e.Reserved]:
        world = World(a_config(a_tenant("vision", 16), a_tenant("nlp"), nodes=2))
        for _ in range(2):
            world.submit(a_job().of("nlp").gpus(8))
        world.cycle()
        with_image_on(world, *nodes)
        world.submit(a_job().in_image(IMAGE).gpus(8))
        world.cycle()
        return [r.event for r in world.log if isinstance(r.event, e.Reserved)]

    assert told(0) == told(1) == told(0, 1)
    assert told(0)


def with_on(
    world: World, image: tuple[int, ...], words: tuple[int, ...], *sizes: int
) -> list[int]:
    """Return where a job goes that brings an image and data which some nodes have."""
    world.submit(a_job().in_image(IMAGE).using(WORDS), held=True)
    has_all(world, {image_named(IMAGE): image, DATA: words}, *sizes)
    job = world.submit(a_job().in_image(IMAGE).using(WORDS).gpus(8))
    world.cycle()
    return where(world, job)


@pytest.mark.parametrize("config", [COUNTED, cell_config(RACKS)], ids=["counted", "cells"])
def test_what_is_larger_counts_for_more(config: Config) -> None:
    assert with_on(World(config), (1,), (2,), 20 * GIB, 500 * GIB) == [2]
    assert with_on(World(config), (1,), (2,), 20 * GIB, 1 * GIB) == [1]
    assert with_on(World(config), (1, 3), (2, 3), 20 * GIB, 500 * GIB) == [3]
    # Node 0, which its name would choose, is kept where it has the larger.
    assert with_on(World(config), (1,), (0,), 20 * GIB, 500 * GIB) == [0]
    assert with_on(World(config), (0, 1), (1,), 20 * GIB, 500 * GIB) == [1]


def test_nodes_with_the_largest_are_looked_at_before_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held_content, "MOST_LOOKED_AT", 1)
    assert with_on(World(COUNTED), (1,), (2,), 20 * GIB, 500 * GIB) == [2]


def test_without_sizes_it_is_counted() -> None:
    assert with_on(World(COUNTED), (1, 3), (2, 3)) == [3]
    assert with_on(World(COUNTED), (2,), (1,)) == [2]  # the first of what it brings
    assert with_on(World(COUNTED), (2,), (1,), 0, 1) == [1]


def test_each_node_of_a_gang_lacks_as_little_as_it_can() -> None:
    world = World(a_config(a_tenant("vision", 48), a_tenant("nlp"), nodes=6))
    world.submit(a_job().in_image(IMAGE).using(WORDS), held=True)
    has_all(world, {image_named(IMAGE): (0, 5), DATA: (2, 5)}, GIB, 9 * GIB)
    job = world.submit(a_job().in_image(IMAGE).using(WORDS).tasks(3).gpus(8))
    world.cycle()
    assert where(world, job) == [0, 2, 5]
    attempt = world.job(job).attempts[-1]
    assert (attempt.with_image, attempt.with_environment, attempt.with_data) == (2, 0, 2)


def test_an_environment_and_all_versions_count_each_for_itself() -> None:
    world = World(COUNTED)
    spec = a_job().in_environment("k" * 32).using(WORDS, "nlp/more@1").gpus(8)
    world.submit(spec, held=True)
    env, words, more = brought_by(spec.spec())
    has_all(world, {env: (1, 3), words: (2, 3), more: (2,)}, GIB, GIB, 2 * GIB)
    job = world.submit(spec)
    world.cycle()
    assert where(world, job) == [2]
    assert world.job(job).attempts[-1].with_data == 1
    other = world.submit(spec)
    world.cycle()
    assert where(world, other) == [3]
    attempt = world.job(other).attempts[-1]
    assert (attempt.with_environment, attempt.with_data) == (1, 0)


def test_what_nodes_have_anyway_or_is_not_named_yet_is_not_asked_for() -> None:
    spec = a_job().using(WORDS, "vision/folder").spec()
    there, folder = spec.data
    near = replace(there, fetched=False)
    assert brought_by(replace(spec, data=(near, replace(folder, digest="")))) == ()
    assert brought_by(replace(spec, data=(there, replace(there, at="/e")))) == (DATA,)
    assert brought_by(a_job().in_environment("").spec()) == ()
    assert brought_by(replace(spec, data=(), code=CodeBundle("b"))) == ()


def test_a_job_starts_on_its_reserved_place_though_another_node_has_its_image() -> None:
    world = World(a_config(a_tenant("vision", 8), a_tenant("nlp"), nodes=2))
    borrowed = [world.submit(a_job().of("nlp").gpus(8)) for _ in range(2)]
    world.cycle()
    job = world.submit(a_job().in_image(IMAGE).gpus(8))
    world.cycle()
    (reserved,) = [r.event for r in world.log if isinstance(r.event, e.Reserved)]
    (place,) = {slot.node for slot in reserved.slots}
    has(world, 1 - place)
    for each in borrowed:
        world.ends(each)
    world.cycle()
    assert where(world, job) == [place]


# ── what is known ───────────────────────────────────────────────────────────────────────


def seen(world: World) -> list[e.ContentSeen]:
    return [record.event for record in world.log if isinstance(record.event, e.ContentSeen)]


def test_only_what_is_news_and_asked_for_is_an_event() -> None:
    world = World(COUNTED)
    has(world, 1)
    assert not seen(world)
    with_image_on(world, 1, 2)
    has(world, 1, 2)
    has(world, 1, 2, image="another:1")
    has(world)
    runs = runs_of(map(NodeId, (1, 2)))
    assert seen(world) == [e.ContentSeen(IMAGE, runs), e.ContentSeen(IMAGE)]


def test_what_no_job_asks_for_any_more_is_forgotten() -> None:
    world = World(COUNTED)
    job = world.submit(a_job().in_image(IMAGE))
    has(world, 1)
    world.do(c.EditJob(job, a_job().in_image("another:1").spec()))
    assert not world.state.content.held
    has(world, 2, image="another:1")
    world.do(c.CancelJob(job))
    assert not world.state.content.held
    assert not list(world.state.content)


def test_the_log_and_a_snapshot_tell_the_same() -> None:
    world = World(COUNTED)
    with_image_on(world, 2, 3)
    world.submit(a_job().using(WORDS), held=True)
    has_all(world, {DATA: (1,)}, 500 * GIB)
    folded = State(POLICIES)
    for record in world.log:
        apply(folded, record)
    data = msgspec.msgpack.encode(world.state.image())
    again = State.from_image(msgspec.msgpack.decode(data, type=Image), POLICIES)
    one, two, three = map(NodeId, (1, 2, 3))
    expected = {image_named(IMAGE): Held(((two, three),)), DATA: Held(((one, one),), 500 * GIB)}
    assert folded.content.held == again.content.held == world.state.content.held == expected
    assert [content for content, _ in again.content] == [image_named(IMAGE), DATA]


def test_runs_are_short_and_bounded() -> None:
    nodes = [NodeId(n) for n in (7, 3, 4, 5, 9)]
    runs = runs_of(nodes)
    assert runs == ((3, 5), (7, 7), (9, 9))
    assert [n for n in range(12) if is_in(runs, NodeId(n))] == sorted(nodes)
    assert size_of(runs) == 5
    assert list(nodes_from(runs, NodeId(5))) == [5, 7, 9, 3, 4]
    assert runs_of(map(NodeId, range(5000))) == ((0, 4999),)
    scattered = runs_of(map(NodeId, range(0, 5000, 2)))
    assert len(scattered) == MOST_RUNS
    assert not is_in((), NodeId(0))
    assert len(msgspec.json.encode(e.ContentSeen(IMAGE, scattered))) < 4096


def test_what_older_versions_noted_of_images_is_read() -> None:
    world = World(COUNTED)
    world.submit(a_job().in_image(IMAGE), held=True)
    image = replace(world.state.image(), images={IMAGE: ((NodeId(2), NodeId(2)),)})
    data = msgspec.msgpack.encode(image)
    again = State.from_image(msgspec.msgpack.decode(data, type=Image), POLICIES)
    assert again.content.held == {image_named(IMAGE): Held(((NodeId(2), NodeId(2)),))}
    tree = {"event": "ImageSeen", "image": IMAGE, "nodes": [[2, 2]]}
    event = codec.decode(msgspec.msgpack.encode(tree), 1)
    assert event == e.ContentSeen(IMAGE, ((NodeId(2), NodeId(2)),))

"""Nodes with what jobs bring change where these go among nodes alike, and nothing else.

In generated histories each decision is made twice, from the same state: with what is known of
images, environments and data, and without.
"""

import os
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from allotment.core.cluster import Cluster
from allotment.engine import held_content
from allotment.engine.engine import Engine
from allotment.engine.state import Image, State
from allotment.model import events as e
from allotment.model.content import Content, ContentKind, brought_by
from allotment.model.errors import Rejected
from allotment.model.ids import NodeId
from allotment.model.node_runs import runs_of
from allotment.model.quantity import GIB, Instant
from allotment.model.reports import ContentReport, NodeReport
from tests.property.test_histories import Histories
from tests.support.builders import POLICIES, a_config, a_job, a_tenant
from tests.support.cells import a_cell_world
from tests.support.world import World

NODES = 12
RACKS = f"""
nodes:
- names: [{", ".join(f"n{n}" for n in range(NODES))}]
  cpu: 64
  memory: 512GiB
  disk: 1TiB
  gpu: {{type: A100, count: 8}}
cells:
  types:
    half: {{of: A100, count: 4}}
    host: {{of: half, count: 2, node: true}}
    rack: {{of: host, count: 4}}
  roots:
  - {{type: rack, nodes: [n0, n1, n2, n3]}}
  - {{type: rack, nodes: [n4, n5, n6, n7]}}
  - {{type: rack, nodes: [n8, n9, n10, n11]}}
tenants:
  vision: {{cells: {{rack: 1, host: 1}}}}
  nlp: {{cells: {{host: 2, half: 1}}}}
  speech: {{}}
"""
SIZES = st.sampled_from((0, 1, 5 * GIB, 500 * GIB))
ONE_OR_TWO = st.sampled_from([{1}, {2}, {0, 2}, {1, 2}])
IMAGES = ("torch:1", "jax:2")
WORDS, PICTURES = "vision/words@1", "nlp/pictures@7"
KEY = "e" * 32
BROUGHT = (
    *(Content(ContentKind.IMAGE, image) for image in IMAGES),
    Content(ContentKind.ENVIRONMENT, KEY),
    Content(ContentKind.DATA, WORDS),
    Content(ContentKind.DATA, PICTURES),
)
DATA = st.sampled_from(((), (WORDS,), (PICTURES,), (WORDS, PICTURES)))
exchanged = 0
"""How many places were exchanged in all histories: none would prove nothing."""


@pytest.fixture(autouse=True, scope="module")
def _no_exchange_is_refused() -> Iterator[None]:
    """Have the committer agree with each exchange, and count them."""
    plain = held_content.refusal

    def agreeing(cluster: Cluster, decision: Any, now: Instant) -> str:
        global exchanged
        exchanged += 1
        assert plain(cluster, decision, now) == ""
        return ""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held_content, "refusal", agreeing)
        yield


def decided_alike(state: State, now: Instant) -> None:
    """Make the next decision with and without content known; compare all but which nodes."""
    data = msgspec.msgpack.encode(state.image())
    engines: list[Engine] = []
    for with_content in (True, False):
        image = msgspec.msgpack.decode(data, type=Image)
        engine = Engine(State.from_image(image, POLICIES))
        if not with_content:
            engine.state.content.held = {}
        engine.cycle(now, budget=1)
        assert engine.refusals == 0
        engines.append(engine)
    one, other = engines
    told, untold = ([record.event for record in engine.records] for engine in engines)
    assert list(map(without_nodes, told)) == list(map(without_nodes, untold))
    assert left(one.state.cluster) == left(other.state.cluster)


def without_nodes(event: e.AnyEvent) -> e.AnyEvent:
    """Return an event without the names of the nodes of a start, each told from the others."""
    if not isinstance(event, e.AttemptPlaced):
        return event
    numbers: dict[NodeId, NodeId] = {}
    slots = tuple(
        msgspec.structs.replace(s, node=numbers.setdefault(s.node, NodeId(len(numbers))))
        for s in event.slots
    )
    return msgspec.structs.replace(
        event, slots=slots, with_image=0, with_environment=0, with_data=0
    )


def left(cluster: Cluster) -> list[object]:
    """Return what is left on nodes, and of each tenant's cells, whichever nodes these are."""
    nodes = sorted(
        repr((b.open, b.cpu, b.memory, b.disk, b.device_milli, b.device_memory, sorted(b.bad)))
        for b in cluster.ledger.books.values()
    )
    cells = cluster.cells
    held = {} if cells is None else cells.holdings
    free = () if cells is None else cells.spaces
    return [
        nodes,
        [
            (who, at, sorted(h.unbound.items()))
            for who, by in held.items()
            for at, h in by.items()
        ],
        [tuple(space.count) for space in free],
    ]


class WithContent(Histories):
    """The histories with counted shares."""

    @rule(content=st.sampled_from(BROUGHT), nodes=ONE_OR_TWO, size=SIZES)
    def tell(self, content: Content, nodes: set[int], size: int) -> None:
        self.world.tell(ContentReport(content, runs_of(map(NodeId, nodes)), size))

    @rule(
        tenant=st.sampled_from(("vision", "nlp")),
        image=st.sampled_from(("", *IMAGES)),
        key=st.sampled_from(("", KEY)),
        data=DATA,
        gpus=st.sampled_from([0.5, 1, 4]),
        tasks=st.integers(1, 2),
        told=st.lists(st.tuples(ONE_OR_TWO, SIZES), min_size=4, max_size=4),
        count=st.integers(1, 3),
    )
    def submit_that_brings(
        self,
        *,
        tenant: str,
        image: str,
        key: str,
        data: tuple[str, ...],
        gpus: float,
        tasks: int,
        told: list[tuple[set[int], int]],
        count: int,
    ) -> None:
        job = a_job().of(tenant).in_image(image).using(*data).gpus(gpus).tasks(tasks)
        job = job.in_environment(key) if key else job
        for _ in range(count):
            self.world.submit(job)
            for content, (nodes, size) in zip(brought_by(job.spec()), told, strict=False):
                self.tell(content, nodes, size)
            self.cycle()

    @rule()
    def cycle(self) -> None:
        decided_alike(self.world.state, self.world.now)
        self.world.cycle()


SETTINGS = settings(
    max_examples=int(os.environ.get("ALLOT_HISTORIES", "50")),
    stateful_step_count=40,
    deadline=None,
)


def test_a_decision_is_the_same_but_for_nodes_alike() -> None:
    before = exchanged
    run_state_machine_as_test(WithContent, settings=SETTINGS)
    assert exchanged > before + 10, "without exchanges it proves nothing"


@pytest.mark.parametrize("seed", range(8))
def test_in_cells_a_decision_is_the_same_but_for_nodes_alike(seed: int) -> None:
    rng, before = random.Random(seed), exchanged
    world = a_cell_world(RACKS)
    for _ in range(60):
        _step_in_cells(world, rng)
        decided_alike(world.state, world.now)
        world.cycle()
    assert exchanged > before


def _step_in_cells(world: World, rng: random.Random) -> None:
    """Let a job come or end, or a node close or open."""
    running = [job.id for job in world.state.jobs.values() if job.attempt]
    move = rng.randrange(8)
    if move < 5:
        image, tenant = rng.choice(IMAGES), rng.choice(("vision", "nlp", "speech"))
        data = rng.choice(((), (WORDS,), (WORDS, PICTURES)))
        job = a_job().of(tenant).in_image(image).using(*data).gpus(rng.choice((1, 4, 8, 8)))
        with suppress(Rejected):  # It is larger than what its tenant may ever have.
            world.submit(job.tasks(rng.choice((1, 1, 2, 3))))
        for content in brought_by(job.spec()):
            nodes = map(NodeId, rng.sample(range(NODES), rng.randint(1, 6)))
            world.tell(ContentReport(content, runs_of(nodes), rng.choice((0, 1, GIB))))
    elif move == 5:
        world.tell(
            NodeReport(NodeId(rng.randrange(NODES)), alive=True, closed=rng.choice(("", "x")))
        )
    elif running:
        world.ends(rng.choice(running))


@pytest.mark.parametrize("seed", range(20))
def test_as_many_start_in_a_cycle_with_content_as_without(seed: int) -> None:
    """On machines of one make, where jobs take of hosts as they take of devices."""
    started: list[set[int]] = []
    for knows in (True, False):
        world = World(a_config(a_tenant("vision", 32), a_tenant("nlp", 32), nodes=8))
        for number in range(40):
            each = 1 + (number * 7 + seed * 3) % 8
            image = IMAGES[number % 2]
            world.submit(a_job().of(("vision", "nlp")[number % 3 % 2]).in_image(image)
                         .using((WORDS, PICTURES)[number % 5 % 2])
                         .gpus(each).cpus(each).tasks(1 + number * seed % 2))  # fmt: skip
        for at, content in enumerate(BROUGHT if knows else ()):
            nodes = (NodeId(n) for n in range(8) if (n * 5 + seed + at) % 3 == 0)
            world.tell(ContentReport(content, runs_of(nodes), (at * seed) % 4))
        world.cycle()
        started.append({job.id for job in world.state.jobs.values() if job.attempts})
    assert started[0] == started[1]

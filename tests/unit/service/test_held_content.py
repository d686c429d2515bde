"""Engines are asked for what jobs bring, and what they say is told in good time."""

from collections.abc import Mapping, Sequence
from typing import cast

from allotment.model import commands as c
from allotment.model.content import Content, ContentKind, Held
from allotment.model.ids import NodeId
from allotment.model.quantity import Instant
from allotment.service.held_content import AGAIN_MS, HeldContent
from allotment.service.ports import Backend, Having
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.world import World

IMAGE = "torch:1"
CONTENT = Content(ContentKind.IMAGE, IMAGE)


class Engine:
    """Reports which nodes have what jobs bring."""

    def __init__(self) -> None:
        self.asked: list[Sequence[Content]] = []
        self.there: dict[Content, Having] = {}

    def nodes_with(self, contents: Sequence[Content]) -> Mapping[Content, Having]:
        self.asked.append(tuple(contents))
        return self.there

    def has(self, *nodes: int) -> None:
        self.there[CONTENT] = Having(frozenset(map(NodeId, nodes)), 7)


class Story:
    """A service that watches one engine."""

    def __init__(self) -> None:
        self.world = World(a_config(a_tenant("vision", 16), nodes=3))
        self.engine = Engine()
        engine = cast("Backend", self.engine)
        self.watch = HeldContent(self.world.state, engine, self.world.tell)

    @property
    def known(self) -> object:
        return held.nodes if (held := self.world.state.content.held.get(CONTENT)) else None

    def look(self, after_ms: int = 0) -> None:
        self.world.now = Instant(self.world.now + after_ms)
        self.watch.look(self.world.now)


def test_a_new_image_is_looked_for_before_its_job_is_placed() -> None:
    story = Story()
    story.engine.has(2)
    story.watch.look_for_new(story.world.now)
    assert not story.engine.asked
    job = story.world.submit(a_job().in_image(IMAGE).gpus(1))
    for _ in range(3):
        story.watch.look_for_new(story.world.now)
    assert story.engine.asked == [(CONTENT,)]
    story.world.cycle()
    assert {slot.node for slot in story.world.job(job).attempts[-1].slots} == {2}


def test_changes_are_told_but_not_each_of_many() -> None:
    story = Story()
    story.world.submit(a_job().in_image(IMAGE))
    story.engine.has(0)
    story.look()
    assert story.known == ((0, 0),)
    story.engine.has(0, 1)
    story.look(1)
    story.engine.has(0, 1, 2)
    story.look(AGAIN_MS - 2)
    assert story.known == ((0, 0),)
    story.look(1)
    assert story.known == ((0, 2),)
    before = story.world.state.seq
    story.look(AGAIN_MS)
    assert story.world.state.seq == before


def test_what_was_forgotten_is_told_again() -> None:
    story = Story()
    for node in (1, 2):
        story.engine.has(node)
        job = story.world.submit(a_job().in_image(IMAGE).gpus(1))
        story.watch.look_for_new(story.world.now)
        assert story.known == ((node, node),)
        story.world.cycle()
        story.world.runs(job)
        story.world.ends(job)
        assert story.known is None


def test_an_engine_that_cannot_tell_is_not_asked() -> None:
    world = World(a_config(a_tenant("vision", 8)))
    watch = HeldContent(world.state, cast("Backend", object()), world.tell)
    world.submit(a_job().in_image(IMAGE))
    watch.look_for_new(world.now)
    assert not world.state.content.held


def test_data_are_asked_for_as_nodes_name_them_and_are_as_large_as_the_books_say() -> None:
    story = Story()
    story.world.do(c.CreateDataset("vision", "words", "id-1"))
    for digest, size in (("a", 20), ("b", 500)):
        story.world.do(c.CloseVersion("vision", "words", digest, 2, size))
    named = Content(ContentKind.DATA, "data/id-1/b")
    story.engine.there[named] = Having(frozenset({NodeId(1)}), 7)
    story.engine.there[Content(ContentKind.DATA, "data/id-1/a")] = Having()
    job = story.world.submit(a_job().using("vision/words@2", "vision/words@1").gpus(1))
    story.watch.look_for_new(story.world.now)
    assert story.engine.asked == [(named, Content(ContentKind.DATA, "data/id-1/a"))]
    one = NodeId(1)
    known = {Content(ContentKind.DATA, "vision/words@2"): Held(((one, one),), 500)}
    assert story.world.state.content.held == known
    story.world.cycle()
    assert {slot.node for slot in story.world.job(job).attempts[-1].slots} == {1}


def test_data_that_are_no_more_are_asked_for_as_what_nobody_has() -> None:
    story = Story()
    story.world.submit(a_job().using("vision/gone@2"))
    story.engine.there[Content(ContentKind.DATA, "data/id-1/a")] = Having(frozenset())
    story.look()
    assert story.engine.asked == [(Content(ContentKind.DATA, "vision/gone@2"),)]
    assert not story.world.state.content.held

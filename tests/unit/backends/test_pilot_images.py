"""Images of jobs on pilots: what keeps one from a launch, and whom a password reaches."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import msgspec
import pytest

from allotment.backends.local.images.images import Images
from allotment.backends.local.images.trouble import ImageTrouble, Kind
from allotment.backends.pilot import file_messages as fm
from allotment.backends.pilot import image_messages as im
from allotment.backends.pilot import messages as m
from allotment.backends.pilot.backend import PilotBackend
from allotment.backends.pilot.link import Link
from allotment.backends.router import Router
from allotment.model.cluster import Node
from allotment.model.content import Content, ContentKind
from allotment.model.errors import BackendError, Rejected
from allotment.model.ids import AttemptNo, JobId, NodeId, TaskIndex, TaskKey
from allotment.model.quantity import Instant, Resources
from allotment.model.reports import Seen, TaskReport
from allotment.service.image_view import ImageLayer, ImageRow, ImageView
from allotment.service.ports import Binding, GangLaunch, Having, ImageWish, Report, TaskLaunch
from tests.unit.backends.test_router_images import Keeps

# pyright: reportPrivateUsage=false
# Runners dial in below what a backend promises.

ONE, OTHER = (TaskKey(JobId(7), AttemptNo(1), TaskIndex(n)) for n in (0, 1))
EXACT = f"h/bb:1@sha256:{'0' * 64}"
ABLE = m.Isolation("own", "v2", ())


class Registries:
    """What is asked of registries, with a home that may be out of reach."""

    def __init__(self) -> None:
        self.trouble: ImageTrouble | None = None
        layers = (ImageLayer("l", 5, 9, 2),)
        self.view = ImageView(EXACT, f"sha256:{'0' * 64}", True, layers, 0, bytes=9, alone=9)

    def limit(self) -> int:
        return 1

    async def with_login(self, wish: ImageWish) -> ImageWish:
        if self.trouble is not None:
            raise self.trouble
        return msgspec.structs.replace(wish, login="me:pw")

    async def resolve(self, wish: ImageWish) -> str:
        return wish.reference

    async def inspect(self, wish: ImageWish) -> ImageView:  # noqa: ARG002
        return self.view


class Runner(Link):
    """A runner that takes what it is told to start, or has hung up."""

    def __init__(
        self, node: str, *, is_near: bool = True, isolation: m.Isolation = ABLE
    ) -> None:
        self.hello = m.Hello(m.PROTOCOL, node, 1, "7", "s", "s", isolation=isolation)
        self.started: list[TaskKey] = []
        self.asked: list[m.Op] = []
        self.files: Sequence[fm.HeldRow] = ()
        self.is_up, self._is_near = True, is_near

    @property
    def is_on_this_machine(self) -> bool:
        return self._is_near

    def hang_up(self) -> None:
        pass

    async def call(self, op: m.Op, kind: object = None) -> object:  # noqa: ARG002
        self.asked.append(op)
        if not self.is_up:
            raise self._away("hung up")
        match op:
            case m.Launch(gang):
                self.started += [task.key for task in gang.tasks]
                return []
            case m.Observe(keys):
                return [TaskReport(key, Seen.UNKNOWN) for key in keys if key in self.started]
            case fm.ListHeld():
                return list(self.files)
            case _:
                return im.ImagesTold()


class Held(PilotBackend):
    """Nodes that are held, without any Slurm."""

    def __init__(self, folder: Path, *runners: Runner) -> None:
        self.registries, self.told = Registries(), list[Report]()
        nodes = [Node(NodeId(n), each.hello.node, 4000, 0, 0) for n, each in enumerate(runners)]
        images = cast("Images", self.registries)
        super().__init__(folder, "main", lambda: nodes, images, disk="/d")
        self._sink = self.told.append
        (self._root / "nodes").mkdir(parents=True, exist_ok=True)
        self._match_nodes()
        for runner in runners:
            self._holds[runner.hello.node].connect(runner)


def a_gang(image: str = EXACT) -> GangLaunch:
    tasks = tuple(
        TaskLaunch(key, f"main.{n}", Binding(f"n{n}"), ("true",), (), Resources())
        for n, key in enumerate((ONE, OTHER))
    )
    return GangLaunch(tasks, "/", image_wish=ImageWish(image, "ann", "/home/ann"))


def launched(engine: Held, gang: GangLaunch) -> None:
    """Launch a gang, whatever comes of it."""

    async def story() -> None:
        try:
            await engine.launch(gang)
        except BackendError:
            engine.told.clear()

    asyncio.run(story())


def test_a_task_that_was_started_is_not_told_as_ended_when_its_password_is_gone(
    tmp_path: Path,
) -> None:
    runners = Runner("n0"), Runner("n1")
    engine = Held(tmp_path, *runners)
    runners[1].is_up = False
    launched(engine, a_gang())
    assert runners[0].started == [ONE]
    runners[1].is_up = True
    engine.registries.trouble = ImageTrouble(Kind.AWAY, "The home of ann does not answer.")
    launched(engine, a_gang())
    assert [(report.key, report.seen) for report in reports(engine)] == [(OTHER, Seen.ENDED)]


def reports(engine: Held) -> list[TaskReport]:
    return [report for report in engine.told if isinstance(report, TaskReport)]


@pytest.mark.parametrize(
    ("image", "is_near", "is_started"),
    [
        (EXACT, False, True),
        (f"localhost:5000/{EXACT}", True, True),
        (f"localhost:5000/{EXACT}", False, False),
        (f"127.0.0.1:5000/{EXACT}", False, False),
    ],
)
def test_no_password_goes_to_whoever_listens_on_the_loopback_of_another_machine(
    tmp_path: Path, image: str, is_near: bool, is_started: bool
) -> None:
    runners = Runner("n0"), Runner("n1", is_near=is_near)
    engine = Held(tmp_path, *runners)
    launched(engine, a_gang(image))
    assert runners[1].started == ([OTHER] if is_started else [])
    if is_started:
        assert not engine.told
        return
    why = [report.diagnosis.cause for report in reports(engine) if report.diagnosis]
    assert len(why) == 2
    assert "not sent your password" in why[0]
    assert not runners[0].started
    with pytest.raises(Rejected, match="not sent your password"):
        asyncio.run(engine.images().warm(ImageWish(image, "ann", "/home/ann")))
    assert not any(isinstance(op, im.WarmImage) for op in runners[1].asked)


def test_a_password_goes_ahead_to_no_node_that_runs_no_images(tmp_path: Path) -> None:
    bare = m.Isolation("own", "v2", (), missing={"images": "NFS"})
    runners = Runner("n0"), Runner("n1", isolation=bare)
    engine = Held(tmp_path, *runners)
    asyncio.run(engine.images().warm(ImageWish(EXACT, "ann", "/home/ann")))
    asked = [any(isinstance(op, im.WarmImage) for op in runner.asked) for runner in runners]
    assert asked == [True, False]


def test_pilots_that_hold_no_node_keep_no_image_from_another_engine(tmp_path: Path) -> None:
    here, pilots = Keeps(), Held(tmp_path)
    asyncio.run(Router({"here": here, "gpus": pilots}, tuple).images().remove("h/bb:1"))
    assert here.removed == ["h/bb:1"]
    with pytest.raises(Rejected, match="No node is held now"):
        asyncio.run(Router({"gpus": pilots}, tuple).images().remove("h/bb:1"))


def test_what_the_services_own_store_has_is_not_on_the_nodes(tmp_path: Path) -> None:
    engine = Held(tmp_path, Runner("n0"))
    view = asyncio.run(engine.images().inspect(ImageWish(EXACT, "ann", "/home/ann")))
    assert (view.is_here, view.to_fetch) == (False, 5)
    assert "1 of 1 layers" in view.plan()


# ── which nodes have an image ───────────────────────────────────────────────────────────


def image_named(name: str) -> Content:
    return Content(ContentKind.IMAGE, name)


IMAGE = image_named(EXACT)
DATA = Content(ContentKind.DATA, "data/abc/def")
MADE = Content(ContentKind.ENVIRONMENT, "e" * 32)


def a_row(image: str) -> ImageRow:
    return ImageRow(image, image.partition("@")[2], 1, 1, Instant(0), in_use=False)


class Storing(Runner):
    """A runner whose node keeps images."""

    def __init__(self, node: str, *images: str) -> None:
        super().__init__(node)
        self.images = images
        self.refuses = ""

    async def call(self, op: m.Op, kind: object = None) -> object:
        if isinstance(op, im.ListImages) and self.is_up:
            self.asked.append(op)
            return im.ImagesTold(tuple(map(a_row, self.images)), self.refuses)
        return await super().call(op, kind)


@pytest.mark.parametrize(("others", "expected"), [([], (False, 0)), ([EXACT], (True, 1))])
def test_an_image_is_here_and_takes_room_once_all_nodes_have_it(
    tmp_path: Path, others: list[str], expected: tuple[bool, int]
) -> None:
    engine = Held(tmp_path, Storing("n0", EXACT), Storing("n1", *others))
    view = asyncio.run(engine.images().inspect(ImageWish(EXACT, "ann", "/home/ann")))
    assert (view.is_here, view.bytes) == expected


def test_nodes_say_which_images_they_keep_when_they_come_and_when_one_came(
    tmp_path: Path,
) -> None:
    first, second = Storing("n0", EXACT), Storing("n1")
    engine = Held(tmp_path, first, second)

    def there() -> frozenset[NodeId]:
        return engine.nodes_with((IMAGE, image_named("other:1")))[IMAGE].nodes

    async def story() -> None:
        assert there() == frozenset()
        engine.holdings.unsure.update(("n0", "n1"))
        await engine.holdings.look_again()
        assert there() == {NodeId(0)}
        await engine.launch(a_gang())
        second.images = (EXACT,)
        await engine.holdings.look_again()
        assert there() == {NodeId(0)}
        engine._hear(engine._holds["n1"], TaskReport(OTHER, Seen.RUNNING, 1))
        await engine.holdings.look_again()
        assert there() == {NodeId(0), NodeId(1)}
        await engine.images().remove(EXACT)
        first.images = ()
        second.is_up = False
        await engine.holdings.look_again()
        assert there() == {NodeId(1)}  # what it said last

    asyncio.run(story())


def test_a_tag_says_nothing_of_what_a_node_keeps(tmp_path: Path) -> None:
    engine = Held(tmp_path, Storing("n0", EXACT))

    async def story() -> None:
        engine.holdings.unsure.add("n0")
        await engine.holdings.look_again()
        names = "h/bb:1", EXACT.replace("h/", "other/"), "NO name"
        told = engine.nodes_with([image_named(name) for name in names])
        assert not any(each.nodes for each in told.values())

    asyncio.run(story())


def looked(engine: Held, *nodes: str) -> None:
    """Have nodes say what they have."""
    engine.holdings.unsure.update(nodes)
    asyncio.run(engine.holdings.look_again())


def test_nodes_say_which_environments_and_data_they_have(tmp_path: Path) -> None:
    first, second = Storing("n0", EXACT), Storing("n1")
    first.files = (fm.HeldRow(f"environments/made/{MADE.name}", 5 << 30),)
    second.files = (fm.HeldRow(DATA.name), fm.HeldRow(f"environments/made/{MADE.name}", 3))
    engine = Held(tmp_path, first, second)
    looked(engine, "n0", "n1")
    told = engine.nodes_with((IMAGE, DATA, MADE))
    assert told[IMAGE] == Having(frozenset({NodeId(0)}), 1)
    assert told[DATA] == Having(frozenset({NodeId(1)}))
    assert told[MADE] == Having(frozenset({NodeId(0), NodeId(1)}), 5 << 30)
    second.files = ()
    looked(engine, "n0")
    assert engine.nodes_with((DATA,))[DATA].nodes, "that node was not asked"
    looked(engine, "n1")
    assert not engine.nodes_with((DATA,))[DATA].nodes


def test_what_a_node_said_is_known_to_the_next_service_though_it_is_not_held(
    tmp_path: Path,
) -> None:
    runner = Storing("n0", EXACT)
    runner.files = (fm.HeldRow(DATA.name),)
    looked(Held(tmp_path, runner), "n0")
    runner.is_up = False
    again = Held(tmp_path, runner)
    assert again.nodes_with((DATA, IMAGE)) == {
        DATA: Having(frozenset({NodeId(0)})), IMAGE: Having(frozenset({NodeId(0)}), 1)
    }  # fmt: skip
    looked(again, "n0")
    assert again.nodes_with((DATA,))[DATA].nodes, "it did not answer"
    (tmp_path / "pilot/nodes/n0/content.json").write_bytes(b"{")
    assert not Held(tmp_path, runner).nodes_with((DATA,))[DATA].nodes


def test_a_node_cannot_say_what_cannot_be_and_is_asked_for_what_it_knows(
    tmp_path: Path,
) -> None:
    liar, older = Storing("n0"), Storing("n1")
    liar.files = (
        fm.HeldRow(EXACT, 1), fm.HeldRow(DATA.name, -1), fm.HeldRow("x" * 501), fm.HeldRow(""),
        *(fm.HeldRow(f"data/{n}/d") for n in range(600)), fm.HeldRow("data/last/d"),
    )  # fmt: skip
    older.hello = msgspec.structs.replace(older.hello, protocol=m.PROTOCOL - 1)
    engine = Held(tmp_path, liar, older)
    looked(engine, "n0", "n1")
    last = Content(ContentKind.DATA, "data/last/d")
    nothing = Content(ContentKind.DATA, "")
    assert not any(t.nodes for t in engine.nodes_with((IMAGE, DATA, last, nothing)).values())
    seventh = Content(ContentKind.DATA, "data/7/d")
    assert engine.nodes_with((seventh,))[seventh].nodes
    assert not any(isinstance(op, fm.ListHeld) for op in older.asked)


def test_a_node_that_runs_no_images_still_says_which_data_it_has(tmp_path: Path) -> None:
    runner = Storing("n0", EXACT)
    runner.files = (fm.HeldRow(DATA.name),)
    engine = Held(tmp_path, runner)
    looked(engine, "n0")
    runner.refuses, runner.files = "not_supported", (fm.HeldRow("data/other/d"),)
    looked(engine, "n0")
    told = engine.nodes_with((IMAGE, DATA, Content(ContentKind.DATA, "data/other/d")))
    assert [len(each.nodes) for each in told.values()] == [1, 0, 1]

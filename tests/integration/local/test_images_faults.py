"""What goes wrong on the way of an image, and kills in the middle: no half is ever used."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest

from allotment.backends.local.images import fetching
from allotment.backends.local.images.images import Images
from allotment.backends.local.images.trouble import ImageTrouble
from allotment.model.diagnosis import Owner
from allotment.service.ports import ImageWish
from tests.support.cluster import until
from tests.support.disks import mounted
from tests.support.registry import (
    CONFIG,
    OF_ONE_USER,
    OF_ROOT,
    Job,
    WithUsers,
    a_file,
    a_service,
    busybox,
    layer,
)
from tests.support.registry import digest as digest_of
from tests.support.scripted import Scripted, a_scripted_registry

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tool("busybox"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


@pytest.fixture
def registry() -> Iterator[Scripted]:
    with a_scripted_registry() as made:
        yield made


@pytest.fixture(params=[OF_ROOT])
def service(request: pytest.FixtureRequest, reachable: Path) -> Iterator[WithUsers]:
    with a_service(reachable, kind=request.param) as made:
        yield made


OF_BOTH = pytest.mark.parametrize("service", [OF_ROOT, OF_ONE_USER], indirect=True)


def is_empty(service: WithUsers) -> bool:
    """Whether nothing of any image is there."""
    store = service.state / "images"
    return not any(
        list((store / name).iterdir()) for name in ("layers", "known", "made", "new")
    )


def blob_asked(registry: Scripted) -> bool:
    return sum("GET" in line and "/blobs/" in line for line in registry.asked) >= 2


@OF_BOTH
def test_a_service_killed_in_the_middle_begins_the_layer_anew(
    service: WithUsers, registry: Scripted
) -> None:
    registry.image("bb", busybox(), layer(a_file("n", "whole")))
    registry.pause.clear()
    job = service.submitted(f"{registry.host}/bb:1", "cat /n", "ann")
    until(lambda: blob_asked(registry), "a layer to come")
    new = service.state / "images/new"
    until(lambda: any(new.glob("*/*")), "a layer to be unpacked")
    service.kill()
    assert not any((service.state / "images/made").iterdir())
    registry.pause.set()
    service.up()
    service.wait_for(job, "succeeded")
    log = service.state / "tasks" / str(job) / "1/task.0/stdout.log"
    assert log.read_text() == "whole"
    until(lambda: not list(new.iterdir()), "what was left to be gone")


@OF_BOTH
def test_a_layer_whose_unpacking_is_killed_is_unpacked_again(
    service: WithUsers, registry: Scripted
) -> None:
    registry.image("bb", busybox(), layer(a_file("n", "whole")))
    registry.pause.clear()
    job = service.submitted(f"{registry.host}/bb:1", "cat /n", "ann")
    until(lambda: any((service.state / "images/new").glob("*/*")), "a layer to be unpacked")
    until(lambda: len(unpacking_in(service)) == 1, "the small layer to be whole")
    os.kill(unpacking_in(service)[0], signal.SIGKILL)
    registry.pause.set()
    service.wait_for(job, "succeeded", "failed")
    done = Job(service, job)
    assert (done.state, done.output, len(done.view["attempts"])) == ("succeeded", "whole", 1)
    assert not any((service.state / "images/new").iterdir())


SIZES = (7, 5, 1, 1)
"""MiB of layers."""


@pytest.mark.parametrize(
    ("limit", "fits"), [(30, True), (15, True), (13, False), (6, False)], ids=str
)
def test_layers_that_come_together_have_no_more_room_than_one(
    reachable: Path,
    registry: Scripted,
    limit: int,
    fits: bool,  # noqa: FBT001 - a case
) -> None:
    """The largest of them may need more than its half: it comes again, alone."""
    layers = [layer(a_file(f"f{n}", os.urandom(size << 20))) for n, size in enumerate(SIZES)]
    digest = registry.image("bb", *layers)
    images = Images(reachable, lambda: limit << 20)
    store = reachable / "images"

    async def story() -> None:
        await images.start()
        wish = ImageWish(f"{registry.host}/bb@{digest}", "root", "/root")
        if fits:
            os.close((await images.ready(wish)).hold)
        else:
            with pytest.raises(ImageTrouble, match="larger than there is room for") as caught:
                await images.ready(wish)
            assert caught.value.diagnosis().code == "image_unfit"

    asyncio.run(story())
    assert not any((store / "new").iterdir())
    assert len(list((store / "layers").iterdir())) == (len(SIZES) if fits else 0)


def test_layers_come_at_the_same_time_and_one_that_fails_ends_the_other(
    reachable: Path, registry: Scripted
) -> None:
    noise = [layer(a_file(f"f{n}", os.urandom(1 << 20))) for n in range(3)]
    digest = registry.image(
        "bb", *noise, diff_ids=("sha256:" + "0" * 64, *map(digest_of, noise[1:]))
    )
    registry.pause.clear()
    images = Images(reachable, lambda: 64 << 20)

    async def story() -> None:
        await images.start()
        wish = ImageWish(f"{registry.host}/bb@{digest}", "root", "/root")
        coming = asyncio.create_task(images.ready(wish))
        while layers_asked(registry) < 2:
            await asyncio.sleep(0.01)
        registry.pause.set()
        with pytest.raises(ImageTrouble, match="the configuration says"):
            await coming

    asyncio.run(story())
    assert not any((reachable / "images/new").iterdir())
    assert not any((reachable / "images/layers").iterdir())


def layers_asked(registry: Scripted) -> int:
    """Return how many layers were asked for, with those of a second try."""
    return sum("GET" in line and "/blobs/" in line for line in registry.asked) - 1


def test_unpacking_that_never_ends_well_is_the_platforms_matter(
    reachable: Path, registry: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "UNPACK", "allotment.dies_at_once")
    digest = registry.image("bb", busybox())
    images = Images(reachable, lambda: 64 << 20)

    async def story() -> None:
        await images.start()
        with pytest.raises(ImageTrouble, match="was killed before it ended") as caught:
            await images.ready(ImageWish(f"{registry.host}/bb@{digest}", "root", "/root"))
        why = caught.value.diagnosis()
        assert (why.code, why.owner) == ("image_not_unpacked", Owner.PLATFORM)

    asyncio.run(story())
    assert sum("GET" in line and "/blobs/" in line for line in registry.asked) == 5
    assert not any((reachable / "images/new").iterdir())


def unpacking_in(service: WithUsers) -> list[int]:
    """Return the processes that unpack layers into a store."""
    folder = os.fsencode(service.state / "images/new")
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if folder in path.read_bytes():
                found.append(int(path.parent.name))
    return found


@OF_BOTH
def test_a_job_is_cancelled_while_its_image_comes(
    service: WithUsers, registry: Scripted
) -> None:
    registry.image("bb", busybox())
    registry.pause.clear()
    job = service.submitted(f"{registry.host}/bb:1", "true", "ann")
    until(lambda: blob_asked(registry), "a layer to come")
    service.ask("POST", f"/v1/jobs/{job}:cancel", {})
    service.wait_for(job, "cancelled")
    registry.pause.set()
    until(lambda: is_empty(service), "what had come of it to be gone")


def test_a_registry_that_fails_for_a_while_is_asked_again(
    service: WithUsers, registry: Scripted
) -> None:
    digest = registry.image("bb", busybox())
    service.ask_as("ann", "GET", f"/v1/images:inspect?image={registry.host}/bb@{digest}")
    registry.fails = 2  # Of the requests for layers: all else it was asked before.
    assert service.run(f"{registry.host}/bb@{digest}", "true", "ann").state == "succeeded"
    assert registry.fails == 0


def test_a_registry_that_always_stops_in_the_middle_is_the_platforms_matter(
    service: WithUsers, registry: Scripted
) -> None:
    registry.image("bb", busybox())
    registry.cut = 9_000
    job = service.run(f"{registry.host}/bb:1", "true", "ann")
    assert job.state == "failed"
    assert (job.diagnosis["code"], job.diagnosis["owner"]) == ("registry_away", "platform")
    assert "stopped in the middle" in job.diagnosis["cause"]
    assert len(job.view["attempts"]) == 2  # `platform_retries: 1`
    assert is_empty(service)


def test_what_is_refused_says_why(service: WithUsers, registry: Scripted) -> None:
    registry.image("bb", busybox())
    assert "has no" in service.refused(f"{registry.host}/bb:2", "ann")
    assert "does not answer" in service.refused("127.0.0.1:1/bb:2", "ann")
    for bad in ("http://x/y", "UPPER/case", "a b", "x@sha256:12", f"{registry.host}/bb:!"):
        assert "bad_spec" in service.refused(bad, "ann")


def test_an_image_that_is_here_runs_though_its_registry_is_gone(
    service: WithUsers, registry: Scripted
) -> None:
    digest = registry.image("bb", busybox())
    assert service.run(f"{registry.host}/bb:1", "true", "ann").state == "succeeded"
    exact = f"{registry.host}/bb@{digest}"
    registry.close()
    assert service.run(exact, "true", "ann").state == "succeeded"
    assert "does not answer" in service.refused(exact, "ben")


@pytest.mark.parametrize("kind", [OF_ROOT, OF_ONE_USER])
def test_the_store_keeps_its_limit(
    reachable: Path, registry: Scripted, kind: type[WithUsers]
) -> None:
    config = CONFIG.replace("limits: {", "limits: {image_store: 5MiB, ")
    with a_service(reachable, config, kind) as service:
        for number in range(3):
            registry.image(f"bb-{number}", busybox(a_file("n", str(number))))
            job = service.run(f"{registry.host}/bb-{number}:1", "cat /n", "ann")
            assert job.output == str(number)
        here = [row["image"].partition("@")[0] for row in service.get("/v1/images")]
        assert here == [f"{registry.host}/bb-2:1", f"{registry.host}/bb-1:1"]
        registry.image("large", layer(a_file("much", bytes(8 << 20))))
        job = service.run(f"{registry.host}/large:1", "true", "ann")
        assert (job.state, job.diagnosis["code"]) == ("failed", "image_unfit")
        assert "5 MiB" in job.diagnosis["cause"]


def test_a_dry_run_says_what_would_be_fetched(service: WithUsers, registry: Scripted) -> None:
    registry.image("bb", busybox())
    file = service.state.parent / "job.yaml"
    file.write_text(f"name: x\ntenant: ann\nimage: {registry.host}/bb:1\ncommand: 'true'\n")
    said = service.allot("submit", "--dry-run", str(file))
    assert "image: it is not here yet; 1 of 1 layers would be fetched" in said.stdout, said
    assert "image" not in said.stderr, "it is no warning"
    assert is_empty(service)


def test_a_pull_says_how_far_it_is(service: WithUsers, registry: Scripted) -> None:
    registry.image("bb", busybox(a_file("n", os.urandom(3 << 20))))
    name = f"{registry.host}/bb:1"
    registry.pause.clear()
    with ThreadPoolExecutor() as beside:
        pulled = beside.submit(service.allot, "image", "pull", name)
        until(lambda: fetched(service, name) > 0, "a part of the layer")
        # Who asks later is answered later: by then the one that pulls was told.
        asked = service.ask("POST", "/v1/images:warm", {"image": name})[1]
        assert 0 < asked["fetched"] < asked["to_fetch"]
        registry.pause.set()
        said = pulled.result()
    assert f"fetching {name}: " in said.stderr
    assert said.stderr.splitlines()[-1].endswith("is here: 1 layer")


def fetched(service: WithUsers, name: str) -> int:
    return service.get(f"/v1/images:inspect?image={quote(name, safe='')}")["fetched"]


@pytest.fixture
def small_disk(reachable: Path) -> Iterator[Path]:
    """A store of images with a file system of its own, of 32 MiB."""
    store = reachable / "state/images"
    store.mkdir(parents=True)
    with mounted(store, "-t", "tmpfs", "-o", "size=32m", "small"):
        yield store


def test_a_disk_that_fills_up_while_a_layer_is_unpacked(
    small_disk: Path, service: WithUsers, registry: Scripted
) -> None:
    registry.image("bb", busybox(a_file("n", os.urandom(12 << 20))))
    registry.pause.clear()
    job = service.submitted(f"{registry.host}/bb:1", "ls -l /n", "ann")
    new = small_disk / "new"
    until(lambda: any(new.glob("*/*")), "a layer to be unpacked")
    filler = small_disk / "filler"
    free = os.statvfs(small_disk)
    with contextlib.suppress(OSError):  # What came before the pause may be still on its way.
        filler.write_bytes(bytes(free.f_bavail * free.f_frsize - (1 << 20)))
    registry.pause.set()
    service.wait_for(job, "succeeded", "failed")
    found = Job(service, job)
    assert found.state == "failed", found.output
    assert (found.diagnosis["code"], found.diagnosis["owner"]) == ("image_no_room", "platform")
    assert len(found.view["attempts"]) == 2, "it was tried again"
    assert not list(new.iterdir())
    filler.unlink()
    assert service.run(f"{registry.host}/bb:1", "true", "ann").state == "succeeded"

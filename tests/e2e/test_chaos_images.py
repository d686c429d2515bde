"""kill -9 of the service while images come and go: none is used by halves, none is left over.

The store has room for a few of the images that the jobs name, so they are fetched, unpacked and
thrown away all the time. Each task counts the files of its image before anything else.
"""

import os
import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.chaos import DRAINED_S, Load, Told, check, ended, events_of, unended
from tests.support.cluster import RealCluster, a_real_cluster, until
from tests.support.registry import a_file, a_folder, busybox, layer
from tests.support.scripted import Scripted, a_scripted_registry

KILLS = int(os.environ.get("ALLOT_KILLS", "8"))
"""`make nightly` makes 300."""
IMAGES, FILES = 6, 300
CONFIG = """
virtual_gpus: {type: virtual, count: 8}
tenants:
  a: {guaranteed: {gpu: 8}, queues: {default: {order: skip}}}
limits:
  image_store: 10MiB
  platform_retries: 1000
  backoff: {first: 100ms, most: 1s}
  keep_finished: 100000
"""
"""Nobody borrows: what is evicted as it ends would be done again, and rightly so."""
SCRIPT = f"""\
me=$ALLOT_JOB_ID.$ALLOT_ATTEMPT.$ALLOT_ROLE_INDEX
echo begin $me >> $ALLOT_OUTPUT_DIR/marks
test $(find /parts -type f | wc -l) = {FILES} || exit 1
test $(cat /last) = {{image}} || exit 1
sleep {{seconds}}
echo end $me >> $ALLOT_OUTPUT_DIR/marks
"""


def a_job(host: str, rng: random.Random) -> dict[str, object]:
    """Return one short task, or a gang of two, in one of the images."""
    image = f"bb-{rng.randrange(IMAGES)}"
    return {
        "name": "chaos",
        "tenant": "a",
        "count": rng.choice([1, 1, 1, 2]),
        "image": f"{host}/{image}:1",
        "command": SCRIPT.format(image=image, seconds=rng.choice([0, 0, 0.05, 0.2, 0.5])),
        "resources": {"gpu": 1, "cpu": 0.1, "memory": "16MiB"},
    }


@pytest.fixture
def registry() -> Iterator[Scripted]:
    rng = random.Random(1)
    with a_scripted_registry() as made:
        base = busybox()
        for number in range(IMAGES):
            parts = [a_file(f"parts/{n}", rng.randbytes(8 << 10)) for n in range(FILES)]
            last = layer(a_file("last", f"bb-{number}"))
            made.image(f"bb-{number}", base, layer(a_folder("parts"), *parts), last)
        yield made


@pytest.mark.slow
@pytest.mark.needs_root
@pytest.mark.needs_tool("busybox")
@pytest.mark.timeout(DRAINED_S + 20 * KILLS)
def test_no_half_of_an_image_is_used_and_nothing_is_left(
    reachable: Path, registry: Scripted
) -> None:
    rng = random.Random(2026)
    with a_real_cluster(reachable, CONFIG) as cluster:
        store = cluster.state / "images"
        load = Load(cluster, partial(a_job, registry.host), pause_s=0.1)
        load.start()
        amid = 0
        try:
            for number in range(KILLS):
                time.sleep(rng.uniform(0, 1.5))
                if number % 2:
                    registry.pause.clear()
                    until(lambda: any((store / "new").glob("*/*")), "half of a layer")
                cluster.kill()
                amid += any((store / "new").iterdir())
                registry.pause.set()
                cluster.up()
        finally:
            registry.pause.set()
            load.over.set()
            load.join()
        until(lambda: not unended(cluster, 1), "every job to end", DRAINED_S)
        until(lambda: ended(cluster) >= {*load.accepted}, "their ends to be in the log")
        told = Told(list(events_of(cluster)), marks_in(cluster.state))
        nothing_left(cluster)
    print(f"\n{KILLS} kills, {amid} of them while a layer came; {len(load.accepted)} jobs")
    check(told, load.accepted)
    assert amid >= KILLS // 2


def marks_in(state: Path) -> str:
    """Return what all tasks wrote."""
    return "".join(path.read_text() for path in state.glob("outputs/*/*/marks"))


def nothing_left(cluster: RealCluster) -> None:
    """Fail where anything is left of what was begun and of what has ended."""
    store = cluster.state / "images"
    until(lambda: not any((cluster.state / "scratch").iterdir()), "tasks' folders to be gone")
    until(lambda: not any((store / "new").iterdir()), "what was begun to be gone")
    assert str(cluster.state) not in Path("/proc/self/mountinfo").read_text()
    for row in cluster.get("/v1/images"):
        done = cluster.allot("image", "rm", row["image"])
        assert done.returncode == 0, done.stderr
    left = [
        path for name in ("layers", "known", "made", "new") for path in (store / name).iterdir()
    ]
    assert not left, "without images the store is empty"

"""A state folder that somebody fills to its last byte: the service answers, and goes on."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.service.test_data import a_folder, as_user, refused
from tests.integration.service.test_saving import settled, submitted, training, wait_for_file
from tests.support.answering import answering
from tests.support.cluster import until
from tests.support.disks import mounted
from tests.support.night import AT_NIGHT, at_night
from tests.support.registry import WithUsers, a_file, a_service, busybox
from tests.support.scripted import Scripted, a_scripted_registry

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tool("busybox"),
    at_night,
    pytest.mark.may_skip(AT_NIGHT),
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
ROOM_MIB = 192
QUICK_S = 2.0


@pytest.fixture
def service(reachable: Path) -> Iterator[WithUsers]:
    """Start a service whose whole state has a file system of its own."""
    state = reachable / "state"
    state.mkdir()
    small = mounted(state, "-t", "tmpfs", "-o", f"size={ROOM_MIB}m,mode=755", "small")
    with small, a_service(reachable) as made:
        as_user(made, "ann", "ls")  # The users' homes are made.
        yield made


@pytest.fixture
def registry() -> Iterator[Scripted]:
    with a_scripted_registry() as made:
        yield made


def fill(path: Path) -> None:
    """Write until no byte more fits."""
    with path.open("ab", buffering=0) as file:
        size = 1 << 20
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2


def try_all(service: WithUsers, registry: Scripted, large: Path) -> list[str]:
    """Ask for what needs room; give what is said of it."""
    said = [refused(service, "ann", "put", "set", str(large))]
    ran = service.allot("image", "pull", f"{registry.host}/bb:1", user="ann")
    assert ran.returncode != 0
    said.append(ran.stderr)
    spec = {"name": "x", "tenant": "ann", "command": "true",
            "resources": {"cpu": 0.1, "memory": "64MiB"}}  # fmt: skip
    for _ in range(5):
        status, answer = service.ask_as("ann", "POST", "/v1/jobs", spec)
        assert status in {201, 503, 504}, answer
        if status != 201:
            said.append(answer["detail"])
    return said


def test_what_does_not_fit_is_told_and_all_goes_on_where_there_is_room_again(
    service: WithUsers, registry: Scripted
) -> None:
    registry.image("bb", busybox(a_file("large", os.urandom(8 << 20))))
    go = service.home("ann") / "go"
    as_user(service, "ann", "create", "set")
    small = a_folder(service, "ann", {"small": "1"})
    as_user(service, "ann", "put", "set", str(small))
    talks = f"until test -e {go}; do head -c 200000 /dev/urandom | od; done"
    loud = submitted(service, "set", f"{talks}; echo 2 >$ALLOT_OUTPUT_DIR/small")
    script = f"{wait_for_file(str(go))}; mkdir c; echo 3 >c/model; report c 1"
    trains = training(service, "weights", script)
    for job in (loud, trains):
        service.wait_for(job, "running")
    (small / "more").write_bytes(os.urandom(8 << 20))
    filler = service.state / "filler"
    with answering(service) as took:
        for _ in range(3):
            fill(filler)
            said = try_all(service, registry, small)
            assert not any("Traceback" in each or "a bug" in each for each in said), said
        assert any("full" in each or "space" in each for each in said), said
        assert {service.state_of(job) for job in (loud, trains)} == {"running"}
        filler.unlink()
        go.touch()
        until(lambda: "@2" in as_user(service, "ann", "put", "set", str(small)), "room")
        assert settled(service, loud).view["saved"] == "ann/set@3"
        for job in (loud, trains):
            service.wait_for(job, "succeeded")
        kept = "ann/weights@1"
        until(lambda: service.get(f"/v1/jobs/{trains}")["kept"] == kept, "its checkpoint")
        inside = service.submitted(f"{registry.host}/bb:1", "ls -l /large", "ann")
        service.wait_for(inside, "succeeded")
    assert max(took) < QUICK_S
    for name in ("data/new", "images/new"):
        assert not list((service.state / name).iterdir())

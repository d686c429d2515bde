"""Pythons that the machine does not have: a real uv, archives of a real Python."""

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.service.test_environments import ask, finished
from tests.support.cluster import until
from tests.support.package_index import Index, a_package_index
from tests.support.python_mirror import HERE, Mirror
from tests.support.registry import CONFIG, Job, WithUsers, a_service

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
FROM = "python -c 'import sys, framework; print(sys.base_prefix, framework.version)'"


@pytest.fixture
def mirror(reachable: Path) -> Mirror:
    return Mirror(reachable / "pythons")


@pytest.fixture
def index(reachable: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    home = reachable / "home"
    monkeypatch.setenv("HOME", str(home))
    with a_package_index(home) as made:
        made.wheel("framework", "1.0", "version = '1.0'\n")
        yield made


@pytest.fixture
def service(reachable: Path, index: Index, mirror: Mirror) -> Iterator[WithUsers]:
    with a_service(reachable, f"{CONFIG}\npythons: {mirror.list.as_uri()}\n") as made:
        yield made


def wish(last: int) -> dict[str, object]:
    return {"python": f"{HERE}.{last}", "requirements": ["framework"]}


def accepted(service: WithUsers, user: str, last: int, command: str = FROM) -> int:
    status, answer = ask(service, user, command, environment=wish(last))
    assert status == 201, answer
    return answer["id"]


def said(job: Job) -> str:
    return json.dumps(job.diagnosis)


def test_two_that_were_fetched_run_at_the_same_time(
    service: WithUsers, mirror: Mirror, reachable: Path
) -> None:
    meet = reachable / "meet"
    meet.mkdir()
    meet.chmod(0o777)
    mirror.add(98)
    mirror.add(99)
    wait = f"touch {meet}/$0; until [ -e {meet}/ann -a -e {meet}/ben ]; do sleep 0.05; done; "
    jobs = [
        accepted(service, user, last, wait.replace("$0", user) + FROM)
        for user, last in (("ann", 98), ("ben", 99))
    ]
    found = [finished(service, job).output.split() for job in jobs]
    pythons = service.state / "environments/pythons"
    assert {words[0] for words in found} == {str(each) for each in pythons.iterdir()}
    assert len({words[0] for words in found}) == 2
    rows = service.ask_as("ann", "GET", "/v1/environments")[1]
    assert [(row["python"], row["build"]) for row in rows] == [
        (f"{HERE}.98", "pythons/python-98.tar.gz")
    ]


def test_one_is_fetched_once_for_all_and_none_can_write_it(
    service: WithUsers, mirror: Mirror, index: Index
) -> None:
    archive = mirror.add(98)
    finished(service, accepted(service, "ann", 98))
    archive.unlink()  # Whoever needs it now has that of the others.
    index.wheel("other", "1.0", "")
    spoil = "d=$(python -c 'import sys; print(sys.base_prefix)'); rm -rf $d; echo x > $d/x; "
    asked = {"python": f"{HERE}.98", "requirements": ["framework", "other"]}
    status, answer = ask(service, "ben", spoil + FROM, environment=asked)
    assert status == 201, answer
    assert finished(service, answer["id"]).output.endswith(" 1.0\n")
    pythons = list((service.state / "environments/pythons").iterdir())
    assert len(pythons) == 1
    for path in pythons[0].rglob("*"):
        state = path.lstat()
        assert state.st_uid == 0
        assert path.is_symlink() or not state.st_mode & 0o022


@pytest.mark.parametrize("fault", ["away", "changed", "outside", "strange"])
def test_what_cannot_be_had_is_told_and_leaves_nothing(
    service: WithUsers, mirror: Mirror, fault: str
) -> None:
    def outside(archive: tarfile.TarFile) -> None:
        archive.addfile(tarfile.TarInfo("python/../../../../out"))

    def strange(archive: tarfile.TarFile) -> None:
        link = tarfile.TarInfo("python/lib/again")
        link.type, link.linkname = tarfile.LNKTYPE, f"python/bin/python{HERE}"
        archive.addfile(link)

    archive = mirror.add(98, {"outside": outside, "strange": strange}.get(fault))
    if fault == "away":
        archive.unlink()
    elif fault == "changed":
        archive.write_bytes(archive.read_bytes() + b"\0")
    job = finished(service, accepted(service, "ann", 98))
    assert job.state == "failed"
    words = {
        "away": "o such file", "changed": "Hash mismatch", "outside": "unsafe member path",
        "strange": "not a file that an environment may have",
    }  # fmt: skip
    assert words[fault] in said(job)
    assert "cannot be built" in said(job)
    assert job.diagnosis["owner"] == "platform"
    # Only what may come back is tried again.
    assert (len(job.view["attempts"]) == 1) is (fault != "away")
    assert (job.diagnosis["code"] == "environment_broken") is (fault != "away")
    store = service.state / "environments"
    until(lambda: not any((store / "new").iterdir()), "what was half to be gone")
    assert not any((store / "pythons").iterdir())
    assert not any((store / "made").iterdir())


def test_a_list_that_is_away_or_has_no_digest_is_the_administrators_matter(
    service: WithUsers, mirror: Mirror
) -> None:
    status, answer = ask(service, "ann", FROM, environment=wish(98))
    assert (status, answer["code"]) == (503, "unavailable")
    assert "the list of Pythons cannot be read" in answer["detail"]
    mirror.add(98)
    entries = json.loads(mirror.list.read_text())
    for entry in entries.values():
        del entry["sha256"]
    mirror.list.write_text(json.dumps(entries))
    status, answer = ask(service, "ann", FROM, environment=wish(98))
    assert status == 503
    assert "has no sha256 of cpython-" in answer["detail"]
    status, answer = ask(service, "ann", FROM, environment=wish(97))
    assert status == 422
    assert "none that fits is offered for it" in answer["detail"]


def test_what_would_be_fetched_is_said_with_its_size(
    service: WithUsers, mirror: Mirror, index: Index
) -> None:
    mirror.add(98)
    asked = {"name": "x", "tenant": "ann", "command": FROM, "environment": wish(98)}
    status, answer = service.ask_as("ann", "POST", "/v1/jobs:dry-run", asked)
    assert status == 200, answer
    (words,) = answer["brings"]
    unknown = "1 package would be installed; to fetch: wheels whose size the index does not say"
    assert f"{unknown} and Python {HERE}.98 (" in words
    finished(service, accepted(service, "ann", 98))
    index.wheel("other", "1.0", "")
    index.tells_sizes = True
    asked["environment"] = {"python": f"{HERE}.98", "requirements": ["other"]}
    status, answer = service.ask_as("ann", "POST", "/v1/jobs:dry-run", asked)
    assert status == 200, answer
    size = len(index.files["other-1.0-py3-none-any.whl"])
    assert answer["brings"][0].endswith(f"to fetch: {size} B of wheels"), answer

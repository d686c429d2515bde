"""Claims, scratch folders and statuses, as files."""

import json
import os
from pathlib import Path

import pytest

from allotment.backends.local.runner import claim, layout, record, scratch, watch
from allotment.backends.local.runner.schema import Request
from allotment.rights import removing

KEY = "7.1.worker.0"
REQUEST: Request = {"key": KEY, "argv": ["true"], "env": {}, "cwd": "/"}


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder that is the working directory, as for the runner's processes."""
    for folder in (layout.LIVE, layout.TASKS):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ── claims ──────────────────────────────────────────────────────────────────────────────


def test_a_task_is_claimed_once(state: Path) -> None:
    first = claim.take(KEY)
    assert first is not None
    assert claim.take(KEY) is None
    path = f"{layout.task_dir(KEY)}/{layout.CLAIM}"
    assert claim.is_held(path)
    assert (state / path).stat().st_size == claim.RESERVED_BYTES
    first.close()
    assert not claim.is_held(path)
    assert claim.take(KEY) is None


def test_a_claim_goes_over_to_a_child_and_ends_with_it(state: Path) -> None:
    taken = claim.take(KEY)
    assert taken is not None
    wait, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        os.read(wait, 1)
        os._exit(0)
    taken.close()
    assert claim.is_held(layout.live_file(KEY))
    assert claim.hold(layout.live_file(KEY)) is None
    os.close(go)
    os.waitpid(pid, 0)
    os.close(wait)
    held = claim.hold(layout.live_file(KEY))
    assert held is not None
    os.close(held)


def test_what_was_prepared_but_not_claimed_can_be_claimed(state: Path) -> None:
    (state / layout.task_dir(KEY)).mkdir(parents=True)
    (state / layout.live_file(KEY)).touch()
    taken = claim.take(KEY)
    assert taken is not None
    taken.close()


# ── status ──────────────────────────────────────────────────────────────────────────────


def test_a_final_status_fits_where_the_disk_is_full(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = claim.take(KEY)
    assert taken is not None
    status = record.new_status(REQUEST, "boot")
    status["exit_code"] = 3
    monkeypatch.chdir("/")  # where status.json cannot be
    assert record.write_final(status, taken.lock)
    taken.close()
    text = (state / layout.task_dir(KEY) / layout.CLAIM).read_text()
    assert len(text) == claim.RESERVED_BYTES
    assert json.loads(text)["exit_code"] == 3


def test_a_status_is_replaced_as_a_whole(state: Path) -> None:
    (state / layout.task_dir(KEY)).mkdir(parents=True)
    status = record.new_status(REQUEST, "boot")
    for number in range(3):
        status["oom_kills"] = number
        record.write_status(status)
        found = json.loads((state / layout.task_dir(KEY) / layout.STATUS).read_text())
        assert found == status
    assert [path.name for path in (state / layout.task_dir(KEY)).iterdir()] == ["status.json"]


# ── scratch ─────────────────────────────────────────────────────────────────────────────


def test_a_scratch_folder_is_removed_and_nothing_it_points_to(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    folder = tmp_path / "scratch"
    scratch.make(None, str(folder), os.geteuid(), os.getegid())
    (folder / "a/b/c").mkdir(parents=True)
    (folder / "a/file").write_text("y")
    (folder / "a/link").symlink_to(outside)
    (folder / "link").symlink_to(outside / "precious")
    (folder / "a/b/shut").mkdir(mode=0o000)
    removing.remove(None, str(folder))
    assert not folder.exists()
    assert (outside / "precious").read_text() == "x"


def test_a_scratch_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    (tmp_path / "scratch").symlink_to(outside)
    removing.remove(None, str(tmp_path / "scratch"))
    assert (outside / "precious").exists()
    assert scratch.used_bytes(None, str(tmp_path / "scratch")) == 0


def test_what_is_not_there_is_removed_already(tmp_path: Path) -> None:
    removing.remove(None, str(tmp_path / "none"))


def test_folders_in_folders_without_end_are_removed_and_count_as_too_much(
    tmp_path: Path,
) -> None:
    """Deeper than a path may be long, than Python calls itself, than files may be open."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    at = os.open(folder, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("deep", dir_fd=at)
        below = os.open("deep", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)
    finding = watch.disk(None, [str(folder)], 1 << 40)
    assert finding is not None
    assert "too deeply" in finding.cause
    removing.remove(None, str(folder))
    assert not folder.exists()


def test_space_is_measured_below_and_links_count_for_themselves(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/big").write_bytes(bytes(1 << 20))
    (tmp_path / "link").symlink_to("/usr")
    used = scratch.used_bytes(None, str(tmp_path))
    assert 1 << 20 <= used <= (1 << 20) + (1 << 17)
    assert watch.disk(None, [str(tmp_path)], 2 << 20) is None
    finding = watch.disk(None, [str(tmp_path)], 1 << 19)
    assert finding is not None
    assert finding.limit == "disk"


def test_looking_takes_a_twentieth_of_the_time() -> None:
    assert watch.next_period_s(1.0, 0.01) == 1.0
    assert watch.next_period_s(1.0, 3.0) == 60.0

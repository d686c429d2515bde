"""A user of a root service who changes what his paths mean while they are being used."""

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allotment.backends.local.runner import libc
from allotment.backends.local.runner.hierarchy import short_hash
from allotment.backends.local.runner.mounts import View, build
from tests.integration.local.conftest import BWRAP, OWN
from tests.integration.local.harness import Runner, a_runner, groups_of
from tests.support.exchange import FEW, exchanging, owned, written

VICTIM, MALLORY = 64001, 64002
SECRET = "for the victim alone"

pytestmark = pytest.mark.needs_root
BOTH = pytest.mark.parametrize("kind", [OWN, BWRAP])
AT_ONCE = 20


@pytest.fixture
def runner(own_runner: Runner) -> Runner:
    """A launcher in a state folder that no other test has put anything in."""
    return own_runner


@pytest.fixture
def home(reachable: Path) -> Path:
    """The attacker's folder, beside a victim's closed home with an open folder in it."""
    closed = owned(reachable / "victim", VICTIM, 0o700)
    files = owned(closed / "files", VICTIM)
    written(files / "secret", SECRET, VICTIM)
    return owned(reachable / "mallory", MALLORY)


def outputs(runner: Runner, argv: str, **fields: object) -> list[str]:
    """Run a task as the attacker, as often as a race is tried; give what each wrote."""
    found: list[str] = []
    for _ in range(FEW // AT_ONCE):
        tasks = [
            runner.launch(argv, uid=MALLORY, gid=MALLORY, **fields) for _ in range(AT_ONCE)
        ]
        for task in tasks:
            task.ended()
            found.append(task.output())
    return found


@BOTH
def test_data_exchanged_for_a_link_show_no_files_of_others(
    runner: Runner, kind: str, home: Path
) -> None:
    owned(home / "data", MALLORY)
    (home / "link").symlink_to(home.parent / "victim" / "files")
    with exchanging(home / "data", home / "link", MALLORY):
        found = outputs(
            runner,
            f"cat {home}/data/secret {home}/link/secret",
            read_only=[str(home / "data")],
            namespaces=kind,
        )
    assert not any(SECRET in text for text in found)


@BOTH
def test_a_folder_to_be_mounted_again_is_made_nowhere_and_covers_nothing(
    runner: Runner, kind: str, home: Path
) -> None:
    """A file that appears in root's folders can lock everybody out: /etc/nologin.

    And what the supervisor, who is root, uses in a task's view has to stay the system's.
    """
    data = owned(home / "data", MALLORY)
    owned(owned(data / "out", MALLORY) / "mine", MALLORY)
    system = home.parent / "system"
    system.mkdir(mode=0o755)
    (data / "link").symlink_to(system)
    with exchanging(data / "out", data / "link", MALLORY):
        found = outputs(
            runner,
            f"ls {system}",
            read_only=[str(data)],
            writable=[str(data / "out"), str(data / "out/mine")],
            namespaces=kind,
        )
    assert not any(found)
    assert not list(system.iterdir())


@pytest.mark.parametrize("path", ["/", "/proc", "/proc/sys", "/sys", "/dev/shm", "link"])
def test_what_the_system_needs_is_no_data(runner: Runner, home: Path, path: str) -> None:
    """Control groups that became read-only with it could not be removed."""
    (home / "link").symlink_to("/")
    path = str(home / path)
    status = runner.run("true", uid=MALLORY, gid=MALLORY, read_only=[path], namespaces="own")
    assert status["exit_code"] is None
    assert f"{path}: " in status["platform_error"]
    assert "would become read-only with it" in status["platform_error"]
    assert groups_of(runner.state) == []
    assert not Path(status["scratch"]).exists()


def test_the_state_folder_is_shown_to_nobody_who_names_it(runner: Runner, home: Path) -> None:
    (home / "link").symlink_to(runner.state)
    for name in ("read_only", "writable"):
        fields = {name: [str(home / "link")]}
        status = runner.run("true", uid=MALLORY, gid=MALLORY, namespaces="own", **fields)
        assert "it is the state folder" in status["platform_error"]
    assert groups_of(runner.state) == []


def test_data_around_the_state_folder_leave_it_hidden(runner: Runner, home: Path) -> None:
    (runner.state / "token").write_text(SECRET)
    out = owned(owned(runner.state / "outputs", 0) / "1", MALLORY)
    task = runner.launch(
        f"ls {runner.state}; touch {out}/x $TMPDIR/y; touch {runner.state.parent}/z",
        uid=MALLORY,
        gid=MALLORY,
        read_only=[str(runner.state.parent)],
        writable=[str(out)],
        namespaces="own",
    )
    status = task.ended()
    assert task.output().split() == ["outputs", "scratch"]
    assert task.output("stderr").count("Read-only file system") == 1
    assert (out / "x").exists()
    assert not Path(status["scratch"]).exists()


@pytest.mark.parametrize("kind", [OWN, BWRAP])
def test_a_writable_folder_in_data_around_the_state_folder_leaves_it_hidden(
    reachable: Path, kind: str
) -> None:
    with a_runner(owned(owned(reachable / "home", 0) / "state", 0)) as runner:
        (runner.state / "token").write_text(SECRET)
        task = runner.launch(
            f"ls {runner.state}; touch $TMPDIR/x {reachable}/home/y",
            read_only=[str(reachable)],
            writable=[str(reachable / "home")],
            namespaces=kind,
        )
        assert task.ended()["exit_code"] == 0, task.output("stderr")
        assert task.output() == "scratch\n"
        assert (reachable / "home/y").exists()


def test_a_link_to_hidden_outputs_leads_to_them(runner: Runner, home: Path) -> None:
    """What a path means, not how it is written, says whether it was hidden."""
    out = owned(owned(runner.state / "outputs", 0) / "1", MALLORY)
    written(out / "model", "weights", MALLORY)
    (home / "link").symlink_to(out)
    task = runner.launch(
        f"cat {home}/link/model",
        uid=MALLORY,
        gid=MALLORY,
        read_only=[str(home / "link")],
        namespaces="own",
    )
    task.ended()
    assert task.output() == "weights"


def test_the_view_is_the_same_where_the_kernel_cannot_mount_by_descriptor(
    runner: Runner, home: Path
) -> None:
    """Before Linux 5.2, and in sandboxes that forbid the calls."""
    data = owned(home / "data", MALLORY)
    out = owned(data / "out", MALLORY)
    view = View(
        hidden=str(runner.state),
        plain=(),
        folders=(),
        read_only=(str(data),),
        writable=(str(out), str(runner.state / "scratch")),
        devices=(),
    )
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(_look_at(view, data, out))
        finally:
            os._exit(70)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (out / "file").exists()


def _look_at(view: View, data: Path, out: Path) -> int:
    """Build a view without these calls; give which of our expectations fails, 0 for none."""

    def not_there(handle: int) -> int:
        raise OSError(errno.ENOSYS, f"descriptor {handle}")

    libc.clone_tree = not_there
    libc.unshare(libc.CLONE_NEWNS)
    build(view)
    (out / "file").touch()
    if [path.name for path in Path(view.hidden).iterdir()] != ["scratch"]:
        return 2
    try:
        (data / "file").touch()
    except OSError as error:
        return 0 if error.errno == errno.EROFS else 3
    return 4


@pytest.mark.parametrize(
    "fields",
    [
        {"read_only": ["/no/such/folder"]},
        {"writable": ["{state}/outputs/none"]},
        {"cwd": "/no/such/folder"},
        {"cwd": "/root"},
        {"argv": ["/no/such/program"]},
        {"devices": ["/dev/no-such-device"]},
    ],
)
@BOTH
def test_no_failed_launch_leaves_anything_behind(
    runner: Runner, kind: str, fields: dict[str, Any]
) -> None:
    asked = {
        name: [str(word).format(state=runner.state) for word in value]
        if isinstance(value, list)
        else value
        for name, value in fields.items()
    }
    argv = asked.pop("argv", ["true"])
    status = runner.run(
        argv, uid=MALLORY, gid=MALLORY, memory_bytes=1 << 30, namespaces=kind, **asked
    )
    assert groups_of(runner.state) == []
    assert not (runner.state / "scratch" / status["key"]).exists()


# ── where scratch folders lie, when users cannot get into the state folder ──────────────


@pytest.fixture
def squatted(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A state folder closed to others, and the usual place of its scratch folders."""
    state = tmp_path / "state"
    state.mkdir()
    usual = Path("/var/tmp") / f"allotment-{short_hash(str(state))}"
    yield state, usual
    for path in usual.parent.glob(f"{usual.name}*"):
        path.unlink() if path.is_symlink() else shutil.rmtree(path)


@pytest.mark.parametrize("by", ["folder", "link", "open folder"])
def test_a_squatted_place_for_scratch_folders_stops_nobody(
    squatted: tuple[Path, Path], home: Path, by: str
) -> None:
    state, usual = squatted
    if by == "link":
        usual.symlink_to(home)
    else:
        owned(usual, 0 if by == "open folder" else MALLORY, 0o777)
    roots: list[Path] = []
    for _ in range(2):
        with a_runner(state) as runner:
            task = runner.launch("echo x > $TMPDIR/x && cat $TMPDIR/x", uid=VICTIM, gid=VICTIM)
            status = task.ended()
            assert task.output() == "x\n", status
            roots.append(Path(status["scratch"]).parent)
            found = roots[-1].stat()
            assert (found.st_uid, found.st_mode & 0o777) == (0, 0o711)
            assert not Path(status["scratch"]).exists()
            state.mkdir(exist_ok=True)
            keep = (state / "run" / "scratch").read_text()
        state.mkdir()
        (state / "run").mkdir()
        (state / "run" / "scratch").write_text(keep)
    assert roots[0] == roots[1] != usual
    assert not list(home.iterdir())


def test_scratch_is_removed_where_data_cover_it(squatted: tuple[Path, Path]) -> None:
    state, usual = squatted
    with a_runner(state) as runner:
        task = runner.launch(
            "echo x > $TMPDIR/x; touch /var/tmp/y",
            read_only=["/var/tmp"],
            namespaces="own",
        )
        status = task.ended()
        assert "Read-only file system" in task.output("stderr")
        assert not Path(status["scratch"]).exists()
        assert Path(status["scratch"]).parent == usual

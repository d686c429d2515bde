"""What a task can see and touch, and as whom."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from allotment.backends.local.runner import procfs
from tests.integration.local.conftest import BWRAP, OWN
from tests.integration.local.harness import (
    NOBODY,
    SOURCES,
    SYSTEM_PYTHON,
    Runner,
    a_runner,
    alive,
    until,
)
from tests.support.keys import LOOK, SAYS, has_keys, with_key

NAMESPACED = pytest.mark.parametrize("kind", [OWN, BWRAP])
ALL_KINDS = pytest.mark.parametrize("kind", [OWN, BWRAP, "none"])


def output_of(runner: Runner, argv: str | list[str], **fields: object) -> str:
    task = runner.launch(argv, **fields)
    status = task.ended()
    assert status["platform_error"] == "", status
    return task.output()


# ── environment and descriptors ─────────────────────────────────────────────────────────


def test_the_environment_is_what_was_asked_for(runner: Runner, kind: str) -> None:
    asked = {"PATH": "/usr/bin", "WORD": "a b\nc=d", "EMPTY": "", "UMLAUT": "ß"}
    text = output_of(runner, ["env", "-0"], env=asked, namespaces=kind)
    found = dict(entry.split("=", 1) for entry in text.split("\0") if entry)
    scratch = found.pop("TMPDIR")
    assert found.pop("ALLOT_SCRATCH_DIR") == scratch
    assert found.pop("ALLOT_PAUSE_FILE") == f"{scratch}/.allot-pause"
    found.pop("PWD", None)  # set by bubblewrap and its shell
    found.pop("OLDPWD", None)
    assert found == asked


def test_the_services_environment_stays_with_it(runner: Runner) -> None:
    with Path(f"/proc/{runner.launcher_pid}/environ").open("rb") as file:
        names = {entry.split(b"=")[0] for entry in file.read().split(b"\0") if entry}
    assert names == {b"PATH", b"LC_ALL"}


def test_a_task_has_three_descriptors_and_an_empty_input(runner: Runner, kind: str) -> None:
    text = output_of(runner, "cat; ls /proc/self/fd", namespaces=kind)
    assert text.split() == ["0", "1", "2", "3"]  # 3 is the folder that ls reads


def test_signals_are_as_a_program_expects_them(runner: Runner, kind: str) -> None:
    status = dict(
        line.split(":\t", 1)
        for line in output_of(runner, "cat /proc/self/status", namespaces=kind).splitlines()
    )
    python_ignores = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
    for mask in ("SigBlk", "SigIgn"):
        assert not int(status[mask], 16) & python_ignores
        assert not int(status[mask], 16) & 0x7FFF


def test_tasks_have_sessions_of_their_own(runner: Runner, kind: str) -> None:
    marker = f"allot-test-{os.getpid()}-{os.urandom(4).hex()}"
    runner.launch(["bash", "-c", f"exec -a {marker} sleep 1000"], namespaces=kind)
    until(lambda: alive(marker), "the task")
    # Asked from outside: who is led from outside of a PID namespace sees a 0 in it.
    (pid,) = alive(marker)
    assert os.getsid(pid) not in (0, os.getsid(0), os.getsid(runner.launcher_pid))


# ── the file system ─────────────────────────────────────────────────────────────────────


@NAMESPACED
def test_data_is_read_only_also_below_and_output_is_not(
    runner: Runner, kind: str, tmp_path: Path
) -> None:
    data, output = tmp_path / "data", tmp_path / "data" / "output"
    (data / "deep").mkdir(parents=True)
    output.mkdir()
    script = "touch x; touch deep/x; touch output/y && mkdir output/z && ls -R ."
    task = runner.launch(
        script, cwd=str(data), read_only=[str(data)], writable=[str(output)], namespaces=kind
    )
    assert task.ended()["exit_code"] == 0
    assert task.output("stderr").count("Read-only file system") == 2
    assert sorted(path.name for path in output.iterdir()) == ["y", "z"]


@NAMESPACED
def test_a_file_can_be_data(runner: Runner, kind: str, tmp_path: Path) -> None:
    data = tmp_path / "set.bin"
    data.write_text("content")
    script = f"cat {data}; echo x >> {data}"
    task = runner.launch(script, read_only=[str(data)], namespaces=kind)
    task.ended()
    assert task.output() == "content"
    assert "Read-only" in task.output("stderr")


@NAMESPACED
def test_the_state_folder_is_hidden_but_for_what_was_given(
    own_runner: Runner, kind: str
) -> None:
    runner = own_runner
    (runner.state / "secret").write_text("token")
    for name in ("outputs/1", "code/deep"):
        (runner.state / name).mkdir(parents=True)
    (runner.state / "code/deep/main").write_text("echo code runs\n")
    script = """
        cat secret run/launcher.log; ls tasks
        sh code/deep/main; touch code/deep/x
        echo out > outputs/1/file
        echo t > $TMPDIR/file && echo scratch works
        find . | sort
    """
    task = runner.launch(
        f"cd {runner.state}; {script}",
        read_only=[str(runner.state / "code")],
        writable=[str(runner.state / "outputs/1")],
        namespaces=kind,
    )
    task.ended()
    assert task.output().split("\n.\n")[0].splitlines() == ["code runs", "scratch works"]
    found = task.output().split("\n.\n")[1].split()
    key = task.key
    assert found == sorted(
        f"./{path}"
        for path in (
            "code",
            "code/deep",
            "code/deep/main",
            "outputs",
            "outputs/1",
            "outputs/1/file",
            "scratch",
            f"scratch/{key}",
            f"scratch/{key}/.allot-pause",
            f"scratch/{key}/file",
        )
    )
    errors = task.output("stderr")
    assert errors.count("No such file or directory") == 3
    assert errors.count("Read-only file system") == 1
    assert (runner.state / "outputs/1/file").read_text() == "out\n"


def test_the_folder_of_a_task_may_lie_in_the_state_folder(runner: Runner, kind: str) -> None:
    folder = runner.state / "outputs" / kind
    folder.mkdir(parents=True)
    script = "echo here > file; pwd -P"
    text = output_of(runner, script, cwd=str(folder), writable=[str(folder)], namespaces=kind)
    assert text == f"{folder}\n"
    assert (folder / "file").read_text() == "here\n"


def test_scratch_is_private_and_gone_afterwards(runner: Runner, kind: str) -> None:
    script = """
        cd "$TMPDIR"; ls -A .; stat -c %a .
        mkdir -p a/b; ln -s / a/b/c; echo x > a/f
    """
    task = runner.launch(script, namespaces=kind)
    status = task.ended()
    assert task.output() == ".allot-pause\n700\n"
    assert not Path(status["scratch"]).exists()
    assert Path("/etc/passwd").exists()


@NAMESPACED
def test_dev_has_what_programs_need_and_nothing_more(runner: Runner, kind: str) -> None:
    script = """
        ls /dev
        echo x > /dev/null; head -c 1 /dev/zero | wc -c; head -c 1 /dev/urandom | wc -c
        echo shared > /dev/shm/x && cat /dev/shm/x
        python3 -I -S -c 'import os; m, s = os.openpty(); print(os.ttyname(s))'
    """
    words = output_of(runner, script, namespaces=kind).split()
    plain = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "fd"}
    plain |= {"stdin", "stdout", "stderr", "core"}
    names = words[: words.index("1")]
    assert set(names) - {"console"} == plain
    assert words[-4:] == ["1", "1", "shared", "/dev/pts/0"]


@pytest.mark.needs_root
def test_only_allotted_devices_are_in_dev(runner: Runner) -> None:
    text = output_of(runner, "ls -l /dev/loop0 /dev/loop1; ls /dev/net", devices=["/dev/loop1"])
    assert [line.split()[-1] for line in text.splitlines()] == ["/dev/loop1"]


@NAMESPACED
def test_processes_of_others_are_not_seen(runner: Runner, kind: str) -> None:
    names = output_of(runner, "ps -eo comm=", namespaces=kind).split()
    assert len(names) <= 4
    assert {"ps"} <= set(names) <= {"ps", "sh", "bwrap", "allot-task"}


@NAMESPACED
def test_new_mounts_of_a_task_stay_with_it(runner: Runner, kind: str, tmp_path: Path) -> None:
    runner.run(f"mount -t tmpfs none {tmp_path}; exit 0", namespaces=kind)
    assert not os.path.ismount(tmp_path)


# ── users ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that another user may write to: pytest's own are private."""
    folder = Path("/var/tmp") / f"allot-test-{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o777)
    yield folder
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


@pytest.mark.needs_root
@ALL_KINDS
def test_a_task_runs_as_its_user(runner: Runner, kind: str, public_folder: Path) -> None:
    groups = [4711, 4712]
    script = f"""
        id -u; id -g; cat /proc/self/status | grep -E '^(Groups|CapEff|NoNewPrivs)'
        touch {public_folder}/mine; echo x > $TMPDIR/x && echo scratch works
        cat /etc/shadow; kill -9 1; kill -9 {os.getpid()}
    """
    task = runner.launch(script, uid=NOBODY, gid=65533, groups=groups, namespaces=kind)
    status = task.ended()
    lines = task.output().split()
    assert lines[:2] == ["65534", "65533"]
    named = dict(line.split(":", 1) for line in task.output().splitlines() if ":" in line)
    # In bubblewrap's user namespace the groups hold, but have no names.
    assert named["Groups"].split() == (["65534"] * 2 if kind == "bwrap" else ["4711", "4712"])
    assert int(named["CapEff"], 16) == 0
    assert named["NoNewPrivs"].strip() == "1"
    assert "scratch works" in task.output()
    assert "Permission denied" in task.output("stderr")
    mine = (public_folder / "mine").stat()
    assert (mine.st_uid, mine.st_gid) == (NOBODY, 65533)
    assert (status["uid"], status["gid"], status["groups"]) == (NOBODY, 65533, groups)


@pytest.mark.needs_root
@ALL_KINDS
def test_a_folder_closed_to_the_user_is_told(runner: Runner, kind: str) -> None:
    status = runner.run(["true"], cwd="/root", uid=NOBODY, gid=NOBODY, namespaces=kind)
    assert status["exit_code"] == 126
    assert status["cause"] == "cannot enter the working directory /root: Permission denied"


@pytest.mark.needs_root
@ALL_KINDS
def test_a_program_closed_to_the_user_is_126(runner: Runner, kind: str) -> None:
    status = runner.run(["/root/program"], uid=NOBODY, gid=NOBODY, namespaces=kind)
    assert status["exit_code"] in (126, 127)
    script = Path("/var/tmp") / f"allot-test-{os.getpid()}.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o700)
    try:
        status = runner.run([str(script)], uid=NOBODY, gid=NOBODY, namespaces=kind)
        assert status["exit_code"] == 126
    finally:
        script.unlink()


@pytest.mark.needs_root
def test_a_users_library_cannot_run_as_root(runner: Runner) -> None:
    """LD_PRELOAD must meet nothing of ours that still is root."""
    env = {"PATH": "/usr/bin", "LD_PRELOAD": "/no/such/library.so"}
    task = runner.launch("true", env=env, uid=NOBODY, gid=NOBODY)
    task.ended()
    assert task.output("stderr").count("cannot be preloaded") == 1


@pytest.mark.needs_root
@pytest.mark.may_skip("where the kernel keeps no keys for us, as in many containers")
def test_a_task_finds_no_keys_of_the_service_or_of_other_users() -> None:
    if not has_keys():
        pytest.skip("the kernel keeps no keys for us")
    with a_runner(None, *with_key()) as runner:
        for uid in (NOBODY, NOBODY - 1):
            said = output_of(runner, [SYSTEM_PYTHON, "-c", LOOK], uid=uid, gid=uid)
            assert said.strip() == SAYS


@pytest.mark.needs_root
def test_the_files_of_others_keep_their_owners(runner: Runner) -> None:
    """Not so in a user namespace: ssh and git refuse to work there."""
    text = output_of(runner, ["stat", "-c", "%U", "/etc/passwd"], uid=NOBODY, gid=NOBODY)
    assert text == "root\n"


@pytest.mark.needs_root
def test_scratch_is_found_where_its_user_can_go(tmp_path: Path) -> None:
    """pytest's folders are closed to others, so scratch folders lie elsewhere then."""
    state = tmp_path / "state"
    state.mkdir()
    with a_runner(state) as runner:
        task = runner.launch("echo x > $TMPDIR/x && pwd", uid=NOBODY, gid=NOBODY, cwd="/tmp")
        status = task.ended()
        root = Path(status["scratch"]).parent
        assert status["exit_code"] == 0
        assert root.parent == Path("/var/tmp")
        assert root.stat().st_mode & 0o777 == 0o711
        assert not Path(status["scratch"]).exists()
    until(lambda: not root.exists(), "the folder to go with the last launcher")


@pytest.mark.needs_root
def test_the_scratch_of_a_launcher_stays_when_one_before_it_ends(tmp_path: Path) -> None:
    """Its state folder was moved away, and another has the name: there is one such place."""
    state, moved = tmp_path / "state", tmp_path / "moved"
    state.mkdir()
    before = Runner(state, [sys.executable], SOURCES)
    pid = before.launcher_pid
    before.hang_up()
    before.reports.close()
    state.rename(moved)
    state.mkdir()
    with a_runner(state) as runner:
        os.kill(pid, signal.SIGTERM)
        until(lambda: not procfs.start_time(pid), "the launcher to end")
        status = runner.run("echo x > $TMPDIR/x", uid=NOBODY, gid=NOBODY)
        assert status["exit_code"] == 0, status


def test_nobody_but_root_can_become_another(user_runner: Runner) -> None:
    status = user_runner.run(["true"], uid=0, gid=0)
    assert "only a service that is root" in status["platform_error"]


@pytest.fixture
def home() -> Iterator[Path]:
    """A user's home that is closed to all others."""
    folder = Path("/var/tmp") / f"allot-home-{os.getpid()}"
    (folder / "data/set").mkdir(parents=True)
    for path in (folder, folder / "data", folder / "data/set"):
        os.chown(path, 4710, 4711)
        path.chmod(0o770)
    yield folder
    for path in (folder / "data/set", folder / "data", folder):
        path.rmdir()


@pytest.mark.needs_root
@pytest.mark.needs_tool("setpriv")
def test_data_where_root_may_not_go_is_used_as_the_user(home: Path) -> None:
    """As on a file server that takes root for nobody; the way in is by a group here."""
    no_override = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    with a_runner(None, *no_override) as runner:
        task = runner.launch(
            "touch x",
            cwd=str(home / "data"),
            read_only=[str(home / "data")],
            uid=NOBODY,
            gid=NOBODY,
            groups=[4711],
        )
        status = task.ended()
        assert status["platform_error"] == ""
        assert status["exit_code"] == 1
        assert task.output("stderr").count("Read-only file system") == 1


# ── without root ────────────────────────────────────────────────────────────────────────


def test_without_root_bubblewrap_isolates(user_runner: Runner) -> None:
    hello = user_runner.ask({"op": "hello"})
    assert hello["cgroup"] == "none"
    assert set(hello["missing"]) >= {"own", "memory", "pids"}
    task = user_runner.launch(f"ls {user_runner.state}; id -u; exit 3", memory_bytes=1 << 30)
    status = task.ended()
    assert status["exit_code"] == 3
    assert status["isolation"]["namespaces"] == hello["namespaces"]
    if hello["namespaces"] == "bwrap":
        assert task.output().split() == ["scratch", str(status["uid"])]


def test_without_root_limits_are_watched(user_runner: Runner) -> None:
    eat = "x = []\nwhile True: x.append(bytearray(1 << 20))"
    status = user_runner.run(["python3", "-I", "-S", "-c", eat], memory_bytes=60 << 20)
    assert status["oom"] is True


def test_without_root_a_task_dies_at_the_end_of_its_grace(user_runner: Runner) -> None:
    task = user_runner.launch("trap '' TERM; echo ready; while :; do sleep 1; done")
    task.says("ready")
    task.control("stop TERM 100")
    assert task.ended()["ended_by"] == "grace"
    until(lambda: not task.is_held(), "the supervisor to end")

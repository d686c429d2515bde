"""What a task is shown: which paths must be mounted again, and bubblewrap's words for it."""

from allotment.backends.local.runner import bwrap
from allotment.backends.local.runner.mounts import View, under

STATE = "/var/lib/allotment"


def a_view(read_only: tuple[str, ...] = (), writable: tuple[str, ...] = ()) -> View:
    return View(STATE, (), ("/dev/infiniband",), read_only, writable, ("/dev/nvidia0",))


def test_a_folder_is_under_itself_but_not_under_its_namesake() -> None:
    assert under("/a/b", "/a/b")
    assert under("/a/b/c", "/a/b")
    assert under("/a", "/")
    assert not under("/a/bc", "/a/b")
    assert not under("/a", "/a/b")


def test_only_what_would_be_covered_is_mounted_again() -> None:
    view = a_view(
        read_only=("/data", f"{STATE}/code"),
        writable=("/data/out", "/home/me", f"{STATE}/scratch/1", f"{STATE}/code/out"),
    )
    assert bwrap.plan(view) == (
        [f"{STATE}/code"],
        ["/data/out", f"{STATE}/scratch/1", f"{STATE}/code/out"],
    )


def words(inner: bwrap.Inner, view: View) -> list[str]:
    return bwrap.command("/usr/bin/bwrap", view, "/data", ["python", "x.py"], inner)


def test_bubblewrap_mounts_in_the_right_order() -> None:
    view = a_view(("/data", f"{STATE}/code"), ("/data/out", f"{STATE}/code/out"))
    found = words(bwrap.Inner(False, False), view)
    order = [
        " ".join(found[i : i + 3])
        for i, word in enumerate(found)
        if word in ("--bind", "--ro-bind", "--dev-bind-try")
    ]
    assert order == [
        "--bind / /",
        "--ro-bind /data /data",
        "--bind /data/out /data/out",
        f"--ro-bind {STATE}/code {STATE}/code",
        f"--bind {STATE}/code/out {STATE}/code/out",
        "--dev-bind-try /dev/nvidia0 /dev/nvidia0",
        "--dev-bind-try /dev/infiniband /dev/infiniband",
    ]
    hiding = found.index("--tmpfs")
    assert found[hiding + 1] == STATE
    assert found.index("/data/out") < hiding < found.index(f"{STATE}/code")


def test_the_inner_script_does_what_is_asked() -> None:
    scripts = {
        (waits, stays): words(bwrap.Inner(waits, stays), a_view())[-4]
        for waits in (False, True)
        for stays in (False, True)
    }
    for (waits, stays), script in scripts.items():
        assert ("ready" in script) == waits
        assert ("failed" in script) == stays
        assert "started" in script
    assert words(bwrap.Inner(False, False), a_view())[-2:] == ["python", "x.py"]

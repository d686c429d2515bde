"""CDI specifications: what is understood, what is refused, and whom they are believed from."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allotment.backends.local.cdi.found import Specifications
from allotment.backends.local.cdi.layer import key_of
from allotment.backends.local.cdi.spec import BadSpec, Bind, Edits, edits_of, spec_of
from allotment.backends.local.images.images import Ready
from allotment.backends.local.images.store import Image

HOOK = {"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook"}


def a_spec(edits: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    nodes = [{"path": f"/dev/nvidia{at}"} for at in range(2)]
    devices = [
        {"name": str(at), "containerEdits": {"deviceNodes": [node]}}
        for at, node in enumerate(nodes)
    ]
    together = {"name": "all", "containerEdits": {"deviceNodes": nodes}}
    common = {"deviceNodes": [{"path": "/dev/nvidiactl"}], **(edits or {})}
    return {
        "cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [together, *devices],
        "containerEdits": common, **changes,
    }  # fmt: skip


def hooked(*args: str, **more: Any) -> dict[str, Any]:
    return a_spec({"hooks": [{**HOOK, "args": list(args), **more}]})


def test_a_device_is_known_by_its_file_and_alone() -> None:
    spec = spec_of(a_spec({"env": ["A=1"]}))
    edits = edits_of([spec], ["/dev/nvidia1", "/dev/nvidiactl"])
    assert edits is not None
    assert edits.devices == ("/dev/nvidiactl", "/dev/nvidia1")
    assert edits.env == ("A=1",)
    both = edits_of([spec], ["/dev/nvidia0", "/dev/nvidia1"])
    assert both is not None
    assert both.devices == ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1")
    assert edits_of([spec], ["/dev/nvidia7"]) is None


def test_the_first_specification_with_a_device_counts() -> None:
    specs = [spec_of(a_spec({"env": [f"WHO={name}"]})) for name in ("run", "etc")]
    found = edits_of(specs, ["/dev/nvidia0"])
    assert found is not None
    assert found.env == ("WHO=run",)


@pytest.mark.parametrize("head", [("nvidia-cdi-hook",), ("nvidia-ctk", "hook")])
@pytest.mark.parametrize("form", [("--link", "a.so.1::/l/a.so"), ("--link=a.so.1::/l/a.so",)])
def test_hooks_are_read_in_each_of_their_forms(
    head: tuple[str, ...], form: tuple[str, ...]
) -> None:
    more = ("--link", "b::/dev/dri/by-path/b", "--link", "c::../c", "--link", "::/d")
    found = edits_of(
        [spec_of(hooked(*head, "create-symlinks", *form, *more))], ["/dev/nvidia0"]
    )
    assert found is not None
    assert found.links == (("a.so.1", "/l/a.so"),)
    folders = hooked(
        *head, "update-ldcache", "--folder", "/l", "--folder=/m", "--folder", "/proc"
    )
    found = edits_of([spec_of(folders)], ["/dev/nvidia0"])
    assert found is not None
    assert found.folders == ("/l", "/m")


def test_a_hook_that_is_not_understood_is_named() -> None:
    found = edits_of([spec_of(hooked("x", "enable-cuda-compat"))], ["/dev/nvidia0"])
    assert found is not None
    assert found.undone == ("enable-cuda-compat",)
    found = edits_of([spec_of(hooked())], ["/dev/nvidia0"])
    assert found is not None
    assert found.undone == ("/usr/bin/nvidia-cdi-hook",)


def a_mount(path: str, **more: Any) -> dict[str, Any]:
    return a_spec({"mounts": [{"hostPath": "/a", "containerPath": path, **more}]})


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {},
        a_spec(secret=1),
        a_spec({"netDevices": []}),
        a_spec(cdiVersion="0.2.0"),
        a_spec(cdiVersion="9.0.0"),
        a_spec(devices=[{"name": "0"}]),
        a_spec({"env": ["NOTHING"]}),
        a_spec({"env": ["=x"]}),
        a_spec({"env": ["A=x\ny"]}),
        a_spec({"additionalGids": [-1]}),
        a_spec({"deviceNodes": [{"path": "/etc/passwd"}]}),
        a_spec({"deviceNodes": [{"path": "/dev/../etc/passwd"}]}),
        a_spec({"deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/sda"}]}),
        a_spec({"deviceNodes": [{"path": "/dev/a", "permissions": "none"}]}),
        a_mount("relative"),
        a_mount("/"),
        a_mount("/../etc"),
        a_mount("/dev/shm"),
        a_mount("/proc/1"),
        a_mount("/x", type="tmpfs"),
    ],
)
def test_what_is_not_understood_is_refused_as_a_whole(wrong: object) -> None:
    with pytest.raises(BadSpec):
        spec_of(wrong)


def test_of_two_variables_of_one_name_the_later_holds() -> None:
    spec = a_spec({"env": ["A=common", "B=1"]})
    spec["devices"][1]["containerEdits"]["env"] = ["A=own"]
    found = edits_of([spec_of(spec)], ["/dev/nvidia0"])
    assert found is not None
    assert found.env == ("A=own", "B=1")


# ── whom they are believed from ─────────────────────────────────────────────────────────


def as_users(path: Path) -> None:
    os.chown(path, 64103, 64103)


def for_all(path: Path) -> None:
    path.chmod(0o666)


def as_link(path: Path) -> None:
    path.symlink_to(path.rename(path.parent / "elsewhere.txt"))


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def in_a_folder_for_all(path: Path) -> None:
    path.parent.chmod(0o777)


def in_a_folder_of_a_user(path: Path) -> None:
    os.chown(path.parent, 64103, 64103)


def too_large(path: Path) -> None:
    with path.open("a") as file:
        file.write(" " * (5 << 20))


def broken(path: Path) -> None:
    path.write_text('{"cdiVersion": ')


def nested(path: Path) -> None:
    path.rename(path.with_suffix(".yaml")).write_text("[" * 10_000)


@pytest.fixture
def written(reachable: Path) -> Path:
    path = reachable / "cdi" / "vendor.json"
    path.parent.mkdir(mode=0o755)
    devices = [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/null"}]}}]
    path.write_text(json.dumps(a_spec({"env": ["A=1"]}, devices=devices)))
    path.chmod(0o644)
    return path


@pytest.mark.needs_root
def test_roots_own_is_read_and_what_is_not_there_left_out(written: Path) -> None:
    found = Specifications((written.parent,)).edits(["/dev/null"])
    assert found is not None
    assert found.devices == ("/dev/null",)  # There is no /dev/nvidiactl.


@pytest.mark.needs_root
def test_what_changes_is_read_again(written: Path) -> None:
    specifications = Specifications((written.parent,))
    assert specifications.edits(["/dev/null"]) is not None
    text = written.read_text().replace("A=1", "A=2")
    written.unlink()
    assert specifications.edits(["/dev/null"]) is None
    written.write_text(text)
    found = specifications.edits(["/dev/null"])
    assert found is not None
    assert found.env == ("A=2",)


@pytest.mark.needs_root
@pytest.mark.parametrize(
    "spoil",
    [
        as_users, for_all, as_link, as_pipe, in_a_folder_for_all, in_a_folder_of_a_user,
        too_large, broken, nested,
    ],
)  # fmt: skip
def test_nobody_but_root_is_believed(written: Path, spoil: Callable[[Path], None]) -> None:
    spoil(written)
    assert Specifications((written.parent,)).edits(["/dev/null"]) is None


@pytest.mark.needs_root
def test_what_others_can_have_put_somewhere_is_not_mounted(
    written: Path, reachable: Path
) -> None:
    """A link of a user's in /tmp would show that user what is behind closed folders."""
    closed, shared = reachable / "closed", reachable / "shared"
    closed.mkdir(mode=0o700)
    (closed / "x").write_text("")
    shared.mkdir()
    shared.chmod(0o1777)
    for name, uid, target in (
        ("ours", 0, closed), ("theirs", 64103, closed), ("round", 0, shared / "round"),
    ):  # fmt: skip
        (shared / name).symlink_to(target)
        os.chown(shared / name, uid, uid, follow_symlinks=False)
    (shared / "made").mkdir()
    as_users(shared / "made")
    names = ("ours/../closed/x", "theirs/x", "theirs", "round", "made", "gone")
    mounts = [
        {"hostPath": f"{shared}/{name}", "containerPath": f"/at/{name.replace('/', '-')}"}
        for name in names
    ]
    devices = [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/null"}]}}]
    written.write_text(json.dumps(a_spec({"mounts": mounts}, devices=devices)))
    found = Specifications((written.parent,)).edits(["/dev/null"])
    assert found is not None
    assert [bind.source for bind in found.binds] == [str(closed / "x")]


def test_a_folder_that_is_used_asks_for_no_other_layer(tmp_path: Path) -> None:
    """Or each start would leave one in the store."""
    image = Image("r.example/x:1", "r.example/x", "sha256:0", ())
    ready = Ready(image, "images/made/x.json", (), -1)
    library, folder = tmp_path / "lib.so", tmp_path / "used"
    library.write_text("1")
    folder.mkdir()

    def key(*searched: str) -> str:
        binds = (Bind(str(library), "/l/lib.so", False), Bind(str(folder), "/used", True))
        return key_of(ready, Edits(binds=binds, folders=searched), "")

    before, before_searched = key(), key("/used")
    (folder / "pipe").write_text("")
    assert (key(), key("/used") == before_searched) == (before, False)
    library.write_text("22")
    assert key() != before


def test_without_folders_there_is_nothing(tmp_path: Path) -> None:
    assert Specifications((tmp_path / "none",)).edits(["/dev/null"]) is None

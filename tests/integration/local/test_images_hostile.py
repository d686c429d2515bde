"""Layers that anybody could have made: refused or harmless, and the service stays up.

Each is unpacked as root, and as an ordinary user.
"""

import encodings
import gzip
import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from allotment.backends.local.images.fetching import UNPACK
from allotment.backends.local.runner import image_root, layout
from allotment.service.isolated import PLAIN, isolated
from tests.integration.local.harness import (
    NOBODY,
    SOURCES,
    Runner,
    a_runner,
    an_unprivileged_runner,
)
from tests.support.cluster import until
from tests.support.registry import (
    OF_ONE_USER,
    OF_ROOT,
    USERS,
    Entry,
    Registry,
    WithUsers,
    a_file,
    a_folder,
    a_link,
    a_registry,
    a_service,
    busybox,
    digest,
    layer,
)

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
MIB = 1 << 20


@pytest.fixture(params=[pytest.param(0, id="root"), pytest.param(NOBODY, id="user")])
def tmp_path(request: pytest.FixtureRequest, reachable: Path) -> Path:
    """A folder of whoever unpacks."""
    os.chown(reachable, request.param, request.param)
    return reachable


def owner(folder: Path) -> int:
    return folder.stat().st_uid


def opaque_mark(folder: Path) -> str:
    return f"{'user' if owner(folder) else 'trusted'}.overlay.opaque"


def unpacked(
    folder: Path, *entries: Entry, most: int = 64 * MIB, files: int = 1000
) -> dict[str, Any]:
    """Unpack a layer into `folder/layer` as its owner; give what is told."""
    return unpacked_as(folder, layer(*entries), most=most, files=files)


def unpacked_as(
    folder: Path,
    data: bytes,
    diff_id: str = "",
    most: int = 64 * MIB,
    files: int = 1000,
    *,
    bare: bool = True,
) -> dict[str, Any]:
    place = folder / "layer"
    place.mkdir()
    uid = owner(folder)
    os.chown(place, uid, uid)
    limits = (diff_id or digest(data), str(most), str(files))
    words = isolated(UNPACK, str(place), *limits, bare=bare)
    done = subprocess.run(
        words, input=data, capture_output=True, env=PLAIN, cwd="/", check=False,
        user=uid, group=uid, extra_groups=[],
    )  # fmt: skip
    assert not done.stderr, done.stderr
    return json.loads(done.stdout)


def test_a_plain_layer_is_unpacked_with_owner_mode_and_time(tmp_path: Path) -> None:
    told = unpacked(
        tmp_path,
        a_folder("a", 0o750),
        a_file("a/x", "hello", 0o640, uid=1234, gid=56),
        a_link("a/y", "x"),
        a_link("a/z", "a/x", tarfile.LNKTYPE),
    )
    assert "bad" not in told
    found = (tmp_path / "layer/a/x").stat()
    whose = (NOBODY, NOBODY) if owner(tmp_path) else (1234, 56)
    assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (*whose, 0o640)
    assert (found.st_mtime, found.st_nlink) == (1_700_000_000, 2)
    assert (tmp_path / "layer/a").stat().st_mode & 0o7777 == 0o750
    assert (tmp_path / "layer/a/y").readlink() == Path("x")


OUTSIDE = [
    [a_file("../out", "x")],
    [a_file("a/../../out", "x")],
    [a_link("up", ".."), a_file("up/out", "x")],
    [a_link("etc", "/etc"), a_file("etc/out-of-layer", "x")],
    [a_folder("d"), a_link("d/up", "../.."), a_file("d/up/out", "x")],
    [a_link("hard", "../secret", tarfile.LNKTYPE)],
    [a_link("l", "/etc/passwd"), a_link("hard", "l/x", tarfile.LNKTYPE)],
    [a_link("hard", "/etc/passwd", tarfile.LNKTYPE)],
]


@pytest.mark.parametrize("entries", OUTSIDE)
def test_nothing_leads_outside(tmp_path: Path, entries: list[Entry]) -> None:
    (tmp_path / "secret").write_text("secret")
    told = unpacked(tmp_path, *entries)
    assert "bad" in told, told
    assert not (tmp_path / "out").exists()
    assert not Path("/etc/out-of-layer").exists()


def test_a_file_over_a_link_replaces_it(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    entries = (a_link("x", f"{tmp_path}/secret"), a_file("x", "mine"))
    assert "bad" not in unpacked(tmp_path, *entries)
    assert (tmp_path / "secret").read_text() == "secret"
    assert not (tmp_path / "layer/x").is_symlink()


def test_an_absolute_name_is_one_of_the_layer(tmp_path: Path) -> None:
    assert "bad" not in unpacked(tmp_path, a_file("/etc/out-of-layer", "x"))
    assert (tmp_path / "layer/etc/out-of-layer").read_text() == "x"
    assert not Path("/etc/out-of-layer").exists()


def test_devices_pipes_and_set_uid_bits_are_left_out(tmp_path: Path) -> None:
    told = unpacked(
        tmp_path,
        a_file("disk", type=tarfile.BLKTYPE, devmajor=8, devminor=0),
        a_file("mem", type=tarfile.CHRTYPE, devmajor=1, devminor=1),
        a_file("hole", type=tarfile.CHRTYPE, devmajor=0, devminor=0),
        a_file("pipe", type=tarfile.FIFOTYPE),
        a_file("su", "#!", 0o6755),
        a_folder("d", 0o7777),
        a_file("cap", "x", pax_headers={"SCHILY.xattr.security.capability": "\x01"}),
    )
    assert "bad" not in told
    place = tmp_path / "layer"
    assert sorted(path.name for path in place.iterdir()) == ["cap", "d", "su"]
    assert (place / "su").stat().st_mode & 0o7777 == 0o755
    assert (place / "d").stat().st_mode & 0o7777 == 0o1777
    assert os.listxattr(place / "cap") == []


def test_whiteouts_become_those_of_overlays(tmp_path: Path) -> None:
    told = unpacked(
        tmp_path,
        a_folder("d"),
        a_file("d/.wh.gone"),
        a_file("d/.wh..wh..opq"),
        a_file(".wh.again"),
        a_folder("again"),
        a_file(".wh...", "x"),
        a_file(".wh.", "x"),
        a_file("kept", "x"),
        a_file(".wh.kept"),
    )
    assert "bad" not in told
    place = tmp_path / "layer"
    gone = (place / "d/gone").lstat()
    assert (gone.st_rdev, gone.st_mode & 0o170000) == (0, 0o020000)
    for opaque in ("d", "again"):
        assert os.getxattr(place / opaque, opaque_mark(tmp_path)) == b"y"
    assert (place / "kept").read_text() == "x"


def test_a_bomb_stops_at_the_limit(tmp_path: Path) -> None:
    told = unpacked(tmp_path, a_file("zeros", bytes(8 * MIB)), most=4 * MIB)
    assert told == {"large": True}
    used = sum(path.stat().st_blocks * 512 for path in (tmp_path / "layer").rglob("*"))
    assert used <= 4 * MIB


def test_a_layer_packed_with_zstd_is_unpacked_frame_by_frame(tmp_path: Path) -> None:
    """As tools for lazy pulls pack them: many frames, and notes in frames to be skipped."""
    plain = layer(a_file("x", "y" * 5000), a_file("z", os.urandom(3 * MIB)))
    half = len(plain) // 2
    note = b"\x5f\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"notes"
    packed = [note, zstd(plain[:half]), note, zstd(plain[half:]), note]
    told = unpacked_as(tmp_path, b"".join(packed), digest(plain), bare=False)
    assert told["files"] == 2, told
    assert (tmp_path / "layer/x").read_text() == "y" * 5000


BAD_ZSTD: list[tuple[Callable[[], bytes], str]] = [
    (lambda: zstd(layer(a_file("zeros", bytes(64 * MIB)))), "large"),
    (lambda: zstd(layer(a_file("x", os.urandom(MIB))))[:-9], "cut"),
    (lambda: zstd(layer(a_file("x", "y"))).replace(b"y", b"z"), "Restored data"),
    (lambda: b"\x28\xb5\x2f\xfd\x00\x90\x09\0\0x", "too much memory"),
    (lambda: zstd(layer()) + b"this is no frame", "Unknown frame"),
]


@pytest.mark.parametrize("number", range(len(BAD_ZSTD)))
def test_what_no_layer_packed_with_zstd_may_say_is_refused(tmp_path: Path, number: int) -> None:
    make, why = BAD_ZSTD[number]
    told = unpacked_as(tmp_path, make(), most=4 * MIB, bare=False)
    assert why in told or why in told.get("bad", ""), told
    used = sum(path.stat().st_blocks * 512 for path in (tmp_path / "layer").rglob("*"))
    assert used <= 4 * MIB


def test_a_layer_packed_with_zstd_that_says_otherwise_is_refused(tmp_path: Path) -> None:
    told = unpacked_as(tmp_path, zstd(layer(a_file("x", "y"))))
    assert "packed with zstd" in told["bad"]


def zstd(data: bytes) -> bytes:
    """Pack as a stream whose size and window are not known beforehand."""
    packer = zstandard.ZstdCompressor(level=1, write_checksum=True).compressobj()
    return packer.compress(data) + packer.flush()


def test_a_million_files_stop_at_the_limit(tmp_path: Path) -> None:
    told = unpacked(tmp_path, *(a_file(f"f{n}") for n in range(300)), files=200)
    assert "more than 200 files" in told["bad"]
    assert len(list((tmp_path / "layer").iterdir())) <= 200


OF_NO_SIZE: list[Callable[[int], Entry]] = [
    lambda n: a_file(f"{n}/a/b/c"),
    lambda n: a_folder(f"{n}/a/b/c"),
    lambda n: a_link(f"{n}/a/b/c", "x"),
    lambda n: a_file(f"{n}/a/b/.wh.c"),
    lambda n: a_file(f"{n}/a/b/.wh..wh..opq"),
]


@pytest.mark.parametrize("number", range(len(OF_NO_SIZE)))
def test_what_has_no_size_counts_with_the_folders_above_it(tmp_path: Path, number: int) -> None:
    entries = [OF_NO_SIZE[number](n) for n in range(20)]
    many, large, whole = (tmp_path / name for name in ("many", "large", "whole"))
    for folder in (many, large, whole):
        folder.mkdir()
    assert "more than 79 files" in unpacked(many, *entries, files=79)["bad"]
    assert unpacked(large, *entries, most=79 * 4096) == {"large": True}
    for folder in (many, large):
        assert len(list((folder / "layer").rglob("*"))) <= 79
    assert unpacked(whole, *entries, files=80) == {"files": 80, "bytes": 80 * 4096}


def huge_header() -> bytes:
    """Make a layer of which one header says that it has a terabyte of notes."""
    entry = tarfile.TarInfo("././@PaxHeader")
    entry.type, entry.size = tarfile.XHDTYPE, 1 << 40
    return entry.tobuf(tarfile.GNU_FORMAT) + bytes(4 * MIB)


def sparse() -> bytes:
    entry = tarfile.TarInfo("holes")
    headers = {"GNU.sparse.size": str(1 << 40), "GNU.sparse.numblocks": "1",
               "GNU.sparse.map": f"{(1 << 40) - 1},1"}  # fmt: skip
    entry.pax_headers, entry.size = headers, 1
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(entry, io.BytesIO(b"x"))
    return packed.getvalue()


def headers_of_headers(count: int) -> bytes:
    """Make entries each of which only says that a long name follows."""
    entry = tarfile.TarInfo("././@LongLink")
    entry.type, entry.size = tarfile.GNUTYPE_LONGNAME, 2
    return (entry.tobuf(tarfile.GNU_FORMAT) + b"x".ljust(512, b"\0")) * count


ODD: list[Callable[[], bytes]] = [
    lambda: b"this is no archive" * 1000,
    lambda: b"\x1f\x8b" + b"\x00" * 5000,
    lambda: layer(a_file("x", "y" * 5000))[:700],
    lambda: layer(a_file("/".join(["d"] * 300), "x")),
    lambda: layer(a_file("x", "y", uid=-5)),
    lambda: layer(a_folder("x"), a_file("x", "y")),
    huge_header,
    sparse,
]


@pytest.mark.parametrize("number", range(len(ODD)))
def test_what_no_layer_may_say_is_refused(tmp_path: Path, number: int) -> None:
    told = unpacked_as(tmp_path, ODD[number](), most=16 * MIB)
    assert told.keys() <= {"bad", "cut", "large"}, told


def with_code(file: str, does: str) -> bytes:
    """Make a layer that has a source of Python's, in an encoding that it brings along."""
    codec = Path(encodings.__file__).with_name("evilcodec.py")
    source = "# -*- coding: evilcodec -*-\n" * 5000
    code = f"{does}\ndef getregentry(): raise LookupError\n"
    entries = a_file(file, source), a_file(str(codec), code)
    return layer(*entries)[: sum(512 + -(-len(data) // 512) * 512 for _, data in entries)]


def test_an_error_does_not_run_code_of_the_layer(tmp_path: Path) -> None:
    """Python reads sources to print a traceback, and runs the encodings that they name."""
    said = "import os; os.write(1, b'RUNS')"
    told = unpacked_as(tmp_path, with_code(tarfile.__file__, said) + headers_of_headers(3000))
    assert "recursion" in told["bad"], told
    assert (tmp_path / "layer" / tarfile.__file__[1:]).exists()


def test_unpacking_has_few_rights_and_mounts_of_its_own(tmp_path: Path) -> None:
    """With these it does all there is to do, also where names are in any writing."""
    data = layer(
        a_file("x", "y", uid=7), a_folder("d", 0o500), a_file("d/.wh.gone"),
        a_file("d/日本", "z"), a_file("d/.wh..wh..opq"), a_link("hard", "x", tarfile.LNKTYPE),
    )  # fmt: skip
    words = isolated(UNPACK, str(tmp_path), digest(data), str(MIB), "10", bare=True)
    pipe, uid = subprocess.PIPE, owner(tmp_path)
    with subprocess.Popen(
        words, stdin=pipe, stdout=pipe, env=PLAIN, cwd="/",
        user=uid, group=uid, extra_groups=[],
    ) as child:  # fmt: skip
        root = Path(f"/proc/{child.pid}/root")
        until(lambda: root.readlink() == tmp_path, "the layer to be its root")
        few = 0b10 if uid else 1 << 21 | 0b1011
        until(lambda: rights_of(child.pid)[0] == few, "it to let go of rights")
        assert len(set(rights_of(child.pid))) == 1
        for name in ("mnt", "user") if uid else ("mnt",):
            other = Path(f"/proc/{child.pid}/ns/{name}").readlink()
            assert other != Path(f"/proc/self/ns/{name}").readlink()
        said, _ = child.communicate(gzip.compress(data))
    assert json.loads(said)["files"] == 6, said
    assert (tmp_path / "hard").stat().st_uid == (uid or 7)
    assert (tmp_path / "d/日本").read_text() == "z"
    assert os.getxattr(tmp_path / "d", opaque_mark(tmp_path)) == b"y"


def rights_of(pid: int) -> list[int]:
    """Return its capabilities: effective, permitted and those it could get back."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = dict(line.split(":\t") for line in lines if line.startswith("Cap"))
    return [int(found[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")]


def test_a_layer_that_is_not_what_it_is_called_is_refused(tmp_path: Path) -> None:
    lie = f"sha256:{hashlib.sha256(b'else').hexdigest()}"
    told = unpacked_as(tmp_path, layer(a_file("x", "y")), diff_id=lie)
    assert "the configuration says" in told["bad"]


def test_deep_folders_do_not_use_up_descriptors(tmp_path: Path) -> None:
    deep = [a_file("/".join(f"{n}-{k}" for k in range(100)), "x") for n in range(30)]
    told = unpacked(tmp_path, *deep, files=10_000)
    assert "bad" not in told, told


def test_an_error_in_an_image_does_not_run_its_code(tmp_path: Path, runner: Runner) -> None:
    """Nor does the supervisor read there what its own sources are, or leave anything behind."""
    file = str(runner.sources / Path(image_root.__file__).relative_to(SOURCES))
    code = with_code(file, "import os; os.write(2, b'RUNS')")
    store = runner.state / "images"
    (store / "made").mkdir(parents=True)
    (store / "made/x").touch()
    assert "bad" not in unpacked_as(tmp_path, code + layer())
    (store / "layers").mkdir()
    (tmp_path / "layer").rename(store / "layers/a")
    image = {"record": "images/made/x", "layers": ["a"], "home": "/home", "uid": 1, "gid": 1,
             "passwd": "no line of a user", "group": "nor of a group"}  # fmt: skip
    uid = owner(tmp_path) or 1
    status = runner.run("true", image=image, uid=uid, gid=uid)
    assert "IndexError" in status["platform_error"], status
    log = runner.state / layout.LOG
    said = log.read_text()
    os.truncate(log, 0)
    assert said.startswith("IndexError, through\n")
    assert f"{file}:" in said
    assert "RUNS" not in said
    assert "evilcodec" not in said


def test_a_folder_above_the_state_folder_does_not_show_it(
    tmp_path: Path, runner: Runner
) -> None:
    """What an ordinary user's task finds of it there, it could read and write."""
    store = runner.state / "images"
    (store / "made").mkdir(parents=True)
    (store / "made/x").touch()
    assert "bad" not in unpacked_as(tmp_path, busybox(), files=10_000)
    (store / "layers").mkdir()
    (tmp_path / "layer").rename(store / "layers/a")
    uid = owner(tmp_path)
    image = {"record": "images/made/x", "layers": ["a"], "home": "/home", "uid": uid,
             "gid": uid, "passwd": "me:x:0:0::/:", "group": "us:x:0:"}  # fmt: skip
    script = f"ls {runner.state}; echo bad > {store}/layers/a/etc/system; touch $TMPDIR/x"
    task = runner.launch(
        script, image=image, env={"PATH": "/bin"}, writable=[str(runner.state.parent)]
    )
    status = task.ended()
    assert task.output() == "scratch\n", status
    assert status["exit_code"] == 0, task.output("stderr")
    assert (store / "layers/a/etc/system").read_text() == "busybox\n"


# ── through a service ───────────────────────────────────────────────────────────────────

needs_registry = pytest.mark.needs_tool("docker-registry", "htpasswd", "busybox")


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    """A launcher of whoever unpacks, in a state folder that has nothing of another test."""
    with an_unprivileged_runner() if owner(tmp_path) else a_runner() as made:
        yield made


@pytest.fixture
def registry(reachable: Path) -> Iterator[Registry]:
    with a_registry(reachable / "registry") as made:
        yield made


@pytest.fixture(scope="module", params=[OF_ROOT, OF_ONE_USER])
def service(request: pytest.FixtureRequest, reachable_once: Path) -> Iterator[WithUsers]:
    with a_service(reachable_once / request.param.__name__, kind=request.param) as made:
        yield made


@needs_registry
def test_bad_images_fail_their_jobs_and_leave_nothing(
    service: WithUsers, registry: Registry
) -> None:
    lies = [digest(b"else")]
    registry.push("lies", [busybox()], diff_ids=lies)
    registry.push("out", [busybox(), layer(a_link("up", ".."), a_file("up/out", "x"))])
    registry.push("other", [busybox()], architecture="riscv64")
    registry.push("torn", [busybox(a_file("own", "torn"))])
    for name, code in (("lies", "image_broken"), ("out", "image_broken")):
        job = service.run(f"{registry.host}/{name}:1", "true", "ann")
        assert (job.state, job.diagnosis["code"]) == ("failed", code), job.view
        assert (job.diagnosis["owner"], len(job.view["attempts"])) == ("user", 1)
    assert "riscv64" in service.refused(f"{registry.host}/other:1", "ann")
    registry.push("deep", [busybox()], config={"WorkingDir": "/a" * 1100})
    assert "WorkingDir" in service.refused(f"{registry.host}/deep:1", "ann")
    spec = {"name": "x", "image": f"{registry.host}/torn:1", "command": "true", "tenant": "ann"}
    _, answer = service.ask_as("ann", "POST", "/v1/jobs", {**spec, "workdir": "/a" * 200})
    assert "150 parts" in json.dumps(answer)
    store = service.state / "images"
    assert list((store / "new").iterdir()) == list((store / "made").iterdir()) == []
    for blob in (registry.folder / "data/docker/registry/v2/blobs/sha256").glob("*/*/data"):
        if blob.stat().st_size > 10_000:
            blob.write_bytes(blob.read_bytes()[:-9] + b"corrupted")
    job = service.run(f"{registry.host}/torn:1", "true", "ann")
    assert (job.state, job.diagnosis["code"]) == ("failed", "image_broken"), job.view
    assert list((store / "new").iterdir()) == list((store / "layers").iterdir()) == []
    service.get("/healthz")


@needs_registry
def test_an_image_cannot_take_hold_of_what_is_mounted_into_it(
    service: WithUsers, registry: Registry
) -> None:
    """Links of an image where we mount and write lead to places of the image."""
    evil = layer(
        a_link("proc", "/etc"),
        a_link("dev", "/tmp"),  # noqa: S108
        a_link("sys", "/bin"),
        a_link("etc/resolv.conf", "/etc/shadow"),
        a_link("etc/hosts", f"{service.state}/config.yaml"),
        a_file("etc/group", "x"),
    )
    registry.push("evil", [busybox(), evil])
    script = "cat /proc/self/comm; ls -d /dev/null /sys/kernel; cat /etc/system; id -u"
    before = (service.state / "config.yaml").read_bytes()
    job = service.run(f"{registry.host}/evil:1", script, "ann")
    assert job.state == "succeeded", job.view
    assert job.output.splitlines()[:4] == ["cat", "/dev/null", "/sys/kernel", "busybox"]
    assert (service.state / "config.yaml").read_bytes() == before


@needs_registry
def test_an_image_may_have_a_layer_twice(service: WithUsers, registry: Registry) -> None:
    """As many have the empty one. What lies above is what the upper of the two says."""
    low, other = layer(a_file("etc/x", "low")), layer(a_file("etc/x", "other"))
    registry.push("twice", [low, busybox(), low, other, low])
    job = service.run(f"{registry.host}/twice:1", "cat /etc/x", "ann")
    assert (job.state, job.output) == ("succeeded", "low"), job.view


@needs_registry
def test_no_right_is_got_from_an_image(service: WithUsers, registry: Registry) -> None:
    shell = Path("/bin/busybox").read_bytes()
    top = layer(
        a_file("bin/busybox-root", shell, 0o4755), a_file("root-only", "secret\n", 0o600)
    )
    registry.push("su", [busybox(), top])
    script = """
    /bin/busybox-root id -u; cat /root-only 2>/dev/null || echo closed
    ls /proc/1/cwd/ /proc/1/root/ 2>/dev/null || echo no-way
    ls -d /dev/vda /dev/sda /dev/mem 2>/dev/null || echo no-disk
    mount -t tmpfs x /tmp 2>/dev/null || echo no-mount
    """
    job = service.run(f"{registry.host}/su:1", script, "ann")
    first, closed, *rest = job.output.split()
    # Of an ordinary user's service all files of an image are that user's.
    assert (first, closed) == (str(USERS["ann"]), "secret" if service.owner else "closed")
    assert rest == ["no-way", "no-disk", "no-mount"]

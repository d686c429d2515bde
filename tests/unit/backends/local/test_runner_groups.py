"""Where control groups are found, and what is written into them."""

import os
from pathlib import Path

import pytest

from allotment.backends.local.runner import hierarchy
from allotment.backends.local.runner.cgroup_files import number_after
from allotment.backends.local.runner.cgroup_v1 import GroupV1
from allotment.backends.local.runner.cgroup_v2 import GroupV2
from allotment.backends.local.runner.surroundings import Limits

MIXED = r"""
24 1 254:0 / / rw,relatime - ext4 /dev/vda rw
31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 24 0:28 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory
33 24 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
34 24 0:30 / /sys/fs/cgroup/with\040space rw - cgroup cgroup rw,pids
35 24 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
""".strip()
LIMITS = Limits(cpu_milli=2500, cpu_ceiling=True, memory_bytes=1 << 30, pids=7)


def test_hierarchies_are_found_by_what_they_control() -> None:
    assert hierarchy.find_mounts(MIXED) == [
        hierarchy.Mount("/sys/fs/cgroup/cpu,cpuacct", ("cpu",)),
        hierarchy.Mount("/sys/fs/cgroup/memory", ("memory",)),
        hierarchy.Mount("/sys/fs/cgroup/with space", ("pids",)),
        hierarchy.Mount("/sys/fs/cgroup/unified", ()),
    ]


def test_our_own_groups_are_found() -> None:
    text = "4:memory:/user/1\n3:cpu,cpuacct:/\n1:name=systemd:/x\n0::/user.slice/a:b\n"
    assert hierarchy.own_groups(text) == {
        "memory": "/user/1",
        "cpu": "/",
        "cpuacct": "/",
        "name=systemd": "/x",
        "": "/user.slice/a:b",
    }


def test_state_folders_have_names_of_their_own() -> None:
    names = {hierarchy.short_hash(f"/var/lib/allotment/{number}") for number in range(10_000)}
    assert len(names) == 10_000
    assert all(len(name) == 16 for name in names)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("a 1\noom_kill 3\n", 3),
        ("oom_kill_disable 1\noom_kill 0\n", 0),
        ("max x\n", 0),
        ("", 0),
    ],
)
def test_numbers_are_found_by_their_whole_name(text: str, number: int) -> None:
    name = "max" if text.startswith("max") else "oom_kill"
    assert number_after(text, name) == number


def fake_files(folder: Path, *names: str) -> None:
    """Stand in for what the kernel makes in a new group."""
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch()


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.read_text()}


def test_version_2_is_told_all_limits(tmp_path: Path) -> None:
    names = ("cpu.weight", "cpu.max", "memory.max", "memory.swap.max", "pids.max")
    fake_files(tmp_path / "key", *names)
    group = GroupV2(str(tmp_path), ["cpu", "memory", "pids"], "key")
    group.create(LIMITS)
    assert contents(tmp_path / "key") == {
        "cpu.weight": "250",
        "cpu.max": "250000 100000",
        "memory.max": str(1 << 30),
        "memory.swap.max": "0",
        "pids.max": "7",
    }


def test_version_2_leaves_out_what_it_cannot_limit(tmp_path: Path) -> None:
    fake_files(tmp_path / "key")
    group = GroupV2(str(tmp_path), [], "key")
    group.create(LIMITS)
    assert contents(tmp_path / "key") == {}


def test_version_2_counts(tmp_path: Path) -> None:
    fake_files(tmp_path / "key")
    for name, text in {
        "memory.events": "low 0\nmax 9\noom 2\noom_kill 1\n",
        "memory.peak": "12345\n",
        "pids.events": "max 4\n",
        "cpu.stat": "usage_usec 10\nthrottled_usec 52000\n",
        "cgroup.events": "populated 1\nfrozen 1\n",
    }.items():
        (tmp_path / "key" / name).write_text(text)
    group = GroupV2(str(tmp_path), ["cpu", "memory", "pids"], "key")
    counts = group.count()
    assert (counts.oom_kills, counts.peak_memory_bytes, counts.pids_limit_hit) == (
        1,
        12345,
        True,
    )
    assert group.count_throttled() == 52
    assert group.is_frozen()


@pytest.mark.parametrize(("ceiling", "quota"), [(True, "250000"), (False, "")])
def test_version_1_is_told_all_limits(tmp_path: Path, ceiling: bool, quota: str) -> None:
    bases = {name: str(tmp_path / name) for name in ("cpu", "memory", "pids")}
    fake_files(tmp_path / "cpu/key", "cpu.shares", "cpu.cfs_quota_us")
    fake_files(tmp_path / "memory/key", "memory.limit_in_bytes")
    fake_files(tmp_path / "pids/key", "pids.max")
    group = GroupV1(bases, "key", [])
    group.create(LIMITS._replace(cpu_ceiling=ceiling))
    assert (tmp_path / "cpu/key/cpu.shares").read_text() == "2560"
    assert (tmp_path / "cpu/key/cpu.cfs_quota_us").read_text() == quota
    assert (tmp_path / "memory/key/memory.limit_in_bytes").read_text() == str(1 << 30)
    assert (tmp_path / "pids/key/pids.max").read_text() == "7"


def test_a_limit_that_cannot_be_set_names_the_file(tmp_path: Path) -> None:
    fake_files(tmp_path / "memory/key")
    group = GroupV1({"memory": str(tmp_path / "memory")}, "key", [])
    with pytest.raises(OSError, match=r"cannot write .* to .*memory.limit_in_bytes"):
        group.create(LIMITS)


def test_a_group_that_is_not_there_counts_nothing(tmp_path: Path) -> None:
    group = GroupV1({"memory": str(tmp_path), "pids": str(tmp_path)}, "key", [])
    counts = group.count()
    assert (counts.oom_kills, counts.peak_memory_bytes, counts.pids_limit_hit) == (0, 0, False)
    assert group.pids() == []
    group.remove()


@pytest.mark.may_skip("root may write everywhere")
def test_what_may_not_be_used_is_named(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    found = hierarchy.prepare(str(tmp_path))
    assert set(found.missing) | set(found.bases) >= {"cpu", "memory", "pids"}

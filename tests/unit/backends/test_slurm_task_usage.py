"""What all processes of a Slurm job used, as control groups of both versions count it."""

from pathlib import Path

import pytest

from allotment.backends.slurm.task import TICKS, groups_of_job, usage_in, with_all

V1 = """\
9:memory:/slurm_n1/uid_0/job_17/step_batch/task_0
4:cpu,cpuacct:/slurm_n1/uid_0/job_17/step_batch/task_0
1:name=systemd:/system.slice/slurmd.service
"""
V2 = "0::/system.slice/slurmstepd.scope/job_17/step_batch/user/task_0\n"


def test_the_groups_are_those_of_the_whole_job(tmp_path: Path) -> None:
    assert groups_of_job(V1, tmp_path) == {
        "memory": tmp_path / "memory/slurm_n1/uid_0/job_17",
        "cpu": tmp_path / "cpu/slurm_n1/uid_0/job_17",
        "cpuacct": tmp_path / "cpuacct/slurm_n1/uid_0/job_17",
    }
    assert groups_of_job(V2, tmp_path) == {
        "": tmp_path / "system.slice/slurmstepd.scope/job_17"
    }
    assert groups_of_job("0::/user.slice/my_job_17x/a\n3:pids:/\n", tmp_path) == {}


@pytest.mark.parametrize("own", [V1, V2], ids=["v1", "v2"])
def test_figures_are_read_in_both_versions(own: str, tmp_path: Path) -> None:
    groups = groups_of_job(own, tmp_path)
    for folder in groups.values():
        folder.mkdir(parents=True, exist_ok=True)
    if own is V1:
        (groups["cpuacct"] / "cpuacct.stat").write_text(f"user {3 * TICKS}\nsystem {TICKS}\n")
        (groups["memory"] / "memory.max_usage_in_bytes").write_text("4096\n")
    else:
        stat = "usage_usec 4000000\nuser_usec 3000000\nsystem_usec 1000000\nnr_periods 0\n"
        (groups[""] / "cpu.stat").write_text(stat)
        (groups[""] / "memory.peak").write_text("4096\n")
    assert usage_in(groups) == {
        "cpu_user_ms": 3000, "cpu_system_ms": 1000, "peak_memory_bytes": 4096,
    }  # fmt: skip


def test_without_groups_the_command_s_own_figures_stay(tmp_path: Path) -> None:
    assert usage_in({}) == {}
    assert usage_in({"": tmp_path}) == {}
    assert usage_in({"memory": tmp_path, "cpuacct": tmp_path}) == {}
    command = {"wall_ms": 9, "cpu_user_ms": 5, "cpu_system_ms": 1}
    assert with_all(command, {}) == command
    more = with_all(command, {"cpu_user_ms": 4, "cpu_system_ms": 7, "peak_memory_bytes": 2})
    assert more == {"wall_ms": 9, "cpu_user_ms": 5, "cpu_system_ms": 7, "peak_memory_bytes": 2}

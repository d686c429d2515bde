"""What `allot doctor` finds of a real Slurm, and of one that has something wrong."""

import json
import shutil
from pathlib import Path

import pytest

from allotment.backends.slurm.advice import advice_of
from allotment.backends.slurm.settings import Partition
from allotment.backends.slurm.told import SlurmNode
from allotment.cli.doctor_slurm import node_findings, partition_findings
from tests.support.on_slurm import OnSlurm
from tests.support.slurm import TOOLS, Slurm

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool(*TOOLS)]


def found(cluster: OnSlurm, **env: str) -> dict[str, tuple[str, str]]:
    """Return level and text of what was found, by subject; the worst of each."""
    env = {"SLURM_CONF": str(cluster.slurm.conf), **env}
    told = json.loads(cluster.allot("doctor", "--json", env=env).stdout)
    order = ["ok", "note", "warn", "bad"]
    told.sort(key=lambda each: order.index(each["level"]))
    return {each["subject"]: (each["level"], each["text"] + each["advice"]) for each in told}


def test_a_slurm_that_is_well_is_said_to_be(cluster: OnSlurm) -> None:
    told = found(cluster)
    assert told["slurm"][0] == "ok"
    assert told["partition"] == ("ok", "main: 2 nodes, no time limit")
    assert told["nodes see"][0] == "ok", told
    assert told["mpi"] == ("ok", "Slurm has pmix and pmi2")
    shows = shutil.which("bwrap")
    assert told["datasets"][0] == ("ok" if shows else "note")
    assert (shows or "bubblewrap is not here") in told["datasets"][1]
    assert "nodes" not in told


def test_munge_that_does_not_run_is_named(cluster: OnSlurm, tmp_path: Path) -> None:
    text = cluster.slurm.conf.read_text().replace("munge.sock", "nothing.sock")
    conf = tmp_path / "slurm.conf"
    conf.write_text(text)
    shutil.copy(cluster.slurm.folder / "gres.conf", tmp_path)
    level, words = found(cluster, SLURM_CONF=str(conf))["slurm"]
    assert level == "bad"
    assert "Start munge here" in words


def test_a_slurm_without_pmi_is_told_of(cluster: OnSlurm, tmp_path: Path) -> None:
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    for each in Path("/usr/lib").glob("*/slurm-wlm/*.so"):
        if "pmi2" not in each.name:
            (plugins / each.name).symlink_to(each)
    conf = tmp_path / "slurm.conf"
    conf.write_text(f"{cluster.slurm.conf.read_text()}\nPluginDir={plugins}\n")
    shutil.copy(cluster.slurm.folder / "gres.conf", tmp_path)
    level, words = found(cluster, SLURM_CONF=str(conf))["mpi"]
    assert level == "note"
    assert words.startswith("Slurm has no pmi2: such jobs would not start")


def test_what_is_not_in_both_is_named(cluster: OnSlurm) -> None:
    kept = cluster.state / "slurm-partition"
    kept.write_text("short\n")
    try:
        level, words = found(cluster)["nodes"]
    finally:
        kept.write_text("main\n")
    assert level == "warn"
    assert "in the configuration, and not in the partition: n2" in words


def test_a_node_that_only_slurm_has_is_named(slurm: Slurm, folder: Path) -> None:
    cluster = OnSlurm(folder / "state", slurm)
    lines = cluster.config.read_text().splitlines(keepends=True)
    cluster.config.write_text("".join(line for line in lines if "name: n2" not in line))
    cluster.up()
    try:
        level, words = found(cluster)["nodes"]
    finally:
        cluster.down()
        slurm.clear()
    assert level == "warn"
    assert "in the partition, and not in the configuration: n2" in words
    assert "allot config discover" in words


def test_gres_without_files_and_a_closed_partition_are_explained() -> None:
    why = "gres/gpu count reported lower than configured (0 < 8)"
    node = SlurmNode("n1", 8, 4000, state="idle", state_flags=("INVALID_REG",), reason=why)
    newer = SlurmNode("n1", 8, 4000, state=("IDLE", "INVALID_REG"), reason=why)
    for each in (node, newer):
        (finding,) = node_findings([each])
        assert why in finding.text
        assert "gres.conf with File=" in finding.advice
    for state in ("down", ("DOWN", "NOT_RESPONDING")):
        (finding,) = node_findings([SlurmNode("n1", 8, 4000, state=state, reason="fan")])
        assert finding.text == "down: n1 (fan)"
    (closed,) = partition_findings("gpu", Partition("gpu", is_up=False), [node])
    assert closed.advice == "scontrol update partitionname=gpu state=up"
    assert "munge -n" in advice_of("`scontrol` did not answer in 30 s")
    assert "slurm-client" in advice_of("`sinfo` cannot be run: No such file or directory")

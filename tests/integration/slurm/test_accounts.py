"""Jobs of a tenant are charged to an account of Slurm: a real Slurm, which keeps none."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from allotment.model.engines import EngineSetup, EngineType
from allotment.model.errors import Problem
from allotment.wiring.slurm import wrong_charges
from tests.integration.slurm.test_engines import Mixed
from tests.support.on_slurm import a_shared_folder, shell
from tests.support.slurm import TOOLS, Slurm

CONFIG = """\
engines: {gpus: {type: slurm, partition: main, accounts: {lab: Research}}}
tenants: {lab: {}, guests: {}}
default_tenant: guests
"""


@pytest.fixture
def cluster(slurm: Slurm) -> Iterator[Mixed]:
    with a_shared_folder() as made:
        running = Mixed(made / "state", slurm, CONFIG)
        try:
            yield running
        finally:
            running.down()
            slurm.clear()


@pytest.mark.needs_root
@pytest.mark.needs_tool(*TOOLS)
def test_a_tenant_is_charged_to_its_account_and_others_to_none(cluster: Mixed) -> None:
    cluster.up()
    for tenant, account in (("lab", "research"), ("guests", "(null)")):
        job = cluster.submit(shell("sleep 1000", tenant=tenant))
        cluster.wait_for(job, "running")
        number = cluster.job(job)["attempts"][-1]["tasks"][0]["engine_job"]
        assert cluster.slurm.say("squeue", "-h", "-j", number, "-o", "%a") == account


@pytest.mark.needs_root
@pytest.mark.needs_tool(*TOOLS)
def test_a_quality_of_service_is_refused_where_slurm_keeps_none(cluster: Mixed) -> None:
    cluster.config.write_text(CONFIG.replace("partition: main", "partition: main, qos: high"))
    done = cluster.start("--config", str(cluster.config))
    assert done.returncode != 0
    assert "engines.gpus.qos: is given, and Slurm keeps no accounts" in done.stderr


# ── a database that has accounts ────────────────────────────────────────────────────────


@pytest.fixture
def sacctmgr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a `sacctmgr` on the path that runs a script."""

    def write(script: str) -> None:
        path = tmp_path / "sacctmgr"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return write


SETUP = EngineSetup("gpus", EngineType.SLURM, "main", (("lab", "Research"), ("x", "y")), "high")


def told(setup: EngineSetup = SETUP) -> list[tuple[str, str]]:
    found: list[Problem] = list(wrong_charges(setup))
    return [(each.path, each.message) for each in found]


def test_what_slurm_does_not_know_is_told_by_name(sacctmgr: Callable[[str], None]) -> None:
    sacctmgr('case "$*" in *account*) echo root; echo research;; *) echo normal;; esac')
    assert told() == [
        ("engines.gpus.accounts", "Slurm has no account y"),
        ("engines.gpus.qos", "Slurm has no qos high"),
    ]
    assert told(EngineSetup("gpus", EngineType.SLURM, "main", (("lab", "RESEARCH"),))) == []


def test_a_database_that_does_not_answer_is_no_fault(sacctmgr: Callable[[str], None]) -> None:
    sacctmgr('echo "sacctmgr: error: slurmdbd: Connection refused" >&2; exit 1')
    assert told() == []
    sacctmgr("exit 3")  # Nor is anybody asked where nothing is wanted.
    assert told(EngineSetup("gpus", EngineType.SLURM, "main")) == []

"""What `allot doctor` says of Slurm's accounts."""

from allotment.cli.doctor_finding import Level
from allotment.cli.doctor_slurm import accounts_findings
from allotment.model.engines import EngineSetup, EngineType

ENFORCED = {"AccountingStorageEnforce": "associations,limits,qos"}


def test_an_association_is_told_of_where_slurm_wants_one() -> None:
    setup = EngineSetup("gpus", EngineType.SLURM, "gpu")
    (finding,) = accounts_findings(ENFORCED, setup)
    assert finding.level is Level.NOTE
    assert "sacctmgr add user NAME account=ACCOUNT" in finding.advice
    charged = EngineSetup("gpus", EngineType.SLURM, "gpu", accounts=(("lab", "research"),))
    (finding,) = accounts_findings(ENFORCED, charged)
    assert "account=research" in finding.advice
    assert not list(accounts_findings({"AccountingStorageEnforce": "none"}, setup))


def test_pilots_are_jobs_of_the_services_user_alone() -> None:
    pilots = EngineSetup("gpus", EngineType.PILOT, "gpu")
    assert not list(accounts_findings(ENFORCED, pilots))

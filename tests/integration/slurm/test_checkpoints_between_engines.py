"""A job that goes from this machine to a node with its own disk, or back, has what it saved."""

from collections.abc import Iterator

import pytest

from tests.integration.service.test_data import as_user
from tests.integration.service.test_saving import REPORT
from tests.integration.service.test_store_checkpoints import wait_kept
from tests.integration.slurm.test_data_on_pilots import ENDED, SMALL
from tests.integration.slurm.test_files_on_own_disks import OnNodes, on_nodes
from tests.integration.slurm.test_versions_from_own_disks import RESUMES
from tests.support.cluster import until
from tests.support.on_pilots import gated
from tests.support.slurm import TOOLS

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tool(*TOOLS, "openssl", "unshare"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
CONFIG = """\
engines:
  here: {{type: local}}
  gpus: {{type: pilot, partition: main, folder: {disk}/pilots}}
nodes:
- {{names: [n1, n2], cpu: 4, memory: 2000MiB, disk: 1TiB, engine: gpus}}
- {{name: host, cpu: 2, memory: 2000MiB, disk: 1TiB, engine: here}}
tenants:
  ann: {{users: [ann, root]}}
limits: {{backoff: {{first: 2s, most: 2s}}}}
"""
HERE, THERE = ("host",), ("n1", "n2")


@pytest.fixture(scope="module")
def service() -> Iterator[OnNodes]:
    with on_nodes(CONFIG, OnNodes) as running:
        until(lambda: set(running.nodes().values()) == {"ready"}, "the nodes")
        yield running


@pytest.mark.parametrize(("first", "then"), [(HERE, THERE), (THERE, HERE)])
def test_a_checkpoint_goes_with_its_job_to_another_engine(
    service: OnNodes, first: tuple[str, ...], then: tuple[str, ...]
) -> None:
    name, gate = f"from-{first[0]}", service.seen / first[0]
    as_user(service, "ann", "create", name)
    script = (
        f"{RESUMES} mkdir -p c1/deep; echo part >c1/deep/of-0; report c1 1; "
        f"{gated(gate)}; exit 3"
    )
    tell(service, "drain", then)
    how = {"engine": "any", "retry": 1, "checkpoint": {"save": name}, "resources": SMALL}
    job = service.submitted("ann", REPORT + script, **how)
    wait_kept(service, job, f"ann/{name}@1")
    tell(service, "undrain", then)
    tell(service, "drain", first)
    gate.touch()
    service.wait_for(job, *ENDED)
    tell(service, "undrain", first)
    nodes = [each["tasks"][0]["node"] for each in service.job(job)["attempts"]]
    assert nodes[0] in first
    assert nodes[1] in then
    assert "part" in service.output(job), service.job(job)
    told = service.allot("events", str(job)).stdout
    assert f"continues from step 1: its checkpoint in ann/{name}@1" in told


def tell(service: OnNodes, verb: str, nodes: tuple[str, ...]) -> None:
    for node in nodes:
        done = service.allot(verb, node)
        assert done.returncode == 0, done.stderr

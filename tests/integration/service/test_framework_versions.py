"""Two versions of one real framework at once: jax from the machine's index, in environments.

What is fetched is some 350 MB, so it runs only when it is asked for: `make nightly`.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.registry import Job, WithUsers, a_service

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.slow,
    pytest.mark.may_skip("fetches some 350 MB from the machine's package index"),
    pytest.mark.skipif("ALLOT_FRAMEWORKS" not in os.environ, reason="in `make nightly`"),
]

VERSIONS = {"ann": "0.4.30", "ben": "0.6.2"}
PROGRAM = """
import pathlib, sys
meet, me, other = pathlib.Path(sys.argv[1]), *sys.argv[2:]
import jax, jaxlib, jax.numpy as jnp
@jax.jit
def loss(w, x):
    return ((x @ w - x.sum(1)) ** 2).mean()
x = jax.random.normal(jax.random.PRNGKey(1), (64, 4))
w, step = jnp.zeros(4), jax.jit(jax.grad(loss))
(meet / me).touch()
while not (meet / other).exists():  # Both have loaded theirs, and go on computing.
    w = w - 0.1 * step(w, x)
for _ in range(200):
    w = w - 0.1 * step(w, x)
print(jax.__version__, jaxlib.__version__, float(loss(w, x)) < 1e-6)
"""


@pytest.fixture
def service(reachable: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WithUsers]:
    # Indexes that a user of this machine prefers may have these in other versions only.
    home = reachable / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    with a_service(reachable) as made:
        yield made


def submitted(service: WithUsers, user: str, other: str, meet: Path) -> int:
    version = VERSIONS[user]
    spec: dict[str, Any] = {
        "name": f"jax-{version}", "tenant": user,
        "command": ["python", "-c", PROGRAM, str(meet), user, other],
        "environment": {"requirements": [f"jax=={version}", f"jaxlib=={version}"]},
        "resources": {"cpu": 0.5, "memory": "2GiB"},
    }  # fmt: skip
    status, answer = service.ask_as(user, "POST", "/v1/jobs", spec)
    assert status == 201, answer
    return answer["id"]


def test_two_versions_of_jax_compute_at_the_same_time(
    service: WithUsers, reachable: Path
) -> None:
    meet = reachable / "meet"
    meet.mkdir()
    meet.chmod(0o777)
    jobs = [
        submitted(service, user, other, meet)
        for user, other in (("ann", "ben"), ("ben", "ann"))
    ]
    ended: list[Job] = []
    for job in jobs:
        service.wait_for(job, "succeeded", "failed", seconds=900)
        ended.append(Job(service, job))
    assert [job.output.split() for job in ended] == [
        [version, version, "True"] for version in VERSIONS.values()
    ], [job.diagnosis for job in ended]
    rows = service.get("/v1/environments")
    assert len(rows) == len(VERSIONS)
    _tell(ended, service.state / "environments/made")


def _tell(ended: list[Job], made: Path) -> None:
    """Print the figures of this run; nothing is expected of them."""
    for job in ended:
        phases = job.view["attempts"][-1]["tasks"][0]["phases"]
        took = next(each["ms"] for each in phases if each["name"] == "environment")
        print(f"{job.view['row']['name']}: built in {took / 1000:.1f} s")
    for folder in [*sorted(made.iterdir()), made]:
        size = subprocess.run(["du", "-sm", folder], capture_output=True, text=True, check=True)
        print(f"{folder.name}: {size.stdout.split()[0]} MiB of the disk")

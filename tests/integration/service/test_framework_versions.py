"""Two versions of one real framework at once: from the machine's index, in environments.

Some 350 MB are fetched for jax, and 5 GB for PyTorch: only when asked for, by `make nightly`.
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
    pytest.mark.may_skip("fetches frameworks from the machine's package index"),
    pytest.mark.skipif("ALLOT_FRAMEWORKS" not in os.environ, reason="in `make nightly`"),
]

USERS = ("ann", "ben")
VERSIONS = {"jax": ("0.4.30", "0.6.2"), "torch": ("2.4.1", "2.8.0")}
MEET = """
import pathlib, sys
meet, me, other = pathlib.Path(sys.argv[1]), *sys.argv[2:]
def met():  # Both have loaded theirs, and go on computing.
    (meet / me).touch()
    return (meet / other).exists()
"""
PROGRAMS = {
    "jax": MEET
    + """
import jax, jax.numpy as jnp
@jax.jit
def loss(w, x):
    return ((x @ w - x.sum(1)) ** 2).mean()
x = jax.random.normal(jax.random.PRNGKey(1), (64, 4))
w, step = jnp.zeros(4), jax.jit(jax.grad(loss))
while not met():
    w = w - 0.1 * step(w, x)
for _ in range(200):
    w = w - 0.1 * step(w, x)
print(jax.__version__, float(loss(w, x)) < 1e-6)
""",
    "torch": MEET
    + """
import torch
torch.manual_seed(1)
x, w = torch.randn(64, 4), torch.zeros(4, requires_grad=True)
steps = torch.optim.SGD([w], lr=0.1)
def step():
    steps.zero_grad()
    loss = ((x @ w - x.sum(1)) ** 2).mean()
    loss.backward()
    steps.step()
    return float(loss)
while not met():
    step()
for _ in range(200):
    last = step()
print(torch.__version__.partition("+")[0], last < 1e-6)
""",
}


@pytest.fixture
def service(reachable: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WithUsers]:
    # Indexes that a user of this machine prefers may have these in other versions only.
    home = reachable / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    with a_service(reachable) as made:
        yield made


@pytest.mark.parametrize("framework", VERSIONS)
def test_two_versions_compute_at_the_same_time(
    framework: str, service: WithUsers, reachable: Path
) -> None:
    meet = reachable / "meet"
    meet.mkdir()
    meet.chmod(0o777)
    jobs: list[int] = []
    for user, other, version in zip(USERS, reversed(USERS), VERSIONS[framework], strict=True):
        spec: dict[str, Any] = {
            "name": f"{framework}-{version}", "tenant": user,
            "command": ["python", "-c", PROGRAMS[framework], str(meet), user, other],
            "environment": {"requirements": [f"{framework}=={version}"]},
            "resources": {"cpu": 0.5, "memory": "2GiB"},
        }  # fmt: skip
        status, answer = service.ask_as(user, "POST", "/v1/jobs", spec)
        assert status == 201, answer
        jobs.append(answer["id"])
    ended: list[Job] = []
    for job in jobs:
        service.wait_for(job, "succeeded", "failed", seconds=900)
        ended.append(Job(service, job))
    assert [job.output.split() for job in ended] == [
        [version, "True"] for version in VERSIONS[framework]
    ], [job.diagnosis for job in ended]
    assert len(service.get("/v1/environments")) == len(USERS)
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

"""The service objectives of a tenant in a configuration."""

import pytest

from allotment.model.errors import BadInput
from allotment.model.objectives import Objectives
from allotment.model.quantity import MINUTE, Millis
from allotment.model.tenancy import Tenant
from allotment.wire.config import config_to_wire, read_config
from allotment.wire.config_objectives import write_percent
from allotment.wire.tree import Plain

NODE = "nodes: [{name: n, cpu: 8, memory: 8GiB, gpu: {type: A, count: 8}}]\n"


def tenant(text: str) -> Tenant:
    config, _ = read_config(
        f"{NODE}tenants: {{t: {text}}}".encode(), source="c.yaml", machine=None
    )
    return config.tenants[0]


def problems(text: str) -> list[str]:
    with pytest.raises(BadInput) as caught:
        tenant(text)
    return [str(problem) for problem in caught.value.problems]


def written(text: str) -> dict[str, Plain]:
    whole = f"{NODE}tenants: {{t: {text}}}".encode()
    config, _ = read_config(whole, source="c.yaml", machine=None)
    tenants = config_to_wire(config)["tenants"]
    assert isinstance(tenants, dict)
    found = tenants["t"]
    assert isinstance(found, dict)
    return found


def test_objectives() -> None:
    text = (
        "{objectives: {guarantee_back_within: 2min, wait_within_guarantee: 90s, "
        "availability: 99.95%}}"
    )
    assert tenant(text).objectives == Objectives(Millis(2 * MINUTE), Millis(90_000), 999_500)
    assert written(text)["objectives"] == {
        "guarantee_back_within": "2m",
        "wait_within_guarantee": "1m30s",
        "availability": "99.95%",
    }
    assert tenant("{objectives: {availability: 100 %}}").objectives == Objectives(
        availability_ppm=1_000_000
    )
    assert tenant("{}").objectives == tenant("{objectives: {}}").objectives == Objectives()
    assert "objectives" not in written("{}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("availability: 99.5", "must be a percentage"),
        ("availability: 0%", "more than 0% and at most 100%"),
        ("availability: 100.5%", "more than 0% and at most 100%"),
        ("availability: 99.12345%", "must be a percentage"),
        ("wait_within_guarantee: soon", "must be a length of time"),
        ("wait_within_guarantee: 0", "must be more than 0"),
        ("guarantee_back_within: -1s", "must be a length of time"),
        ("colour: red", "there is no key"),
    ],
)
def test_bad_objectives(text: str, said: str) -> None:
    (problem,) = problems(f"{{objectives: {{{text}}}}}")
    assert f"objectives.{text.partition(':')[0]}" in problem
    assert said in problem


@pytest.mark.parametrize("ppm", [1, 10, 500_000, 995_000, 999_999, 1_000_000])
def test_percentages_read_back(ppm: int) -> None:
    text = f"{{objectives: {{availability: {write_percent(ppm)}}}}}"
    assert tenant(text).objectives.availability_ppm == ppm

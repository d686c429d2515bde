"""`allot health` against a canned service: what is sent and printed."""

import json as json_module
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allotment.model.cluster import NodeState
from allotment.model.health import HardwareHealth, Source
from allotment.model.ids import JobId
from allotment.model.quantity import GIB, Resources
from allotment.service import views as v
from allotment.service.hardware_view import HardwareView
from tests.integration.cli.canned import Service, json, problem
from tests.support.invoke import allot

BAD = HardwareView(
    "n1",
    3,
    HardwareHealth.BAD,
    Source.ADMIN,
    "declared",
    "fan",
    "root",
    True,
    1_000,
    2_000,
    (JobId(7),),
)
SUSPECT = HardwareView(
    "n2", None, HardwareHealth.SUSPECT, Source.PROBE, "slow_link", "", since=1_000
)
WELL = HardwareView("n1", 3, HardwareHealth.HEALTHY)


@pytest.fixture(autouse=True)
def _here(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLOT_STATE", str(state))
    for name in ("ALLOT_URL", "ALLOT_TOKEN", "NO_COLOR", "COMP_WORDS"):
        monkeypatch.delenv(name, raising=False)


def sent(service: Service) -> Any:
    return json_module.loads(service.requests[-1].body)


def test_unhealthy_hardware_is_listed(service: Service) -> None:
    service.routes["GET /v1/health"] = json([BAD, SUSPECT])
    ran = allot("health")
    _, one, two = ran.out.splitlines()
    assert "out of use" not in ran.err
    assert one.split()[:2] == ["n1:3", "bad"]
    assert one.split()[-3:] == ["root", "7", "fan"]
    assert two.split()[:2] == ["n2", "suspect"]
    assert two.split()[-2:] == ["probe", "slow_link"]
    assert json_module.loads(allot("health", "--json").out)[0]["device"] == 3


def test_what_is_held_back_is_said_with_what_to_do(service: Service) -> None:
    held = msgspec.structs.replace(
        SUSPECT, health=HardwareHealth.DOUBTED, held_back=True, suspected=4
    )
    service.routes["GET /v1/health"] = json([BAD, held])
    ran = allot("health")
    assert ran.out.splitlines()[2].split()[:2] == ["n2", "doubted"]
    assert " 4 " in ran.out.splitlines()[2]
    assert "n2 would be out of use, but that is more than reports" in ran.err
    assert "`allot health bad n2`" in ran.err


def test_where_all_is_well_it_says_so(service: Service) -> None:
    service.routes["GET /v1/health"] = json([])
    ran = allot("health")
    assert (ran.code, ran.out) == (0, "")
    assert "all hardware is healthy" in ran.err


def test_a_word_is_sent_and_who_is_still_there_is_told(service: Service) -> None:
    service.routes["POST /v1/health"] = json([BAD])
    ran = allot("health", "bad", "n1:3", "--because", "fan")
    assert sent(service)["where"] == "n1:3"
    assert sent(service)["because"] == "fan"
    assert sent(service)["ok"] is False
    assert "n1:3 is bad; still there: job 7" in ran.err


def test_ok_withdraws_it(service: Service) -> None:
    service.routes["POST /v1/health"] = json([WELL])
    ran = allot("health", "ok", "n1:3")
    assert sent(service)["ok"] is True
    assert "n1:3 is healthy" in ran.err


def test_what_is_refused_is_told(service: Service) -> None:
    service.routes["POST /v1/health"] = problem(404, "no_such_node", "No hardware x.")
    ran = allot("health", "bad", "x")
    assert ran.code == 1
    assert "No hardware x." in ran.err


@pytest.mark.parametrize("health", ["bad", "suspect"])
def test_nodes_say_what_is_wrong(service: Service, health: str) -> None:
    node = v.NodeView(
        0, "n1", NodeState.READY, "", "x86_64", Resources(1000, 8000, 32 * GIB, 0),
        Resources(0, 4000, 16 * GIB, 0), (v.DeviceView(0, "A100", 0, True, 1000, ()),), 3,
        HardwareHealth(health), f"{health}: fan",
    )  # fmt: skip
    service.routes["GET /v1/nodes"] = json([node])
    service.routes["GET /v1/reservations"] = json([])
    line = allot("nodes").out.splitlines()[1]
    assert line.split()[1] == health
    assert line.rstrip().endswith(f"{health}: fan")

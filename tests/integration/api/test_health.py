"""Hardware over HTTP: who may say what of it, and what becomes of it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allotment.model.cells import CellShare, CellType, RootCell, Topology
from allotment.model.health import RULES
from allotment.model.ids import Actor, NodeId
from allotment.model.reports import NodeReport
from tests.integration.api.live import Live
from tests.support.builders import a_config, a_tenant

IN_CELLS = msgspec.structs.replace(
    a_config(
        msgspec.structs.replace(a_tenant("vision", 8), cells=(CellShare("host", 1),)),
        msgspec.structs.replace(a_tenant("nlp", 4), cells=(CellShare("socket", 1),)),
        nodes=2,
    ),
    topology=Topology(
        types=(
            CellType("socket", "A100", 4),
            CellType("host", "socket", 2, is_node=True),
            CellType("rack", "host", 2),
        ),
        roots=(RootCell("rack", "r1", (NodeId(0), NodeId(1))),),
    ),
)


@pytest.fixture
def cells(tmp_path: Path) -> Iterator[Live]:
    with Live(tmp_path / "state", IN_CELLS) as live:
        yield live


def note(live: Live, where: str, **more: Any) -> Any:
    answer = live.ask("POST", "/v1/health", {"where": where} | more)
    assert answer.status == 200, answer
    return answer.json


def lost(live: Live) -> dict[str, str]:
    text = live.ask("GET", "/metrics").body.decode()
    lines = [line for line in text.splitlines() if line.startswith("allot_cells_lost{")]
    return dict(line.removeprefix("allot_cells_lost").rsplit(" ", 1) for line in lines)


def test_a_declared_device_is_listed_and_mended(live: Live) -> None:
    assert live.get("/v1/health") == []
    (told,) = note(live, "n0:3", because="fan")
    assert (told["health"], told["device"], told["final"]) == ("bad", 3, True)
    assert live.get("/v1/health") == [told]
    (node,) = live.get("/v1/nodes")
    assert node["devices"][3]["health"] == "bad"
    assert node["free"]["gpu_milli"] == 7000
    assert node["trouble"] == "device 3 bad: fan"
    metrics = live.ask("GET", "/metrics").body.decode()
    assert 'allot_unhealthy{health="bad",kind="device"} 1.0' in metrics
    assert 'state="broken",type="A100",virtual="true"} 1.0' in metrics
    (told,) = note(live, "n0:3", ok=True)
    assert (told["health"], told["by"]) == ("healthy", None)
    assert live.get("/v1/health") == []


def test_a_probe_is_weighed_and_not_believed_at_once(cells: Live) -> None:
    live = cells
    (told,) = note(live, "n0", source="probe", code="slow_link", because="half speed", since=5)
    assert (told["health"], told["since"], told["final"]) == ("suspect", 5, False)
    assert told["code"] == "slow_link"
    (told,) = note(live, "n0", source="probe", ok=True)
    assert told["health"] == "suspect", "for a time"
    assert told["suspected"] == 1


def test_what_would_take_too_much_away_is_held_back_and_confirmed(live: Live) -> None:
    """There is one machine: no probe takes it away by itself."""
    (told,) = note(live, "n0", source="probe", code="slow_link", because="half speed")
    assert (told["health"], told["held_back"], told["suspected"]) == ("doubted", True, 1)
    assert live.get("/v1/health") == [told]
    node = live.get("/v1/nodes")[0]
    assert (node["health"], node["trouble"]) == ("doubted", "doubted: half speed")
    live.wait_for(live.submit(resources={"gpu": 8}), "running")
    metrics = live.ask("GET", "/metrics").body.decode()
    assert "allot_unhealthy_held_back 1.0" in metrics
    assert 'allot_unhealthy{health="doubted",kind="node"} 1.0' in metrics
    events = live.get("/v1/events")
    words = next(event["text"] for event in events if event["kind"] == "HealthChanged")
    assert words == (
        "node n0 is doubted, and still used (only an administrator can take more "
        "hardware out of use): half speed"
    )
    (told,) = note(live, "n0", because="seen")
    assert (told["health"], told["held_back"]) == ("bad", False)


def test_a_job_on_a_device_that_breaks_runs_on_and_is_named(live: Live) -> None:
    job = live.submit(resources={"gpu": 4})
    live.wait_for(job, "running")
    (told,) = note(live, "n0:0", because="fan")
    assert told["jobs"] == [job]
    assert live.get(f"/v1/jobs/{job}")["row"]["state"] == "running"
    events = live.get("/v1/events")
    words = next(event["text"] for event in events if event["kind"] == "HealthChanged")
    assert words.startswith("device 0 of node n0 is bad (declared by ")


def test_a_cell_is_what_it_holds_and_its_loss_is_told(cells: Live) -> None:
    assert set(lost(cells).values()) == {"0.0"}
    told = note(cells, "r1/0/1", because="switch")
    assert [(one["node"], one["device"]) for one in told] == [("n0", d) for d in range(4, 8)]
    assert set(lost(cells).values()) == {"0.0"}, "there is a whole node, and a socket beside it"
    note(cells, "n1:0", because="fan")
    assert lost(cells)['{tenant="vision",type="host"}'] == "1.0"
    assert lost(cells)['{tenant="nlp",type="socket"}'] == "0.0"
    told = note(cells, "r1", ok=True)
    assert {one["health"] for one in told} == {"healthy"}
    assert cells.get("/v1/health") == []


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"where": "n9"}, 404, "no_such_node"),
        ({"where": "n0:8"}, 422, "bad_request"),
        ({"where": "n0:x"}, 422, "bad_request"),
        ({"where": "r1/0/9"}, 404, "no_such_node"),
        ({"where": "n0", "source": "heartbeat"}, None, None),
        ({"where": "n0", "since": "now"}, None, None),
        ({}, None, None),
    ],
)
def test_words_that_mean_nothing_are_refused(
    live: Live, body: dict[str, Any], status: int | None, code: str | None
) -> None:
    answer = live.ask("POST", "/v1/health", body)
    assert 400 <= answer.status < 500
    if code is not None:
        assert (answer.status, answer.json["code"]) == (status, code)
    assert live.get("/v1/health") == []


def test_of_a_source_that_there_is_not_the_valid_ones_are_told(live: Live) -> None:
    answer = live.ask("POST", "/v1/health", {"where": "n0", "source": "martian"})
    assert answer.status == 422
    assert "'martian' - at `$.source`: one of admin, probe" in str(answer.json)


def test_only_an_administrator_has_a_word(live: Live) -> None:
    from allotment.model.errors import Rejected
    from allotment.service.hardware_view import HealthNote

    stranger = Actor("stranger", os.geteuid() + 1)
    with pytest.raises(Rejected, match="Only the administrator"):
        live.run(live.service.note_health(HealthNote("n0"), stranger))
    assert live.get("/v1/health") == []


def test_a_node_whose_heartbeat_comes_and_goes_is_bad(cells: Live) -> None:
    live = cells
    hear = live.service.pipeline.hear
    for _ in range(RULES.troubles):
        live.call(lambda: hear(NodeReport(NodeId(0), alive=False, reason="cable")))
        live.call(lambda: hear(NodeReport(NodeId(0), alive=True)))
    (told,) = live.get("/v1/health")
    assert (told["health"], told["by"], told["words"]) == ("bad", "heartbeat", "cable")
    assert live.get("/v1/nodes")[0]["state"] == "ready", "it is back, and not trusted"

"""The configuration over the API: planned, applied while jobs run, and kept."""

import asyncio
import time
from datetime import UTC, datetime

import pytest

from allotment.model.errors import Rejected
from allotment.model.ids import JobId
from allotment.service.config_view import ConfigPlan
from tests.integration.api.live import ME, Answer, Live

ONE_RACK = """\
hardware: ["2 x 8xV100 in racks of 2"]
tenants:
  vision: {cells: {8xV100-node: 1}}
  nlp: {cells: {8xV100-node: 1}}
"""
TWO_RACKS = ONE_RACK.replace("2 x 8xV100", "4 x 8xV100").replace(
    "nlp: {cells: {8xV100-node: 1}}", "nlp: {cells: {8xV100-rack: 1}}"
)
OTHERS = """\
hardware: ["2 x 8xV100 in racks of 2 named other-"]
tenants: {vision: {}, nlp: {}}
"""
NOTHING_OWED = ONE_RACK.replace("vision: {cells: {8xV100-node: 1}}", "vision: {}")


def post(live: Live, what: str, text: str, **more: str) -> Answer:
    return live.ask("POST", f"/v1/config:{what}", {"text": text, "source": "c.yaml", **more})


def a_job(live: Live, gpus: int, count: int = 1, tenant: str = "vision") -> int:
    role = {"command": "fake forever", "count": count, "resources": {"gpu": gpus}}
    job = live.submit(tenant=tenant, roles={"main": role})
    live.wait_for(job, "running")
    return job


def grounds(live: Live, job: int) -> str:
    """Return on what grounds a job has its place now."""
    return live.call(lambda: live.service.state.jobs[JobId(job)].attempts[-1].entitlement.value)


def test_a_plan_tells_what_would_change_and_changes_nothing(live: Live) -> None:
    before = live.ask("GET", "/v1/config").json
    plan = post(live, "plan", ONE_RACK).json
    assert plan["current"] == before["digest"] != plan["proposed"]
    signs = {(change["sign"], change["what"]) for change in plan["changes"]}
    assert ("+", "cell type 8xV100-rack") in signs
    assert live.ask("GET", "/v1/config").json == before


def test_what_is_applied_is_in_force_is_kept_and_reads_back(live: Live) -> None:
    done = post(live, "apply", ONE_RACK).json
    assert done["applied"]
    now = live.ask("GET", "/v1/config").json
    assert (live.folder / "config.yaml").read_text() == ONE_RACK
    again = post(live, "plan", now["text"]).json
    assert again["changes"] == []
    assert again["proposed"] == again["current"] == now["digest"]


def test_a_smaller_share_demotes_and_a_larger_promotes(live: Live) -> None:
    post(live, "apply", ONE_RACK)
    job = a_job(live, 8)
    assert grounds(live, job) == "guaranteed"
    plan = post(live, "plan", NOTHING_OWED).json
    assert [each["job"] for each in plan["demoted"]] == [job]
    assert grounds(live, job) == "guaranteed"
    post(live, "apply", NOTHING_OWED)
    assert grounds(live, job) == "opportunistic"
    post(live, "apply", ONE_RACK)
    assert post(live, "plan", NOTHING_OWED).json["demoted"], "it was promoted again"


def test_hardware_comes_while_jobs_run_and_goes_only_when_idle(live: Live) -> None:
    post(live, "apply", ONE_RACK)
    job = a_job(live, 8)
    assert post(live, "apply", TWO_RACKS).status == 200
    assert grounds(live, job) == "guaranteed"
    large = a_job(live, 8, count=2, tenant="nlp")
    assert grounds(live, large) == "guaranteed"
    refused = post(live, "apply", OTHERS)
    assert refused.status == 409
    assert "n1" in refused.json["detail"]
    assert "drain" in str(refused.json)
    assert live.call(lambda: len(live.service.state.config.nodes)) == 4


def test_two_who_apply_at_once_do_not_overwrite_each_other_unseen(live: Live) -> None:
    seen = post(live, "plan", ONE_RACK).json["current"]
    assert post(live, "apply", TWO_RACKS, expect=seen).status == 200
    late = post(live, "apply", ONE_RACK, expect=seen)
    assert late.status == 409
    assert "changed it since. Nothing was applied." in late.json["detail"]
    assert len(live.service.state.config.nodes) == 4


def test_of_several_who_apply_at_once_the_first_wins_and_the_others_are_told(
    live: Live,
) -> None:
    wanted = [ONE_RACK + f"limits: {{platform_retries: {n}}}\n" for n in range(1, 7)]

    async def all_at_once() -> list[object]:
        apply = live.service.reconfiguring.apply
        asked = (apply(text.encode(), "c.yaml", "", ME) for text in wanted)
        return await asyncio.gather(*asked, return_exceptions=True)

    first, *others = live.run(all_at_once())
    assert isinstance(first, ConfigPlan)
    assert first.applied
    for other in others:
        assert isinstance(other, Rejected)
        assert "me changed it since. Nothing was applied." in str(other)
        assert "allot config plan" in other.hint
    assert live.service.state.config.limits.platform_retries == 1
    assert (live.folder / "config.yaml").read_text() == wanted[0]
    # Whoever wants what is in force already has it.
    assert post(live, "apply", wanted[0], expect="0" * 12).status == 200


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (ONE_RACK.replace("8xV100-node: 1}}\n  nlp", "8xV100-node: 5}}\n  nlp"), "8xV100-node"),
        (ONE_RACK.replace("8xV100-node", "8xV100-box"), "8xV100-box"),
        ("nodes: [", "line 1"),
        ("", "is empty"),
    ],
)
def test_what_is_wrong_is_told_with_its_place_and_nothing_changes(
    live: Live, wrong: str, said: str
) -> None:
    before = live.ask("GET", "/v1/config").json
    for what in ("plan", "apply"):
        answer = post(live, what, wrong)
        assert answer.status in (400, 422)
        assert said in answer.body.decode()
    assert live.ask("GET", "/v1/config").json == before


def test_a_date_comes_and_the_new_owner_gets_its_share_by_itself(live: Live) -> None:
    begin = datetime.fromtimestamp(int(time.time()) + 2, UTC)
    text = f"""\
nodes: [{{name: n1, cpu: 64, memory: 64GiB, gpu: {{type: A, count: 8, virtual: true}}}}]
tenants:
  vision:
    guaranteed: {{gpu: 8}}
    changes: [{{from: '{begin:%Y-%m-%dT%H:%M:%S}', until: 2900-01-01, guaranteed: {{gpu: 4}}}}]
  nlp:
    changes: [{{from: '{begin:%Y-%m-%dT%H:%M:%S}', until: 2900-01-01, guaranteed: {{gpu: 4}}}}]
"""
    plan = post(live, "plan", text).json
    assert [each["what"] for each in plan["coming"]] == ["tenant vision", "tenant nlp"]
    assert ("+", f"tenant nlp {plan['coming'][1]['when']}") in [
        (change["sign"], change["what"]) for change in plan["changes"]
    ]
    post(live, "apply", text)
    jobs = [a_job(live, 4), a_job(live, 4)]
    role = {"command": "fake forever", "resources": {"gpu": 4}}
    other = live.submit(tenant="nlp", roles={"main": role})
    live.wait_for(other, "running")
    assert live.service.state.at >= begin.timestamp() * 1000
    assert grounds(live, other) == "guaranteed"
    books = live.service.state.jobs
    states = live.call(lambda: [books[JobId(job)].state.value for job in jobs])
    assert sorted(states) == ["queued", "running"]
    again = post(live, "plan", text).json
    assert again["changes"] == []
    assert len(again["coming"]) == 2
    shown = live.ask("GET", "/v1/config").json
    assert shown["digest"] == plan["proposed"]
    assert "2900-01-01" in shown["text"]

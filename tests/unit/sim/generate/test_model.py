"""Models as files: there and back, and what is wrong with a bad one."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from allotment.sim.bad import BadScenario
from allotment.sim.generate import (
    BadModel,
    default_model,
    generate,
    model_from_json,
    model_to_json,
)

Harm = Callable[[dict[str, Any]], object]


def test_there_and_back():
    model = default_model()
    assert model_from_json(model_to_json(model)) == model


def test_texts_that_look_like_lists_stay_as_they_are():
    model = msgspec.structs.replace(default_model(), about="jobs [1 2,3] and [\n4,\n5]")
    assert model_from_json(model_to_json(model)).about == model.about


def test_a_person_can_read_it():
    text = model_to_json(default_model()).decode()
    assert text.startswith(
        '{\n  "about": "Aggregate statistics of 82,247 jobs of the Microsoft'
    )
    assert '\n  "hours": [1' in text
    assert max(len(line) for line in text.splitlines()) < 1200


def test_the_default_is_small_says_its_source_and_names_nobody():
    model = default_model()
    assert len(model_to_json(model)) < 20_000
    assert "CC-BY-4.0" in model.about
    assert "siasosp23/artifacts" in model.about
    assert [share.name for share in model.tenants] == [f"team{n}" for n in range(1, 16)]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"about": "x"}', b"\xff\xfe", "[" * 100_000]
)
def test_what_is_no_model_is_refused(text: str | bytes):
    with pytest.raises(BadModel, match="not a workload model"):
        model_from_json(text)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda raw: raw.update(version=2), "version is 2"),
        (lambda raw: raw.update(jobs=0), "jobs is 0"),
        (lambda raw: raw.update(jobs="many"), r"not a workload model: .*\$\.jobs"),
        (lambda raw: raw.update(span_ms=-1), "span_ms is -1"),
        (lambda raw: raw.update(submit_step_ms=0), "submit_step_ms"),
        (lambda raw: raw.update(run_step_ms=0), "run_step_ms"),
        (lambda raw: raw.pop("gaps"), "gaps"),
        (lambda raw: raw["hours"].pop(), "hours has 23 weights"),
        (lambda raw: raw.update(days=[0] * 7), "days: weights"),
        (lambda raw: raw.update(busy=[1] * 7 + [-1]), "busy: weights"),
        (lambda raw: raw["gaps"]["values"].reverse(), "gaps: values"),
        (lambda raw: raw.update(sizes=[]), "sizes is empty"),
        (lambda raw: raw["sizes"][1].update(tasks=0), r"sizes\[1\].tasks is 0"),
        (lambda raw: raw["sizes"][0].update(gpu_milli=-1), r"sizes\[0\].gpu_milli is -1"),
        (lambda raw: raw.update(runs=[]), "runs is empty"),
        (lambda raw: raw["runs"].reverse(), r"runs\[1\].up_to_gpu_milli"),
        (lambda raw: raw["runs"][0]["run_ms"]["at_ppm"].pop(), r"runs\[0\].run_ms"),
        (lambda raw: raw.update(tenants=[]), "tenants has no jobs"),
        (lambda raw: raw["tenants"][0].update(jobs=-1), r"tenants\[0\].jobs is -1"),
        (lambda raw: raw["tenants"][0]["sizes"].pop(), r"tenants\[0\].sizes has 9 numbers"),
        (lambda raw: raw.pop("other_sizes"), "other_sizes has 0 numbers"),
        (lambda raw: raw.update(other_sizes=[0] * 10), "other_sizes: numbers of jobs"),
        (lambda raw: raw.update(failed_ppm=700_000, cancelled_ppm=400_000), "together"),
    ],
)
def test_the_key_that_is_wrong_is_named(harm: Harm, said: str):
    raw = json.loads(model_to_json(default_model()))
    harm(raw)
    with pytest.raises(BadModel, match=said):
        model_from_json(json.dumps(raw))


def test_a_model_made_in_code_is_checked_too():
    with pytest.raises(BadModel, match="hours"):
        generate(msgspec.structs.replace(default_model(), hours=()), 1, 1)


def test_bad_models_are_bad_scenarios():
    assert issubclass(BadModel, BadScenario)

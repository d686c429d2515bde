"""docs/openapi.json says what the service does: every route is described, every answer fits."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from scripts.openapi_docs import TARGET, text
from tests.integration.api.live import Answer, Live

Schema = dict[str, Any]
DESCRIPTION: Schema = json.loads(TARGET.read_text())


def test_the_committed_description_is_the_newest() -> None:
    assert TARGET.read_text() == text(), "run `make docs`"


def test_every_reference_leads_somewhere_and_every_shape_is_used() -> None:
    wanted = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(DESCRIPTION)))
    there = set(DESCRIPTION["components"]["schemas"])
    assert wanted <= there
    by_hand = {"Code", "Control", "End", "Exited", "Greeting", "Line"}  # named in words
    assert there - wanted <= by_hand


def test_operations_have_names_of_their_own_and_words() -> None:
    operations = [each for path in DESCRIPTION["paths"].values() for each in path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    for operation in operations:
        assert operation["description"], operation["operationId"]
        assert "default" in operation["responses"]
        assert "422" not in operation["responses"]


# ── every route, for real ───────────────────────────────────────────────────────────────

JOB = {"name": "job", "tenant": "vision", "command": "fake forever"}

PLAIN = (
    "nodes: [{name: n0, cpu: 64, memory: 256GiB, gpu: {type: A, count: 8}}]\n"
    "tenants: {vision: {}}"
)

STORY: list[tuple[str, str, object]] = [
    ("POST", "/v1/jobs", {**JOB, "command": "fake 0.05 exit 3", "resources": {"gpu": 1}}),
    ("POST", "/v1/jobs?held=true", JOB),
    ("POST", "/v1/jobs", {**JOB, "resources": {"gpu": 8}}),
    ("POST", "/v1/jobs", {**JOB, "env": {"A": "b"}, "checkpoint": {"every": "10min"}}),
    ("GET", "/v1/jobs", None),
    ("GET", "/v1/submissions?key=none", None),
    ("GET", "/v1/jobs/1", None),
    ("GET", "/v1/jobs/2", None),
    ("GET", "/v1/jobs/3", None),
    ("GET", "/v1/jobs/2/why", None),
    ("GET", "/v1/jobs/3/why", None),
    ("GET", "/v1/jobs/4/why", None),
    ("GET", "/v1/jobs/3/eta", None),
    ("GET", "/v1/jobs/1/waits", None),
    ("GET", "/v1/jobs/2/waits", None),
    ("GET", "/v1/jobs/99/waits", None),
    ("GET", "/v1/jobs/4/eta", None),
    ("POST", "/v1/jobs:dry-run", JOB),
    ("POST", "/v1/jobs:dry-run", {**JOB, "resources": {"gpu": 99}}),
    ("GET", "/v1/estimates", None),
    ("PATCH", "/v1/jobs/2", {"set": ["priority=high"]}),
    ("POST", "/v1/jobs/2:clone", {"set": []}),
    ("POST", "/v1/jobs/2:release", None),
    ("POST", "/v1/jobs/4:hold", None),
    ("POST", "/v1/jobs/2:suspend", None),
    ("POST", "/v1/jobs/2:resume", None),
    ("POST", "/v1/jobs/2:cancel", None),
    ("POST", "/v1/jobs/5:note", {"text": "odd"}),
    *(
        ("POST", f"/v1/jobs:{verb}", {"jobs": {"refs": ["5"]}})
        for verb in ("hold", "release", "suspend", "resume", "cancel")
    ),
    ("POST", "/v1/jobs:retry", {"jobs": {"refs": ["1"]}}),
    ("POST", "/v1/jobs:choose", {"mine": True}),
    ("POST", "/v1/jobs:choose", {"colour": 1}),
    ("GET", "/v1/jobs/1/logs", None),
    ("GET", "/v1/jobs/1/events", None),
    ("GET", "/v1/events", None),
    ("GET", "/v1/jobs/1/outputs", None),
    ("GET", "/v1/jobs/1/outputs/1/model", None),
    ("GET", "/v1/jobs/1/outputs/1/none", None),
    ("POST", "/v1/jobs", {**JOB, "sweep": {"parameters": {"lr": [1, 2]}, "metric": "loss"}}),
    ("GET", "/v1/sweeps", None),
    ("GET", "/v1/sweeps/last", None),
    ("GET", "/v1/sweeps/nothing", None),
    ("POST", "/v1/sweeps/last:stop", None),
    ("GET", "/v1/nodes", None),
    ("GET", "/v1/pools", None),
    ("POST", "/v1/nodes/n0:drain", {"reason": "why not"}),
    ("POST", "/v1/nodes/n0:undrain", None),
    ("POST", "/v1/reservations", {"name": "fans", "begin": 1, "end": 1 << 42, "nodes": ["n0"]}),
    ("POST", "/v1/reservations", {"name": "fans", "begin": 5, "end": 1, "nodes": ["n0"]}),
    ("GET", "/v1/reservations", None),
    ("POST", "/v1/reservations/fans:end", None),
    ("POST", "/v1/reservations/none:end", None),
    ("POST", "/v1/health", {"where": "n0:3", "because": "fan"}),
    ("POST", "/v1/health", {"where": "n9"}),
    ("GET", "/v1/health", None),
    ("POST", "/v1/health", {"where": "n0", "ok": True}),
    ("GET", "/v1/tenants", None),
    ("GET", "/v1/queues", None),
    ("GET", "/v1/queues?tenant=nobody", None),
    ("GET", "/v1/cells?level=leaf", None),
    ("GET", "/v1/statistics?since=1", None),
    ("GET", "/v1/statistics?since=9&until=1", None),
    ("GET", "/v1/usage?since=1&by=user,job,type", None),
    ("GET", "/v1/usage?by=colour", None),
    ("GET", "/v1/objectives?since=1", None),
    ("GET", "/v1/objectives?since=9&until=1", None),
    ("GET", "/v1/fairness", None),
    ("GET", "/v1/usage/now", None),
    ("GET", "/v1/models", None),
    ("GET", "/v1/images", None),
    ("GET", "/v1/images:inspect?image=busybox", None),
    ("POST", "/v1/images:warm", {"image": "busybox"}),
    ("POST", "/v1/images:remove", {"image": "busybox"}),
    ("GET", "/v1/environments", None),
    ("POST", "/v1/environments:build", {"requirements": ["six"]}),
    ("POST", "/v1/environments:remove", {"key": "0"}),
    ("GET", "/v1/code", None),
    ("GET", f"/v1/code/{'0' * 64}", None),
    ("POST", "/v1/code", {"files": [["a.py", "f", 1, "0" * 64]], "version": 1}),
    ("POST", "/v1/code", {"files": [["../a.py", "f", 1, "0" * 64]], "version": 1}),
    ("POST", "/v1/code:send", {"cut": "off"}),
    ("GET", "/v1/jobs/2/code", None),
    ("POST", "/v1/data", {"name": "words"}),
    ("POST", "/v1/data", {"name": "../words"}),
    ("POST", "/v1/data/-/words:put", {"files": [["a", "f", 1, "0" * 64]], "version": 1}),
    ("POST", "/v1/data/-/words:send", {"cut": "off"}),
    ("POST", "/v1/data/-/words:take", {"files": [{"fd": 0, "size": 1}]}),
    ("POST", "/v1/data/-/words:put", {"files": [["a", "l", 0, "b"]], "version": 1}),
    ("GET", "/v1/data", None),
    ("GET", "/v1/data/vision/words", None),
    ("GET", "/v1/data/vision/none", None),
    ("GET", "/v1/data/vision/words/room", None),
    ("GET", "/v1/data/-/words/files", None),
    ("GET", f"/v1/data/-/words/files/{'0' * 64}", None),
    ("POST", "/v1/data/-/words:grant", {"user": "ann"}),
    ("POST", "/v1/data/-/words:revoke", {"user": "ann"}),
    ("POST", "/v1/data/-/words:remove", {"version": 7}),
    ("POST", "/v1/data/-/words:remove", {}),
    ("GET", "/v1/config", None),
    ("POST", "/v1/config:plan", {"text": "tenants: {vision: {}}\nnodes: []"}),
    ("POST", "/v1/config:plan", {"text": PLAIN}),
    ("POST", "/v1/config:apply", {"text": PLAIN, "expect": "another"}),
    ("POST", "/v1/config:apply", {"text": PLAIN}),
    ("GET", "/v1/service", None),
    ("POST", "/v1/service:backup", {"target": "relative"}),
    ("POST", "/v1/jobs", {"name": "bad", "colour": 1}),
    ("GET", "/v1/jobs?limit=-1", None),
    ("GET", "/healthz", None),
    ("GET", "/readyz", None),
    ("GET", "/metrics", None),
    ("POST", "/v1/service:stop", None),
]


def test_every_real_answer_is_as_described(live: Live) -> None:
    seen: set[tuple[str, str]] = set()
    for method, path, body in STORY:
        if path == "/v1/jobs/1/logs":
            (live.folder / "outputs/1/attempt-1/model").write_text("x")
        operation, template = operation_of(method, path)
        answer = live.ask(method, path, body)
        assert answer.status != 500, answer
        check(operation, answer, f"{method} {path}")
        seen.add((method.lower(), template))
        if path == "/v1/jobs" and method == "POST" and answer.status == 201:
            live.wait_for(1, "failed")
    described = {
        (method, path) for path, methods in DESCRIPTION["paths"].items() for method in methods
    }
    assert described - seen == {("get", "/v1/jobs/{ref}/exec")}


def operation_of(method: str, path: str) -> tuple[Schema, str]:
    """Find the operation that describes a request."""
    path = path.partition("?")[0]
    for template, methods in DESCRIPTION["paths"].items():
        pattern = re.sub(r"\\\{path\\\}", ".+", re.escape(template))
        pattern = re.sub(r"\\\{\w+\\\}", "[^/:]+", pattern)
        if re.fullmatch(pattern, path) and method.lower() in methods:
            return methods[method.lower()], template
    pytest.fail(f"{method} {path} is not described")


def check(operation: Schema, answer: Answer, what: str) -> None:
    responses = operation["responses"]
    described = responses.get(str(answer.status)) or responses["default"]
    if str(answer.status) not in responses:
        assert answer.status >= 400, (what, answer)
    kind = answer.headers["content-type"].partition(";")[0]
    assert kind in described["content"], (what, answer)
    if kind.endswith("json"):
        conforms(answer.json, described["content"][kind]["schema"], what)


# ── a small reader of JSON Schema: what our description uses of it ──────────────────────

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
READ = {
    "$ref",
    "type",
    "enum",
    "anyOf",
    "properties",
    "required",
    "items",
    "prefixItems",
    "additionalProperties",
    "title",
    "description",
    "default",
    "minItems",
    "maxItems",
}


def conforms(value: Any, schema: Schema, where: str) -> None:
    """Fail where a value is not what a schema says; also on a word not known here."""
    assert set(schema) <= READ, (where, schema)
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        conforms(value, DESCRIPTION["components"]["schemas"][name], where)
        return
    if "anyOf" in schema:
        assert any(_fits(value, each, where) for each in schema["anyOf"]), (
            where,
            value,
            schema,
        )
        return
    if "enum" in schema:
        assert value in schema["enum"], (where, value)
    if "type" in schema:
        assert isinstance(value, TYPES[schema["type"]]), (where, value, schema)
        assert schema["type"] == "boolean" or not isinstance(value, bool), (where, value)
    if isinstance(value, dict):
        _conforms_object(value, schema, where)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            conforms(item, schema["items"], f"{where}[{index}]")


def _conforms_object(value: dict[str, Any], schema: Schema, where: str) -> None:
    known = schema.get("properties", {})
    assert set(schema.get("required", [])) <= set(value), (where, value)
    for name, item in value.items():
        if name in known:
            conforms(item, known[name], f"{where}.{name}")
        elif "properties" in schema:
            pytest.fail(f"{where}.{name} is not described")
        elif isinstance(schema.get("additionalProperties"), dict):
            conforms(item, schema["additionalProperties"], f"{where}.{name}")


def _fits(value: Any, schema: Schema, where: str) -> bool:
    try:
        conforms(value, schema, where)
    except AssertionError:
        return False
    return True


def test_the_reader_of_schemas_sees_what_is_wrong() -> None:
    row = DESCRIPTION["components"]["schemas"]["Health"]
    for wrong in ({}, {"version": 1}, {"version": "1", "more": 2}):
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            conforms(wrong, row, "health")


def test_the_script_writes_what_the_service_serves(live: Live, tmp_path: Path) -> None:
    assert live.get("/openapi.json") == DESCRIPTION

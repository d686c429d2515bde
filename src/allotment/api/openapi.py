"""The description of the API: FastAPI's, with the shapes that msgspec and `wire` know.

Routes name their shapes with `returns` and `body_of`; `describe` puts the shapes themselves
beside them, and adds what FastAPI does not route: the submission and the WebSocket.
"""

import copy
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.responses import Response

from allotment.api import shapes
from allotment.api.problems import MEDIA_TYPE, ProblemDetails
from allotment.api.task_output import Line
from allotment.model.errors import Code
from allotment.model.reasons import Blocked
from allotment.service import views
from allotment.service.cells_view import CellTree
from allotment.service.code.view import CodeNote, CodeRoom, CodeTaken, CodeView, CodeWanted
from allotment.service.config_view import ConfigInForce, ConfigPlan
from allotment.service.content.manifest import Manifest
from allotment.service.data.view import (
    DataFiles,
    DataNote,
    DataRemoval,
    DataRoom,
    DataRows,
    DataTaken,
    DataView,
    DataWanted,
    GrantNote,
)
from allotment.service.environments.view import EnvironmentNote, EnvironmentRow, EnvironmentWish
from allotment.service.estimate_view import Accuracy, StartEstimate
from allotment.service.fairness_view import FairnessReport
from allotment.service.hardware_view import HardwareView, HealthNote
from allotment.service.image_view import ImageNote, ImageRow, ImageView
from allotment.service.live_view import LiveTask
from allotment.service.objectives_view import ObjectivesReport
from allotment.service.queue_view import TenantQueues
from allotment.service.reservation_view import ReservationNote, ReservationView
from allotment.service.selector import Chosen, Selector, Steered, Wish
from allotment.service.statistics_view import Statistics
from allotment.service.usage_view import UsageReport
from allotment.service.wait_view import WaitHistory
from allotment.wire.job import Form, job_schema

Schema = dict[str, Any]

REF = "#/components/schemas/{name}"
MODELS = (
    views.JobView,
    views.NodeView,
    views.TenantView,
    TenantQueues,
    CellTree,
    views.EventView,
    views.OutputFile,
    views.OutputPage,
    views.Submitted,
    views.Health,
    HardwareView,
    HealthNote,
    CodeRoom,
    CodeNote,
    CodeWanted,
    CodeTaken,
    CodeView,
    Manifest,
    DataFiles,
    DataNote,
    DataRemoval,
    DataRoom,
    DataRows,
    DataTaken,
    DataView,
    DataWanted,
    GrantNote,
    EnvironmentNote,
    EnvironmentRow,
    EnvironmentWish,
    ImageNote,
    ImageRow,
    ImageView,
    ReservationNote,
    ReservationView,
    Statistics,
    UsageReport,
    LiveTask,
    ObjectivesReport,
    FairnessReport,
    StartEstimate,
    Accuracy,
    Blocked,
    WaitHistory,
    Selector,
    Wish,
    Steered,
    Chosen,
    Code,
    ProblemDetails,
    Line,
    shapes.Page,
    shapes.Changes,
    shapes.Note,
    shapes.Drain,
    shapes.NewConfig,
    ConfigPlan,
    ConfigInForce,
    shapes.Backup,
    shapes.Done,
    shapes.End,
    shapes.Greeting,
    shapes.Control,
    shapes.Exited,
)
"""Every shape that a route names."""

DESCRIPTION = """\
One service, one cluster. It listens on the Unix socket `allot.sock` in its state folder, where
the kernel says who you are, and, if started with `--port`, on loopback TCP, where the token in
the file `token` says it.

Times are milliseconds since the epoch, 0 when not yet; lengths are milliseconds; memory is
bytes; devices and CPU are thousandths. Every error is `application/problem+json` with a stable
`code` and a `hint`. `{ref}` is a job's id, `last`, its name, a unique prefix of either, or
one of an array: `8[3]`. A pod that others made is `NAMESPACE%2FPOD`.
"""


class Returns(Response):
    """Marks routes whose answers `returns` describes."""

    media_type = None


def schema_of(shape: Any) -> Schema:
    """Return the schema of a type, with references to the shapes it is made of."""
    (schema,), _ = _schemas((shape,))
    return schema


def _schemas(shapes_: tuple[Any, ...]) -> tuple[tuple[Schema, ...], dict[str, Schema]]:
    return msgspec.json.schema_components(shapes_, schema_hook=_anything, ref_template=REF)


def _anything(kind: type) -> Schema:
    if kind is object:
        return {"description": "Any JSON value."}
    raise NotImplementedError(kind)


def returns(shape: Any, status: int = 200, *, what: str = "Done.") -> dict[int | str, Schema]:
    """Describe an answer in JSON."""
    return returns_as("application/json", schema_of(shape), status, what)


def returns_as(
    media_type: str, schema: Schema, status: int = 200, what: str = "Done."
) -> dict[int | str, Schema]:
    """Describe an answer of any media type."""
    return {status: {"description": what, "content": {media_type: {"schema": schema}}}}


def body_of(shape: Any) -> Schema:
    """Describe a JSON body that a route decodes itself."""
    content = {"application/json": {"schema": schema_of(shape)}}
    return {"requestBody": {"required": True, "content": content}}


PROBLEM: dict[int | str, Schema] = {
    "default": {
        "description": "It did not succeed: what is wrong, and what to do next.",
        "content": {MEDIA_TYPE: {"schema": schema_of(ProblemDetails)}},
    }
}


def describe(app: FastAPI) -> Schema:
    """Return the whole description of the API."""
    found = get_openapi(
        title="Allotment",
        version="1",
        summary="Schedules and runs deep-learning jobs of many teams on one shared cluster.",
        description=DESCRIPTION,
        routes=app.routes,
    )
    found["paths"].setdefault("/v1/jobs", {})["post"] = _submission()
    found["paths"]["/v1/code:send"] = {"post": _sending()}
    found["paths"]["/v1/data/{tenant}/{name}:send"] = {"post": _sending_data()}
    found["paths"]["/v1/jobs/{ref}/exec"] = {"get": _terminal()}
    for path in found["paths"].values():
        for operation in path.values():
            operation["responses"].update(copy.deepcopy(PROBLEM))
            operation["responses"].pop("422", None)
    _, ours = _schemas(MODELS)
    schemas = found.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas.update(ours)
    schemas.update(_job_shapes())
    found["components"]["securitySchemes"] = {
        "token": {
            "type": "http",
            "scheme": "bearer",
            "description": "Over TCP only: the content of the file `token`.",
        }
    }
    found["security"] = [{"token": []}, {}]
    return found


def _job_shapes() -> dict[str, Schema]:
    """Return the native job form, its parts moved to where all shapes are."""
    schema = _relocated(job_schema())
    parts: dict[str, Schema] = schema.pop("$defs", {})
    return {**{f"Job.{name}": part for name, part in parts.items()}, "Job": schema}


def _relocated(schema: Schema) -> Schema:
    """Point references to where the parts are put."""
    text = msgspec.json.encode(schema).replace(b'"#/$defs/', b'"#/components/schemas/Job.')
    return msgspec.json.decode(text)


EXAMPLE: Schema = {
    "name": "train",
    "tenant": "vision",
    "roles": {
        "worker": {
            "count": 4,
            "resources": {"gpu": 1, "cpu": 4, "memory": "16 GiB"},
            "command": "python train.py",
        }
    },
    "retry": 2,
    "max_run_time": "8h",
}
EXAMPLE_YAML = "name: hello\ncommand: echo hello\nresources: {cpu: 1, memory: 256 MiB}\n"


def _parameter(name: str, where: str, what: str, schema: Schema) -> Schema:
    return {"name": name, "in": where, "required": False, "description": what, "schema": schema}


def job_body() -> Schema:
    """Describe the body of a submission, or of a trial of one."""
    text = {"type": "string", "description": "The same, or the classic form, as text."}
    return {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {"$ref": REF.format(name="Job")},
                    "examples": {"a gang of four": {"value": EXAMPLE}},
                },
                "application/yaml": {
                    "schema": text,
                    "examples": {"one task": {"value": EXAMPLE_YAML}},
                },
            },
        }
    }


def _submission() -> Schema:
    """Describe POST /v1/jobs, which routes itself."""
    made = {
        "description": "Accepted, and durable.",
        "headers": {"Location": {"description": "The job.", "schema": {"type": "string"}}},
        "content": {"application/json": {"schema": schema_of(views.Submitted)}},
    }
    return {
        "tags": ["jobs"],
        "summary": "Submit Job",
        "description": "Submit a job: durable when this returns. `application/json` is the "
        "native form (or the classic one, which `form=auto` recognises); "
        "`application/yaml` is text of any form. At most 256 KiB.",
        "operationId": "submit_job",
        "parameters": [
            _parameter(
                "form",
                "query",
                "How the job is written.",
                {"type": "string", "enum": list(Form), "default": Form.AUTO.value},
            ),
            _parameter(
                "held",
                "query",
                "Hold the job: it can start only after it is released.",
                {"type": "boolean", "default": False},
            ),
            _parameter(
                "Idempotency-Key",
                "header",
                "The same key of the same user gives the same job again, not a second one.",
                {"type": "string", "minLength": 1, "maxLength": 200},
            ),
        ],
        **job_body(),
        "responses": {
            "201": made,
            "200": {**made, "description": "The key was known: the job it made then."},
        },
    }


def _sending() -> Schema:
    """Describe POST /v1/code:send, which reads its body as it comes."""
    return {
        "tags": ["code"],
        "summary": "Send Code",
        "description": "Send files that `POST /v1/code` named as missing, one after the other: "
        "32 bytes of SHA-256, 8 bytes of size (big end first), and what is in it. Files that "
        "came whole stay, whatever becomes of those after them.",
        "operationId": "send_code",
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string"}}},
        },
        "responses": {
            "200": {
                "description": "All are here.",
                "content": {"application/json": {"schema": schema_of(CodeTaken)}},
            }
        },
    }


def _sending_data() -> Schema:
    """Describe the same for the files of a dataset."""
    sent = _sending()
    named = [
        {"name": part, "in": "path", "required": True, "schema": {"type": "string"}}
        for part in ("tenant", "name")
    ]
    answer = {"application/json": {"schema": schema_of(DataTaken)}}
    return {
        **sent,
        "tags": ["data"],
        "summary": "Send Data",
        "description": "Send files for a version of a dataset, one after another: 32 bytes of "
        "SHA-256, 8 bytes of size (big end first), and what is in it. Where the digest is all "
        "zeros, the answer says what it is. Files that came whole stay, whatever becomes of "
        "those after them; what no version has goes after a day.",
        "operationId": "send_data",
        "parameters": named,
        "responses": {"200": {"description": "All are here.", "content": answer}},
    }


def _terminal() -> Schema:
    """Describe the WebSocket, as far as OpenAPI can."""
    return {
        "tags": ["jobs"],
        "summary": "Exec",
        "description": "A WebSocket: a command inside a running task's isolation. First text "
        "frame: `Greeting`. Then binary frames are its input and, the other way, its output; "
        "text frames `Control` resize its terminal or end its input. Last text frame: "
        "`Exited`. Hanging up ends the command.",
        "operationId": "exec_in_task",
        "parameters": [
            {
                "name": "ref",
                "in": "path",
                "required": True,
                "schema": {"type": "string"},
            },
            _parameter(
                "task", "query", "`role.number` or a number; the first when left out.",
                {"type": "string", "default": ""},
            ),
        ],
        "responses": {"101": {"description": "Switching to the WebSocket protocol."}},
    }  # fmt: skip

"""The description of the API: FastAPI's, with the shapes that msgspec and `wire` know.

Routes name their shapes with `returns` and `body_of`; `describe` finds them there, puts the
shapes themselves beside them, and adds what FastAPI does not route: the submission and the
WebSocket.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec
from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.routing import BaseRoute

from allotment.api import shapes
from allotment.api.problems import MEDIA_TYPE, ProblemDetails
from allotment.api.task_output import Line
from allotment.model.errors import Code
from allotment.service import views
from allotment.service.code.view import CodeTaken
from allotment.service.data.view import DataTaken
from allotment.wire.job import Form, job_schema

Schema = dict[str, Any]

REF = "#/components/schemas/{name}"
IN_WORDS = (Code, shapes.Greeting, shapes.Control, shapes.Exited, shapes.End, Line)
"""Shapes that descriptions name in words only: of WebSockets, of streams, of problems."""

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
    """The class of routes that say none: `returns` alone describes their answers."""

    media_type = None


def a_router(*tags: str) -> APIRouter:
    """Return a router for routes that the application takes as they are."""
    return APIRouter(
        tags=[*tags],
        default_response_class=Returns,
        generate_unique_id_function=lambda route: route.name,
    )


class Described(Schema):
    """The place for the schema of a shape: empty until somebody asks for the description.

    Every start of a service makes the routes, and few are asked for it.
    """

    def __init__(self, shape: Any) -> None:
        super().__init__()
        self.shape = shape

    def fill(self) -> None:
        """Put in the schema, with references to the shapes that it is made of."""
        (schema,), _ = _schemas((self.shape,))
        self.update(schema)


def _described(part: object) -> Iterator[Described]:
    """Yield the shapes that a description names, at any depth."""
    if isinstance(part, Described):
        yield part
    elif isinstance(part, dict):
        for inner in cast("Schema", part).values():
            yield from _described(inner)


def _parts(routes: Sequence[BaseRoute]) -> Schema:
    """Return what routes say of their answers and bodies."""
    return {
        route.name: {"responses": route.responses, "body": route.openapi_extra}
        for route in routes
        if isinstance(route, APIRoute)
    }


def _schemas(shapes_: Sequence[Any]) -> tuple[tuple[Schema, ...], dict[str, Schema]]:
    return msgspec.json.schema_components(shapes_, schema_hook=_anything, ref_template=REF)


def _anything(kind: type) -> Schema:
    if kind is object:
        return {"description": "Any JSON value."}
    raise NotImplementedError(kind)


def returns(shape: Any, status: int = 200, *, what: str = "Done.") -> dict[int | str, Schema]:
    """Describe an answer in JSON."""
    return returns_as("application/json", Described(shape), status, what)


def returns_as(
    media_type: str, schema: Schema, status: int = 200, what: str = "Done."
) -> dict[int | str, Schema]:
    """Describe an answer of any media type."""
    return {status: {"description": what, "content": {media_type: {"schema": schema}}}}


def body_of(shape: Any) -> Schema:
    """Describe a JSON body that a route decodes itself."""
    content = {"application/json": {"schema": Described(shape)}}
    return {"requestBody": {"required": True, "content": content}}


PROBLEM: dict[int | str, Schema] = {
    "default": {
        "description": "It did not succeed: what is wrong, and what to do next.",
        "content": {MEDIA_TYPE: {"schema": Described(ProblemDetails)}},
    }
}


def describe(app: FastAPI, routers: Sequence[APIRouter]) -> Schema:
    """Return the whole description of an API whose routes are those of `routers`."""
    unrouted = {
        "/v1/jobs": {"post": _submission()},
        "/v1/code:send": {"post": _sending()},
        "/v1/data/{tenant}/{name}:send": {"post": _sending_data()},
        "/v1/jobs/{ref}/exec": {"get": _terminal()},
    }
    routes = [route for router in routers for route in router.routes]
    named = [one for part in (_parts(routes), unrouted, PROBLEM) for one in _described(part)]
    for one in named:
        one.fill()
    found = get_openapi(
        title="Allotment",
        version="1",
        summary="Schedules and runs deep-learning jobs of many teams on one shared cluster.",
        description=DESCRIPTION,
        routes=app.routes,
    )
    for path, operations in unrouted.items():
        found["paths"].setdefault(path, {}).update(operations)
    for path in found["paths"].values():
        for operation in path.values():
            operation["responses"].update(copy.deepcopy(PROBLEM))
            operation["responses"].pop("422", None)
    _, ours = _schemas([*(one.shape for one in named), *IN_WORDS])
    schemas = found.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas.update(sorted(ours.items()))
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
        "content": {"application/json": {"schema": Described(views.Submitted)}},
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
        "32 bytes of SHA-256, 8 bytes of size (big end first), and the content. Files that "
        "arrived complete stay, even if later ones fail.",
        "operationId": "send_code",
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string"}}},
        },
        "responses": {
            "200": {
                "description": "All are here.",
                "content": {"application/json": {"schema": Described(CodeTaken)}},
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
    answer = {"application/json": {"schema": Described(DataTaken)}}
    return {
        **sent,
        "tags": ["data"],
        "summary": "Send Data",
        "description": "Send files for a version of a dataset, one after another: 32 bytes of "
        "SHA-256, 8 bytes of size (big end first), and the content. If the digest is all "
        "zeros, the "
        "answer has the real one. Files that arrived complete stay, even if later ones fail; "
        "files that no version has are deleted after a day.",
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

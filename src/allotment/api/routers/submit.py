"""POST /v1/jobs: a job comes in. The one path that has to bear a thousand requests a second.

So it is a plain ASGI application, beside FastAPI's routing of parameters; `openapi` describes
it. What is right and short is read at once; all else in a thread, for the careful readers
take their time.
"""

import asyncio
import re
from functools import partial
from urllib.parse import parse_qsl

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from allotment.api.body import read_body
from allotment.api.fair_use import FairUse
from allotment.api.render import ENCODER, JSON
from allotment.api.streams import while_there
from allotment.model.commands import SubmitJob
from allotment.model.errors import BadInput, Problem
from allotment.model.ids import Actor
from allotment.service.service import Service
from allotment.wire.job import REQUEST, Form, JobFile, read_job, read_job_json

SHORT = 8 * 1024
"""Longest body that is read on the event loop: a fraction of a millisecond."""

CLASSIC_WORDS = (b"taskRoles", b"jobName", b"protocolVersion")
KEY = re.compile(r"[\x21-\x7e]{1,200}")
TRUTHS = {"": False, "false": False, "0": False, "true": True, "1": True}


class Query(msgspec.Struct, frozen=True):
    """What a submission says outside of its body."""

    form: Form = Form.AUTO
    held: bool = False
    key: str = ""
    is_json: bool = True


class Submit:
    """The endpoint."""

    path = "/v1/jobs"

    def __init__(self, service: Service, fair_use: FairUse, stopping: asyncio.Event) -> None:
        self._service = service
        self._fair_use = fair_use
        self._stopping = stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self  # for the timing of `Front`, as FastAPI's routes do
        query = query_of(scope)
        body = await read_body(scope["headers"], receive)
        actor: Actor = scope["state"]["actor"]
        job = await self._read(body, query, actor, receive)
        made = await self._service.submit(
            SubmitJob(
                job.spec,
                query.key,
                tuple(str(warning) for warning in job.warnings),
                job.copies,
                job.max_running,
                query.held or job.held,
                job.grid,
                job.indices,
                job.sweep,
            ),
            actor,
        )
        headers = {"Location": f"/v1/jobs/{made.id}", "Cache-Control": "no-store"}
        status = 200 if made.repeated else 201
        response = Response(ENCODER.encode(made), status, headers, media_type=JSON)
        await response(scope, receive, send)

    async def _read(self, body: bytes, query: Query, actor: Actor, receive: Receive) -> JobFile:
        """Read a job, on the event loop only where that is sure to be quick.

        Raises BadInput; Gone when the client is, before its turn has come.
        """
        if is_native_json(body, query) and len(body) <= SHORT:
            return read_job_json(body)
        work = self._fair_use.read(actor, partial(careful, body, query))
        return await while_there(work, receive, self._stopping)


def careful(body: bytes, query: Query) -> JobFile:
    """Read a job in any form. Takes up to a second of a processor. Raises BadInput."""
    if is_native_json(body, query):
        return read_job_json(body)
    return read_job(body, source=REQUEST, form=query.form)


def is_native_json(body: bytes, query: Query) -> bool:
    """Whether a body can only be meant as JSON of the native form."""
    if not query.is_json or query.form is Form.CLASSIC:
        return False
    return query.form is Form.NATIVE or not any(word in body for word in CLASSIC_WORDS)


def query_of(scope: Scope) -> Query:
    """Read parameters and headers. Raises BadInput."""
    key, kind = "", b""
    for name, value in scope["headers"]:
        if name == b"idempotency-key":
            key = value.decode("latin-1")
            if not KEY.fullmatch(key):
                raise _bad("Idempotency-Key", "must be 1 to 200 visible ASCII characters")
        elif name == b"content-type":
            kind = value.lower()
    # Whoever says nothing, or what `curl -d` says by itself, most likely sends JSON.
    is_json = not kind or b"json" in kind
    if not scope["query_string"]:
        return Query(key=key, is_json=is_json)
    form, held = Form.AUTO, False
    for name, value in parse_qsl(scope["query_string"].decode("latin-1"), True):
        if name == "form":
            form = _form(value)
        elif name == "held":
            if value.lower() not in TRUTHS:
                raise _bad("held", "must be true or false")
            held = TRUTHS[value.lower()]
        else:
            raise _bad(
                name[:60],
                "is not a parameter of a submission; the parameters are form and held",
            )
    return Query(form, held, key, is_json)


def _form(value: str) -> Form:
    try:
        return Form(value)
    except ValueError:
        raise _bad("form", f"must be one of {', '.join(Form)}") from None


def _bad(where: str, message: str) -> BadInput:
    return BadInput((Problem(message, where),), "request")

"""A service that says what it is told to say: real HTTP on a real socket, real views."""

import socketserver
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Self

import msgspec

from allotment.model.diagnosis import Diagnosis, Exit, Owner, RetryClass
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.lifecycle import AttemptState, JobState, TaskState
from allotment.model.quantity import GIB, Resources
from allotment.service import views as v
from allotment.service.selector import Chosen


class Request(msgspec.Struct, frozen=True):
    """What a client sent."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Answer(msgspec.Struct, frozen=True):
    """What to send back. `cut` closes the connection in the middle of the body."""

    body: bytes = b""
    status: int = 200
    content_type: str = "application/json"
    cut: bool = False


Route = Answer | Callable[[Request], Answer]


def json(value: object, status: int = 200) -> Answer:
    return Answer(msgspec.json.encode(value), status)


def problem(status: int, code: str, detail: str, hint: str = "") -> Answer:
    body = {"title": "No", "status": status, "detail": detail, "code": code, "hint": hint}
    return Answer(msgspec.json.encode(body), status, "application/problem+json")


def stream(*events: tuple[str, str, object], cut: bool = False) -> Answer:
    """Server-sent events: (id, event, data)."""
    lines = [
        f"id: {id_}\nevent: {event}\ndata: {msgspec.json.encode(data).decode()}\n\n"
        for id_, event, data in events
    ]
    return Answer((": heartbeat\n\n" + "".join(lines)).encode(), 200, "text/event-stream", cut)


class Service:
    """The canned service of one state folder. `routes` maps `METHOD /path` to answers.

    The query is not part of a route. Each answer of a list is given once, the last for
    ever. Where nothing else is said, job 12 is chosen.
    """

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "allot.sock"
        self.routes: dict[str, Route | list[Route]] = {}
        self.requests: list[Request] = []
        self.connections = 0
        self._server: socketserver.ThreadingUnixStreamServer | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                service.connections += 1

            def answer(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                request = Request(
                    self.command, self.path, dict(self.headers), self.rfile.read(size)
                )
                service.requests.append(request)
                answer = service.answer_to(request)
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.content_type)
                length = len(answer.body) + (1 if answer.cut else 0)
                if answer.content_type == "text/event-stream":
                    self.send_header("Connection", "close")
                    self.close_connection = True
                else:
                    self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(answer.body)
                if answer.cut:
                    self.close_connection = True

            do_GET = do_POST = do_PATCH = answer  # noqa: N815 - the base class's names

            def address_string(self) -> str:
                return "unix"

            def log_message(self, format: str, *args: object) -> None: ...

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                """Clients of these tests hang up as they like."""

        self._server = Server(str(self.socket), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
            self.socket.unlink(missing_ok=True)

    def answer_to(self, request: Request) -> Answer:
        found = self.routes.get(f"{request.method} {request.path.partition('?')[0]}")
        if isinstance(found, list):
            found = found.pop(0) if len(found) > 1 else found[0]
        if found is None and request.path == "/v1/jobs:choose":
            return json(Chosen(1, ids=((JobId(12), JobId(12)),)))
        if found is None:
            return problem(404, "not_found", f"{request.method} {request.path} is no route.")
        return found if isinstance(found, Answer) else found(request)

    def asked(self, method: str) -> list[Request]:
        return [request for request in self.requests if request.method == method]


# ── views ───────────────────────────────────────────────────────────────────────────────

THEN = 1_700_000_000_000


def a_row(id_: int = 12, state: JobState = JobState.RUNNING, **changes: Any) -> v.JobRow:
    row = v.JobRow(
        id=JobId(id_), name="train", tenant="vision", queue="default", user="alice",
        state=state, priority=100, tasks=1, total=Resources(1000, 1000, GIB), attempt=1,
        submitted_at=THEN, started_at=THEN + 2000,
        finished_at=THEN + 62_000 if state.finished else 0, ran_ms=60_000,
        nodes=("n1",), entitlement=Entitlement.GUARANTEED,
    )  # fmt: skip
    return msgspec.structs.replace(row, **changes)


def a_task(index: int = 0, **changes: Any) -> v.TaskView:
    task = v.TaskView(
        index, f"worker.{index}", TaskState.RUNNING, "n1", (index,), 4711, THEN + 2000
    )
    return msgspec.structs.replace(task, **changes)


def an_attempt(no: int = 1, *tasks: v.TaskView, **changes: Any) -> v.AttemptView:
    attempt = v.AttemptView(
        no, AttemptState.RUNNING, Entitlement.GUARANTEED, THEN + 1000, THEN + 2000, 0, 60_000,
        None, "", None, None, 0, tasks or (a_task(),),
    )  # fmt: skip
    return msgspec.structs.replace(attempt, **changes)


def a_job(row: v.JobRow | None = None, **changes: Any) -> v.JobView:
    job = v.JobView(
        row=row or a_row(),
        spec={"name": "train", "roles": {"worker": {"count": 1, "command": "python train.py"}}},
        warnings=(), attempts=(an_attempt(),), checkpoint=None, evictions=0, used_retries=0,
        platform_retries=0, lost_ms=0, diagnosis=None, why=None, output_dir="/out/12",
    )  # fmt: skip
    return msgspec.structs.replace(job, **changes)


def a_failed_job(ended: Exit) -> v.JobView:
    tasks = (a_task(0, state=TaskState.ENDED, exit=ended, ended_at=THEN + 5000),)
    found = Diagnosis("error", "The program reported an error.", Owner.USER, RetryClass.UNKNOWN)
    return a_job(
        a_row(state=JobState.FAILED), attempts=(an_attempt(1, *tasks),), diagnosis=found
    )


def an_event(
    seq: int, kind: str = "AttemptStarted", text: str = "runs", **detail: Any
) -> v.EventView:
    return v.EventView(seq, THEN + seq, kind, JobId(12), "allot", (), text, detail)

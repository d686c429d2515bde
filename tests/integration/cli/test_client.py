"""The client against a service that says what it is told to."""

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

import allotment
from allotment.client import Client, Refused, Unreachable, Unreadable
from allotment.client.address import address_of_url, addresses
from allotment.model.errors import Problem
from allotment.model.lifecycle import JobState
from allotment.service.views import OutputFile, Submitted
from tests.integration.cli.canned import (
    Answer,
    Request,
    Service,
    a_job,
    a_row,
    an_event,
    json,
    problem,
    stream,
)
from tests.support.exchange import TRIES, exchanging, owned

SUBMITTED = json(Submitted(12, (12,), "train", JobState.QUEUED), 201)  # pyright: ignore


@pytest.fixture
def client(state: Path) -> Iterator[Client]:
    with Client(state=str(state)) as made:
        yield made


def test_the_client_is_at_the_top_of_the_package() -> None:
    assert allotment.Client is Client


def test_a_job_is_decoded_into_the_read_models(service: Service, client: Client) -> None:
    service.routes["GET /v1/jobs/last"] = json(a_job())
    assert client.job("last") == a_job()


def test_one_connection_serves_many_requests(service: Service, client: Client) -> None:
    service.routes["GET /v1/jobs/12"] = json(a_job())
    for _ in range(5):
        client.job(12)
    assert service.connections == 1


def test_a_kept_connection_that_died_is_replaced_unnoticed(
    service: Service, client: Client
) -> None:
    service.routes["GET /v1/jobs/12"] = json(a_job())
    client.job(12)
    service.stop()
    service.start()
    assert client.job(12) == a_job()


def test_a_submission_always_carries_a_key(service: Service, client: Client) -> None:
    service.routes["POST /v1/jobs"] = SUBMITTED
    client.submit({"name": "a", "command": "true"})
    client.submit({"name": "a", "command": "true"}, key="mine")
    first, second = service.asked("POST")
    assert len(first.headers["Idempotency-Key"]) == 32
    assert second.headers["Idempotency-Key"] == "mine"


def test_a_file_is_sent_as_it_is(service: Service, client: Client, tmp_path: Path) -> None:
    service.routes["POST /v1/jobs"] = SUBMITTED
    file = tmp_path / "job.yaml"
    file.write_text("name: a # yes\ncommand: true\n")
    made = client.submit(file, form="native", held=True)
    (sent,) = service.asked("POST")
    assert sent.body == file.read_bytes()
    assert sent.path == "/v1/jobs?form=native&held=true"
    assert made.id == 12


def test_a_refusal_keeps_code_hint_and_problems(service: Service, client: Client) -> None:
    wrong = Problem("there is no key `gpus` here", "gpus", 7, "did you mean `gpu`?")
    service.routes["POST /v1/jobs"] = Answer(
        msgspec.json.encode(
            {"detail": "no", "code": "bad_spec", "hint": "mend it", "problems": [wrong]}
        ),
        422,
        "application/problem+json",
    )
    with pytest.raises(Refused) as caught:
        client.submit("x")
    error = caught.value
    assert (error.code, error.hint, error.status) == ("bad_spec", "mend it", 422)
    assert error.problems == (wrong,)


def test_an_answer_of_something_else_is_unreadable(service: Service, client: Client) -> None:
    service.routes["GET /v1/nodes"] = Answer(b"<html>", 200, "text/html")
    service.routes["GET /v1/tenants"] = Answer(b"<html>bad gateway", 502, "text/html")
    with pytest.raises(Unreadable, match="cannot be read"):
        client.nodes()
    with pytest.raises(Unreadable, match="502: <html>bad gateway"):
        client.tenants()


def test_no_service_names_the_place_and_the_next_command(state: Path) -> None:
    with pytest.raises(Unreachable) as caught:
        Client(state=str(state)).job(1)
    assert f"{state}/allot.sock (no such file or directory)" in caught.value.message
    assert "allot up" in caught.value.hint


def test_jobs_asks_for_as_many_pages_as_are_wanted(service: Service, client: Client) -> None:
    def page(request: Request) -> Answer:
        if "before=5" in request.path:
            return json({"items": [a_row(4), a_row(3)], "next": 3})
        return json({"items": [a_row(6), a_row(5)], "next": 5})

    service.routes["GET /v1/jobs"] = page
    rows = client.jobs(limit=3, states=["queued", "held"], tenant="vision")
    assert [row.id for row in rows] == [6, 5, 4, 3]
    first, second = service.asked("GET")
    assert first.path == "/v1/jobs?tenant=vision&state=queued&state=held&limit=3"
    assert second.path.endswith("&limit=1&before=5")


def test_why_of_a_running_job_is_none(service: Service, client: Client) -> None:
    service.routes["GET /v1/jobs/12/why"] = json(None)
    assert client.why(12) is None


def test_a_job_name_cannot_leave_its_place_in_the_path(
    service: Service, client: Client
) -> None:
    with pytest.raises(Refused):
        client.cancel("a/../b?c#d")
    assert service.requests[-1].path == "/v1/jobs/a%2F..%2Fb%3Fc%23d:cancel"


# ── streams ─────────────────────────────────────────────────────────────────────────────


def test_followed_events_go_on_after_a_restart(service: Service, client: Client) -> None:
    """The first stream is cut, then the service is away, then the rest comes, each once."""
    service.routes["GET /v1/jobs/12"] = json(a_job())
    service.routes["GET /v1/jobs/12/events"] = [
        stream(("1", "event", an_event(1)), ("2", "event", an_event(2))),
        stream(("3", "event", an_event(3)), ("", "end", {"state": "succeeded"})),
    ]
    seen: list[int] = []
    for event in client.events(12, follow=True):
        seen.append(event.seq)
        if event.seq == 2:
            service.stop()
            threading.Timer(0.2, service.start).start()
    assert seen == [1, 2, 3]
    again = [r for r in service.asked("GET") if "/events" in r.path][-1]
    assert again.headers["Last-Event-ID"] == "2"
    assert "after=2" in again.path


def test_a_stream_is_given_up_when_the_service_stays_away(
    service: Service, client: Client
) -> None:
    service.routes["GET /v1/jobs/12"] = json(a_job())
    service.routes["GET /v1/jobs/12/events"] = stream(("1", "event", an_event(1)))
    events = client.events(12, follow=True, patience=0.1)
    next(events)
    service.stop()
    with pytest.raises(Unreachable):
        next(events)


def test_a_refusal_ends_a_stream_at_once(service: Service, client: Client) -> None:
    service.routes["GET /v1/jobs/12"] = json(a_job())
    service.routes["GET /v1/jobs/12/logs"] = problem(404, "no_such_task", "no task x")
    with pytest.raises(Refused, match="no task x"):
        list(client.logs(12, task="x", follow=True))


def test_wait_returns_the_finished_job(service: Service, client: Client) -> None:
    done = a_job(a_row(state=JobState.SUCCEEDED))
    service.routes["GET /v1/jobs/12"] = [json(a_job()), json(done)]
    service.routes["GET /v1/jobs/12/events"] = stream(("1", "event", an_event(1)))
    assert client.wait(12) == done


def test_wait_gives_up_in_time_while_a_stream_is_silent(
    service: Service, client: Client
) -> None:
    quiet = threading.Event()

    def silence(_: Request) -> Answer:
        quiet.wait(5)
        return stream()

    service.routes["GET /v1/jobs/12"] = json(a_job())
    service.routes["GET /v1/jobs/12/events"] = silence
    with pytest.raises(TimeoutError):
        client.wait(12, timeout=0.2)
    quiet.set()


def test_logs_are_read_task_by_task(service: Service, client: Client) -> None:
    def text(request: Request) -> Answer:
        out = "stream=stdout" in request.path
        return Answer("größe\n".encode() if out else b"", 200, "text/plain")

    service.routes["GET /v1/jobs/12"] = json(a_job())
    service.routes["GET /v1/jobs/12/logs"] = text
    (line,) = client.logs(12)
    assert (line.task, line.stream, line.text) == ("worker.0", "stdout", "größe\n")


# ── files ───────────────────────────────────────────────────────────────────────────────

MODEL = OutputFile(2, "a b/model.npz", 5, 0)


def test_fetch_writes_the_file_where_it_belongs(
    service: Service, client: Client, tmp_path: Path
) -> None:
    service.routes["GET /v1/jobs/12/outputs/2/a%20b/model.npz"] = Answer(b"12345")
    target = client.fetch(12, MODEL, tmp_path)
    assert target == tmp_path / "a b" / "model.npz"
    assert target.read_bytes() == b"12345"
    assert list(target.parent.iterdir()) == [target]


def test_a_fetch_that_breaks_off_leaves_nothing(
    service: Service, client: Client, tmp_path: Path
) -> None:
    service.routes["GET /v1/jobs/12/outputs/2/a%20b/model.npz"] = Answer(b"123", cut=True)
    with pytest.raises((Unreachable, Unreadable)):
        client.fetch(12, MODEL, tmp_path)
    assert list((tmp_path / "a b").iterdir()) == []


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "a//b", ".", "", "a/."])
def test_a_fetch_never_leaves_its_folder(
    service: Service, client: Client, tmp_path: Path, path: str
) -> None:
    service.routes[f"GET /v1/jobs/12/outputs/1/{path}"] = Answer(b"x")
    with pytest.raises(Unreadable, match="outside"):
        client.fetch(12, OutputFile(1, path, 1, 0), tmp_path / "in")
    assert not (tmp_path / "x").exists()


def test_a_fetch_follows_no_link_that_lies_in_its_way(
    service: Service, client: Client, tmp_path: Path
) -> None:
    """The folder may be one that others can change, and we may be root."""
    away, target = tmp_path / "away", tmp_path / "in"
    for folder in (away, target):
        folder.mkdir()
    (away / "file").write_text("before")
    (target / "sub").symlink_to(away)
    (target / "link").symlink_to(away / "file")
    (target / "file").write_text("")
    for path in ("sub/x", "link", "file/x"):
        service.routes[f"GET /v1/jobs/12/outputs/1/{path}"] = Answer(b"1")
    for path in ("sub/x", "file/x"):
        with pytest.raises(Unreadable, match="is a link or no folder"):
            client.fetch(12, OutputFile(1, path, 1, 0), target)
    assert client.fetch(12, OutputFile(1, "link", 1, 0), target).read_bytes() == b"1"
    assert [path.name for path in away.iterdir()] == ["file"]
    assert (away / "file").read_text() == "before"
    assert sorted(path.name for path in target.iterdir()) == ["file", "link", "sub"]
    assert not (target / "link").is_symlink()


@pytest.mark.needs_root
def test_a_folder_exchanged_for_a_link_while_root_fetches_leads_nowhere(
    service: Service, client: Client, reachable: Path
) -> None:
    etc = reachable / "etc"
    etc.mkdir()
    target = owned(reachable / "mallory", 64002)
    owned(target / "sub", 64002)
    (target / "link").symlink_to(etc)
    service.routes["GET /v1/jobs/12/outputs/1/sub/cron"] = Answer(b"1")
    with exchanging(target / "sub", target / "link", 64002):
        for _ in range(TRIES):
            with suppress(Unreadable):
                client.fetch(12, OutputFile(1, "sub/cron", 1, 0), target)
    assert not list(etc.iterdir())


# ── where to look ───────────────────────────────────────────────────────────────────────


def test_what_is_named_by_hand_is_all_that_is_tried(tmp_path: Path) -> None:
    environ = {"ALLOT_URL": "http://127.0.0.1:1", "ALLOT_STATE": "/env"}
    (named,) = addresses(str(tmp_path), environ=environ)
    assert named.socket == f"{tmp_path}/allot.sock"
    (from_env,) = addresses(environ=environ)
    assert from_env.socket == "/env/allot.sock"


def test_the_url_of_the_environment_comes_before_ones_own_service() -> None:
    (found,) = addresses(environ={"ALLOT_URL": "127.0.0.1:8100", "ALLOT_TOKEN": "t"})
    assert (found.host, found.port, found.token) == ("127.0.0.1", 8100, "t")


def test_ones_own_service_comes_before_the_machines(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)} if os.geteuid() else {}
    own = addresses(environ=environ)
    assert own[-1].socket == "/var/lib/allotment/allot.sock"


def test_what_a_service_posted_leads_to_its_socket_and_port(tmp_path: Path) -> None:
    (tmp_path / "address.json").write_text(
        '{"socket": "/run/short.sock", "url": "http://127.0.0.1:8100", "pid": 1}'
    )
    (tmp_path / "token").write_text("secret\n")
    socket, port = addresses(str(tmp_path), environ={})
    assert socket.socket == "/run/short.sock"
    assert (port.port, port.token) == (8100, "secret")


@pytest.mark.parametrize("url", ["ftp", "http://", "http://h:port", "http://h"])
def test_a_bad_url_is_told_plainly(url: str) -> None:
    with pytest.raises(Unreachable, match="not the address of a service"):
        address_of_url(url, "")

"""What jobs left: handed out whole, and nothing else with it."""

import os
from pathlib import Path

import pytest

from allotment.rights.removing import remove
from tests.integration.api.live import Live
from tests.integration.api.test_guard import NOBODY, as_user
from tests.support.cluster import until


def finished(live: Live) -> tuple[int, Path]:
    """Run a job to its end; give it and its output folder."""
    job = live.submit("fake 0.01")
    live.wait_for(job, "succeeded")
    folder = live.folder / "outputs" / str(job) / "attempt-1"
    assert folder.is_dir()
    return job, folder


def test_outputs_are_listed_and_fetched(live: Live) -> None:
    job, folder = finished(live)
    data = os.urandom(3_000_000)
    (folder / "deep").mkdir()
    (folder / "deep" / "model ü.npz").write_bytes(data)
    (folder / "empty").write_bytes(b"")
    page = live.get(f"/v1/jobs/{job}/outputs")
    assert page["complete"] is True
    listed = page["items"]
    assert [(f["attempt"], f["path"], f["size"]) for f in listed] == [
        (1, "deep/model ü.npz", len(data)),
        (1, "empty", 0),
    ]
    answer = live.ask("GET", f"/v1/jobs/{job}/outputs/1/deep/model%20%C3%BC.npz")
    assert answer.status == 200
    assert answer.body == data
    assert answer.headers["content-length"] == str(len(data))
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert live.ask("GET", f"/v1/jobs/{job}/outputs/1/empty").body == b""


def test_a_name_that_is_no_text_hides_no_other(live: Live) -> None:
    job, folder = finished(live)
    (folder / "good").write_text("x")
    os.close(os.open(os.fsencode(folder) + b"/bad-\xff", os.O_CREAT | os.O_WRONLY))
    paths = [file["path"] for file in live.get(f"/v1/jobs/{job}/outputs")["items"]]
    assert paths == ["bad-\ufffd", "good"]
    assert live.ask("GET", f"/v1/jobs/{job}/outputs/1/bad-%ff").status == 404


@pytest.mark.parametrize(
    "path",
    [
        "..%2f..%2f..%2ftoken",
        "../../../token",
        "%2e%2e/%2e%2e/%2e%2e/token",
        "..%252f..%252ftoken",
        "%2fetc%2fpasswd",
        "/etc/passwd",
        "a/../../../../token",
        "..",
        ".",
        "",
        "none",
        "folder",
        "link",
        "linked/passwd",
        "pipe",
        "a%00b",
        "%ff%fe",
        "x" * 300,
        "/".join(["x" * 200] * 25),
    ],
)
def test_nothing_outside_is_handed_out(live: Live, path: str) -> None:
    job, folder = finished(live)
    (folder / "folder").mkdir()
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "linked").symlink_to("/etc")
    os.mkfifo(folder / "pipe")
    answer = live.ask("GET", f"/v1/jobs/{job}/outputs/1/{path}")
    assert answer.status in (404, 422), answer
    assert answer.headers["content-type"] == "application/problem+json"
    assert b"root:" not in answer.body


@pytest.mark.parametrize("attempt", ["0", "2", "-1", "one", "99999999999999999999"])
def test_an_attempt_that_never_was(live: Live, attempt: str) -> None:
    job, folder = finished(live)
    (folder / "file").write_text("x")
    answer = live.ask("GET", f"/v1/jobs/{job}/outputs/{attempt}/file")
    assert answer.status in (404, 422)
    assert answer.json["code"] in ("not_found", "bad_request")


def test_a_reader_that_leaves_closes_the_file(live: Live) -> None:
    job, folder = finished(live)
    (folder / "big").write_bytes(bytes(50_000_000))

    def open_files() -> int:
        links = Path("/proc/self/fd").iterdir()
        return sum(link.exists() and link.resolve().name == "big" for link in links)

    with live.raw() as sock:
        request = f"GET /v1/jobs/{job}/outputs/1/big HTTP/1.1\r\nHost: x\r\n\r\n"
        sock.sendall(request.encode())
        assert b" 200 " in sock.recv(1000)
    until(lambda: open_files() == 0, "the file to be closed")


@pytest.mark.needs_root
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_root_hands_a_user_nothing_he_could_not_read_himself(reachable: Path) -> None:
    with Live(reachable / "state") as live:
        job = {"name": "theirs", "tenant": "vision", "command": "fake 0.01"}
        made = as_user(NOBODY, live, "POST", "/v1/jobs", job).json["id"]
        live.wait_for(made, "succeeded")
        folder = live.folder / "outputs" / str(made) / "attempt-1"
        assert folder.stat().st_uid == NOBODY
        (folder / "mine").write_text("hello")
        os.chown(folder / "mine", NOBODY, NOBODY)
        path = f"/v1/jobs/{made}/outputs/1"
        assert as_user(NOBODY, live, "GET", f"{path}/mine").body == b"hello"

        secret = reachable / "secret"
        secret.mkdir(mode=0o700)
        (secret / "key").write_text("for root only")
        (folder / "link").symlink_to(secret / "key")
        assert as_user(NOBODY, live, "GET", f"{path}/link").status == 404
        (folder / "closed").write_text("for root only")
        (folder / "closed").chmod(0o600)
        assert as_user(NOBODY, live, "GET", f"{path}/closed").status == 403

        # The folder is the user's: he may put a link in its place.
        folder.rename(folder.with_name("away"))
        folder.symlink_to(secret)
        answer = as_user(NOBODY, live, "GET", f"{path}/key")
        assert answer.status in (403, 404), answer
        assert b"for root" not in answer.body


def test_a_listing_has_an_end_and_says_so(live: Live) -> None:
    job, folder = finished(live)
    for name in ("b/2", "a/1", "c", "d"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")

    def listed(query: str) -> tuple[list[str], bool]:
        page = live.get(f"/v1/jobs/{job}/outputs{query}")
        return [file["path"] for file in page["items"]], page["complete"]

    assert listed("") == (["a/1", "b/2", "c", "d"], True)
    assert listed("?limit=4") == (["a/1", "b/2", "c", "d"], True)
    assert listed("?limit=3") == (["a/1", "c", "d"], False)
    assert listed("?limit=1") == (["c"], False)
    assert listed("?attempt=1") == (["a/1", "b/2", "c", "d"], True)
    assert listed("?attempt=2") == ([], True)
    for query in ("?limit=0", "?limit=200001", "?attempt=-1"):
        assert live.ask("GET", f"/v1/jobs/{job}/outputs{query}").status == 422


def test_folders_in_folders_without_end_are_listed_as_far_as_a_path_reaches(
    live: Live,
) -> None:
    job, folder = finished(live)
    (folder / "file").write_text("")
    at = os.open(folder, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("deep", dir_fd=at)
        below = os.open("deep", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    page = live.get(f"/v1/jobs/{job}/outputs")
    assert [file["path"] for file in page["items"]] == ["file"]
    assert page["complete"] is False
    remove(None, str(folder / "deep"))  # pytest could not

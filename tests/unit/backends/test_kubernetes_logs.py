"""What a pod writes is kept as it comes, to its bound, however long its lines are."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from allotment.backends.contact import Contact
from allotment.backends.kubernetes import logs, outputs
from allotment.backends.kubernetes.client import Client, Denied
from allotment.backends.kubernetes.kubeconfig import Access
from allotment.backends.kubernetes.logs import CUT, FILE, LAST_TRIES, Follower
from allotment.backends.kubernetes.outputs import Outputs
from allotment.backends.kubernetes.record import Launched, Records
from allotment.backends.kubernetes.stamped import TORN, Stamped
from allotment.model.errors import EngineAway
from allotment.model.ids import AttemptNo, JobId, TaskIndex, TaskKey

KIB = 1 << 10
BREAK = b"BREAK"
"""Stands for a connection that breaks."""
NOES = (b"400", b"404")
"""Stand for what is answered in place of a log."""
WAIT = b"WAIT"
"""Stands for a pause until the test goes on."""


class Told(Client):
    """Tells logs, one a connection; notes after each piece what is kept."""

    def __init__(self, folder: Path, logs: Sequence[Sequence[bytes]]) -> None:
        super().__init__(Access("http://k"), "ns", Contact("Kubernetes", "pods"))
        self._file, self._logs = folder / FILE, iter(logs)
        self.seen: list[int] = []
        self.asked: list[str] = []
        self.followed: list[bool] = []
        self.go_on = asyncio.Event()
        self.at_end: Callable[[], None] = lambda: None
        """What happens as a log comes to its end."""

    @contextlib.asynccontextmanager
    async def log(
        self, name: str, since: str, *, follow: bool
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        self.asked.append(since)
        self.followed.append(follow)
        yield self._pieces(next(self._logs))

    async def _pieces(self, log: Sequence[bytes]) -> AsyncIterator[bytes]:
        for piece in log:
            if piece == BREAK:
                raise EngineAway("it broke")
            if piece in NOES:
                raise Denied(int(piece), "no")
            if piece == WAIT:
                await self.go_on.wait()
                continue
            yield piece
            self.seen.append(self._file.stat().st_size)
        self.at_end()


def followed(client: Told, folder: Path, most: int) -> Follower:
    """Return the follower of a pod that has ended, once it is done."""
    follower = Follower(client, "p", folder, most)
    follower.is_over = True
    asyncio.run(follower.run())
    return follower


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "PAUSE_S", 0)


def test_a_line_that_never_ends_is_kept_as_it_comes(tmp_path: Path) -> None:
    piece = b"x" * (100 * KIB)
    client = Told(tmp_path, [[b"1t " + piece, *[piece] * 4]])
    follower = followed(client, tmp_path, 250 * KIB)
    assert client.seen == [100 * KIB, 200 * KIB, *[250 * KIB] * 3]
    assert follower.dropped == 250 * KIB
    assert (tmp_path / FILE).read_bytes() == b"x" * (250 * KIB)


def test_many_lines_are_one_write_and_none_beyond_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks: list[bytes] = []
    write = os.pwrite

    def counted(file: int, data: bytes, at: int) -> int:
        marks.append(data)
        return write(file, data, at)

    monkeypatch.setattr(os, "pwrite", counted)
    lines = b"".join(b"%03dt a\n" % index for index in range(1000))
    follower = followed(Told(tmp_path, [[lines] * 9]), tmp_path, 3 * 2000)
    assert len(marks) == 3
    assert (tmp_path / FILE).read_bytes() == b"a\n" * 3000
    assert follower.dropped == 6 * 2000


def test_others_have_their_turn_while_a_pod_writes(tmp_path: Path) -> None:
    turns: list[int] = []

    async def story() -> None:
        client = Told(tmp_path, [[b"1t " + b"x" * (640 * KIB)]])
        follower = Follower(client, "p", tmp_path, KIB)
        follower.is_over = True
        following = asyncio.create_task(follower.run())
        while not following.done():
            turns.append(1)
            await asyncio.sleep(0)

    asyncio.run(story())
    assert len(turns) >= 10


def test_a_line_that_broke_off_comes_again_once(tmp_path: Path) -> None:
    client = Told(
        tmp_path,
        [[b"1t a\n2t b", b"c", BREAK], [b"1t a\n2t bc", b"d\n2t e\n", BREAK], [b"2t e\n3t f"]],
    )
    follower = followed(client, tmp_path, 100)
    assert client.asked == ["", "1t", "2t"]
    assert (tmp_path / FILE).read_bytes() == b"a\nbcd\ne\nf"
    assert follower.dropped == 0


def test_a_node_that_cannot_be_asked_is_asked_until_it_answers(tmp_path: Path) -> None:
    client = Told(tmp_path, [*[[BREAK]] * 9, [b"1t a\n"]])
    followed(client, tmp_path, 100)
    assert (tmp_path / FILE).read_bytes() == b"a\n"


def test_output_that_does_not_come_in_time_is_missed_aloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "LAST_S", 0.01)
    key = TaskKey(JobId(1), AttemptNo(1), TaskIndex(0))
    records = Records(tmp_path)
    client = Told(records.folder(key), [[b"1t a\n2t b", BREAK], *[[BREAK]] * 100_000])

    async def story() -> None:
        kept = Outputs(client, records)
        kept.follow(key, Launched("p", "n1", "t", log_bytes=100), None, has_run=True)
        for _ in range(2):
            assert await kept.finish(key) == 0
        await kept.close()

    asyncio.run(story())
    assert (records.folder(key) / FILE).read_bytes() == b"a\n" + CUT


def test_lines_that_were_not_there_yet_as_a_pod_ended_are_read_then(tmp_path: Path) -> None:
    client = Told(tmp_path, [[], [b"1t late\n"]])
    follower = Follower(client, "p", tmp_path, 100)
    client.at_end = lambda: setattr(follower, "is_over", True)
    asyncio.run(follower.run())
    assert client.followed == [True, False]
    assert (tmp_path / FILE).read_bytes() == b"late\n"
    assert follower.is_settled


def test_a_task_that_runs_on_after_its_end_was_told_is_followed_until_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "LAST_S", 0)
    key = TaskKey(JobId(1), AttemptNo(1), TaskIndex(0))
    records = Records(tmp_path)
    client = Told(records.folder(key), [[b"1t a\n", WAIT, b"2t b\n"]])

    async def story() -> None:
        kept = Outputs(client, records)
        kept.follow(key, Launched("p", "n1", "t", log_bytes=100), None, has_run=True)
        ending = asyncio.create_task(kept.finish(key, runs_on=True))
        await asyncio.wait({ending}, timeout=0.05)
        assert not ending.done()
        client.go_on.set()
        await ending
        await kept.close()

    asyncio.run(story())
    assert (records.folder(key) / FILE).read_bytes() == b"a\nb\n"


@pytest.mark.parametrize("status", [400, 404])
def test_what_was_followed_to_its_end_is_all_of_a_pod_that_is_forgotten(
    tmp_path: Path, status: int
) -> None:
    client = Told(tmp_path, [[b"1t a\n"], [b"%d" % status]])
    follower = Follower(client, "p", tmp_path, 100)
    client.at_end = lambda: setattr(follower, "is_over", True)
    asyncio.run(follower.run())
    assert follower.is_settled
    assert client.asked == ["", "1t"]


def test_a_log_of_which_a_kubelet_says_only_why_not_is_asked_for_again(tmp_path: Path) -> None:
    client = Told(tmp_path, [[b"unable to retrieve container logs for containerd://1\n"],
                             [b"1t a\n"]])  # fmt: skip
    followed(client, tmp_path, 100)
    assert (tmp_path / FILE).read_bytes() == b"a\n"


@pytest.mark.parametrize(("has_run", "is_there"), [(True, True), (False, True), (True, False)])
def test_output_that_a_node_has_no_more_is_missed_aloud_if_there_was_any(
    tmp_path: Path, has_run: bool, is_there: bool
) -> None:
    key = TaskKey(JobId(1), AttemptNo(1), TaskIndex(0))
    records = Records(tmp_path)
    client = Told(records.folder(key), [[b"gone\n"]] * LAST_TRIES)

    async def story() -> None:
        kept = Outputs(client, records)
        kept.follow(key, Launched("p", "n1", "t", log_bytes=100), None, has_run=has_run)
        await kept.finish(key, is_there=is_there)
        await kept.close()

    asyncio.run(story())
    is_missed = has_run and is_there
    assert (records.folder(key) / FILE).read_bytes() == (CUT if is_missed else b"")


def test_a_later_service_goes_on_after_the_last_whole_line(tmp_path: Path) -> None:
    followed(Told(tmp_path, [[b"1t a\n2t b\n"], []]), tmp_path, 100)
    with (tmp_path / FILE).open("ab") as file:
        file.write(b"half")
    client = Told(tmp_path, [[b"2t b\n2t c\n"]])
    followed(client, tmp_path, 100)
    assert client.asked == ["2t"]
    assert (tmp_path / FILE).read_bytes() == b"a\nb\nc\n"


def test_where_a_log_was_begun_anew_meanwhile_that_is_said_once(tmp_path: Path) -> None:
    followed(Told(tmp_path, [[b"1t a\n2t b\n"], []]), tmp_path, 1000)
    followed(Told(tmp_path, [[b"7t h\n8t i\n"]]), tmp_path, 1000)
    followed(Told(tmp_path, [[b"7t h\n8t i\n9t j\n"]]), tmp_path, 1000)
    assert (tmp_path / FILE).read_bytes() == b"a\nb\n" + TORN + b"h\ni\nj\n"


def test_a_line_is_read_before_it_counts_and_whole(tmp_path: Path) -> None:
    found: list[bytes] = []

    async def read(lines: bytes) -> None:
        found.append(lines)

    client = Told(tmp_path, [[b"1t a\n2t b", b"c", BREAK], [b"1t a\n2t bc", b"d\n3t e\n"]])
    follower = Follower(client, "p", tmp_path, 3, read)
    follower.is_over = True
    asyncio.run(follower.run())
    assert found == [b"a\n", b"bcd\ne\n"]
    assert (tmp_path / FILE).read_bytes() == b"a\nb"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_times_are_taken_off_wherever_pieces_end(size: int) -> None:
    text = b"1t old\n2t had\n2t new\n3t a b\n\n4t \n5t open"
    lines = Stamped(b"2t", 1)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    found = b"".join(b"".join(lines.take(piece)) for piece in pieces)
    assert found == b"new\na b\n\nopen"
    assert (lines.newest, lines.same) == (b"4t", 1)
    lines.finish()
    assert (lines.newest, lines.same) == (b"5t", 1)


@pytest.mark.parametrize("words", [b"failed to try resolving symlinks\n", b"gone\n", b"x" * 99])
def test_words_of_kubernetes_about_a_log_are_no_output(words: bytes) -> None:
    lines = Stamped(b"", 0)
    assert b"".join(lines.take(b"1t a\n" + words)) == b"a\n"

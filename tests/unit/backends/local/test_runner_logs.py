"""However output is cut up: what is kept is right, and what is lost is counted."""

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from allotment.backends.local.runner.logs import CappedLog


def written(folder: Path, cap: int, parts: list[bytes]) -> CappedLog:
    log = CappedLog(str(folder / "stdout.log"), cap)
    source, sink = os.pipe()
    os.set_blocking(source, False)
    for part in parts:
        os.write(sink, part)
        log.feed(source)
    os.close(sink)
    assert log.drain(source)
    os.close(source)
    log.finish()
    return log


@given(
    cap=st.integers(200, 2000),
    sizes=st.lists(st.integers(1, 700), max_size=20),
)
def test_what_is_kept_is_right_and_what_is_lost_is_counted(
    tmp_path_factory: object, cap: int, sizes: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("log")  # type: ignore[attr-defined]
    total = sum(sizes)
    stream = bytes(number % 251 for number in range(total))
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    parts = [stream[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    log = written(folder, cap, parts)
    tails = {int(path.suffix[1:]): path.read_bytes() for path in folder.glob("*.tail.*")}
    head = (folder / "stdout.log").read_bytes() if total else b""
    if log.dropped:
        head = head[: head.index(b"\n[allotment:")]
    kept = len(head) + sum(map(len, tails.values()))
    assert stream.startswith(head)
    assert all(stream[at : at + len(tail)] == tail for at, tail in tails.items())
    assert kept + log.dropped == total
    assert kept <= cap + 3
    if total <= cap // 2:
        assert (log.dropped, tails) == (0, {})
    if total:
        assert (list(tails.values())[-1:] or [head])[0]

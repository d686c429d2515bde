"""How often those in line were overtaken, against counting each by itself."""

from hypothesis import given
from hypothesis import strategies as st

from allotment.core import overtaking
from allotment.core.overtaking import Overtaken, Overtaking
from allotment.core.rank import Key
from allotment.model.ids import JobId

MOST = 3
STEP = st.tuples(st.sampled_from(["add", "add", "remove", "overtake"]), st.integers(0, 40))


def key(number: int) -> Key:
    return ((number // 4,), JobId(number))


@given(steps=st.lists(STEP, max_size=120), size=st.sampled_from([1, 2, 5, 128]))
def test_a_line_counts_as_one_does_by_hand(steps: list[tuple[str, int]], size: int) -> None:
    before, overtaking.SIZE = overtaking.SIZE, size
    try:
        compare(steps)
    finally:
        overtaking.SIZE = before


def compare(steps: list[tuple[str, int]]) -> None:
    line = Overtaken(MOST)
    slow: dict[int, int] = {}
    for what, number in steps:
        match what:
            case "add" if number not in slow:
                slow[number] = number % 3
                line.add(key(number), number % 3)
            case "remove" if number in slow:
                assert line.remove(key(number)) == (slow.pop(number) >= MOST)
            case "overtake":
                line.overtake(key(number))
                slow |= {each: count + 1 for each, count in slow.items() if each < number}
            case _:
                pass
        assert {each: line.count(key(each)) for each in slow} == slow
        full = [key(each) for each, count in sorted(slow.items()) if count >= MOST]
        assert line.full == full


def test_lines_without_a_bound_are_not_kept() -> None:
    lines = Overtaking({("t", "a"): 2})
    for number, queue in enumerate(("a", "b", "a", "b")):
        lines.came(("t", queue), key(number))
    lines.passes(JobId(3))
    lines.passes(JobId(2))
    assert [lines.of(JobId(number)) for number in range(4)] == [(1, 2), None, (0, 2), None]
    assert lines.counts() == {JobId(0): 1}
    assert not lines.left(JobId(3))

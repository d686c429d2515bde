"""Every decision and every reason of the corpus is what it was.

A difference is a mistake, or a bug that was mended: then the commit names it, and renews the
digests with `python -m tests.golden.corpus.record > tests/golden/corpus/recorded.txt`.
"""

import pytest

from tests.golden.corpus.record import HISTORIES, digest, recorded

BLOCK = 5


@pytest.mark.parametrize("first", range(0, HISTORIES, BLOCK))
def test_what_is_decided_is_what_was_decided(first: int) -> None:
    known = recorded()
    numbers = range(first, first + BLOCK)
    differ = [number for number in numbers if digest(number) != known[number]]
    assert differ == [], "see tests/golden/corpus/record.py on how to find where"


def test_a_history_is_the_same_again() -> None:
    assert digest(7) == digest(7)

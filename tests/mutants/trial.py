"""The tests on one mutant after another, in one process that collects them once.

First every test runs on the sources as they are: which mutants does it reach, and how long does
it take? Then each mutant gets a fork of the process, in which the tests that reach it run, the
quickest first, until one fails. Tests of other packages come later.
"""

import gc
import os
import resource
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from types import CodeType
from typing import NamedTuple, NoReturn, TextIO

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.mutants.exchange import compiled, exchange, marked, observe
from tests.mutants.mutate import Mutant

LONGEST_S = 120
"""Of processor time. A mutant that lives so long counts as alive."""
FAR = 5
"""A test of another package has its turn as if it took so many times as long."""
NEAR = ("tests/golden/corpus/", "tests/property/")
"""Tests that look at all that is decided."""
HANGS_S = 10
"""So much longer than ten times its usual time, and a test counts as one that never ends."""
MOST_BYTES = 6 << 30
"""Of memory: a mutant may make a list grow for ever."""
Clear = Callable[[], None]
_cached = lru_cache(len)

settings.register_profile(
    "mutants",
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),  # the first that fails is enough
    suppress_health_check=list(HealthCheck),
)


class Drawn(NamedTuple):
    """A mutant of one file."""

    path: Path
    mutant: Mutant

    @property
    def file(self) -> str:
        """The way to the file from the top package."""
        return "/".join(self.path.parts[self.path.parts.index("allotment") + 1 :])

    def __str__(self) -> str:
        before, after = (" ".join(text.split()) for text in self.mutant[1:3])
        return f"{self.file}:{self.mutant.line}: {before}  →  {after}"


class Verdict(NamedTuple):
    """What became of a mutant."""

    drawn: Drawn
    lives: bool
    why: str

    def __str__(self) -> str:
        return f"{'ALIVE ' if self.lives else 'killed'} {self.drawn}  [{self.why}]"


class Reaching(NamedTuple):
    """A test that reaches a mutant."""

    item: pytest.Item
    seconds: float
    """Of processor time, on the sources as they are."""


class Trial:
    """A plugin of pytest that takes the place of its loop over the tests."""

    def __init__(self, drawn: Sequence[Drawn]) -> None:
        self.verdicts: list[Verdict] = []
        self._drawn = drawn
        self._marked = {each.path: _marked(each.path, drawn) for each in drawn}
        self._reached: set[int] = set()
        self._failed: list[str] = []

    def pytest_sessionstart(self) -> None:
        """Choose how generated tests run, before they are imported."""
        settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what fails."""
        if report.failed:
            self._failed.append(report.nodeid)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run every test once, then those that reach a mutant on each."""
        if session.testsfailed:
            pytest.exit("the tests cannot be collected", returncode=2)
        tests = self._reaching(session.items)
        for name in self._failed:
            print(f"left out, since it fails on the sources as they are: {name}")
        self._failed.clear()
        gc.collect()
        for drawn, reaching in zip(self._drawn, tests, strict=True):
            self.verdicts.append(self._tried(drawn, sorted(reaching, key=_turn(drawn))))
            print(self.verdicts[-1], flush=True)
        return True

    def _reaching(self, items: Sequence[pytest.Item]) -> list[list[Reaching]]:
        """Return the tests that reach each mutant."""
        for path, code in self._marked.items():
            exchange(compiled(path, path.read_text()), code)
        observe(self._reached.add)
        caches = _caches()
        found: list[list[Reaching]] = [[] for _ in self._drawn]
        for item, following in zip_longest(items, items[1:]):
            before, failed = time.process_time(), len(self._failed)
            self._reached.clear()
            _run(item, following, caches)
            reaching = Reaching(item, time.process_time() - before)
            if len(self._failed) == failed:
                for number in self._reached:
                    found[number].append(reaching)
        return found

    def _tried(self, drawn: Drawn, reaching: Sequence[Reaching]) -> Verdict:
        """Return what some tests make of a mutant, in a fork."""
        if not reaching:
            return Verdict(drawn, True, "no test reaches it")
        read, write = os.pipe()
        child = os.fork()
        if not child:
            self._be(drawn, reaching, write)
        os.close(write)
        with os.fdopen(read) as lines:
            (last,) = deque(lines, maxlen=1) or [""]
        _, status = os.waitpid(child, 0)
        if not last:
            raise RuntimeError(f"no test could be run on {drawn}")
        return Verdict(drawn, status == 0, last.strip())

    def _be(self, drawn: Drawn, reaching: Sequence[Reaching], write: int) -> NoReturn:
        """Be this mutant: exit with 0 if no test fails."""
        status = 1
        try:
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
            resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
            exchange(self._marked[drawn.path], compiled(drawn.path, drawn.mutant.text))
            with os.fdopen(write, "w", buffering=1) as report:
                status = self._lives(reaching, report)
        finally:
            os._exit(status)

    def _lives(self, reaching: Sequence[Reaching], report: TextIO) -> int:
        caches = _caches()
        begin = time.process_time()
        for number, (item, seconds) in enumerate(reaching):
            print(item.nodeid, file=report)
            signal.setitimer(signal.ITIMER_PROF, HANGS_S + 10 * seconds)
            _run(item, None, caches)
            if self._failed:
                return 1
            if time.process_time() - begin > LONGEST_S:
                print(f"{number + 1} of {len(reaching)} tests, {LONGEST_S} s", file=report)
                return 0
        print(f"{len(reaching)} tests", file=report)
        return 0


def _marked(path: Path, drawn: Sequence[Drawn]) -> CodeType:
    """Return the code of a file, with marks where something was drawn."""
    places = {each.mutant.span: n for n, each in enumerate(drawn) if each.path == path}
    return marked(path, path.read_text(), places)


def _turn(drawn: Drawn) -> Callable[[Reaching], float]:
    """Return what orders the tests that reach a mutant."""
    near = (*NEAR, f"tests/unit/{drawn.file.split('/')[0]}/")

    def turn(reaching: Reaching) -> float:
        return reaching.seconds * (1 if reaching.item.nodeid.startswith(near) else FAR)

    return turn


def _run(item: pytest.Item, following: pytest.Item | None, caches: Sequence[Clear]) -> None:
    """Run a test, with nothing remembered from those before it."""
    for clear in caches:
        clear()
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def _caches() -> list[Clear]:
    """Return what empties the caches of all functions."""
    return [each.cache_clear for each in gc.get_objects() if isinstance(each, type(_cached))]

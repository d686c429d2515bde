"""The tests on one mutant after another, in forks of one process that collects them once.

First every test runs on the sources as they are: to which mutants does it come so that their
expression has another value, and how long does it take? Then each mutant gets a fork in which
those tests run, the quickest first, until one fails. Tests of other packages come later. There
is a fork for each core of the machine at a time.
"""

import gc
import os
import pickle
import resource
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import lru_cache, partial
from itertools import zip_longest
from pathlib import Path
from types import CodeType
from typing import BinaryIO, NamedTuple, TextIO

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
CORES = len(os.sched_getaffinity(0))
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
        mutant = self.mutant
        before, after = (" ".join(text.split()) for text in (mutant.before, mutant.after))
        return f"{self.file}:{self.mutant.line}: {before}  →  {after}"


class Verdict(NamedTuple):
    """What became of a mutant."""

    drawn: Drawn
    lives: bool
    why: str

    def __str__(self) -> str:
        return f"{'ALIVE ' if self.lives else 'killed'} {self.drawn}  [{self.why}]"


class Reaching(NamedTuple):
    """A test that comes to a mutant's expression where the mutant gives another value."""

    item: pytest.Item
    seconds: float
    """Of processor time, on the sources as they are."""


class Trial:
    """A plugin of pytest that takes the place of its loop over the tests."""

    def __init__(self, drawn: Sequence[Drawn], *, trying: bool = True) -> None:
        """Unless `trying`, only those are told that no test can kill."""
        self._trying = trying
        self.verdicts: list[Verdict] = []
        self._drawn = drawn
        self._marked = {path: _marked(path, drawn) for path in {each.path for each in drawn}}
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
        gc.unfreeze()  # What is loaded is looked up there.
        tests = self._reaching(session.items)
        gc.collect()
        running: dict[int, tuple[Drawn, TextIO]] = {}
        for drawn, reaching in zip(self._drawn, tests, strict=True):
            if not reaching:
                self._tell(Verdict(drawn, True, "no test gives it another value"))
                continue
            if not self._trying:
                continue
            if len(running) == CORES:
                self._wait(running)
            report = tempfile.TemporaryFile("w+", buffering=1)  # noqa: SIM115 - closed in _wait
            trial = partial(self._be, drawn, sorted(reaching, key=_turn(drawn)), report)
            running[_forked(trial)] = drawn, report
        while running:
            self._wait(running)
        return True

    def _wait(self, running: dict[int, tuple[Drawn, TextIO]]) -> None:
        """Wait for the end of one of the forks, and tell what became of its mutant."""
        child, status = os.wait()
        drawn, report = running.pop(child)
        with report:
            report.seek(0)
            *_, last = ["", *report]
        if not last:
            raise RuntimeError(f"no test could be run on {drawn}")
        self._tell(Verdict(drawn, status == 0, last.strip()))

    def _tell(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)
        print(verdict, flush=True)

    def _reaching(self, items: Sequence[pytest.Item]) -> list[list[Reaching]]:
        """Return the tests that reach each mutant."""
        marks = self._marked.items()
        exchange([(compiled(path, path.read_text()), code) for path, code in marks])
        observe(self._reached.add)
        with ExitStack() as opened:
            files = [opened.enter_context(tempfile.TemporaryFile()) for _ in range(CORES)]
            for part, file in enumerate(files):
                _forked(partial(self._watch, items, part, file))
            statuses = [os.wait()[1] for _ in files]
            if any(statuses):
                raise RuntimeError("the tests could not be run on the sources as they are")
            found: list[list[Reaching]] = [[] for _ in self._drawn]
            for file in files:
                file.seek(0)
                for place, seconds, passed, reached in pickle.load(file):
                    item = items[place]
                    if not passed:
                        print(f"left out, since it fails as the sources are: {item.nodeid}")
                        continue
                    for number in reached:
                        found[number].append(Reaching(item, seconds))
            return found

    def _watch(self, items: Sequence[pytest.Item], part: int, file: BinaryIO) -> int:
        """Run one of so many parts of the tests; write what each of them reaches."""
        caches, watched = _caches(), list[tuple[int, float, bool, set[int]]]()
        places = range(part, len(items), CORES)
        for place, following in zip_longest(places, places[1:]):
            before = time.process_time()
            self._failed.clear()
            self._reached.clear()
            _run(items[place], None if following is None else items[following], caches)
            seconds = time.process_time() - before
            watched.append((place, seconds, not self._failed, {*self._reached}))
        pickle.dump(watched, file)
        file.flush()
        return 0

    def _be(self, drawn: Drawn, reaching: Sequence[Reaching], report: TextIO) -> int:
        """Be this mutant: return 0 if no test fails."""
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        exchange([(self._marked[drawn.path], compiled(drawn.path, drawn.mutant.text))])
        return self._lives(reaching, report)

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


def _forked(work: Callable[[], int]) -> int:
    """Return the number of a new process that does some work in silence."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        status = work()
    finally:
        os._exit(status)


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

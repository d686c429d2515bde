"""What holds for every test: when it may be skipped, and how generated tests are run."""

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import cast

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parent.parent
IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}
SHARED = ROOT.parent / "shared"
MAY_SKIP_IN_CI = ("needs_root", "needs_gpu", "needs_shared", "may_skip")

# No deadline: a shared machine may stall any example. In CI the same examples every time.
EXAMPLES = int(os.environ.get("ALLOT_HISTORIES", "30"))
settings.register_profile("local", deadline=None, max_examples=EXAMPLES)
settings.register_profile(
    "ci", deadline=None, derandomize=True, print_blob=True, max_examples=EXAMPLES
)
settings.load_profile("ci" if IN_CI else "local")

# What is collected lives to the end: to look for garbage in it took a seventh of the time.
gc.set_threshold(50_000, 20, 50)

# Whoever starts us in the background may let us ignore these, and all we start with us; but
# what we start is told to end by them.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(number) is signal.SIG_IGN:
        was_int = number is signal.SIGINT
        signal.signal(number, signal.default_int_handler if was_int else signal.SIG_DFL)


def _reachable() -> Generator[Path]:
    """A folder that other users can get to; pytest closes its own to them, at any moment."""
    with tempfile.TemporaryDirectory(prefix="allot-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


reachable = pytest.fixture(_reachable, name="reachable")
reachable_once = pytest.fixture(_reachable, scope="module", name="reachable_once")
"""One for each file of tests."""


@pytest.fixture(autouse=True)
def same_umask() -> Generator[None]:
    """A service built inside a test sets the process's umask; the next test wants its own."""
    before = os.umask(0o022)
    yield
    os.umask(before)


ON_KUBERNETES = (
    "tests/integration/kubernetes/",
    "tests/e2e/test_chaos_kubernetes.py",
    "tests/e2e/test_chaos_devices.py",
)
LONGEST = (
    *ON_KUBERNETES,
    "tests/e2e/test_chaos_slurm.py",
    "tests/integration/slurm/test_reservations.py",
    "tests/e2e/test_demo.py",
    "tests/contract/backends/",
    "tests/integration/service/test_growth.py",
    "tests/integration/slurm/",
    "tests/e2e/",
    "tests/integration/service/",
    "tests/integration/local/",
    "tests/integration/",
    "tests/property/",
    "tests/golden/",
)
"""What begins first where several workers share the tests: it takes long, and mostly waits."""

APART = (
    "tests/e2e/test_demo.py",
    "tests/golden/corpus/",
    "tests/integration/kubernetes/test_runner.py",
    "tests/integration/service/test_code_of_users.py",
    "tests/integration/service/test_environments.py",
    "tests/integration/service/test_growth.py",
    "tests/integration/service/test_migration.py",
    "tests/integration/local/test_hostile_paths.py",
    "tests/integration/local/test_hostile_user.py",
)
"""Long files whose tests share nothing: each test is dealt out by itself."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that at the end no worker has much left."""
    last = len(LONGEST)
    items.sort(
        key=lambda item: next(
            (place for place, path in enumerate(LONGEST) if item.nodeid.startswith(path)), last
        )
    )


def pytest_collection_finish() -> None:
    """Exempt the tests themselves from the search for garbage."""
    gc.freeze()


class ByFile(LoadScopeScheduling):
    """Deals out whole files, so that each starts its service once, and those apart by test.

    All other tests on Kubernetes are one part: a cluster takes long to start, and beside
    another one that is killed again and again Jobs are not done in time.
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(APART):
            return nodeid
        is_on_kubernetes = nodeid.startswith(ON_KUBERNETES)
        return "tests on Kubernetes" if is_on_kubernetes else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return ByFile(config, log)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what starts a Slurm: `make quick` leaves it out."""
    if any("slurmctld" in marker.args for marker in item.iter_markers("needs_tool")):
        item.add_marker(pytest.mark.engine)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what this machine cannot run, naming what is missing."""
    for reason in _missing(item):
        pytest.skip(reason)


def _missing(item: pytest.Item) -> Generator[str]:
    for marker in item.iter_markers("needs_tool"):
        for command in marker.args:
            if shutil.which(command) is None:
                yield f"needs the program {command}"
    for marker in item.iter_markers("needs_shared"):
        for path in marker.args:
            if not (SHARED / path).exists():
                yield f"needs reference data that is not here: ../shared/{path}"
    if item.get_closest_marker("needs_root") and os.geteuid() != 0:
        yield "needs root"
    marker = item.get_closest_marker("needs_gpu")
    if marker and not Path("/dev/nvidiactl").exists():
        would = "; ".join(marker.args)
        yield "no NVIDIA GPU here" + (f": would have shown {would}" if would else "")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a skip is a failure, unless the test says that it may be skipped there."""
    report = yield
    if not any(item.get_closest_marker(name) for name in MAY_SKIP_IN_CI):
        _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a module that skips itself as a whole."""
    report = yield
    _fail_if_skipped(report)
    return report


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not IN_CI or report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    _, _, reason = cast("tuple[str, int, str]", report.longrepr)
    report.outcome = "failed"
    report.longrepr = f"{report.nodeid}: skipped in CI, where nothing may be missing: {reason}"

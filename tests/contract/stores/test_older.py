"""What an older version wrote is read as it was meant: its databases, its configurations.

`older/COMMIT/` holds what the code of that commit wrote, and what it said of it then;
`older/make.py` says how it was made.
"""

import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allotment.engine.apply import apply
from allotment.engine.engine import Engine
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model.quantity import Instant
from allotment.service.pipeline import load
from allotment.store.sqlite import FILE, SqliteStore
from allotment.wire.config import config_to_wire, read_config
from tests.contract.stores.older.make import answers
from tests.support.audit import audit
from tests.support.builders import ALICE, POLICIES, a_job, a_node

OLDER = Path(__file__).with_name("older")
DATABASES = sorted(OLDER.glob("*/*.db.xz"))
CONFIGS = sorted(OLDER.glob("*/*.yaml"))

WORDS = {"message", "hint", "notes", "trouble"}
"""What is for people may be said in other words."""

RENAMED = {"in_line": "eligible", "owed": "guaranteed", "promised": "reserved"}
"""Fields of answers that have another name now."""


def differences(then: object, now: object, at: str = "") -> Iterator[str]:
    """Find what is not as it was; what was not there then is left out."""
    if isinstance(then, dict) and isinstance(now, dict):
        for name, value in then.items():
            if name not in WORDS:
                yield from differences(value, now.get(RENAMED.get(name, name)), f"{at}.{name}")
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for place, (before, after) in enumerate(zip(then, now, strict=True)):
            yield from differences(before, after, f"{at}[{place}]")
    elif then != now:
        yield f"{at}: was {then}, is {now}"


def recorded(path: Path) -> Any:
    return msgspec.json.decode(lzma.decompress(path.read_bytes()))


@pytest.fixture(params=DATABASES, ids=lambda path: f"{path.parent.name}-{path.name}")
def database(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture
def store(database: Path, tmp_path: Path) -> Iterator[SqliteStore]:
    (tmp_path / FILE).write_bytes(lzma.decompress(database.read_bytes()))
    opened = SqliteStore.open(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def engine(store: SqliteStore) -> Engine:
    engine = Engine(State(POLICIES))
    load(engine, store)
    return engine


@pytest.fixture
def then(database: Path) -> Any:
    return recorded(database.with_name(database.name.replace(".db.", ".json.")))


def test_an_older_database_opens_with_the_state_and_the_answers_it_had(
    store: SqliteStore, engine: Engine, then: Any
) -> None:
    assert list(differences(then, answers(engine.state, store))) == []


def test_the_log_alone_says_the_same_as_snapshot_and_tail(
    store: SqliteStore, engine: Engine
) -> None:
    from_log = State(POLICIES)
    for record in store.records():
        apply(from_log, record)
    # That snapshot does not count suspicions yet; the log has them all.
    image = msgspec.structs.replace(from_log.image(), suspected=engine.state.suspicions.all())
    assert image == engine.state.image()


def test_what_is_kept_is_in_these_databases() -> None:
    """Or the tests above would look at nothing."""
    held: set[str] = set()
    for path in OLDER.glob("*/*.json.xz"):
        then = recorded(path)
        held |= {name for name, value in then["image"].items() if value}
        for job in then["jobs"].values():
            held |= {job["row"]["state"], *(each["stop_cause"] for each in job["attempts"])}
            held |= {name for name in ("archived", "evictions", "checkpoint") if job[name]}
        held |= {f"{name} of a queue" for name in of_queues(then)}
        held |= {"array" for job in then["image"]["jobs"] if "array" in job["spec"]}
    assert held >= {
        "promises", "accounts", "spent", "health", "runs", "suspended",
        "stopping", "queued", "held", "running", "archived", "evictions", "evicted",
        "checkpoint", "array", "guaranteed of a queue", "borrowed of a queue",
    }  # fmt: skip


def of_queues(then: Any) -> Iterator[str]:
    for tenant in then["queues"]:
        for queue in tenant["queues"]:
            yield from (name for name, value in queue.items() if value)


def test_what_is_not_as_it_was_is_seen() -> None:
    then = {"a": [{"b": 1, "c": 0, "message": "x"}], "d": {"e": []}}
    assert list(differences(then, {"a": [{"b": 1, "c": 0, "f": 3}], "d": {"e": []}})) == []
    now = {"a": [{"b": 2}], "d": {"e": [4]}}
    assert list(differences(then, now)) == [
        ".a[0].b: was 1, is 2",
        ".a[0].c: was 0, is None",
        ".d.e: was [], is [4]",
    ]


def test_work_goes_on_from_an_older_database(engine: Engine) -> None:
    state = engine.state
    audit(state)
    now = Instant(state.at + 1000)
    spec = a_job().of(state.config.tenants[0].name).spec()
    engine.command(c.SubmitJob(spec), ALICE, now)
    for _ in range(100):
        if not engine.cycle(now):
            break
    audit(state)
    assert engine.refusals == 0


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_an_older_configuration_means_what_it_meant(path: Path) -> None:
    config, warnings = read_config(
        path.read_bytes(), source=path.name, machine=a_node(devices=0)
    )
    then = msgspec.json.decode(path.with_suffix(".json").read_bytes())
    assert list(differences(then["config"], config_to_wire(config))) == []
    assert [str(each) for each in warnings] == then["warnings"]

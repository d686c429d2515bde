"""An older database is brought up whole or not at all; a newer one is refused."""

import contextlib
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from allotment.model.errors import StoreError
from allotment.store import migrate
from allotment.store.faults import explained
from allotment.store.migrate import MIGRATIONS, newest, revision, upgrade
from allotment.store.schema import METADATA
from allotment.store.sqlite import FILE, SqliteStore, restore
from tests.contract.stores.stores import an_archived, everything, some_events

ADD_COLUMN = """
import sqlalchemy as sa
from alembic import op
revision, down_revision = "0003", "0002"
def upgrade():
    op.create_table("labels", sa.Column("job", sa.BigInteger, primary_key=True))
    op.add_column("archived_jobs", sa.Column("cost", sa.BigInteger, server_default="0"))
    op.execute("INSERT INTO labels SELECT id FROM archived_jobs")
    {last}
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    folder = tmp_path / "log"
    folder.mkdir()
    store = SqliteStore.open(folder)
    store.append(some_events(1, 1, 2, None), [an_archived(1), an_archived(2)])
    store.close()
    return folder


def next_migrations(folder: Path, last: str = "pass") -> Path:
    """Make the migrations of a version to come."""
    migrations = folder / "100% next"
    shutil.copytree(MIGRATIONS, migrations)
    (migrations / "versions" / "m0003_next.py").write_text(ADD_COLUMN.format(last=last))
    return migrations


def tables(path: Path) -> set[str]:
    connection = sqlite3.connect(path)
    names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    connection.close()
    return names


def test_migrations_make_the_tables_that_the_queries_know(tmp_path: Path) -> None:
    migrate.migrate(tmp_path / FILE)
    engine = sa.create_engine(f"sqlite:///{tmp_path / FILE}")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []
    engine.dispose()


def test_a_new_log_has_what_migrations_make(tmp_path: Path) -> None:
    """Its tables, their columns in the same order, its indexes, and what stands in them."""
    upgrade(tmp_path / "new")
    migrate.migrate(tmp_path / "migrated")
    assert what_is_in(tmp_path / "new") == what_is_in(tmp_path / "migrated")


def what_is_in(path: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    with contextlib.closing(sqlite3.connect(path)) as log:
        for name in tables(path):
            columns = log.execute(f"PRAGMA table_info({name})").fetchall()
            indexes = sorted(row[1:] for row in log.execute(f"PRAGMA index_list({name})"))
            of_index = log.execute(f"PRAGMA index_info({name})").fetchall()
            rows = sorted(log.execute(f"SELECT * FROM {name}")) if columns else []
            found[name] = (columns, indexes, of_index, rows)
    return found


def test_the_number_of_an_event_is_the_row_itself(log: Path) -> None:
    connection = sqlite3.connect(log / FILE)
    found = {
        row[0]: connection.execute(f"PRAGMA table_info({row[0]})").fetchone()[2]
        for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    connection.close()
    assert found == {
        "alembic_version": "VARCHAR(32)",
        "events": "INTEGER",
        "snapshots": "INTEGER",
        "archived_jobs": "INTEGER",
        "notes": "TEXT",
    }


def test_an_older_log_is_migrated_with_all_it_holds(log: Path, tmp_path: Path) -> None:
    store = SqliteStore.open(log)
    before = everything(store)
    store.close()
    upgrade(log / FILE, next_migrations(tmp_path))
    connection = sqlite3.connect(log / FILE)
    assert connection.execute("SELECT job FROM labels").fetchall() == [(1,), (2,)]
    assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [
        ("0003",)
    ]
    connection.execute("UPDATE alembic_version SET version_num = '0002'")
    connection.commit()
    connection.close()
    store = SqliteStore.open(log)
    assert everything(store) == before
    store.close()


def test_a_migration_that_fails_leaves_everything_as_it_was(log: Path, tmp_path: Path) -> None:
    before = tables(log / FILE)
    broken = next_migrations(tmp_path, last='op.execute("INSERT INTO nowhere VALUES (1)")')
    with (
        pytest.raises(StoreError, match="no such table"),
        explained("the event log", log / FILE),
    ):
        upgrade(log / FILE, broken)
    assert tables(log / FILE) == before
    assert revision(log / FILE) == "0002"
    shutil.rmtree(broken)
    upgrade(log / FILE, next_migrations(tmp_path))
    assert "labels" in tables(log / FILE)


def test_a_log_of_a_newer_version_is_refused_and_left_alone(log: Path, tmp_path: Path) -> None:
    upgrade(log / FILE, next_migrations(tmp_path))
    before = (log / FILE).read_bytes()
    told = (
        f"{log / FILE} was written by a newer Allotment (schema 0003, this one knows 0002); run"
    )
    with pytest.raises(StoreError) as refused:
        SqliteStore.open(log)
    assert told in str(refused.value)
    with pytest.raises(StoreError) as refused:
        restore(log / FILE, tmp_path / "new")
    assert told in str(refused.value)
    assert (log / FILE).read_bytes() == before


def test_an_older_backup_is_migrated_when_it_is_restored(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrations = next_migrations(tmp_path)
    monkeypatch.setattr(migrate.newest, "__defaults__", (migrations,))
    monkeypatch.setattr(migrate.revision, "__defaults__", (migrations,))
    monkeypatch.setattr(migrate.upgrade, "__defaults__", (migrations,))
    restore(log / FILE, tmp_path / "new")
    assert "labels" in tables(tmp_path / "new" / FILE)
    assert "labels" not in tables(log / FILE)


def test_newest_is_the_last_of_an_unbroken_line() -> None:
    files = sorted(path.name for path in (MIGRATIONS / "versions").glob("m*.py"))
    assert [name[1:5] for name in files] == [f"{n:04}" for n in range(1, len(files) + 1)]
    assert newest() == files[-1][1:5]


LOADED = """
import sys, pathlib
{do}
print(*sorted({{name.split(".")[0] for name in sys.modules}} & {{"sqlalchemy", "alembic"}}))
"""


@pytest.mark.parametrize(
    ("do", "expected"),
    [
        ("import allotment.store.codec, allotment.store.lock, allotment.store.migrate", ""),
        (
            "from allotment.store.sqlite import SqliteStore\n"
            "SqliteStore.open(pathlib.Path(sys.argv[1])).close()\n"
            "new = pathlib.Path(sys.argv[1], 'new')\n"
            "new.mkdir()\n"
            "SqliteStore.open(new).close()",
            "sqlalchemy",
        ),
    ],
)
def test_nothing_is_loaded_that_is_not_needed(log: Path, do: str, expected: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", LOADED.format(do=do), str(log)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == expected


CUT_OFF = """
import os, signal, sqlite3, sys
log = sqlite3.connect(sys.argv[1], isolation_level=None)
log.execute("PRAGMA cache_size = 1")
log.execute("BEGIN")
log.execute("CREATE TABLE alembic_version (version_num TEXT)")
log.execute("CREATE TABLE filler (data BLOB)")
for _ in range(100):
    log.execute("INSERT INTO filler VALUES (zeroblob(10000))")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_making_of_tables_that_was_cut_off_is_undone(tmp_path: Path) -> None:
    path = tmp_path / FILE
    subprocess.run([sys.executable, "-c", CUT_OFF, str(path)], check=False)
    assert path.with_name(f"{FILE}-journal").exists()
    assert revision(path) == ""
    store = SqliteStore.open(tmp_path)
    assert store.last_seq() == 0
    store.close()

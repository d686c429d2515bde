"""Brings a database to the newest schema, whole or not at all.

A look at one table says whether there is anything to do. A new database gets the tables of
schema.py at once; Alembic, slow to load, is loaded only for an older one.
"""

import contextlib
import sqlite3
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from allotment.model.errors import StoreError

if TYPE_CHECKING:
    import sqlalchemy as sa

MIGRATIONS = Path(__file__).parent / "migrations"

VERSIONS = (
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
    "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)
"""Alembic's own table, as it makes it."""


def newest(migrations: Path = MIGRATIONS) -> str:
    """Return the newest revision there is: files are named `m0001_what_it_does.py`."""
    return max(file.name[1:5] for file in migrations.glob("versions/m[0-9]*.py"))


def upgrade(path: Path, migrations: Path = MIGRATIONS) -> None:
    """Make or migrate the tables.

    Raises StoreError for a database that is not ours, or is of a newer Allotment.
    """
    found = revision(path, migrations)
    if not found and migrations == MIGRATIONS:
        _make(path)
    elif found != newest(migrations):
        migrate(path, migrations)


def revision(path: Path, migrations: Path = MIGRATIONS) -> str:
    """Read the schema's revision, empty for a new database. Raises StoreError as `upgrade`.

    Nothing is changed: whoever may write empties the -wal into the file when it closes. But
    where the making of tables was cut off, there is a journal of it, and reading undoes that.
    """
    if not path.exists():
        return ""
    mode = "rw" if Path(f"{path}-journal").exists() else "ro"
    connection = sqlite3.connect(f"file:{quote(str(path))}?mode={mode}", uri=True, timeout=10)
    try:
        found = _revision(connection, path)
    finally:
        connection.close()
    known = newest(migrations)
    if found > known:
        raise StoreError(
            f"the event log {path} was written by a newer Allotment (schema {found}, this one "
            f"knows {known}); run that version, or restore an older backup"
        )
    return found


def _revision(connection: sqlite3.Connection, path: Path) -> str:
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    if "alembic_version" not in tables:
        if tables:
            raise StoreError(
                f"{path} is a database, but no event log of Allotment; move it away"
            )
        return ""
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return row[0] if row else ""


def _make(path: Path) -> None:
    """Make the tables of a new database as all migrations together would."""
    from allotment.store.schema import METADATA, NOTES  # noqa: PLC0415 - it loads SQLAlchemy

    with _transaction(path) as connection:
        METADATA.create_all(connection)
        connection.execute(
            NOTES.insert(), [{"name": "marked", "value": 0}, {"name": "pruned", "value": 0}]
        )
        connection.exec_driver_sql(VERSIONS)
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES (?)", (newest(),))


def migrate(path: Path, migrations: Path = MIGRATIONS) -> None:
    """Run the migrations that a database, new or older, lacks."""
    from alembic import command  # noqa: PLC0415 - loaded only to migrate
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    with _transaction(path) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


@contextlib.contextmanager
def _transaction(path: Path) -> "Generator[sa.Connection]":
    """Connect for one transaction that holds all or nothing, also of tables."""
    import sqlalchemy as sa  # noqa: PLC0415 - loaded only to write
    from sqlalchemy import event  # noqa: PLC0415

    engine = sa.create_engine(sa.URL.create("sqlite", database=str(path)))
    event.listen(engine, "connect", _leave_transactions_to_us)
    event.listen(engine, "begin", _begin)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def _leave_transactions_to_us(connection: sqlite3.Connection, record: object) -> None:  # noqa: ARG001
    """Keep Python's driver from committing before every CREATE TABLE."""
    connection.isolation_level = None
    connection.execute("PRAGMA busy_timeout=10000")


def _begin(connection: "sa.Connection") -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")

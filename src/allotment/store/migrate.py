"""Brings a database to the newest schema. Alembic is loaded only when there is work for it."""

import sqlite3
from pathlib import Path

from allotment.model.errors import StoreError

NEWEST = "0001"
"""The newest revision in migrations/versions; a test compares."""


def upgrade(path: Path) -> None:
    """Make or migrate the tables. Raises StoreError for a database of a newer Allotment."""
    found = _revision(path)
    if found == NEWEST:
        return
    if found > NEWEST:
        raise StoreError(
            f"the event log {path} was written by a newer Allotment (schema {found}, this one "
            f"knows {NEWEST}); run that version, or restore an older backup"
        )
    _run(path)


def _revision(path: Path) -> str:
    """Read the schema's revision; empty for a new database."""
    if not path.exists():
        return ""
    connection = sqlite3.connect(path, timeout=10)
    try:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        if "alembic_version" not in tables:
            if tables:
                raise StoreError(
                    f"{path} is a database, but no event log of Allotment; move it away"
                )
            return ""
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        return row[0] if row else ""
    finally:
        connection.close()


def _run(path: Path) -> None:
    import sqlalchemy as sa  # noqa: PLC0415 - loaded only to migrate
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    engine = sa.create_engine(sa.URL.create("sqlite", database=str(path)))
    try:
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    finally:
        engine.dispose()

"""The tables, as SQLAlchemy Core knows them. Migrations in migrations/ make the same ones."""

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)

METADATA = MetaData()

EVENTS = Table(
    "events",
    METADATA,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("user", Text, nullable=False),
    Column("uid", BigInteger),
    Column("groups", Text, nullable=False),
    Column("job", BigInteger),
    Column("kind", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index("events_by_job", "job", "seq"),
    sqlite_with_rowid=True,
)

SNAPSHOTS = Table(
    "snapshots",
    METADATA,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("data", LargeBinary, nullable=False),
)

ARCHIVED_JOBS = Table(
    "archived_jobs",
    METADATA,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("submitted_at", BigInteger, nullable=False),
    Column("finished_at", BigInteger, nullable=False),
    Column("key", Text, nullable=False),
    Column("document", LargeBinary, nullable=False),
    Index("archived_by_key", "user", "key"),
    Index("archived_by_name", "name", "id"),
    Index("archived_by_tenant", "tenant", "id"),
    Index("archived_by_end", "finished_at"),
)

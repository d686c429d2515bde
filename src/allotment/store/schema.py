"""The tables, as SQLAlchemy Core knows them and a new database gets them.

Migrations in migrations/ make the same ones, with their columns in the same order.

Every event has who acted, by name, number and groups, in columns of its own. `body` and
`document` are the whole, encoded; the columns beside them are what is searched for.
`digest` is a checksum of the row (chain.py), `before` that of the event before, `chain` that
of the event that a snapshot was taken at.
"""

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

# A plain INTEGER key is SQLite's own row number: no second tree for the log.
KEY = BigInteger().with_variant(Integer(), "sqlite")

EVENTS = Table(
    "events",
    METADATA,
    Column("seq", KEY, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("user", Text, nullable=False),
    Column("uid", BigInteger),
    Column("groups", Text, nullable=False),
    Column("job", BigInteger),
    Column("kind", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("before", BigInteger, nullable=False, server_default="0"),
    Column("digest", BigInteger, nullable=False, server_default="0"),
    Index("events_by_job", "job", "seq"),
)

SNAPSHOTS = Table(
    "snapshots",
    METADATA,
    Column("seq", KEY, primary_key=True, autoincrement=False),
    Column("data", LargeBinary, nullable=False),
    Column("digest", BigInteger, nullable=False, server_default="0"),
    Column("chain", BigInteger),
)

ARCHIVED_JOBS = Table(
    "archived_jobs",
    METADATA,
    Column("id", KEY, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("submitted_at", BigInteger, nullable=False),
    Column("finished_at", BigInteger, nullable=False),
    Column("key", Text, nullable=False),
    Column("document", LargeBinary, nullable=False),
    Column("digest", BigInteger, nullable=False, server_default="0"),
    Index("archived_by_key", "user", "key"),
    Index("archived_by_user", "user", "id"),
    Index("archived_by_name", "name", "id"),
    Index("archived_by_tenant", "tenant", "id"),
    Index("archived_by_state", "state", "id"),
    Index("archived_by_end", "finished_at"),
)

NOTES = Table(
    "notes",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)
"""What the log knows of itself: `marked`, whether a mark beside it has to agree with it, and
`pruned`, how many events were forgotten knowingly."""

"""Checksums: chained over the events, one for each snapshot and archived job."""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

from allotment.store.chain import archived_digest, event_digest, snapshot_digest

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

PAGE = 5_000


def upgrade() -> None:
    for table, columns in (
        ("events", ("before", "digest")),
        ("snapshots", ("digest",)),
        ("archived_jobs", ("digest",)),
    ):
        for column in columns:
            op.add_column(
                table, sa.Column(column, sa.BigInteger, nullable=False, server_default="0")
            )
    op.add_column("snapshots", sa.Column("chain", sa.BigInteger))
    notes = op.create_table(
        "notes",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.BigInteger, nullable=False),
    )
    assert notes is not None
    connection = op.get_bind()
    kept, last = _chain(connection)
    for row in _pages(connection, "archived_jobs", "id"):
        _set(connection, "archived_jobs", "id", row[0], digest=archived_digest(row[:9]))
    op.bulk_insert(
        notes, [{"name": "marked", "value": 0}, {"name": "pruned", "value": last - kept}]
    )


def _chain(connection: sa.Connection) -> tuple[int, int]:
    """Chain events and snapshots; return how many events there are, and where the log ends."""
    snapshots = connection.exec_driver_sql("SELECT seq, data FROM snapshots ORDER BY seq")
    waiting = list(snapshots.fetchall())
    before = kept = last = 0
    for row in _pages(connection, "events", "seq"):
        while waiting and waiting[0][0] < row[0]:
            seq, data = waiting.pop(0)
            _chain_snapshot(connection, seq, data, before)
        digest = event_digest(before, row[:9])
        _set(connection, "events", "seq", row[0], before=before, digest=digest)
        before, kept, last = digest, kept + 1, row[0]
    for seq, data in waiting:
        _chain_snapshot(connection, seq, data, before)
        last = max(last, seq)
    return kept, last


def _chain_snapshot(connection: sa.Connection, seq: int, data: bytes, chain: int) -> None:
    digest = snapshot_digest(seq, chain, data)
    _set(connection, "snapshots", "seq", seq, chain=chain, digest=digest)


def _pages(connection: sa.Connection, table: str, key: str) -> Iterator[tuple[Any, ...]]:
    """Go through a table by its key, page by page: its rows change meanwhile."""
    after = -(2**63)
    query = f"SELECT * FROM {table} WHERE {key} > ? ORDER BY {key} LIMIT {PAGE}"  # noqa: S608
    while page := connection.exec_driver_sql(query, (after,)).fetchall():
        yield from map(tuple, page)
        after = page[-1][0]


def _set(connection: sa.Connection, table: str, key: str, row: int, **values: int) -> None:
    words = ", ".join(f'"{column}" = ?' for column in values)
    connection.exec_driver_sql(
        f"UPDATE {table} SET {words} WHERE {key} = ?",  # noqa: S608 - names of ours
        (*values.values(), row),
    )

"""The event log, its snapshots, and the archive of finished jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A plain INTEGER key is SQLite's own row number: no second tree for the log.
    key = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "events",
        sa.Column("seq", key, primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("uid", sa.BigInteger),
        sa.Column("groups", sa.Text, nullable=False),
        sa.Column("job", sa.BigInteger),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index("events_by_job", "events", ["job", "seq"])
    op.create_table(
        "snapshots",
        sa.Column("seq", key, primary_key=True, autoincrement=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "archived_jobs",
        sa.Column("id", key, primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("submitted_at", sa.BigInteger, nullable=False),
        sa.Column("finished_at", sa.BigInteger, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("document", sa.LargeBinary, nullable=False),
    )
    op.create_index("archived_by_key", "archived_jobs", ["user", "key"])
    op.create_index("archived_by_user", "archived_jobs", ["user", "id"])
    op.create_index("archived_by_name", "archived_jobs", ["name", "id"])
    op.create_index("archived_by_tenant", "archived_jobs", ["tenant", "id"])
    op.create_index("archived_by_state", "archived_jobs", ["state", "id"])
    op.create_index("archived_by_end", "archived_jobs", ["finished_at"])

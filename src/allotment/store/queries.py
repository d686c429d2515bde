"""Every query of the store, by name.

Reading goes through SQLAlchemy Core, which writes the SQL of the database at hand. Writing is
the hot path and has no conditions to put together: plain text for the cursor of `sqlite3`,
with its `?` placeholders.
"""

import sys
from typing import Any

import sqlalchemy as sa

from allotment.service.ports import JobFilter
from allotment.store.schema import ARCHIVED_JOBS, EVENTS, SNAPSHOTS

# ── writing: values in the order of the columns ─────────────────────────────────────────

ADD_EVENT = (
    'INSERT INTO events (seq, at, "user", uid, "groups", job, kind, version, body, '
    "before, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

KEEP_ARCHIVED = (
    'INSERT INTO archived_jobs (id, name, tenant, "user", state, submitted_at, finished_at, '
    '"key", document, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) '
    'DO UPDATE SET name = excluded.name, tenant = excluded.tenant, "user" = excluded."user", '
    "state = excluded.state, submitted_at = excluded.submitted_at, "
    'finished_at = excluded.finished_at, "key" = excluded."key", '
    "document = excluded.document, digest = excluded.digest"
)

KEEP_SNAPSHOT = (
    "INSERT INTO snapshots (seq, data, chain, digest) VALUES (?, ?, ?, ?) ON CONFLICT (seq) "
    "DO UPDATE SET data = excluded.data, chain = excluded.chain, digest = excluded.digest"
)

DROP_OLD_SNAPSHOTS = (
    "DELETE FROM snapshots WHERE seq NOT IN "
    "(SELECT seq FROM snapshots ORDER BY seq DESC LIMIT 2)"
)

# The newest first: a job half forgotten then looks like one that goes on.
FORGET_EVENTS = (
    "DELETE FROM events WHERE seq IN "
    "(SELECT seq FROM events WHERE job = ? ORDER BY seq DESC LIMIT ?)"
)

FORGET_JOB = "DELETE FROM archived_jobs WHERE id = ?"

COUNT_FORGOTTEN = "UPDATE notes SET value = value + ? WHERE name = 'pruned'"

NOTE = "UPDATE notes SET value = ? WHERE name = ?"

# ── the log ─────────────────────────────────────────────────────────────────────────────

AFTER = sa.bindparam("after", type_=sa.BigInteger)
JOB = sa.bindparam("job", type_=sa.BigInteger)
MOST = sa.bindparam("most", type_=sa.Integer)

LAST_SNAPSHOT = sa.select(sa.func.max(SNAPSHOTS.c.seq))

DIGEST = "SELECT digest FROM events WHERE seq = ?"

NEWEST_SNAPSHOT = (
    sa.select(SNAPSHOTS.c.seq, SNAPSHOTS.c.data).order_by(SNAPSHOTS.c.seq.desc()).limit(1)
)

RECORDS = sa.select(EVENTS).where(EVENTS.c.seq > AFTER).order_by(EVENTS.c.seq).limit(MOST)

RECORDS_OF_JOB = (
    sa.select(EVENTS)
    .where(EVENTS.c.job == JOB, EVENTS.c.seq > AFTER)
    .order_by(EVENTS.c.seq)
    .limit(MOST)
)

# ── the archive ─────────────────────────────────────────────────────────────────────────

ARCHIVED = sa.select(ARCHIVED_JOBS).where(ARCHIVED_JOBS.c.id == JOB)

ARCHIVED_BY_KEY = (
    sa.select(ARCHIVED_JOBS)
    .where(
        ARCHIVED_JOBS.c.user == sa.bindparam("user"), ARCHIVED_JOBS.c.key == sa.bindparam("key")
    )
    .order_by(ARCHIVED_JOBS.c.id.desc())
    .limit(1)
)

FIRST = sa.bindparam("first", type_=sa.BigInteger)
LAST = sa.bindparam("last", type_=sa.BigInteger)

ARCHIVED_STATES = sa.select(ARCHIVED_JOBS.c.id, ARCHIVED_JOBS.c.state).where(
    ARCHIVED_JOBS.c.id.between(FIRST, LAST)
)

# Events after the newest snapshot are what the next start replays: they stay.
FORGETTABLE = sa.select(ARCHIVED_JOBS.c.id).where(
    ARCHIVED_JOBS.c.finished_at < sa.bindparam("before"),
    ~sa.exists().where(EVENTS.c.job == ARCHIVED_JOBS.c.id, EVENTS.c.seq > AFTER),
)


def archived_pages(which: JobFilter, limit: int) -> list[sa.Select[Any]]:
    """Return queries for archived jobs, newest first: a page for each state that is wanted.

    Together they hold the page. In one query, a rare state would be looked for among all jobs,
    since no index is in order of several states.
    """
    page = _archived_page(which, limit)
    return [
        page.where(ARCHIVED_JOBS.c.state == state.value)
        for state in dict.fromkeys(which.states)
    ] or [page]


def _archived_page(which: JobFilter, limit: int) -> sa.Select[Any]:
    jobs = ARCHIVED_JOBS.c
    query = sa.select(ARCHIVED_JOBS).order_by(jobs.id.desc()).limit(limit)
    words = ((jobs.tenant, which.tenant), (jobs.user, which.user), (jobs.name, which.name))
    for column, word in words:
        if word:
            query = query.where(column == word)
    if which.beginning:
        # Not LIKE: to SQLite that is blind to case.
        last = which.beginning + chr(sys.maxunicode)
        query = query.where(jobs.name.between(which.beginning, last))
    if which.before is not None:
        query = query.where(jobs.id < in_range(which.before))
    return query


def in_range(number: int) -> int:
    """Return a number that a user asks for, brought into the range of the columns.

    No event or job has a number beyond, so the answer stays the same.
    """
    return max(-(2**63), min(number, 2**63 - 1))

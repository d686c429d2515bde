"""Appends batches to a log for ever, and says which were acknowledged. To be killed.

    python appender.py FOLDER SEED

Each batch is one job: its events say how many there are, and its archive entry goes with
them. Now and then the log is pruned and a snapshot saved.
"""

import random
import sys
from pathlib import Path

from allotment.model.events import JobRequeued, Record
from allotment.model.ids import Actor, JobId, Seq
from allotment.model.lifecycle import JobState
from allotment.model.quantity import Instant
from allotment.service.ports import ArchivedJob, Snapshot
from allotment.store.sqlite import SqliteStore

OLD = Instant(1_000)
"""Every fifth job finished before this, and may be pruned."""


def run(folder: Path, rng: random.Random) -> None:
    store = SqliteStore.open(folder)
    while True:
        seq, size = store.last_seq() + 1, rng.randint(1, 40)
        job = JobId(seq)
        records = [
            Record(
                Seq(seq + place),
                Instant(seq),
                Actor("alice", 1001, ("vision",)),
                JobRequeued(job, f"{size} {'x' * rng.randint(0, 2000)}"),
            )
            for place in range(size)
        ]
        finished = Instant(1 if rng.random() < 0.2 else 9_999)
        archived = ArchivedJob(job, "n", "t", "u", JobState.FAILED, finished, finished)
        store.append(records, [archived])
        print(store.last_seq(), flush=True)
        if rng.random() < 0.05:
            store.save_snapshot(Snapshot(store.last_seq(), rng.randbytes(50_000)))
        if rng.random() < 0.05:
            store.prune(OLD)


if __name__ == "__main__":
    run(Path(sys.argv[1]), random.Random(int(sys.argv[2])))

"""Any sequence of operations gives the same answers on every store."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from allotment.model.errors import StoreError
from allotment.model.events import (
    AnyEvent,
    JobHeld,
    JobRequeued,
    JobSubmitted,
    NodeLost,
    Record,
)
from allotment.model.ids import Actor, JobId, NodeId, Seq
from allotment.model.lifecycle import JobState
from allotment.model.quantity import Instant
from allotment.model.spec import JobSpec, TaskRole
from allotment.service.ports import ArchivedJob, Snapshot, Store
from allotment.store.sqlite import FILE, SqliteStore, restore
from tests.contract.stores.stores import everything
from tests.support.memory_store import MemoryStore

T = TypeVar("T")

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
JOBS = st.integers(1, 5).map(JobId)
USERS = st.sampled_from(["alice", "bob"])
SPECS = st.builds(
    JobSpec,
    name=WORDS,
    tenant=WORDS,
    roles=st.just((TaskRole("main", 1, "true"),)),
    env=st.lists(st.tuples(WORDS, WORDS), max_size=2).map(tuple),
    priority=NUMBERS,
)
EVENTS: st.SearchStrategy[AnyEvent] = st.one_of(
    st.builds(JobSubmitted, job=JOBS, spec=SPECS, key=WORDS),
    st.builds(JobHeld, job=JOBS),
    st.builds(JobRequeued, job=JOBS, cause=WORDS, not_before=NUMBERS.map(Instant)),
    st.builds(NodeLost, node=st.integers(0, 9).map(NodeId), reason=WORDS),
)
ACTORS = st.builds(
    Actor, USERS | WORDS, st.none() | NUMBERS, st.lists(WORDS, max_size=3).map(tuple)
)
ARCHIVED = st.builds(
    ArchivedJob,
    id=JOBS,
    name=st.sampled_from(["train", "eval"]),
    tenant=st.sampled_from(["vision", "nlp"]),
    user=USERS,
    state=st.sampled_from(JobState),
    submitted_at=NUMBERS.map(Instant),
    finished_at=st.integers(0, 20).map(Instant),
    key=st.sampled_from(["", "k", "l"]),
    document=st.binary(max_size=8),
)


class Twins(RuleBasedStateMachine):
    """A store in memory and one on disk, told the same things."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="allot-twins-"))
        self.copies = 0
        self.memory = MemoryStore()
        self.sqlite = SqliteStore.open(self.folder)

    def teardown(self) -> None:
        if hasattr(self, "sqlite"):
            self.sqlite.close()
            shutil.rmtree(self.folder)

    def both(self, act: Callable[[Store], T]) -> T | str:
        """Do the same to both, and find that they answer the same."""
        told = [_answer(act, store) for store in (self.memory, self.sqlite)]
        assert told[0] == told[1]
        return told[0]

    @rule(
        events=st.lists(st.tuples(NUMBERS, ACTORS, EVENTS), max_size=5),
        archived=st.lists(ARCHIVED, max_size=2),
    )
    def append(
        self, events: list[tuple[int, Actor, AnyEvent]], archived: list[ArchivedJob]
    ) -> None:
        first = self.memory.last_seq() + 1
        records = [
            Record(Seq(seq), Instant(at), actor, event)
            for seq, (at, actor, event) in enumerate(events, first)
        ]
        assert self.both(lambda store: store.append(records, archived)) is None

    @rule(off=st.sampled_from([-2, -1, 1, 2]), event=EVENTS, archived=ARCHIVED)
    def append_out_of_turn(self, off: int, event: AnyEvent, archived: ArchivedJob) -> None:
        seq = Seq(self.memory.last_seq() + 1 + off)
        record = Record(seq, Instant(1), Actor("eve"), event)
        told = self.both(lambda store: store.append([record], [archived]))
        assert isinstance(told, str)

    @rule(back=st.integers(-1, 4), data=st.binary(max_size=9))
    def save_snapshot(self, back: int, data: bytes) -> None:
        snapshot = Snapshot(Seq(max(0, self.memory.last_seq() - back)), data)
        self.both(lambda store: store.save_snapshot(snapshot))

    @rule(before=st.integers(0, 21))
    def prune(self, before: int) -> None:
        self.both(lambda store: list(store.prune(Instant(before))))

    @rule()
    def reopen(self) -> None:
        self.sqlite.close()
        self.sqlite = SqliteStore.open(self.folder)

    @rule(memory=st.booleans())
    def restore_a_backup(self, memory: bool) -> None:
        """Go on with a copy of either: it makes no difference."""
        self.copies += 1
        copy = self.folder / f"copy{self.copies}"
        (self.memory if memory else self.sqlite).backup(str(copy))
        self.sqlite.close()
        (self.folder / FILE).unlink()
        assert restore(copy, self.folder) == self.memory.last_seq()
        self.sqlite = SqliteStore.open(self.folder)

    @invariant()
    def answer_the_same(self) -> None:
        if hasattr(self, "sqlite"):
            self.both(everything)


def _answer(act: Callable[[Store], T], store: Store) -> T | str:
    try:
        return act(store)
    except StoreError as error:
        return str(error).removeprefix(f"the event log {getattr(store, 'path', '')}: ")


TestTwins = Twins.TestCase
TestTwins.settings = settings(max_examples=30, stateful_step_count=20)

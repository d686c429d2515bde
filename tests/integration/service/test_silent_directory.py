"""A user directory that does not answer holds up only those it is asked about."""

import asyncio
import pwd
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from allotment.api import accounts
from allotment.api.accounts import Accounts
from allotment.model import commands as c
from allotment.model.errors import BackendError, Code, Rejected
from allotment.model.ids import Actor
from allotment.model.lifecycle import JobState as S
from allotment.service import folders, host_accounts
from allotment.service.host_accounts import HostAccounts
from tests.integration.service.test_service import ME, a_script, running, until
from tests.support.patience import PATIENCE_S

Ask = Callable[[int], pwd.struct_passwd]

STRANGER = 61077
ALICE = Actor("alice", STRANGER)


def forget() -> None:
    folders._account.cache_clear()  # pyright: ignore[reportPrivateUsage]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Say nothing about one user before this is set."""
    may = threading.Event()
    held_up: list[bool] = []

    def ask(uid: int, real: Ask = pwd.getpwuid) -> pwd.struct_passwd:
        if uid == STRANGER:
            held_up.append(not may.wait(PATIENCE_S))
            raise KeyError(uid)
        return real(uid)

    monkeypatch.setattr("pwd.getpwuid", ask)
    forget()
    yield may
    may.set()
    forget()
    assert not any(held_up), "nobody else could do anything meanwhile"


def test_others_start_while_the_host_does_not_say_who_somebody_is(
    tmp_path: Path, answer: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_accounts, "PATIENCE_S", 0.2)

    async def story() -> None:
        async with running(tmp_path) as service:
            await service.submit(c.SubmitJob(a_script("fake forever")), ALICE)
            made = await service.submit(c.SubmitJob(a_script("fake", tenant="nlp")), ME)
            await until(lambda: service.state.jobs[made.id].state is S.SUCCEEDED)
            answer.set()

    asyncio.run(story())


def test_who_was_known_is_known_while_the_host_does_not_say(
    answer: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_accounts, "PATIENCE_S", 0.05)
    monkeypatch.setattr(accounts, "PATIENCE_S", 0.05)

    async def story() -> None:
        jobs, callers = HostAccounts(), Accounts()
        with pytest.raises(BackendError, match="who alice is"):
            await jobs.of(ALICE)
        with pytest.raises(Rejected, match=f"who user {STRANGER} is") as refused:
            await callers.actor(STRANGER)
        assert refused.value.code is Code.UNAVAILABLE
        answer.set()
        monkeypatch.setattr(host_accounts, "PATIENCE_S", 10)
        monkeypatch.setattr(accounts, "PATIENCE_S", 10)
        monkeypatch.setattr(host_accounts, "KEEP_S", -1)
        monkeypatch.setattr(accounts, "KEEP_S", -1)
        known = await jobs.of(ALICE), await callers.actor(STRANGER)
        answer.clear()
        forget()
        monkeypatch.setattr(host_accounts, "PATIENCE_S", 0.05)
        monkeypatch.setattr(accounts, "PATIENCE_S", 0.05)
        assert (await jobs.of(ALICE), await callers.actor(STRANGER)) == known

    asyncio.run(story())

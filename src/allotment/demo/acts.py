"""The acts of the demo, in order: each says what it is about, does it, and waits for it."""

import re
import time

from allotment.client import Client
from allotment.demo import cast
from allotment.demo.cast import BASE, BROKEN, LARGE, OWNER, TUNE
from allotment.demo.checks import Evidence
from allotment.demo.own_service import OwnService
from allotment.demo.screen import Screen
from allotment.demo.setting import Setting
from allotment.demo.watch import Watch
from allotment.model import events as e
from allotment.model.diagnosis import Diagnosis
from allotment.model.lifecycle import JobState
from allotment.model.quantity import show_milli
from allotment.model.reasons import Blocked, Reason

RESUMED = re.compile(r"resumed at step (\d+)")
STOPPED = re.compile(r"stopped at the checkpoint of step (\d+)")
READING_S = 1.5
"""Time for a person to read."""


class Story:
    """The acts, in order."""

    def __init__(
        self,
        client: Client,
        setting: Setting,
        watch: Watch,
        screen: Screen,
        evidence: Evidence,
        own: OwnService,
    ) -> None:
        self.client = client
        self.setting = setting
        self.watch = watch
        self.screen = screen
        self.evidence = evidence
        self.own = own

    def tell(self) -> None:
        """Play everything. Raises Stuck when something does not happen."""
        self._fill()
        self._queue()
        self._fail()
        self._owner()
        self._return()
        if self.setting.pods is None:
            self._fetch()

    def _submit(self, *names: str) -> None:
        for name in names:
            self.client.submit(cast.job(name, self.setting))

    def _long(self, seconds: int) -> int:
        return seconds * self.setting.pace

    def _running(self, *names: str) -> bool:
        return all(self.watch.state(name) is JobState.RUNNING for name in names)

    def _fill(self) -> None:
        self.screen.act(
            "1  Idle places may be borrowed",
            f"{LARGE} needs three places together; vision is guaranteed two. speech leaves its "
            "places idle, so the job may borrow. Its three processes train one model over TCP: "
            "all of them start, or none.",
        )
        self._submit(LARGE, BASE)
        self.watch.until(
            "the start of both gangs", lambda: self._running(LARGE, BASE), self._long(30)
        )

    def _queue(self) -> None:
        self.screen.act(
            "2  A job waits, and the service says why",
            f"One place is left, and {TUNE} needs two. nlp uses its guarantee already, so the "
            "job would borrow, and no job is evicted for a borrower.",
        )
        self._submit(TUNE)
        self.watch.pause(READING_S)
        blocked = self.client.why(TUNE)
        self.evidence.tune_waited_for = blocked
        if blocked is not None:
            self.screen.answer(f"allot why {TUNE}", _in_words(blocked))
        self.watch.pause(READING_S)

    def _fail(self) -> None:
        self.screen.act(
            "3  A failing job is retried, and then given up",
            f"{BROKEN} takes the last place, and runs out of GPU memory (it pretends to). Its "
            f"job file allows {cast.RETRIES} retries; each waits longer than the one before.",
        )
        self._submit(BROKEN)
        self.watch.until(
            f"the end of {BROKEN}",
            lambda: self.watch.state(BROKEN) is JobState.FAILED,
            self._long(40),
        )
        failed = self.watch.facts.first(e.JobFailed, BROKEN)
        if failed is not None:
            self.screen.answer(f"allot show {BROKEN}", _told(failed[1].diagnosis))
        self.watch.pause(READING_S)

    def _owner(self) -> None:
        self.watch.until(f"a first checkpoint of {LARGE}", self._has_saved, self._long(30))
        self.screen.act(
            "4  A tenant reclaims its guarantee",
            f"speech needs its two guaranteed places. {LARGE} borrows, so it is evicted: it "
            f"gets a signal (SIGUSR1) and {cast.GRACE_S} s to save and end. The place is "
            "reserved for speech.",
        )
        self._submit(OWNER)
        blocked = self._why_owner_waits()
        self.watch.look()
        if blocked is not None:
            self.screen.answer(f"allot why {OWNER}", _in_words(blocked))
        self.watch.until(f"the start of {OWNER}", lambda: self._running(OWNER), self._long(30))

    def _has_saved(self) -> bool:
        if self.setting.pods is None:
            return self.watch.facts.first(e.CheckpointSaved, LARGE) is not None
        step = self.watch.steps.get(LARGE)
        return step is not None and step.done > cast.CHECKPOINT_EVERY

    def _why_owner_waits(self) -> Blocked | None:
        """Ask while it lasts: the borrower is gone in the blink of an eye."""
        for _ in range(5):
            blocked = self.client.why(OWNER)
            if blocked is None or blocked.reason is Reason.WAITING_FOR_VICTIMS:
                return blocked
        return None

    def _return(self) -> None:
        pods = self.setting.pods
        is_kept = pods is None or bool(pods.kept)
        self.screen.act(
            f"5  The borrower {'continues from its checkpoint' if is_kept else 'starts again'}",
            f"{LARGE} is back in its queue, and has not used up a retry. It waits until three "
            "places are free.",
        )
        if pods is not None:
            self.evidence.stopped_at_step = self._step_in_output(STOPPED, 1)
        self.watch.until(
            f"the second start of {LARGE}",
            lambda: self.watch.facts.first(e.AttemptStarted, LARGE, 2) is not None,
            self._long(60),
        )
        if is_kept:
            self.evidence.resumed_at_step = self._step_in_output(RESUMED, 2)
        if (step := self.evidence.resumed_at_step) is not None:
            self.screen.answer(f"allot logs {LARGE}", [f"resumed at step {step} from …"])
        self.watch.until("the end of all jobs", self._all_over, self._long(60))

    def _all_over(self) -> bool:
        states = [self.watch.state(name) for name in cast.NAMES]
        return all(state is not None and state.finished for state in states)

    def _step_in_output(self, pattern: re.Pattern[str], attempt: int) -> int | None:
        """Read from the borrower's own output at which step it stopped, or went on."""
        end = time.monotonic() + 10
        while time.monotonic() < end:
            lines = self.client.logs(LARGE, task="0", stream="stdout", attempt=attempt)
            found = pattern.search("".join(line.text for line in lines))
            if found:
                return int(found[1])
            self.watch.pause(0.5)
        return None

    def _fetch(self) -> None:
        from allotment.demo.trained import fetch  # noqa: PLC0415 - needs numpy

        self.screen.act(
            "6  The result", f"The model in the output folder of {LARGE} is fetched and tested."
        )
        try:
            trained = fetch(
                self.client, self.watch.facts.id_of(LARGE), self.own.folder / "fetched"
            )
        except KeyError:
            return
        self.evidence.trained = trained
        self.screen.answer(
            f"allot outputs {LARGE} --fetch fetched",
            [
                f"{trained.path.name}: {trained.weights} weights, {trained.size} bytes; "
                f"{trained.accuracy:.1%} of held-out samples right"
            ],
        )


def _in_words(blocked: Blocked) -> list[str]:
    lines = [f"{blocked.reason.value.replace('_', ' ')}: {blocked.message}"]
    for holder in blocked.holders[:3]:
        amount = show_milli(holder.held.gpu_milli)
        lines.append(f"{holder.name} has {amount} GPU ({holder.entitlement.value})")
    return lines


def _told(found: Diagnosis) -> list[str]:
    return [f"{found.cause} [{found.code}]", found.evidence, found.advice]

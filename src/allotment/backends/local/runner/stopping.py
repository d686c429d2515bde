"""Ending, signalling and freezing one task, by whatever means surround it."""

import os
import signal
import time
from collections.abc import Callable
from typing import Final

from allotment.backends.local.runner import procfs, tree
from allotment.backends.local.runner.surroundings import Surroundings
from allotment.backends.local.runner.timers import Timers

_ROUND_S: Final = 0.1
_FREEZER_ROUND_S: Final = 0.02
_FREEZER_ROUNDS: Final = 250


class Stopper:
    """Acts on the task's processes. `pid` is its command, 0 before it is started.

    `ended_by` says which of us, if any, ended the task. `on_dead` is called when the command
    was killed and cannot be reaped: its user traces it from outside, and the kernel keeps
    the dead for who traces them. `on_kill` is called when all is killed.
    """

    def __init__(self, surroundings: Surroundings, timers: Timers) -> None:
        self._surroundings = surroundings
        self._timers = timers
        self._delivery: tree.Delivery | None = None
        self._deadline = 0.0
        self._stopped = False
        """Whether the task stands still without a freezer."""
        self.pid = 0
        self.ended_by = ""
        self.on_dead: Callable[[], None] = lambda: None
        self.on_kill: Callable[[], None] = lambda: None

    def signal(self, signum: int) -> None:
        """Send a signal to the task's main program, once."""
        tree.Delivery(signum).send(self.pid)

    def stop(self, signum: int, grace_ms: int, *, tells: bool = True) -> None:
        """Ask the task to end, and end it after the grace. A later call starts anew.

        It gets no signal where it was told otherwise.
        """
        self.ended_by = self.ended_by or "stop"
        if self._stopped or self._surroundings.group.is_frozen():
            self.freeze(frozen=False)
        deadline = time.monotonic() + grace_ms / 1000
        self._timers.after(grace_ms / 1000, lambda: self._out_of_grace(deadline))
        self._deadline = deadline
        if not tells:
            return
        if self._delivery is None:
            self._timers.after(_ROUND_S, self._next_round)
        self._delivery = tree.Delivery(signum)
        self._delivery.send(self.pid)

    def _next_round(self) -> None:
        if self._delivery is not None:
            self._delivery.send(self.pid)
            self._timers.after(_ROUND_S, self._next_round)

    def _out_of_grace(self, deadline: float) -> None:
        if deadline == self._deadline:
            self.ended_by = "grace"
            self.kill()

    def kill(self) -> None:
        """End everything at once; the command's end is seen as any other."""
        self._delivery = None
        self.on_kill()
        self._timers.after(_ROUND_S, self._look_at_the_dead)
        if self._surroundings.kind == "own":
            # Everyone in our PID namespace but us; nobody can fork out of it meanwhile.
            tree.send(-1, signal.SIGKILL)
            self._thaw()
            return
        self._thaw()
        self._surroundings.group.kill()
        tree.kill_below(os.getpid())

    def _look_at_the_dead(self) -> None:
        if not self.pid:
            return
        if procfs.start_time(self.pid):
            self._timers.after(_ROUND_S, self._look_at_the_dead)
        else:
            self.on_dead()

    def _thaw(self) -> None:
        try:
            self._surroundings.group.set_frozen(False)
        except OSError:
            return

    def freeze(self, *, frozen: bool, then: Callable[[], None] | None = None) -> None:
        """Freeze or thaw; `then` is called when it has taken effect."""
        if not self._surroundings.group.set_frozen(frozen):
            self._stopped = frozen
            tree.set_stopped(os.getpid(), stopped=frozen)
            if then is not None:
                then()
        elif then is not None:
            self._await_freezer(frozen, then, _FREEZER_ROUNDS)

    def _await_freezer(self, frozen: bool, then: Callable[[], None], rounds: int) -> None:
        if self._surroundings.group.is_frozen() == frozen or not rounds:
            then()
            return
        self._timers.after(
            _FREEZER_ROUND_S, lambda: self._await_freezer(frozen, then, rounds - 1)
        )

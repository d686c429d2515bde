"""Several simulations at once, each in a process of its own.

The traces are not copied: each process is a fork of this one, and none outlives it. At the
first that fails, or when this process is interrupted, the others are ended; if it is killed,
the kernel ends them.
"""

import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess

import msgspec

from allotment.backends.local.runner.libc import die_with_parent
from allotment.sim.bad import BadScenario
from allotment.sim.outcome import Run
from allotment.sim.run import Progress
from allotment.sim.scenario import Scenario
from allotment.wiring.crashed import Crashed, crashed
from allotment.wiring.sim import run

Told = Callable[[int, Run], None]
"""Told of each simulation as it is done: its place, and how it went."""

Going = Callable[[int, int], None]
"""Told how far one is: its place, and how many of its jobs have come."""


class _Come(msgspec.Struct, tag="come"):
    jobs: int


class _Done(msgspec.Struct, tag="done"):
    run: Run


class _Bad(msgspec.Struct, tag="bad"):
    why: str
    is_crash: bool


_Message = _Come | _Done | _Bad


def run_all(scenarios: Sequence[Scenario], workers: int, told: Told, going: Going) -> list[Run]:
    """Run scenarios in up to `workers` processes; return the results in their order.

    Raises BadScenario, or Crashed when a user's own policy, or a process, breaks.
    """
    if workers <= 1 or len(scenarios) == 1:
        return _one_by_one(scenarios, told, going)
    children: dict[Connection, _Child] = {}
    done: dict[int, Run] = {}
    waiting = list(range(len(scenarios)))[::-1]
    try:
        while waiting or children:
            while waiting and len(children) < workers:
                place = waiting.pop()
                child = _Child(place, scenarios[place], list(children))
                children[child.pipe] = child
            for pipe in wait(list(children)):
                assert isinstance(pipe, Connection)
                message = children[pipe].message()
                if isinstance(message, _Come):
                    going(children[pipe].place, message.jobs)
                    continue
                child = children.pop(pipe)
                child.end()
                done[child.place] = message
                told(child.place, message)
    finally:
        for child in children.values():
            child.end()
    return [done[place] for place in range(len(scenarios))]


def _one_by_one(scenarios: Sequence[Scenario], told: Told, going: Going) -> list[Run]:
    done: list[Run] = []
    for place, scenario in enumerate(scenarios):
        done.append(_play(scenario, lambda come, _, place=place: going(place, come)))
        told(place, done[-1])
    return done


class _Child:
    """A process that plays one scenario."""

    def __init__(self, place: int, scenario: Scenario, others: list[Connection]) -> None:
        self.place = place
        self._policy = scenario.policy
        self.pipe, out = get_context("fork").Pipe(duplex=False)
        self._process = ForkProcess(
            target=_child, args=(scenario, out, [self.pipe, *others]), daemon=True
        )
        self._process.start()
        out.close()

    def message(self) -> _Come | Run:
        """Read what it says next; its result at last. Raises BadScenario or Crashed."""
        try:
            message = msgspec.msgpack.decode(self.pipe.recv_bytes(), type=_Message)
        except EOFError:
            self._process.join()
            raise Crashed(f"{self._policy}: {_ended(self._process.exitcode or 0)}.") from None
        if isinstance(message, _Bad):
            raise (Crashed if message.is_crash else BadScenario)(message.why)
        return message if isinstance(message, _Come) else message.run

    def end(self) -> None:
        """End it; nothing is left of it."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _ended(code: int) -> str:
    if code == -signal.SIGKILL:
        return "its process was killed, perhaps for lack of memory: try --workers 1"
    return f"its process ended {f'by signal {-code}' if code < 0 else f'with code {code}'}"


def _child(scenario: Scenario, out: Connection, others: list[Connection]) -> None:
    """Play a scenario in this process, and tell the one that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, who ends us.
    die_with_parent(signal.SIGKILL)
    for pipe in others:
        pipe.close()  # A reader in here would keep what is said from failing without a parent.

    def say(message: _Message) -> None:
        out.send_bytes(msgspec.msgpack.encode(message))

    try:
        say(_Done(_play(scenario, lambda come, _: say(_Come(come)))))
    except BrokenPipeError:
        os._exit(1)
    except (BadScenario, Crashed) as error:
        say(_Bad(str(error), isinstance(error, Crashed)))


def _play(scenario: Scenario, going: Progress) -> Run:
    """Play a scenario. Raises BadScenario or Crashed, which name the policy."""
    try:
        return run(scenario, going)
    except BadScenario as error:
        raise BadScenario(f"{scenario.policy}: {error}") from error
    except (Crashed, BrokenPipeError):
        raise
    except Exception as error:
        raise crashed(scenario.policy, error) from error

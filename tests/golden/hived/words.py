"""What passes between the recordings and our cells: state to load, question, answer.

Nodes and devices are ours (`NodeId`, device index); gangs go by HiveD's group names.
"""

import msgspec

from allotment.model.ids import NodeId


class Task(msgspec.Struct, frozen=True):
    """One task's leaves on one node.

    `cell` is the type of the tenant's cell they are charged to, empty for opportunistic.
    """

    node: NodeId
    devices: tuple[int, ...]
    cell: str = ""


class Held(msgspec.Struct, frozen=True):
    """A gang that sits on leaves.

    One that HiveD preempted lazily keeps its priority, but is no longer guaranteed. `pin` is
    the pinned cell it lies in. `lazy` gangs agree to lose their guarantee and stay.
    """

    gang: str
    tenant: str
    priority: int
    guaranteed: bool
    tasks: tuple[Task, ...]
    pin: str = ""
    lazy: bool = False


class Reserved(msgspec.Struct, frozen=True):
    """What is kept for a gang that waits for its victims to go, or for its turn to bind."""

    gang: str
    tenant: str
    priority: int
    tasks: tuple[Task, ...]
    victims: tuple[str, ...] = ()
    """Those who still sit on it. They are in the book as well."""
    pin: str = ""


class Book(msgspec.Struct, frozen=True):
    """Everything that one decision depends on."""

    held: tuple[Held, ...] = ()
    reserved: tuple[Reserved, ...] = ()
    bad: frozenset[NodeId] = frozenset()

    def gang(self, name: str) -> Held | None:
        return next((held for held in self.held if held.gang == name), None)


class Ask(msgspec.Struct, frozen=True):
    """A gang to be placed.

    `sizes` is the devices of each task, smallest first. Priority -1 is opportunistic.
    `types` empty: any device. `nodes` None: all of them may be used. `reserve`: HiveD's
    Preempting phase, in which a preemption is begun; in the other it is only foretold.
    """

    gang: str
    tenant: str
    priority: int
    sizes: tuple[int, ...]
    types: tuple[str, ...] = ()
    pin: str = ""
    nodes: frozenset[NodeId] | None = None
    lazy: bool = False
    reserve: bool = False


class Placed(msgspec.Struct, frozen=True):
    """It can start: now, or when its victims are gone.

    `tasks` in the order of `sizes`. `demoted` are gangs that keep their leaves and lose
    their guarantee.
    """

    tasks: tuple[Task, ...]
    victims: tuple[str, ...] = ()
    demoted: tuple[str, ...] = ()


class Waits(msgspec.Struct, frozen=True):
    reason: str


class Refused(msgspec.Struct, frozen=True):
    """It will never be placed, and is told so when it is submitted."""

    reason: str


class Broke(msgspec.Struct, frozen=True):
    """HiveD crashed. Nothing of ours may give this answer."""

    message: str


Answer = Placed | Waits | Refused | Broke

"""What a service and the agent of a node say to each other: msgpack, one value a frame.

The agent begins with `Hello`. After `Welcome` the service asks by `Call`, each with a number
that its `Answer` or `Fault` bears; news comes whenever there is some.
"""

import asyncio
import struct
from typing import Any, TypeVar

import msgspec

from allotment.backends.pilot.file_messages import FileOp
from allotment.backends.pilot.image_messages import ImageOp
from allotment.model.health import HealthReport
from allotment.model.ids import TaskKey
from allotment.model.quantity import Millis
from allotment.model.reasons import StopCause
from allotment.model.reports import TaskReport
from allotment.service.ports import GangLaunch

PROTOCOL = 8
LONGEST_HELLO = 16 * 1024
LONGEST = 64 << 20
_LENGTH = struct.Struct(">I")
T = TypeVar("T")


class Note(msgspec.Struct, frozen=True):
    """What a pilot is given in the body of its batch script."""

    node: str
    epoch: int
    secret: str
    """Lets in one runner, once."""
    certificate: str
    """PEM: the only one that the service may show."""
    lease_s: float
    """After hearing nothing for so long a runner ends its tasks, and itself."""
    idle_s: float = 600.0
    """The same, while it has none."""
    devices: dict[str, tuple[str, ...]] = {}
    """The files of each device, by index, as Slurm's configuration names them."""
    session: str = ""
    """Made by the pilot: by it the service knows it again."""
    job: str = ""
    address: str = ""
    """Where the service listens; '' where the node finds that on the shared disk."""
    fence: str = ""
    """What keeps its processes together: `namespaces`, or as `processes` that are adopted."""


class Isolation(msgspec.Struct, frozen=True, omit_defaults=True):
    """What keeps tasks apart on a node, and together. `missing` says why more does not."""

    namespaces: str
    cgroup: str
    controllers: tuple[str, ...]
    missing: dict[str, str] = {}
    fence: str = ""
    uid: int = 0


# ── from the agent ──────────────────────────────────────────────────────────────────────


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """Who dials. The secret counts once: with it a session is begun, and no other ever."""

    protocol: int
    node: str
    epoch: int
    job: str
    secret: str
    session: str
    devices: int = 0
    """How many devices it can hand out apart from each other; 0 if it knows of none."""
    isolation: Isolation | None = None


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """What came of a call."""

    id: int
    result: msgspec.Raw = msgspec.Raw(b"\xc0")


class Fault(msgspec.Struct, frozen=True, tag="fault"):
    """A call was refused, or failed."""

    id: int
    why: str


class TaskNews(msgspec.Struct, frozen=True, tag="task"):
    """A task changed."""

    report: TaskReport


class HealthNews(msgspec.Struct, frozen=True, tag="health"):
    """A device was looked at. Its node is left for the service to say."""

    report: HealthReport


FromAgent = Hello | Answer | Fault | TaskNews | HealthNews

# ── to the agent ────────────────────────────────────────────────────────────────────────


class Launch(msgspec.Struct, frozen=True, tag="launch"):
    """`Backend.launch` of a gang's tasks on this node; the others below likewise.

    Answered with those it refuses, and why.
    """

    gang: GangLaunch
    image_bytes: int = 0
    """How much the images may have that the node keeps."""


class OpenBarrier(msgspec.Struct, frozen=True, tag="open_barrier"):
    """Answered with nothing."""

    keys: tuple[TaskKey, ...]


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Answered with nothing."""

    key: TaskKey
    signal: str
    grace_ms: Millis
    cause: StopCause | None = None


class AskRanks(msgspec.Struct, frozen=True, tag="ask_ranks"):
    """Answered with pairs of a TaskKey and a PauseSaid, of those that tell of their steps."""

    keys: tuple[TaskKey, ...]


class StandRanks(msgspec.Struct, frozen=True, tag="stand_ranks"):
    """Stop after a step, of which the whole gang is told; answered likewise, in time."""

    keys: tuple[TaskKey, ...]
    after: int
    wait_s: float


class Freeze(msgspec.Struct, frozen=True, tag="freeze"):
    """Answered with nothing. `frees` is what was agreed in a gang over several nodes."""

    keys: tuple[TaskKey, ...]
    no: int
    frees: bool | None = None


class Thaw(msgspec.Struct, frozen=True, tag="thaw"):
    """Answered with nothing."""

    key: TaskKey


class Observe(msgspec.Struct, frozen=True, tag="observe"):
    """Answered with TaskReports."""

    keys: tuple[TaskKey, ...]


class ReadLog(msgspec.Struct, frozen=True, tag="read_log"):
    """Answered with a LogChunk."""

    key: TaskKey
    stream: str
    offset: int
    size: int


class Uses(msgspec.Struct, frozen=True, tag="uses"):
    """Answered with TaskUses."""

    keys: tuple[TaskKey, ...]


class DeviceUses(msgspec.Struct, frozen=True, tag="device_uses"):
    """Answered with DeviceUses."""


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """End, and give the node back: answered before it does."""


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Renews the lease."""


Op = (
    Launch
    | OpenBarrier
    | Stop
    | AskRanks
    | StandRanks
    | Freeze
    | Thaw
    | Observe
    | ReadLog
    | Uses
    | DeviceUses
    | Leave
    | Ping
    | FileOp
    | ImageOp
)


class Call(msgspec.Struct, frozen=True, tag="call"):
    """A question or an order."""

    id: int
    op: Op


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """The agent is let in."""


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """It is not, and will not be: it ends."""

    why: str


FromService = Call | Welcome | Refused

# ── frames ──────────────────────────────────────────────────────────────────────────────

_encoder = msgspec.msgpack.Encoder()


def framed(message: FromAgent | FromService) -> bytes:
    """Return a message as bytes: four of its length, then msgpack."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


def packed(value: object) -> msgspec.Raw:
    """Return a value as the result of an answer."""
    return msgspec.Raw(_encoder.encode(value))


def unpacked(data: bytes | msgspec.Raw, kind: type[T] | Any) -> T:
    """Return a value of what somebody else has packed. Raises ValueError."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


async def next_frame(reader: asyncio.StreamReader, longest: int = LONGEST) -> bytes:
    """Read the body of one frame. Raises EOFError at the end, ValueError for a longer one."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > longest:
        raise ValueError(f"a frame of {length} bytes; at most {longest} are taken")
    return await reader.readexactly(length)

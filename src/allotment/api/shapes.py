"""Bodies of requests and answers that are no read model of the service."""

import msgspec

from allotment.model.ids import JobId
from allotment.service.views import JobRow


class Page(msgspec.Struct, frozen=True):
    """One page of jobs, newest first."""

    items: tuple[JobRow, ...]
    next: JobId | None = None
    """Return it as `before` to get the page after this one; null on the last."""


class Changes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Changes to a job, KEY=VALUE each: `roles.worker.count=4`, `env.LR=0.1`."""

    set: tuple[str, ...] = ()


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A word for people, kept with a job."""

    text: str


class Drain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a node is drained, for people."""

    reason: str = ""


class Backup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a backup goes: a file on the service's machine that does not exist yet."""

    target: str
    without_secrets: bool = False
    """Leave the values of the jobs' secrets out: who restores it has to give them again."""


class NewConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A configuration as its file has it."""

    text: str
    """YAML or JSON."""
    source: str = "body"
    """The name of the file, for messages."""
    expect: str = ""
    """Apply only if this is in force now: the `current` of a plan."""


class Done(msgspec.Struct, frozen=True):
    """The answer to a request that has no other."""

    ok: bool = True


class End(msgspec.Struct, frozen=True):
    """The last event of a stream: how the job stands. Nothing more will come."""

    state: str


class Greeting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first frame of a terminal."""

    argv: tuple[str, ...]
    tty: bool = False
    rows: int = 24
    cols: int = 80
    env: dict[str, str] = {}


class Control(msgspec.Struct, frozen=True):
    """A later text frame of a terminal's client."""

    resize: tuple[int, int] | None = None
    """Rows and columns."""
    eof: bool = False


class Exited(msgspec.Struct, frozen=True):
    """The last frame of a terminal."""

    exit: int

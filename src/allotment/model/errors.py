"""Every error of ours, in one tree.

    AllotmentError
    ├── Rejected              a refused request: bad spec, no right, no such job
    ├── BadInput              a file or request that cannot be read, with its place
    │   └── NoNodes           an engine has none now that jobs may run on
    ├── InvariantViolated     we broke: stop the cycle, keep the evidence
    ├── StoreError            the event log cannot be read or written
    └── BackendError          the system that runs tasks cannot be reached or refused

A refusal is a value where it can be one; these are for the edges.
"""

from enum import StrEnum

import msgspec


class Code(StrEnum):
    """Why a request was refused. Users see these in the API, the CLI and the docs."""

    BAD_SPEC = "bad_spec"
    BAD_REQUEST = "bad_request"
    INTERNAL = "internal"
    NEVER_FITS = "never_fits"
    NO_SUCH_TENANT = "no_such_tenant"
    NO_SUCH_QUEUE = "no_such_queue"
    QUEUE_CLOSED = "queue_closed"
    QUEUE_FULL = "queue_full"
    TOO_MANY = "too_many"
    NO_SUCH_JOB = "no_such_job"
    NO_SUCH_NODE = "no_such_node"
    NO_SUCH_TASK = "no_such_task"
    AMBIGUOUS_JOB = "ambiguous_job"
    FORBIDDEN = "forbidden"
    UNAUTHENTICATED = "unauthenticated"
    WRONG_STATE = "wrong_state"
    BAD_DEPENDENCY = "bad_dependency"
    PATH_UNUSABLE = "path_unusable"
    CODE_MISSING = "code_missing"
    DATA_MISSING = "data_missing"
    TOO_LARGE = "too_large"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    UNAVAILABLE = "unavailable"
    UNCERTAIN = "uncertain"
    NOT_SUPPORTED = "not_supported"


class AllotmentError(Exception):
    """Something went wrong in Allotment."""


class Rejected(AllotmentError):
    """The request was refused. `message` says what and why, `hint` what to do next."""

    def __init__(self, code: Code, message: str, hint: str = "") -> None:
        super().__init__(f"{message} {hint}".strip())
        self.code = code
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[type["Rejected"], tuple[Code, str, str]]:
        """Cross from one process to another as it was made."""
        return type(self), (self.code, self.message, self.hint)


class Problem(msgspec.Struct, frozen=True):
    """One thing wrong in what was read. `line` counts from 1, 0 when unknown."""

    message: str
    path: str = ""
    line: int = 0
    hint: str = ""

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        where = f"{self.path}: " if self.path else ""
        return f"{place}{where}{self.message}" + (f" ({self.hint})" if self.hint else "")

    def in_file(self, source: str) -> str:
        """Return it as compilers do: `job.yaml:7: roles.worker: … (did you mean gpu?)`."""
        if not source:
            return str(self)
        place = f"{source}:{self.line}" if self.line else source
        return f"{place}: {msgspec.structs.replace(self, line=0)}"


class BadInput(AllotmentError):
    """What was given cannot be read."""

    def __init__(self, problems: tuple[Problem, ...], source: str = "") -> None:
        super().__init__("\n".join(f"{source}: {p}" if source else str(p) for p in problems))
        self.problems = problems
        self.source = source


class NoNodes(BadInput):
    """An engine has no nodes now that jobs may run on."""


class InvariantViolated(AllotmentError):
    """Our own books are wrong. This is a bug in Allotment."""


class StoreError(AllotmentError):
    """The event log cannot be read or written."""


class BackendError(AllotmentError):
    """The system that runs tasks cannot be reached or refused."""


class EngineAway(BackendError):
    """The system that runs tasks does not answer now. What it runs goes on; ask again later."""

"""What is sent and how answers are read: pure, no connection in sight."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from allotment.client.errors import Refused, Unreadable
from allotment.model.data_use import reference_of
from allotment.service.selector import Selector

T = TypeVar("T")

Ref: TypeAlias = int | str
"""A job's id, a unique prefix of its id or name, its name, or `last`."""

JobText: TypeAlias = bytes | str | Path | Mapping[str, object]
"""A job as it can be submitted: a file, its text, or the native form as a map."""

PASSED_ON = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "LANG")
"""What of the caller's environment a command needs to be found and to work as it does here."""

Query: TypeAlias = Mapping[str, str] | Sequence[tuple[str, str]]


def path_to(path: str, query: Query = ()) -> str:
    """Join a path and its query."""
    return f"{path}?{urlencode(query)}" if query else path


def job_path(ref: Ref, tail: str = "") -> str:
    """Return the path of a job, or of a part of it. Raises Refused for an empty name."""
    text = str(ref)
    if not text or text in (".", ".."):
        raise Refused("no_such_job", f"{text!r} is not a job.", "See `allot ps`.")
    return f"/v1/jobs/{quote(text, safe='')}{tail}"


def selector_of(jobs: Selector | Ref) -> Selector:
    """Return a selector of what a reference names."""
    return jobs if isinstance(jobs, Selector) else Selector(refs=(str(jobs),))


def events_path(job: int | None) -> str:
    """Return the path of the events of one job, or of all."""
    return "/v1/events" if job is None else job_path(job, "/events")


def node_path(node: str, tail: str) -> str:
    """Return the path of a node, or of a part of it."""
    return f"/v1/nodes/{quote(node, safe='')}{tail}"


def reservation_path(name: str, tail: str) -> str:
    """Return the path of a reservation, or of a part of it."""
    return f"/v1/reservations/{quote(name, safe='')}{tail}"


def sweep_path(ref: Ref, tail: str = "") -> str:
    """Return the path of a sweep, or of a part of it."""
    return f"/v1/sweeps/{quote(str(ref), safe='')}{tail}"


def data_path(name: str, tail: str = "") -> str:
    """Return the path of a dataset, or of a part of it. Raises Refused."""
    named = reference_of(name)
    if named is None:
        raise Refused(
            "bad_request",
            f"{name[:200]!r} cannot be the name of a dataset.",
            "Write NAME, TENANT/NAME or NAME@VERSION; of letters, digits, '.', '_', '-'.",
        )
    version = f"@{named.version}" if named.version else ""
    tenant = quote(named.tenant, safe="") if named.tenant else "-"
    return f"/v1/data/{tenant}/{quote(named.name, safe='')}{version}{tail}"


def output_path(ref: Ref, attempt: int, path: str) -> str:
    """Return the path of one output file."""
    return job_path(ref, f"/outputs/{attempt}/{quote(path)}")


def given(**query: str) -> list[tuple[str, str]]:
    """Return the parts of a query that have a value."""
    return [(name, value) for name, value in query.items() if value]


def body_of(job: JobText) -> tuple[bytes, str]:
    """Return the body of a submission and its content type."""
    match job:
        case bytes():
            return job, YAML
        case str():
            return job.encode(), YAML
        case Path():
            return job.read_bytes(), YAML
        case _:
            return msgspec.json.encode(dict(job)), JSON


JSON, YAML = "application/json", "application/yaml"
"""YAML stands for text of any form: the service looks which one it is."""


def decode(data: bytes, shape: type[T]) -> T:
    """Read an answer. Raises Unreadable."""
    try:
        return msgspec.json.decode(data, type=shape)
    except msgspec.MsgspecError as error:
        raise Unreadable(
            f"The service's answer cannot be read: {error}.",
            "Client and service may be of different versions: see `allot doctor`.",
        ) from error

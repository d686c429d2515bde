"""Asks an MLflow server over REST. Anybody may have written what it says, and it may be slow.

So each answer has a bound and an end, and what is not as it should be is left out.
"""

import heapq
import http.client
import math
import re
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from allotment import __version__
from allotment.service.paced import cut_after
from allotment.service.tracking.ports import OF_SYSTEM, Metric, Registered, Run, TrackerAway
from allotment.service.tracking.variables import ATTEMPT, JOB, SUBMITTED

_API: Final = "/api/2.0/mlflow"
_SILENCE_S: Final = 15.0
_WHOLE_S: Final = 30.0
_PIECE: Final = 1 << 16
_MOST_BYTES: Final = 32 << 20
_MOST_OBJECTS: Final = 500_000
"""Of one answer: each takes time to read and memory, however short it is written."""
_MOST_METRICS: Final = 100
"""Of one run, which is remembered while its job is."""
_LONGEST_NAME: Final = 256
_LONGEST_STATUS: Final = 32
_MOST_EXPERIMENTS: Final = 1_000
_PAGE: Final = 200
_PAGES: Final = 5
_OF_ONE_JOB: Final = 20
_AT_ONCE: Final = 100
"""So many runs are asked for by name in one question."""
_MOST: Final = 2**62
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NESTED: Final = "mlflow.parentRunId"

T = TypeVar("T")


class _Pair(msgspec.Struct, frozen=True):
    key: str = ""
    value: str | float | None = None


class _MetricSaid(msgspec.Struct, frozen=True):
    key: str = ""
    value: str | float | None = None
    timestamp: int = 0
    step: int = 0


class _Info(msgspec.Struct, frozen=True):
    run_id: str = ""
    experiment_id: str = ""
    status: str = ""
    start_time: int = 0


class _Data(msgspec.Struct, frozen=True):
    metrics: list[_MetricSaid] = []
    tags: list[_Pair] = []


class _RunSaid(msgspec.Struct, frozen=True):
    info: _Info = _Info()
    data: _Data = _Data()


class _Runs(msgspec.Struct, frozen=True):
    runs: list[_RunSaid] = []
    next_page_token: str = ""


class _Experiment(msgspec.Struct, frozen=True):
    experiment_id: str = ""


class _Experiments(msgspec.Struct, frozen=True):
    experiments: list[_Experiment] = []


class _Version(msgspec.Struct, frozen=True):
    version: str = ""
    creation_timestamp: int = 0
    run_id: str = ""


class _Model(msgspec.Struct, frozen=True):
    name: str = ""
    latest_versions: list[_Version] = []


class _Models(msgspec.Struct, frozen=True):
    registered_models: list[_Model] = []


class _Refusal(msgspec.Struct, frozen=True):
    message: str = ""


class MlflowRest:
    """The questions that are asked."""

    def newest(self, address: str, since_ms: int) -> list[Run]:
        """See Tracker."""
        which = f"tags.`{JOB}` LIKE '%' AND attributes.start_time >= {since_ms:d}"
        return self._runs(address, self._experiments(address), which)

    def of_job(self, address: str, job: int, submitted: int) -> list[Run]:
        """See Tracker."""
        mine = f"tags.`{JOB}` = '{job:d}' AND tags.`{SUBMITTED}` = '{submitted:d}'"
        within = self._experiments(address)
        return self._runs(address, within, mine, page=_OF_ONE_JOB, pages=1)

    def again(self, address: str, runs: Sequence[str]) -> list[Run]:
        """See Tracker."""
        found: list[Run] = []
        within = self._experiments(address) if runs else []
        for at in range(0, len(runs), _AT_ONCE):
            named = ",".join(f"'{run}'" for run in runs[at : at + _AT_ONCE])
            found += self._runs(address, within, f"attributes.run_id IN ({named})", pages=1)
        return found

    def models(self, address: str) -> list[Registered]:
        """See Tracker."""
        asked = urlencode({"max_results": _PAGE, "order_by": "last_updated_timestamp DESC"})
        path = f"{_API}/registered-models/search?{asked}"
        models = _decoded(self._ask(address, "GET", path), _Models, address)
        newest = [
            (model.name, max(model.latest_versions, key=_number))
            for model in models.registered_models
            if model.latest_versions and len(model.name) <= _LONGEST_NAME
        ]
        ids = [version.run_id for _, version in newest if _ID.fullmatch(version.run_id)]
        runs = {run.id: run for run in self.again(address, list(dict.fromkeys(ids)))}
        return [
            Registered(
                name,
                version.version[:_PAGE],
                _bounded(version.creation_timestamp),
                f"{address}/#/models/{quote(name, safe='')}",
                runs.get(version.run_id),
            )
            for name, version in newest
        ]

    # ── runs ────────────────────────────────────────────────────────────────────────

    def _runs(
        self,
        address: str,
        within: Sequence[str],
        which: str,
        page: int = _PAGE,
        pages: int = _PAGES,
    ) -> list[Run]:
        """Return runs of the experiments `within` that are of jobs, the newest first."""
        found: list[Run] = []
        asked: dict[str, object] = {
            "experiment_ids": within,
            "filter": which,
            "run_view_type": "ACTIVE_ONLY",
            "max_results": page,
            "order_by": ["attributes.start_time DESC"],
        }
        for _ in range(pages):
            body = msgspec.json.encode(asked)
            path = f"{_API}/runs/search"
            said = _decoded(self._ask(address, "POST", path, body), _Runs, address)
            runs = (_run(each, address) for each in said.runs[:page])
            found += [run for run in runs if run is not None]
            if not said.next_page_token:
                break
            asked["page_token"] = said.next_page_token
        return found

    def _experiments(self, address: str) -> list[str]:
        """Return the experiments that changed last: runs are searched in named ones only."""
        asked = {
            "max_results": _MOST_EXPERIMENTS,
            "view_type": "ACTIVE_ONLY",
            "order_by": ["last_update_time DESC"],
        }
        body, path = msgspec.json.encode(asked), f"{_API}/experiments/search"
        said = _decoded(self._ask(address, "POST", path, body), _Experiments, address)
        return [each.experiment_id for each in said.experiments[:_MOST_EXPERIMENTS]]

    # ── HTTP ────────────────────────────────────────────────────────────────────────

    def _ask(self, address: str, method: str, path: str, body: bytes = b"") -> bytes:
        """Return the body of an answer. Raises TrackerAway."""
        try:
            return _answered(address, method, path, body)
        except OSError as error:
            why = (error.strerror or str(error) or type(error).__name__).lower()
            raise TrackerAway(why) from error
        except (http.client.HTTPException, ValueError) as error:
            raise TrackerAway(f"its answer is not HTTP: {error!r:.100}") from error


def _answered(address: str, method: str, path: str, body: bytes) -> bytes:
    """Ask once. Nowhere else, where it redirects; and with an end, however slowly it speaks."""
    ends_at = time.monotonic() + _WHOLE_S
    try:
        status, said = _heard(address, method, path, body)
    except (OSError, http.client.HTTPException) as error:
        if time.monotonic() < ends_at:
            raise
        raise TrackerAway(_late()) from error
    if time.monotonic() >= ends_at:
        raise TrackerAway(_late())
    if status != http.client.OK:
        raise TrackerAway(_refused(status, said))
    return said


def _late() -> str:
    return f"its answer was not whole after {_WHOLE_S:.0f} s"


def _heard(address: str, method: str, path: str, body: bytes) -> tuple[int, bytes]:
    """Return the status of an answer, and as much of its body as came in time."""
    place = urlsplit(address)
    host, safely = place.hostname or "", None
    wire = http.client.HTTPConnection(host, place.port)
    if place.scheme == "https":
        safely = ssl.create_default_context()
        wire = http.client.HTTPSConnection(host, place.port, context=safely)
    headers = {"User-Agent": f"allotment/{__version__}", "Connection": "close"}
    if body:
        headers["Content-Type"] = "application/json"
    line = socket.create_connection((host, wire.port), _SILENCE_S)
    with closing(line), cut_after(line, _WHOLE_S), closing(wire):
        wire.sock = line
        if safely is not None:
            wire.sock = safely.wrap_socket(line, server_hostname=host)
        wire.request(method, place.path.rstrip("/") + path, body or None, headers)
        with wire.getresponse() as answer:
            return answer.status, b"".join(_pieces(answer))


def _pieces(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    size = 0
    while piece := answer.read1(_PIECE):
        size += len(piece)
        if size > _MOST_BYTES:
            raise TrackerAway(f"it answers with more than {_MOST_BYTES >> 20} MiB")
        yield piece


def _refused(status: int, said: bytes) -> str:
    """Return why a question was not answered, in MLflow's words where there are any."""
    if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        return f"it needs a password (HTTP {status}), and the service has none"
    try:
        words = msgspec.json.decode(said, type=_Refusal).message
    except (msgspec.MsgspecError, RecursionError):
        words = ""
    told = "".join(letter if letter.isprintable() else " " for letter in words[:200])
    return f"HTTP {status}" + (f": {told}" if told else "")


def _decoded(said: bytes, kind: type[T], address: str) -> T:
    if said.count(b"{") > _MOST_OBJECTS:
        raise TrackerAway(f"it answers with more than {_MOST_OBJECTS:,} things")
    try:
        return msgspec.json.decode(said, type=kind, strict=False)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise TrackerAway(f"{address} does not answer as an MLflow server does") from error


# ── what it says ────────────────────────────────────────────────────────────────────────


def _run(said: _RunSaid, address: str) -> Run | None:
    """Return a run that says which job made it; None for another."""
    info = said.info
    tags = {tag.key: str(tag.value) for tag in said.data.tags}
    if not (_ID.fullmatch(info.run_id) and _ID.fullmatch(info.experiment_id)):
        return None
    job, submitted, attempt = (_whole(tags.get(name, "")) for name in (JOB, SUBMITTED, ATTEMPT))
    if not job:
        return None
    metrics = [found for each in said.data.metrics if (found := _metric(each)) is not None]
    if len(metrics) > _MOST_METRICS:
        metrics = heapq.nlargest(_MOST_METRICS, metrics, key=_counts)
    return Run(
        info.run_id,
        f"{address}/#/experiments/{info.experiment_id}/runs/{info.run_id}",
        info.status if info.status.isalpha() and len(info.status) <= _LONGEST_STATUS else "",
        _bounded(info.start_time),
        job,
        submitted,
        attempt,
        _NESTED in tags,
        tuple(metrics),
    )


def _metric(said: _MetricSaid) -> Metric | None:
    """Return a metric that can be shown; None where its value is not a finite number."""
    value = said.value
    if not isinstance(value, float) or not math.isfinite(value):
        return None
    if len(said.key) > _LONGEST_NAME:
        return None
    return Metric(said.key, value, _bounded(said.timestamp), _bounded(said.step))


def _counts(metric: Metric) -> tuple[bool, int]:
    """Return how much a metric says of how far a run is, to compare."""
    return not metric.name.startswith(OF_SYSTEM), metric.step


def _whole(text: str) -> int:
    """Read a number that an environment variable of ours had; 0 where there is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0


def _bounded(number: int) -> int:
    return max(0, min(_MOST, number))


def _number(version: _Version) -> int:
    return _whole(version.version)

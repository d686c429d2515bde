"""The client: one method a request, typed as the service's own read models."""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from allotment.client.address import Address, addresses
from allotment.client.files import save
from allotment.client.follow import PATIENCE_S, LogLine, Patience
from allotment.client.request import (
    JSON,
    JobText,
    Ref,
    T,
    body_of,
    data_path,
    decode,
    given,
    job_path,
    node_path,
    output_path,
    path_to,
    reservation_path,
    selector_of,
    sweep_path,
)
from allotment.client.streams import follow_events, follow_logs, read_events, read_logs
from allotment.client.transport import TIMEOUT_S, Transport
from allotment.model.ids import JobId
from allotment.model.reasons import Blocked
from allotment.service.cells_view import CellTree
from allotment.service.code.view import CodeView
from allotment.service.config_view import ConfigInForce, ConfigPlan
from allotment.service.data.view import DataFiles, DataRows, DataView
from allotment.service.environments.view import EnvironmentRow
from allotment.service.estimate_view import Accuracy, StartEstimate
from allotment.service.fairness_view import FairnessReport
from allotment.service.hardware_view import HardwareView, HealthNote
from allotment.service.image_view import ImageRow, ImageView
from allotment.service.live_view import LiveTask
from allotment.service.objectives_view import ObjectivesReport
from allotment.service.pools_view import MoreNodes
from allotment.service.queue_view import TenantQueues
from allotment.service.reservation_view import ReservationNote, ReservationView
from allotment.service.selector import Chosen, Selector, Steered, Verb, Wish
from allotment.service.statistics_view import Statistics
from allotment.service.sweep_view import SweepRow, SweepView
from allotment.service.tracking.view import ModelRows
from allotment.service.usage_view import UsageReport
from allotment.service.views import (
    EventView,
    Health,
    JobRow,
    JobView,
    NodeView,
    OutputFile,
    OutputPage,
    Submitted,
    TenantView,
)
from allotment.service.wait_view import WaitHistory

if TYPE_CHECKING:
    from allotment.client.code import Taken
    from allotment.client.data import Put
    from allotment.client.session import Session
    from allotment.client.step import Tell

MOST_FILES = 10_000
"""Of a job that are listed, where nothing else is asked for."""

LONG_S = 600.0
"""For an answer that takes a reading of the whole log."""

PAGE = 500
"""Jobs asked for at a time."""


class Page(msgspec.Struct, frozen=True):
    """One page of jobs; `next` is where the following one begins."""

    items: tuple[JobRow, ...]
    next: JobId | None = None


class Client:
    """A service, as seen by one user.

    Without arguments it looks where `allot` looks: `$ALLOT_STATE`, `$ALLOT_URL`, the user's
    own service, the machine's. Nothing is connected before the first request. Every method
    raises `Refused` when the service says no and `Unreachable` when none answers. It may be
    used from several threads.
    """

    def __init__(
        self, *, state: str = "", url: str = "", token: str = "", timeout: float = TIMEOUT_S
    ) -> None:
        self._transport = Transport(lambda: addresses(state, url, token), timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what is kept open. The client can still be used."""
        self._transport.close()

    @property
    def address(self) -> Address | None:
        """Return where the service answered last."""
        return self._transport.address

    # ── submitting and changing ─────────────────────────────────────────────────────────

    def submit(
        self, job: JobText, *, key: str = "", form: str = "auto", held: bool = False
    ) -> Submitted:
        """Submit a job: a file, its text, or the native form as a map.

        Durable on return. The same `key` gives the same job again instead of a second one;
        without one, a key is made up, so that a lost connection cannot make two. Refused as
        `uncertain`, there may still be a job: the error names the key to ask by.
        """
        body, content_type = body_of(job)
        query = given(form=form if form != "auto" else "", held="true" if held else "")
        headers = {"Content-Type": content_type, "Idempotency-Key": key or uuid.uuid4().hex}
        path = path_to("/v1/jobs", query)
        return decode(self._transport.fetch("POST", path, body, headers, again=True), Submitted)

    def take_code(self, folder: str | Path = ".", tell: "Tell" = lambda _: None) -> "Taken":
        """Send what is missing of a folder's code; return the key `code` of jobs with it.

        What git or `.allotignore` excludes stays here. `tell` is called with progress.
        """
        from allotment.client.code import take  # noqa: PLC0415 - only where code is taken

        return take(self._transport, Path(folder), tell)

    def code_files(self, folder: str | Path = ".") -> list[str]:
        """List the files of a folder that would be taken along."""
        from allotment.client.code_list import list_code  # noqa: PLC0415 - only for code

        top = Path(folder).absolute()
        return [name for name in list_code(top).names if (top / name).is_file()]

    def look_at_code(self, folder: str | Path = ".") -> "Taken":
        """Return how much of a folder's code would be sent. Sends nothing."""
        from allotment.client.code import take  # noqa: PLC0415 - only where code is taken

        return take(self._transport, Path(folder), lambda _: None, only_look=True)

    def code(self, ref: Ref) -> CodeView:
        """Return the code that a job took along: files, commit, what was not committed."""
        return self._get(job_path(ref, "/code"), CodeView)

    def submission(self, key: str) -> Submitted:
        """Return what a submission with this key made. Raises Refused (`not_found`)."""
        return self._get(path_to("/v1/submissions", [("key", key)]), Submitted)

    def edit(self, ref: Ref, changes: Sequence[str]) -> JobView:
        """Change a waiting job: `["priority=high", "roles.worker.count=4"]`."""
        return self._send(job_path(ref), {"set": list(changes)}, JobView, "PATCH")

    def clone(self, ref: Ref, changes: Sequence[str] = ()) -> Submitted:
        """Submit a job again, with changes."""
        return self._send(job_path(ref, ":clone"), {"set": list(changes)}, Submitted)

    def cancel(self, ref: Ref) -> JobView:
        """End a job, wherever it stands; a running one gets its grace.

        Asked again, a second or more later, it is killed.
        """
        return self._act(ref, "cancel")

    def hold(self, ref: Ref) -> JobView:
        """Take a waiting job out of the line."""
        return self._act(ref, "hold")

    def release(self, ref: Ref) -> JobView:
        """Put a held job back in line."""
        return self._act(ref, "release")

    def suspend(self, ref: Ref) -> JobView:
        """Freeze a running job and free its devices."""
        return self._act(ref, "suspend")

    def resume(self, ref: Ref) -> JobView:
        """Let a suspended job go on when its devices are free."""
        return self._act(ref, "resume")

    def steer(
        self, verb: Verb | str, jobs: Selector | Ref, *, only_count: bool = False
    ) -> Steered:
        """Cancel, hold, release, suspend, resume or retry many jobs with one request.

        `jobs` is a reference, whole arrays (`8`) and parts of them (`8[failed]`) included, or
        a Selector. With `only_count` nothing is done: it is told for how many it would be.
        """
        wish = Wish(selector_of(jobs), only_count)
        return self._send(f"/v1/jobs:{Verb(verb)}", wish, Steered)

    def note(self, ref: Ref, text: str) -> JobView:
        """Keep a note with a job, in place of an earlier one; an empty text takes it away."""
        return self._send(job_path(ref, ":note"), {"text": text}, JobView)

    # ── reading ─────────────────────────────────────────────────────────────────────────

    def choose(self, jobs: Selector | Ref) -> Chosen:
        """Return which jobs are chosen, and how many are in which state."""
        body = msgspec.json.encode(selector_of(jobs))
        kind = {"Content-Type": JSON}
        path = "/v1/jobs:choose"
        return decode(self._transport.fetch("POST", path, body, kind, again=True), Chosen)

    def jobs(  # noqa: PLR0913 - one argument a filter, all by name
        self,
        *,
        refs: Sequence[Ref] = (),
        tenant: str = "",
        user: str = "",
        mine: bool = False,
        name: str = "",
        pattern: str = "",
        states: Sequence[str] = (),
        labels: Sequence[str] = (),
        finished: bool = False,
        arrays: bool = False,
        limit: int = 100,
    ) -> list[JobRow]:
        """List jobs, newest first: live ones and those finished in the last hour.

        With `finished` all that ever were, with `refs` just those. `name` is how a name begins,
        `pattern` all of it (`train-*`); `labels` are `KEY=VALUE` or `KEY`. With `arrays`
        each array is one row, with the `counts` of its jobs by state. Asks for as many pages
        as `limit` needs.
        """
        query = [("ref", str(ref)) for ref in refs]
        query += given(tenant=tenant, user=user, name=name, pattern=pattern)
        query += [("state", state) for state in states]
        query += [("label", label) for label in labels]
        flags = {"mine": mine, "finished": finished, "arrays": arrays}
        query += [(flag, "true") for flag, is_set in flags.items() if is_set]
        rows: list[JobRow] = []
        before: JobId | None = None
        while len(rows) < limit:
            place = [("limit", str(min(PAGE, limit - len(rows))))]
            place += [("before", str(before))] if before is not None else []
            page = self._get(path_to("/v1/jobs", [*query, *place]), Page)
            rows += page.items
            before = page.next
            if before is None:
                break
        return rows

    def job(self, ref: Ref) -> JobView:
        """Return everything about one job."""
        return self._get(job_path(ref), JobView)

    def why(self, ref: Ref) -> Blocked | None:
        """Return why a job waits; None when it does not."""
        data = self._transport.fetch("GET", job_path(ref, "/why"), again=True)
        return None if data.strip() == b"null" else decode(data, Blocked)

    def waits(self, ref: Ref) -> WaitHistory:
        """Return for what a job waited, from when and how long, and why it waits now."""
        return self._get_at_length(job_path(ref, "/waits"), WaitHistory)

    def eta(self, ref: Ref) -> StartEstimate:
        """Return when a job starts, as a range, and what that rests on."""
        return self._get_at_length(job_path(ref, "/eta"), StartEstimate)

    def dry_run(self, job: JobText, *, form: str = "auto", held: bool = False) -> StartEstimate:
        """Return whether, where and when a job would start. Takes what `submit` does."""
        body, content_type = body_of(job)
        query = given(form=form if form != "auto" else "", held="true" if held else "")
        path = path_to("/v1/jobs:dry-run", query)
        reply = self._transport.fetch("POST", path, body, {"Content-Type": content_type})
        return decode(reply, StartEstimate)

    def accuracy(self, since: int = 0) -> Accuracy:
        """Return how good the start estimates were that were given since an instant, in ms."""
        return self._get_at_length(path_to("/v1/estimates", given(since=str(since))), Accuracy)

    def nodes(self) -> list[NodeView]:
        return self._get("/v1/nodes", list[NodeView])

    def live_use(self) -> list[LiveTask]:
        """Return the running tasks with what each uses now."""
        return self._get("/v1/usage/now", list[LiveTask])

    def tenants(self) -> list[TenantView]:
        return self._get("/v1/tenants", list[TenantView])

    def queues(self, tenant: str = "") -> list[TenantQueues]:
        """Return queues of each tenant, or of one, as a tree: what each has and may have."""
        path = path_to("/v1/queues", given(tenant=tenant))
        return self._get(path, list[TenantQueues])

    def cells(self, level: str = "", under: str = "") -> CellTree:
        """Return the cells, with tenants and jobs: all, or those under one root or node.

        `level` is a type, the last part of one, `node` or `leaf`: how far down. Left out, it is
        `node`, and `leaf` for those of one node.
        """
        path = path_to("/v1/cells", given(level=level, under=under))
        return self._get(path, CellTree)

    def fairness(self) -> FairnessReport:
        """Return what each tenant deserves now, what it has, and which are starved."""
        return self._get_at_length("/v1/fairness", FairnessReport)

    def health(self) -> Health:
        return self._get("/v1/service", Health)

    # ── following ───────────────────────────────────────────────────────────────────────

    def wait(
        self, ref: Ref, timeout: float | None = None, patience: float = PATIENCE_S
    ) -> JobView:
        """Return the job once it has finished, through restarts of the service.

        Raises TimeoutError after `timeout` seconds; the job goes on.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        job = self.job(ref)
        if not job.state.finished:
            for _ in follow_events(self._transport, job.id, 0, Patience(patience, deadline)):
                pass
            job = self.job(job.id)
        return job

    def wait_all(
        self,
        jobs: Selector | Ref,
        timeout: float | None = None,
        patience: float = PATIENCE_S,
    ) -> Chosen:
        """Return how many ended in which state, once all have finished; as `wait`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        chosen = self.choose(jobs)
        these = Selector(ids=chosen.ids)
        while chosen.going_on:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            self.wait(chosen.going_on[0][0], left, patience)
            chosen = self.choose(these)
        return chosen

    def events(
        self,
        ref: Ref | None = None,
        *,
        after: int = 0,
        limit: int = 1000,
        follow: bool = False,
        patience: float = PATIENCE_S,
    ) -> Iterator[EventView]:
        """Return what happened, to one job or to all, oldest first, after event `after`.

        `limit` is for all pages together. With `follow` there is no limit, and it goes on
        with what happens from now on, until the job has finished.
        """
        job = None if ref is None else self.job(ref).id
        if follow:
            return follow_events(self._transport, job, after, Patience(patience))
        return read_events(self._transport, job, after, limit)

    def logs(  # noqa: PLR0913 - one argument a choice, all by name
        self,
        ref: Ref,
        *,
        task: str = "",
        attempt: int | None = None,
        stream: str = "both",
        follow: bool = False,
        tail: int | None = None,
        patience: float = PATIENCE_S,
    ) -> Iterator[LogLine]:
        """Return the output of a job's tasks, of the newest attempt when none is named.

        `tail` gives the last so many bytes of each. With `follow` it goes on until the job
        has finished, through restarts of the service.
        """
        job = self.job(ref)
        query = dict(given(task=task, stream=stream))
        query |= {"attempt": str(attempt)} if attempt is not None else {}
        query |= {"tail": str(tail)} if tail is not None else {}
        if follow:
            return follow_logs(self._transport, job.id, query, Patience(patience))
        return read_logs(self._transport, job, query)

    def statistics(self, since: int = 0, until: int | None = None) -> Statistics:
        """Sum up how jobs waited and ran between two instants, and what each tenant got.

        Instants are milliseconds since the epoch; up to now when `until` is None. The
        answer begins later where the service no longer knows: see `known_since`.
        """
        query = given(since=str(since), until="" if until is None else str(until))
        return self._get_at_length(path_to("/v1/statistics", query), Statistics)

    def usage(
        self, since: int = 0, until: int | None = None, by: str = "tenant"
    ) -> UsageReport:
        """Sum up the GPU-hours and CPU-hours that were held between two instants.

        `by` says what a row is about: `tenant`, `queue`, `user`, `job` or `type`, or several,
        separated by commas. Instants are as in `statistics`.
        """
        query = given(since=str(since), until="" if until is None else str(until), by=by)
        return self._get_at_length(path_to("/v1/usage", query), UsageReport)

    def objectives(self, since: int = 0, until: int | None = None) -> ObjectivesReport:
        """Return whether service objectives were met. Instants are as in `statistics`."""
        query = given(since=str(since), until="" if until is None else str(until))
        return self._get_at_length(path_to("/v1/objectives", query), ObjectivesReport)

    # ── files, terminals ────────────────────────────────────────────────────────────────

    def outputs(self, ref: Ref) -> list[OutputFile]:
        """List the files a job left in its output folder, attempt by attempt.

        At most 10,000; `output_page` lists more, and tells whether there are any.
        """
        return list(self.output_page(ref).items)

    def output_page(self, ref: Ref, *, attempt: int = 0, limit: int = MOST_FILES) -> OutputPage:
        """List at most so many files a job left, of one attempt or (0) of all.

        Where there are more, those of the newest attempts are listed.
        """
        query = given(
            attempt=str(attempt) if attempt else "",
            limit=str(limit) if limit != MOST_FILES else "",
        )
        return self._get_at_length(path_to(job_path(ref, "/outputs"), query), OutputPage)

    def fetch(self, ref: Ref, file: OutputFile, folder: str | Path) -> Path:
        """Copy one output file to the same place below `folder`; return its path.

        It appears there complete or not at all.
        """
        path = output_path(ref, file.attempt, file.path)
        return save(self._transport.open(path, {"Accept": "*/*"}), file, Path(folder))

    def exec(
        self,
        ref: Ref,
        argv: Sequence[str],
        *,
        task: str = "",
        tty: bool = False,
        size: tuple[int, int] = (24, 80),
        env: Mapping[str, str] | None = None,
    ) -> "Session":
        """Run a command inside a running task's isolation. `size` is rows and columns."""
        from allotment.client.session import open_session  # noqa: PLC0415 - heavy

        job = self.job(ref)
        greeting = {
            "argv": list(argv), "tty": tty, "rows": size[0], "cols": size[1],
            "env": dict(env or {}),
        }  # fmt: skip
        assert self.address is not None
        return open_session(
            self.address,
            path_to(job_path(job.id, "/exec"), given(task=task)),
            msgspec.json.encode(greeting).decode(),
        )

    # ── the cluster and the service ─────────────────────────────────────────────────────

    def drain(self, node: str, reason: str = "") -> None:
        """Keep new work off a node; what runs there goes on."""
        self._do(node_path(node, ":drain"), {"reason": reason})

    def undrain(self, node: str) -> None:
        """Let a drained node take work again."""
        self._do(node_path(node, ":undrain"), {})

    def images(self) -> list[ImageRow]:
        """List the images in the machine's store that you have used."""
        return self._get("/v1/images", list[ImageRow])

    def inspect_image(self, image: str) -> ImageView:
        """Return what an image consists of, and what would have to be fetched of it."""
        return self._get(path_to("/v1/images:inspect", [("image", image)]), ImageView)

    def warm_image(
        self, image: str, tell: Callable[[ImageView], None] = lambda _: None
    ) -> ImageView:
        """Fetch an image ahead; return when it is in the store. `tell` hears how far it is."""
        while True:
            found = self._send("/v1/images:warm", {"image": image}, ImageView)
            if found.is_here:
                return found
            tell(found)
            image = found.image  # The same bytes, should the tag move meanwhile.

    def build_image(  # noqa: PLR0913 - one argument a choice, all by name
        self,
        name: str,
        folder: str | Path = ".",
        *,
        file: str | Path = "",
        build_args: Mapping[str, str] | None = None,
        secrets: Mapping[str, str | Path] | None = None,
        target: str = "",
        no_cache: bool = False,
        push: bool = True,
        job: Mapping[str, object] | None = None,
    ) -> Submitted:
        """Build an image from a folder's Dockerfile, and push it; return the job that does it.

        `job` are further keys of that job, such as `tenant` or `max_run_time`; `secrets` are
        files by their ids.
        """
        from allotment.client.image_build import build_job  # noqa: PLC0415 - only for builds

        made = build_job(
            name, folder, file=file, build_args=build_args, secrets=secrets, target=target,
            no_cache=no_cache, push=push,
        )  # fmt: skip
        return self.submit(made | dict(job or {}))

    def push_image(self, name: str, *, job: Mapping[str, object] | None = None) -> Submitted:
        """Push an image that you have built to its registry; return the job that does it."""
        from allotment.client.image_build import push_job  # noqa: PLC0415 - only for builds

        return self.submit(push_job(name) | dict(job or {}))

    def remove_image(self, image: str) -> None:
        """Remove an image from the store, unless a task uses it. For the administrator."""
        self._do("/v1/images:remove", {"image": image})

    def log_in_to_registry(self, registry: str, user: str, password: str) -> Path:
        """Keep a password in ~/.docker/config.json, where the service finds it; return that."""
        from allotment.client.image_login import keep  # noqa: PLC0415 - rarely needed

        return keep(Path.home(), registry, user, password)

    def log_out_of_registry(self, registry: str) -> bool:
        """Forget a password; False where there was none."""
        from allotment.client.image_login import forget  # noqa: PLC0415 - rarely needed

        return forget(Path.home(), registry)

    def models(self) -> ModelRows:
        """List the models registered in the cluster's MLflow, and the job that made each."""
        return self._get("/v1/models", ModelRows)

    def environments(self) -> list[EnvironmentRow]:
        """List the environments on the machine that your jobs asked for."""
        return self._get("/v1/environments", list[EnvironmentRow])

    def build_environment(
        self,
        requirements: Sequence[str] | Path,
        python: str = "",
        image: str = "",
        tell: Callable[[EnvironmentRow], None] = lambda _: None,
    ) -> EnvironmentRow:
        """Build an environment ahead, with `image` for its Python; return when it is there.

        A `Path` is that of a requirements file, or of a pyproject.toml beside its lock. `tell`
        hears of an environment that is not there yet, every ten seconds.
        """
        if isinstance(requirements, Path):
            from allotment.client.packages import read_packages  # noqa: PLC0415 - for files

            python, requirements = read_packages(requirements, python)
        wish = {"python": python, "requirements": list(requirements), "image": image}
        while True:
            found = self._send("/v1/environments:build", wish, EnvironmentRow)
            if found.bytes:
                return found
            tell(found)

    def remove_environment(self, key: str) -> None:
        """Remove an environment that no job needs. For the administrator."""
        self._do("/v1/environments:remove", {"key": key})

    def datasets(self) -> list[DataView]:
        """List the datasets that you may use."""
        return list(self._get("/v1/data", DataRows).datasets)

    def dataset(self, name: str) -> DataView:
        """Return a dataset: `imagenet`, or `vision/imagenet`. Raises Refused."""
        return self._get(data_path(name), DataView)

    def create_dataset(
        self,
        name: str,
        *,
        tenant: str = "",
        folder: str = "",
        objects: Mapping[str, str] | None = None,
    ) -> DataView:
        """Make a dataset; with `folder` register one of the machine (administrator).

        With `objects` it is what an object store has: `url`, and if need be `endpoint`,
        `region`, `profile`.
        """
        note = {"name": name, "tenant": tenant, "folder": folder}
        told = {**note, "objects": dict(objects)} if objects else note
        return self._send("/v1/data", told, DataView)

    def put_data(self, name: str, source: str | Path, tell: "Tell" = lambda _: None) -> "Put":
        """Make a folder, or a file, the next version of a dataset; send what is missing."""
        from allotment.client.data import put  # noqa: PLC0415 - only for data

        return put(self._transport, name, Path(source), tell)

    def get_data(
        self, name: str, folder: str | Path, tell: "Tell" = lambda _: None
    ) -> DataFiles:
        """Write a version (`imagenet@3`, else the newest) below a folder.

        What is there of it already is not fetched again.
        """
        from allotment.client.data_get import get  # noqa: PLC0415 - only for data

        return get(self._transport, name, Path(folder), tell)

    def data_files(self, name: str) -> DataFiles:
        """List the files of a version (`imagenet@3`, else the newest)."""
        return self._get(data_path(name, "/files"), DataFiles)

    def grant_data(
        self, name: str, *, tenant: str = "", user: str = "", write: bool = False
    ) -> DataView:
        """Let a tenant's members, or a user, read a dataset, or write too."""
        note = {"tenant": tenant, "user": user, "write": write}
        return self._send(data_path(name, ":grant"), note, DataView)

    def revoke_data(self, name: str, *, tenant: str = "", user: str = "") -> DataView:
        """Take a right to a dataset back."""
        note = {"tenant": tenant, "user": user}
        return self._send(data_path(name, ":revoke"), note, DataView)

    def remove_data(self, name: str) -> None:
        """Remove a dataset with all its versions, or one of them (`imagenet@3`)."""
        base, _, version = name.partition("@")
        path = data_path(base if version else name, ":remove")
        data_path(name)  # A version that is none is refused before anything goes.
        self._do(path, {"version": int(version or 0)})

    def log_in_to_store(self, key_id: str, secret: str, *, profile: str = "default") -> Path:
        """Keep a key in ~/.aws/credentials, where the service finds it; return that file."""
        from allotment.client.data_login import keep  # noqa: PLC0415 - rarely needed

        return keep(Path.home(), profile, key_id, secret)

    def sweeps(self) -> list[SweepRow]:
        """List the newest sweeps. `submit` makes one of a job with `sweep` in it."""
        return self._get("/v1/sweeps", list[SweepRow])

    def sweep(self, ref: Ref) -> SweepView:
        """Return a sweep with its trials, the best first. A job of it names it too."""
        return self._get(sweep_path(ref), SweepView)

    def stop_sweep(self, ref: Ref) -> SweepView:
        """End all trials of a sweep."""
        return self._send(sweep_path(ref, ":stop"), {}, SweepView)

    def pools(self) -> MoreNodes:
        """List the pools of nodes, and the jobs that more of their nodes would let start."""
        return self._get_at_length("/v1/pools", MoreNodes)

    def reservations(self) -> list[ReservationView]:
        """List the reservations: nodes, times, and for whom they are."""
        return self._get("/v1/reservations", list[ReservationView])

    def reserve(self, note: ReservationNote) -> list[ReservationView]:
        """Set nodes aside for a time; return all that are set then."""
        body = msgspec.to_builtins(note)
        return self._send("/v1/reservations", body, list[ReservationView])

    def end_reservation(self, name: str) -> None:
        """End a reservation, so that all jobs may use its nodes."""
        self._do(reservation_path(name, ":end"), {})

    def hardware(self) -> list[HardwareView]:
        """List the nodes and devices that are suspect or bad."""
        return self._get("/v1/health", list[HardwareView])

    def note_health(self, note: HealthNote) -> list[HardwareView]:
        """Report hardware as in trouble, or as ok; return how it is now."""
        return self._send("/v1/health", msgspec.to_builtins(note), list[HardwareView])

    def config(self) -> ConfigInForce:
        """Return the configuration in force, written in full, and its digest."""
        return self._get("/v1/config", ConfigInForce)

    def plan_config(self, text: str, source: str = "config") -> ConfigPlan:
        """Return what a configuration would change, and for which jobs. Changes nothing."""
        body = {"text": text, "source": source}
        return self._send("/v1/config:plan", body, ConfigPlan)

    def apply_config(self, text: str, source: str = "config", expect: str = "") -> ConfigPlan:
        """Put a configuration in force while jobs run on; only over that named `expect`.

        Without, it is the one in force when the service is asked. Raises Refused if that
        was changed by somebody meanwhile: plan again then.
        """
        body = {"text": text, "source": source, "expect": expect}
        return self._send("/v1/config:apply", body, ConfigPlan)

    def stop(self) -> None:
        """Stop the service. Tasks run on, and are adopted at the next start."""
        self._do("/v1/service:stop", {})

    def backup(self, target: str | Path, *, without_secrets: bool = False) -> None:
        """Have the service write a consistent copy of its books, on its machine.

        The jobs' secrets are in it in clear, unless they are left out.
        """
        body = {"target": str(target), "without_secrets": without_secrets}
        self._do("/v1/service:backup", body)

    # ── inside ──────────────────────────────────────────────────────────────────────────

    def _get(self, path: str, kind: type[T]) -> T:
        return decode(self._transport.fetch("GET", path, again=True), kind)

    def _get_at_length(self, path: str, kind: type[T]) -> T:
        with closing(self._transport.open(path, timeout=LONG_S)) as reply:
            return decode(reply.read(), kind)

    def _do(self, path: str, body: object, method: str = "POST") -> bytes:
        data = msgspec.json.encode(body)
        return self._transport.fetch(method, path, data, {"Content-Type": JSON})

    def _send(self, path: str, body: object, kind: type[T], method: str = "POST") -> T:
        return decode(self._do(path, body, method), kind)

    def _act(self, ref: Ref, verb: str) -> JobView:
        return self._send(job_path(ref, f":{verb}"), {}, JobView)

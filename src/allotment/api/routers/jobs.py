"""Jobs: listing, looking, changing."""

from collections.abc import Callable
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from allotment.api.body import read_as
from allotment.api.fair_use import FairUse
from allotment.api.openapi import a_router, body_of, returns
from allotment.api.render import Caller, Job, TheService, reply
from allotment.api.shapes import Changes, Note, Page
from allotment.model import commands as c
from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState
from allotment.model.reasons import Blocked
from allotment.service.listing import Which
from allotment.service.selector import Chosen, Selector, Steered, Verb, Wish
from allotment.service.views import JobView, Submitted
from allotment.service.wait_view import WaitHistory
from allotment.wire.job import apply_set

router = a_router("jobs")

MOST_ITEMS = 1000
MOST_REFS = 100


@router.get("/v1/jobs", responses=returns(Page))
async def list_jobs(  # noqa: PLR0913, PLR0917 - one argument a filter
    service: TheService,
    caller: Caller,
    ref: Annotated[list[str] | None, Query(max_length=MOST_REFS)] = None,
    state: Annotated[list[JobState] | None, Query()] = None,
    tenant: str = "",
    user: str = "",
    mine: bool = False,
    name: str = "",
    pattern: str = "",
    label: Annotated[list[str] | None, Query(max_length=MOST_REFS)] = None,
    finished: bool = False,
    arrays: bool = False,
    limit: Annotated[int, Query(ge=1, le=MOST_ITEMS)] = 100,
    before: Annotated[int | None, Query(ge=0, lt=1 << 63)] = None,
) -> Response:
    """List jobs, newest first.

    Live ones and those that finished within the last hour; with `finished` all there were;
    with `ref` just those, parts of arrays too (`8[failed]`). `name` is the beginning of a
    name, `pattern` all of it, such as `train-*`; `label` is `KEY=VALUE` or `KEY`. With
    `arrays` one row stands for an array, with the `counts` of its jobs by state. The page
    after this one begins `before` its `next`.
    """
    which = Which(
        Selector(
            refs=tuple(ref or ()),
            mine=mine,
            user=user,
            name=pattern,
            tenant=tenant,
            states=tuple(state or ()),
            labels=tuple(label or ()),
        ),
        beginning=name,
        finished=finished,
        as_arrays=arrays,
        limit=limit,
        before=None if before is None else JobId(before),
    )
    items, more = await service.listing.page(which, caller)
    return reply(service.shown(Page(tuple(items), more)))


@router.get("/v1/submissions", responses=returns(Submitted))
async def find_submission(
    key: Annotated[str, Query(min_length=1, max_length=200)],
    service: TheService,
    caller: Caller,
) -> Response:
    """Return what a submission of the caller made, by its Idempotency-Key.

    For a client that got no answer, or the code `uncertain`. 404 means that there is no job,
    and that there will be none unless it is submitted again.
    """
    return reply(await service.submission(key, caller))


@router.get("/v1/jobs/{ref}", responses=returns(JobView))
async def show_job(job: Job, service: TheService, caller: Caller) -> Response:
    """Return everything about one job."""
    return reply(service.shown(await service.job_with_runs(job, caller)))


@router.get("/v1/jobs/{ref}/why", responses=returns(Blocked | None))
async def why(job: Job, service: TheService) -> Response:
    """Return why a job waits: null when it does not."""
    return reply(service.shown(service.why(job)))


@router.get("/v1/jobs/{ref}/waits", responses=returns(WaitHistory))
async def waits(job: Job, service: TheService) -> Response:
    """Return the life of a job in stretches of time: for what it waited in each, how long, and
    when it ran. Of finished jobs too."""
    return reply(service.shown(await service.reports.waits(job)))


VERBS: dict[str, tuple[Callable[[JobId], c.AnyCommand], str]] = {
    "cancel": (
        c.CancelJob,
        "End a job in any state; a running job gets its grace time. Asked again, a second or "
        "more later, it is killed.",
    ),
    "hold": (c.HoldJob, "Keep a waiting job from starting."),
    "release": (c.ReleaseJob, "Allow a held job to start again."),
    "suspend": (c.SuspendJob, "Freeze a running job and free its devices."),
    "resume": (c.ResumeJob, "Continue a suspended job when its devices are free."),
}


def _steer(verb: str, command: Callable[[JobId], c.AnyCommand], what: str) -> None:
    @router.post(
        f"/v1/jobs/{{ref}}:{verb}",
        name=f"{verb}_job",
        description=what,
        responses=returns(JobView),
    )
    async def steer(job: Job, service: TheService, caller: Caller) -> Response:
        await service.act(command(job), caller)
        return reply(service.shown(service.job(job, caller)))


for _verb, (_command, _what) in VERBS.items():
    _steer(_verb, _command, _what)


MANY: dict[Verb, str] = {
    Verb.CANCEL: "End jobs in any state; running jobs get their grace time. Asked again, a "
    "second or more later, they are killed.",
    Verb.HOLD: "Keep waiting jobs from starting.",
    Verb.RELEASE: "Allow held jobs to start again.",
    Verb.SUSPEND: "Freeze running jobs and free their devices.",
    Verb.RESUME: "Continue suspended jobs when their devices are free.",
    Verb.RETRY: "Submit jobs again that failed, as they are; those of an array as an array "
    "with the same indices. Only their owner may.",
}
BEYOND = " Jobs in other states are left unchanged, and counted."


def _steer_many(verb: Verb, what: str) -> None:
    @router.post(
        f"/v1/jobs:{verb}",
        name=f"{verb}_jobs",
        description=what + BEYOND,
        responses=returns(Steered),
        openapi_extra=body_of(Wish),
    )
    async def steer(request: Request, service: TheService, caller: Caller) -> Response:
        wish = await read_as(request, Wish)
        return reply(await service.steering.steer(verb, wish, caller))


for _many, _what in MANY.items():
    _steer_many(_many, _what)


@router.post("/v1/jobs:choose", responses=returns(Chosen), openapi_extra=body_of(Selector))
async def choose_jobs(request: Request, service: TheService, caller: Caller) -> Response:
    """Return which jobs are chosen, and how they stand. Changes nothing."""
    jobs = await read_as(request, Selector)
    return reply(service.selecting.told(jobs, caller))


@router.post("/v1/jobs/{ref}:note", responses=returns(JobView), openapi_extra=body_of(Note))
async def note_job(job: Job, request: Request, service: TheService, caller: Caller) -> Response:
    """Keep a note with a job, in place of an earlier one; an empty text takes it away."""
    note = await read_as(request, Note)
    await service.act(c.NoteJob(job, note.text), caller)
    return reply(service.job(job, caller))


@router.patch("/v1/jobs/{ref}", responses=returns(JobView), openapi_extra=body_of(Changes))
async def edit_job(job: Job, request: Request, service: TheService, caller: Caller) -> Response:
    """Change a waiting job."""
    changes = await read_as(request, Changes)
    await service.edit(job, lambda spec: apply_set(spec, changes.set), caller)
    return reply(service.shown(service.job(job, caller)))


@router.post(
    "/v1/jobs/{ref}:clone",
    status_code=201,
    responses=returns(Submitted, 201),
    openapi_extra=body_of(Changes),
)
async def clone_job(
    job: Job, request: Request, service: TheService, caller: Caller
) -> Response:
    """Submit a job again, with changes."""
    changes = await read_as(request, Changes)
    fair_use: FairUse = request.app.state.fair_use
    was = service.spec_again(job, caller)
    spec = await fair_use.read(caller, lambda: apply_set(was, changes.set))
    made = await service.submit(c.SubmitJob(spec), caller)
    return reply(made, 201, {"Location": f"/v1/jobs/{made.id}", "Cache-Control": "no-store"})

"""The application: routers, errors and the guard, put together."""

import asyncio
from collections.abc import Callable

from fastapi import FastAPI
from starlette.types import ASGIApp

from allotment.api import openapi
from allotment.api.accounts import Accounts
from allotment.api.fair_use import FairUse
from allotment.api.front import Front
from allotment.api.guard import Guard, Rules
from allotment.api.http_stats import HttpStats
from allotment.api.problems import handlers
from allotment.api.routers import (
    cluster,
    code,
    config,
    data,
    environments,
    estimates,
    events,
    images,
    jobs,
    logs,
    models,
    outputs,
    reservations,
    statistics,
    sweeps,
    terminal,
)
from allotment.api.routers import service as service_router
from allotment.api.routers.sending import SendCode, SendData
from allotment.api.routers.submit import Submit
from allotment.service.service import Service

ROUTERS = (
    jobs.router,
    sweeps.router,
    estimates.router,
    logs.router,
    events.router,
    outputs.router,
    terminal.router,
    cluster.router,
    images.router,
    code.router,
    environments.router,
    data.router,
    models.router,
    reservations.router,
    config.router,
    statistics.router,
    service_router.router,
)


class Api(FastAPI):
    """FastAPI, described by `openapi`. Build it with `create_app`."""

    def openapi(self) -> openapi.Schema:
        if self.openapi_schema is None:
            self.openapi_schema = openapi.describe(self, ROUTERS)
        return self.openapi_schema


def create_app(service: Service, stop: Callable[[], None], stats: HttpStats) -> Api:
    """Return the application around a service. `stop` is called when a client ends it."""
    app = Api(
        title="Allotment",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    fair_use = FairUse(lambda: service.state.config.limits.per_user)
    for kind, handler in handlers(stats.refused).items():
        app.add_exception_handler(kind, handler)
    app.state.service = service
    app.state.stats = stats
    app.state.fair_use = fair_use
    app.state.stop = stop
    app.state.stopping = asyncio.Event()
    submit = Submit(service, fair_use, app.state.stopping)
    app.add_route("/v1/jobs", submit, ["POST"], include_in_schema=False)  # type: ignore[arg-type]
    send_code = SendCode(service)
    app.add_route("/v1/code:send", send_code, ["POST"], include_in_schema=False)  # type: ignore[arg-type]
    send_data = SendData(service)
    app.add_route(SendData.path, send_data, ["POST"], include_in_schema=False)  # type: ignore[arg-type]
    for router in ROUTERS:  # To include them would make each route again, at the first request.
        app.router.routes.extend(router.routes)
    return app


def behind_guard(app: Api, rules: Rules) -> ASGIApp:
    """Return the application behind its guard, as a server runs it."""
    return Front(app, Guard(rules, Accounts()), app.state.fair_use, app.state.stats)

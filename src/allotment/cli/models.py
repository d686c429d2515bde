"""`allot models`: the models registered in the cluster's MLflow."""

import time

from allotment.cli.options import AsJson, State
from allotment.cli.output import say_json, talk
from allotment.cli.table import Column, print_table
from allotment.cli.words import harmless, show_age
from allotment.client import Client
from allotment.service.tracking.view import ModelRow

COLUMNS = (
    Column("MODEL", flexible=True),
    Column("VERSION", right=True),
    Column("AGE", right=True, rank=2),
    Column("JOB", right=True),
    Column("NAME", rank=1),
    Column("TENANT", rank=1),
    Column("USER", rank=2),
)


def models(state: State = "", as_json: AsJson = False) -> None:
    """List the models registered in MLflow, and the job that made each.

    These are MLflow's own statements: everybody who reaches the server can write there.

    Examples:
      allot models
      allot models --json
    """
    with Client(state=state) as client:
        found = client.models()
    if as_json:
        say_json(found)
    elif found.items:
        now = int(time.time() * 1000)
        print_table(COLUMNS, [_row(model, now) for model in found.items])
    else:
        talk(f"no models are registered at {found.server}")


def _row(model: ModelRow, now: int) -> tuple[str, ...]:
    return (
        harmless(model.name),
        harmless(model.version),
        show_age(model.made_at, now),
        str(model.job or "-"),
        harmless(model.job_name) or "-",
        model.tenant or "-",
        model.user or "-",
    )

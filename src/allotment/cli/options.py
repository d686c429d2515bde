"""Options and arguments that many verbs share, spelt and explained once."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from allotment.client import Client


def _client() -> "Client":
    from allotment.client import Client  # noqa: PLC0415 - only when somebody presses Tab

    return Client(timeout=1.0)


def complete_job(incomplete: str) -> list[str]:
    """Offer the jobs of a service that answers at once; nothing where none does."""
    try:
        with _client() as client:
            rows = client.jobs(limit=200)
    except Exception:  # noqa: BLE001 - a shell prompt is no place for an error
        return []
    words = ["last", *(str(row.id) for row in rows), *(row.name for row in rows)]
    return [word for word in dict.fromkeys(words) if word.startswith(incomplete)]


def complete_node(incomplete: str) -> list[str]:
    """Offer the nodes of a service that answers at once."""
    try:
        with _client() as client:
            return [n.name for n in client.nodes() if n.name.startswith(incomplete)]
    except Exception:  # noqa: BLE001 - a shell prompt is no place for an error
        return []


def complete_tenant(incomplete: str) -> list[str]:
    """Offer the tenants of a service that answers at once."""
    try:
        with _client() as client:
            return [t.name for t in client.tenants() if t.name.startswith(incomplete)]
    except Exception:  # noqa: BLE001 - a shell prompt is no place for an error
        return []


JOB_HELP = (
    "An id, a unique prefix of an id or name, a name, or `last`; a pod that others made on "
    "Kubernetes is NAMESPACE/POD."
)

Job = Annotated[str, typer.Argument(metavar="JOB", help=JOB_HELP, autocompletion=complete_job)]
OptionalJob = Annotated[
    str,
    typer.Argument(
        metavar="JOB", show_default=False, help=JOB_HELP, autocompletion=complete_job
    ),
]
State = Annotated[
    str,
    typer.Option(
        "--state",
        metavar="DIR",
        help="State folder of the service to talk to; also ALLOT_STATE.",
        show_default=False,
    ),
]
StateFolder = Annotated[
    str,
    typer.Option(
        "--state",
        metavar="DIR",
        help="State folder; also ALLOT_STATE. Otherwise your own, for root the machine's.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print for programs.")]
Raw = Annotated[
    bool,
    typer.Option(
        "--raw", help="Pass escape codes of the output on to the terminal as they are."
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="KEY=VALUE",
        help="Change a key: priority=high, roles.worker.count=4, env.LR=0.1. Repeatable.",
    ),
]
Task = Annotated[
    str,
    typer.Option(
        "--task", "-t", metavar="TASK", help="One task: worker.1, or its number.",
        show_default=False,
    ),
]  # fmt: skip
Tenant = Annotated[
    str, typer.Option(help="The tenant whose quota it uses.", autocompletion=complete_tenant)
]
Queue = Annotated[str, typer.Option(help="A queue of the tenant.")]
Priority = Annotated[str, typer.Option(help="low, normal, high or a number.")]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Print the id, and do not wait.")]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label", metavar="KEY=VALUE", help="A label to find the job by. Repeatable."
    ),
]

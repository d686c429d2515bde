"""Verbs about the cluster: nodes and tenants, drain and undrain."""

import time
from collections.abc import Iterable
from typing import Annotated

import typer

from allotment.cli import aside
from allotment.cli.options import AsJson, State, complete_node
from allotment.cli.output import say_json, talk
from allotment.cli.table import Column, print_table
from allotment.cli.tenant_table import COLUMNS as CELL_COLUMNS
from allotment.cli.tenant_table import notes, rows
from allotment.cli.words import NOTHING_THERE, count, not_heard
from allotment.client import Client
from allotment.model.amounts import CPU, GPU, show_part, vector_of
from allotment.model.quantity import Resources, show_bytes, show_milli
from allotment.service.views import DeviceView, NodeView, TenantView

NODE_COLUMNS = (
    Column("NODE"),
    Column("STATE"),
    Column("GPU", right=True),
    Column("KIND", rank=2, flexible=True),
    Column("CPU", right=True),
    Column("MEMORY", rank=1, right=True),
    Column("DISK", rank=5, right=True),
    Column("ARCH", rank=6),
    Column("TASKS", rank=4, right=True),
    Column("NOTE", rank=3, flexible=True),
)
ENGINE_COLUMN = Column("ENGINE", rank=4)
"""The second, where the configuration names engines."""
TENANT_COLUMNS = (
    Column("TENANT"),
    Column("GUARANTEED", right=True),
    Column("OWN", right=True),
    Column("BORROWED", rank=1, right=True),
    Column("LENT", rank=2, right=True),
    Column("RUNNING", rank=3, right=True),
    Column("WAITING", rank=4, right=True),
    Column("QUEUES", rank=6, flexible=True),
    Column("MEMBERS", rank=5, flexible=True),
)
Node = Annotated[
    str,
    typer.Argument(metavar="NODE", help="The name of a node.", autocompletion=complete_node),
]


def nodes(state: State = "", as_json: AsJson = False) -> None:
    """List the machines: what each has, and how much of it is free.

    GPU, CPU, MEMORY and DISK are free/total. Suspect and bad devices are not free; NOTE names
    them (see `allot health`), present reservations (see `allot reservations`), and jobs that
    keep their places because killed processes do not die.

    Examples:
      allot nodes
      allot nodes --json
    """
    with Client(state=state) as client:
        found = client.nodes()
        kept = [] if as_json else client.reservations()
    if as_json:
        say_json(found)
        return
    told = aside.by_node(kept, int(time.time() * 1000))
    lines = [node_row(node, told.get(node.name, "")) for node in found]
    if not any(node.engine for node in found):
        print_table(NODE_COLUMNS, lines)
        return
    columns = (NODE_COLUMNS[0], ENGINE_COLUMN, *NODE_COLUMNS[1:])
    named = zip(lines, found, strict=True)
    print_table(columns, [(row[0], node.engine, *row[1:]) for row, node in named])


def node_row(node: NodeView, set_aside: str = "") -> tuple[str, ...]:
    """Return the cells of one node's row, with what it is set aside for."""
    free, total = node.free, node.total
    unheard = not_heard(node.unheard) if node.unheard else ""
    others = node.others.words() if node.others else ""
    notes = (unheard, set_aside, node.reason, node.trouble, others)
    return (
        node.name,
        node.health if node.health.is_out else node.state,
        _of(show_milli(max(0, free.gpu_milli)), show_milli(total.gpu_milli)),
        kinds(node.devices),
        _of(show_milli(max(0, free.cpu_milli)), show_milli(total.cpu_milli)),
        _of(_short(free.memory), _short(total.memory)),
        _of(_short(free.disk), _short(total.disk)),
        node.arch,
        str(node.tasks),
        "; ".join(part for part in notes if part),
    )


def _of(free: str, total: str) -> str:
    return NOTHING_THERE if total in ("0", "0B") else f"{free}/{total}"


def _short(amount: int) -> str:
    """Write bytes without a blank: 12GiB."""
    return show_bytes(max(0, amount)).replace(" ", "").replace(".0", "")


def kinds(devices: tuple[DeviceView, ...]) -> str:
    """Return the devices: `4×A100, 2×T4 (virtual)`. Virtual ones are always marked."""
    tally: dict[tuple[str, bool], int] = {}
    for device in devices:
        key = (device.type, device.virtual)
        tally[key] = tally.get(key, 0) + 1
    return ", ".join(
        f"{number}×{kind}" + (" (virtual)" if virtual and kind != "virtual" else "")
        for (kind, virtual), number in tally.items()
    )


def tenants(state: State = "", as_json: AsJson = False) -> None:
    """List the tenants: what each is guaranteed, uses, borrows and lends.

    OWN is what a tenant uses of its guarantee, BORROWED what it uses beyond it, LENT what
    others use of the idle part. Amounts are GPUs, or CPUs if no tenant is guaranteed a GPU.
    Below the table are tenants whose guarantee or borrowing is only in other resources.

    With cells there is a line for each type: how many cells are GUARANTEED, USED and available
    at once (FREE), how many of these borrowers use (LENT), and how many it lacks because
    hardware is down (LOST). BORROWED are devices. Nodes that are set aside now count as usual;
    they are named below the table.

    Examples:
      allot tenants
    """
    with Client(state=state) as client:
        found = client.tenants()
        kept = [] if as_json else client.reservations()
    if as_json:
        say_json(found)
        return
    now = int(time.time() * 1000)
    if any(tenant.cells for tenant in found):
        print_table(CELL_COLUMNS, rows(found))
        for note in (*notes(found, now), *aside.notes(kept, now)):
            talk(note)
        return
    in_gpus = any(tenant.guaranteed.gpu_milli for tenant in found)
    print_table(TENANT_COLUMNS, [tenant_row(tenant, in_gpus) for tenant in found])
    if not in_gpus:
        talk("Amounts are CPUs: no tenant is guaranteed a GPU.")
    for note in (*beside(found, in_gpus), *aside.notes(kept, now)):
        talk(note)


def tenant_row(tenant: TenantView, in_gpus: bool) -> tuple[str, ...]:
    """Return the cells of one tenant's row."""

    def amount(held: Resources) -> str:
        return show_milli(held.gpu_milli if in_gpus else held.cpu_milli)

    return (
        tenant.name,
        amount(tenant.guaranteed),
        amount(tenant.own),
        amount(tenant.borrowed),
        amount(tenant.lent),
        str(tenant.running),
        str(tenant.waiting),
        ", ".join(tenant.queues),
        tenant.members,
    )


def beside(tenants: Iterable[TenantView], in_gpus: bool) -> list[str]:
    """Return the guarantees and borrowing of tenants that the table does not show."""
    shown = GPU if in_gpus else CPU
    found: list[str] = []
    for tenant in tenants:
        for verb, parts in (
            ("is guaranteed", vector_of(tenant.guaranteed)),
            ("borrows", _more(tenant)),
        ):
            if parts and shown not in parts:
                words = ", ".join(show_part(part, amount) for part, amount in parts.items())
                found.append(f"{tenant.name} {verb} {words}.")
    return found


def _more(tenant: TenantView) -> dict[str, int]:
    """Return what a tenant borrows beyond its guarantee, by part."""
    guaranteed, own = vector_of(tenant.guaranteed), vector_of(tenant.own)
    beyond = {
        part: min(held, held + own.get(part, 0) - guaranteed.get(part, 0))
        for part, held in vector_of(tenant.borrowed).items()
    }
    return {part: amount for part, amount in beyond.items() if amount > 0}


def drain(
    node: Node,
    reason: Annotated[
        str,
        typer.Option("--reason", "-r", metavar="TEXT", help="The reason. Other users see it."),
    ] = "",
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Keep new work off a node; running jobs continue.

    Examples:
      allot drain n1 --reason "new driver on Friday"
    """
    with Client(state=state) as client:
        client.drain(node, reason)
        now = _the(client.nodes(), node)
    if as_json:
        say_json(now)
        return
    left = (
        f"{count(now.tasks, 'task')} still there" if now and now.tasks else "nothing runs there"
    )
    talk(f"node {node} takes no new work; {left}")
    talk(f"To undo it: allot undrain {node}")


def undrain(node: Node, state: State = "", as_json: AsJson = False) -> None:
    """Let a drained node take work again.

    A node that its engine closed, such as a node drained in Slurm, is also opened there.

    Examples:
      allot undrain n1
    """
    with Client(state=state) as client:
        client.undrain(node)
        now = _the(client.nodes(), node)
    if as_json:
        say_json(now)
        return
    talk(f"node {node} takes work again")


def _the(found: list[NodeView], name: str) -> NodeView | None:
    return next((node for node in found if node.name == name), None)

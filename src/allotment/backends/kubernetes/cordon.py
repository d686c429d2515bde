"""Nodes that are closed here are cordoned in Kubernetes, and opened again by whose it was."""

import structlog

from allotment.backends.kubernetes.client import NOTE, Client, Denied

log = structlog.get_logger("allot.kubernetes")


async def close(client: Client, node: str, reason: str) -> None:
    """Cordon a node, unless it is: whose doing that was, stays."""
    found = await client.node(node)
    if found is not None and not found.spec.unschedulable:
        await _cordon(client, node, closed=True, note=reason or "no reason given")


async def open_again(client: Client, node: str) -> None:
    """Undo our own cordon of a node."""
    found = await client.node(node)
    if found is not None and NOTE in (found.metadata.annotations or {}):
        await _cordon(client, node, closed=False, note=None)


async def _cordon(client: Client, node: str, *, closed: bool, note: str | None) -> None:
    try:
        await client.cordon(node, closed=closed, note=note)
    except Denied as error:
        if error.status != 403:
            raise
        log.warning("a node is closed here, and not in Kubernetes", why=str(error))

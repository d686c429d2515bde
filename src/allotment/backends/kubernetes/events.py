"""What schedulers and kubelets said of a pod beside its status: read where it is needed.

Kubernetes keeps such events for an hour, and drops them under load. So nothing is decided by
them but what is told to people.
"""

from allotment.backends.kubernetes.client import FORBIDDEN, Client, Denied
from allotment.backends.kubernetes.objects import Thing, read


class Said(Thing, frozen=True):
    """An event on a pod."""

    reason: str = ""
    message: str = ""
    last_timestamp: str | None = None
    event_time: str | None = None

    @property
    def at(self) -> str:
        return self.last_timestamp or self.event_time or ""


async def said_of(client: Client, uid: str) -> list[Said]:
    """Return the events on a pod, the newest last; none where they may not be read. Raises
    Denied, EngineAway."""
    path = f"/api/v1/namespaces/{client.namespace}/events"
    try:
        page = await client.page(path, only=f"involvedObject.uid={uid}")
    except Denied as error:
        if error.status == FORBIDDEN:
            return []
        raise
    found = [each for raw in page.items or () if (each := read(raw, Said)) is not None]
    return sorted(found, key=lambda each: each.at)

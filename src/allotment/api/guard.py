"""Who may talk to the service at all, and who they are.

Over the Unix socket the kernel says who the peer is; a service that is not the superuser's
then answers only its own user and the superuser. Over TCP, which is loopback only, whoever
holds the token is the service's own user; the Host must be ours, so that no name of
somebody else's points a browser here (DNS rebinding). Everywhere an Origin that is not ours
is refused, so that no web page can act for its reader. There is no CORS: nothing is allowed
to other origins.
"""

import hmac

import msgspec
from starlette.types import Scope

from allotment.api.accounts import Accounts
from allotment.api.connections import MOST_CONNECTIONS, Place
from allotment.api.peer import Peer
from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor

OPEN_PATHS = ("/healthz", "/readyz")
"""Answer anybody on this machine with one word."""

NOBODY = Actor("nobody", -1)


class Rules(msgspec.Struct, frozen=True):
    """The rules of the guard."""

    owner: Actor
    """The user the service runs as."""
    token: bytes = b""
    """Opens the TCP port; empty when there is none."""
    port: int = 0

    @property
    def owner_uid(self) -> int:
        assert self.owner.uid is not None
        return self.owner.uid


def hosts_of(port: int) -> frozenset[bytes]:
    """Return the values of the Host header that mean this port of this machine."""
    if not port:
        return frozenset()
    names = (b"localhost", b"127.0.0.1", b"[::1]")
    hosts = {b"%s:%d" % (name, port) for name in names}
    return frozenset(hosts | set(names) if port == 80 else hosts)


class Heads(msgspec.Struct, gc=False):
    """The headers that the guard looks at."""

    hosts: tuple[bytes, ...] = ()
    origins: tuple[bytes, ...] = ()
    authorization: bytes = b""


def heads_of(headers: list[tuple[bytes, bytes]]) -> Heads:
    """Return the headers that the guard looks at."""
    heads = Heads()
    for name, value in headers:
        if name == b"host":
            heads.hosts += (value,)
        elif name == b"origin":
            heads.origins += (value,)
        elif name == b"authorization":
            heads.authorization = value
    return heads


class Guard:
    """Decides on every request and WebSocket, before anything else sees it."""

    def __init__(self, rules: Rules, accounts: Accounts) -> None:
        self._rules = rules
        self._accounts = accounts
        self._hosts = hosts_of(rules.port)
        self._origins = frozenset(b"http://" + host for host in self._hosts)

    async def admit(self, scope: Scope) -> Actor:
        """Return the user that makes a request. Raises Rejected if it may not."""
        peer: Peer | None = scope["state"].get("peer")
        heads = heads_of(scope["headers"])
        if any(origin not in self._origins for origin in heads.origins):
            raise Rejected(
                Code.FORBIDDEN,
                "This request comes from a web page of another origin.",
                "Use `allot`, the Python client, or a program that sends no Origin.",
            )
        if peer is not None:
            return await self._neighbour(peer)
        self._check_host(heads)
        if scope["path"] in OPEN_PATHS and scope["type"] == "http":
            return NOBODY
        self._check_token(heads)
        place: Place = scope["state"]["place"]
        if not place.take(None):
            raise Rejected(
                Code.UNAVAILABLE,
                f"The holders of the token have {MOST_CONNECTIONS} connections already.",
                "Close some, or use the Unix socket in the service's state folder.",
            )
        return self._rules.owner

    async def _neighbour(self, peer: Peer) -> Actor:
        owner = self._rules.owner_uid
        if owner != 0 and peer.uid not in (owner, 0):
            raise Rejected(
                Code.FORBIDDEN,
                f"This service belongs to {self._rules.owner.user} and answers no other user.",
                "Start your own with `allot up`, or ask for one that root runs for all.",
            )
        return await self._accounts.actor(peer.uid)

    def _check_host(self, heads: Heads) -> None:
        if len(heads.hosts) != 1 or heads.hosts[0].lower() not in self._hosts:
            raise Rejected(
                Code.FORBIDDEN,
                "This request is addressed to another host.",
                f"Use http://127.0.0.1:{self._rules.port}.",
            )

    def _check_token(self, heads: Heads) -> None:
        scheme, _, given = heads.authorization.partition(b" ")
        token = self._rules.token
        right = hmac.compare_digest(given.strip(), token)
        if not token or scheme.lower() != b"bearer" or not right:
            raise Rejected(
                Code.UNAUTHENTICATED,
                "This request has no valid token." if given else "This request has no token.",
                "Send `Authorization: Bearer TOKEN`; the token is in the file `token` of the "
                "service's state folder, or use the Unix socket beside it.",
            )

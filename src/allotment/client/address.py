"""Where a service may be found, and in which order to look.

A service stands in a state folder: it listens on `allot.sock` in it, and says in
`address.json` where else. The folder itself may only be known by its owner, hence the order:
what the user names, then `$ALLOT_URL`, then the user's own service, then the machine's.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from allotment.client.errors import Unreachable

SYSTEM_STATE = "/var/lib/allotment"


class Address(msgspec.Struct, frozen=True):
    """One way to reach a service: a Unix socket, or a host and port with a token."""

    socket: str = ""
    host: str = ""
    port: int = 0
    token: str = ""

    def __str__(self) -> str:
        return self.socket or f"http://{self.host}:{self.port}"


class Posted(msgspec.Struct, frozen=True):
    """What a running service writes to `address.json`."""

    socket: str = ""
    url: str = ""
    pid: int = 0
    version: str = ""


def state_folder(environ: Mapping[str, str] | None = None, uid: int | None = None) -> Path:
    """Return the state folder of this user's own service; the machine's for root."""
    environ = os.environ if environ is None else environ
    if named := environ.get("ALLOT_STATE"):
        return Path(named).expanduser().absolute()
    if (os.geteuid() if uid is None else uid) == 0:
        return Path(SYSTEM_STATE)
    base = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "allotment"


def addresses(
    state: str = "", url: str = "", token: str = "", environ: Mapping[str, str] | None = None
) -> list[Address]:
    """List where to try, best first. What was named by hand is never second-guessed."""
    environ = os.environ if environ is None else environ
    if url:
        return [address_of_url(url, token or environ.get("ALLOT_TOKEN", ""))]
    if named := state or environ.get("ALLOT_STATE", ""):
        return addresses_in(Path(named).expanduser().absolute())
    if url := environ.get("ALLOT_URL", ""):
        return [address_of_url(url, token or environ.get("ALLOT_TOKEN", ""))]
    own = addresses_in(state_folder(environ))
    return own + [a for a in addresses_in(Path(SYSTEM_STATE)) if a not in own]


def addresses_in(folder: Path) -> list[Address]:
    """List how the service of one state folder can be reached: its socket, then its port."""
    posted = posted_in(folder)
    found = [Address(socket=posted.socket or str(folder / "allot.sock"))]
    if posted.url and (token := _token_in(folder)):
        found.append(address_of_url(posted.url, token))
    return found


def posted_in(folder: Path) -> Posted:
    """Read `address.json`; an empty one when it is not there or not readable."""
    try:
        return msgspec.json.decode((folder / "address.json").read_bytes(), type=Posted)
    except (OSError, msgspec.MsgspecError):
        return Posted()


def address_of_url(url: str, token: str) -> Address:
    """Read `http://HOST:PORT`. Raises Unreachable for anything else."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname or "", parts.port or 0
    except ValueError:
        host, port = "", 0
    if not host or not port:
        raise Unreachable(
            f"{url} is not the address of a service.",
            "Write it as `allot up` prints it: http://127.0.0.1:PORT.",
        )
    return Address(host=host, port=port, token=token)


def _token_in(folder: Path) -> str:
    try:
        return (folder / "token").read_text().strip()
    except OSError:
        return ""

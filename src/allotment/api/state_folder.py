"""The files by which clients find a service: its folder, socket, token and address."""

import contextlib
import hashlib
import os
import secrets
import socket
import stat
from pathlib import Path

import msgspec

from allotment.model.errors import StoreError
from allotment.rights.writing import sync, write_whole

SOCKET, TOKEN, ADDRESS = "allot.sock", "token", "address.json"

LONGEST_SOCKET_PATH = 100
"""In bytes; the kernel takes 107, and a name beside it must fit too."""

MOST_RUNTIME_DIR = 60

BACKLOG = 1024


class Posted(msgspec.Struct, frozen=True):
    """The content of `address.json`."""

    socket: str
    url: str
    pid: int
    version: str


def prepare(folder: Path) -> None:
    """Make the state folder: closed to others, but passable for all if we are root.

    Raises StoreError, with what to do, when the folder cannot be used.
    """
    mode = 0o711 if os.geteuid() == 0 else 0o700
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=mode)
        found = folder.stat()
        if found.st_uid != os.geteuid():
            raise StoreError(
                f"cannot use the state folder {folder}: it belongs to uid {found.st_uid}, and "
                f"this service runs as uid {os.geteuid()}; choose another with --state"
            )
        if stat.S_IMODE(found.st_mode) != mode:
            folder.chmod(mode)
    except OSError as error:
        raise StoreError(
            f"cannot use the state folder {folder}: {(error.strerror or '').lower()}; choose "
            "another with --state or $ALLOT_STATE"
        ) from error


# ── token ───────────────────────────────────────────────────────────────────────────────


def token_in(folder: Path) -> tuple[bytes, bool]:
    """Return the token of the TCP port, and whether it is new.

    A token that other users could have read is replaced.
    """
    path = folder / TOKEN
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return _new_token(path), True
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        token = file.read(1024).strip()
    is_ours = found.st_uid == os.geteuid() and not found.st_mode & 0o077
    if is_ours and stat.S_ISREG(found.st_mode) and len(token) >= 32:
        return token, False
    return _new_token(path), True


def _new_token(path: Path) -> bytes:
    token = secrets.token_urlsafe(32).encode()
    write_whole(path, token + b"\n")
    sync(path.parent)
    return token


# ── sockets ─────────────────────────────────────────────────────────────────────────────


def socket_path(folder: Path) -> Path:
    """Return where to listen: in the folder, or at a short path if that one is too long."""
    path = folder / SOCKET
    if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH:
        return path
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16] + ".sock"
    return _short_place() / name


def _short_place() -> Path:
    """Return a folder with a short name that nobody else can have prepared for us."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    root = os.geteuid() == 0
    if not root and _is_ours(runtime) and len(runtime) < MOST_RUNTIME_DIR:
        return Path(runtime)
    place = Path("/run/allotment") if root else Path(f"/tmp/allot-{os.geteuid()}")  # noqa: S108
    mode = 0o711 if root else 0o700
    try:
        place.mkdir(mode=mode, exist_ok=True)
        found = place.lstat()
    except OSError as error:
        raise StoreError(f"cannot make {place} for a socket: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise StoreError(
            f"{place} belongs to another user, so no socket can be put there; choose a state "
            "folder with a "
            f"path of at most {LONGEST_SOCKET_PATH - len(SOCKET) - 1} bytes"
        )
    place.chmod(mode)
    return place


def _is_ours(folder: str) -> bool:
    try:
        return bool(folder) and Path(folder).stat().st_uid == os.geteuid()
    except OSError:
        return False


def listen_unix(path: Path) -> socket.socket:
    """Listen on a Unix socket. A socket found there is stale: the folder's lock is held.

    Root's socket is open to all users, since the kernel names the one that connects. Any other
    is closed to other users.
    """
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(str(path))
        path.chmod(0o666 if os.geteuid() == 0 else 0o600)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise StoreError(f"cannot listen on {path}: {error.strerror}") from error
    return sock


def listen_tcp(port: int) -> socket.socket:
    """Listen on loopback; port 0 takes any free one. Raises StoreError if it is in use."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.bind(("127.0.0.1", port))
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        why = (error.strerror or "").lower()
        raise StoreError(
            f"cannot listen on port {port} of 127.0.0.1: {why}; choose another with --port, or "
            "leave it out: the socket is enough on one machine. "
            f"`ss -ltnp 'sport = :{port}'` shows who has it"
        ) from error
    return sock


# ── address ─────────────────────────────────────────────────────────────────────────────


def post(folder: Path, posted: Posted) -> None:
    """Publish the addresses of the service for clients."""
    mode = 0o644 if os.geteuid() == 0 else 0o600
    write_whole(folder / ADDRESS, msgspec.json.encode(posted), mode)


def take_down(folder: Path, path: Path) -> None:
    """Remove the published addresses: the service is gone."""
    for each in (folder / ADDRESS, path):
        with contextlib.suppress(OSError):
            each.unlink()

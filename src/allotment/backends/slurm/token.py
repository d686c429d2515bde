"""What slurmrestd is shown: a token of Slurm (JWT), from a file or a command that prints one.

It ends after a while, so it is read again when the file changes, and asked for again before
its end. It goes into a header of requests and nowhere else: no log, event or command line.
"""

import asyncio
import base64
import os
import pwd
import ssl
from binascii import Error as NoBase64
from datetime import UTC, datetime
from pathlib import Path
from time import time

import msgspec

from allotment.backends.program import said_by
from allotment.model.engines import RestSetup
from allotment.model.errors import BackendError, EngineAway

COMMAND_S = 30.0
EARLY_S = 60.0
"""How long before its end a command is asked for another token, at most."""
NAME, TOKEN = "X-SLURM-USER-NAME", "X-SLURM-USER-TOKEN"


class Token(msgspec.Struct, frozen=True):
    """A token, and what it says of itself."""

    text: str
    user: str = ""
    since: float = 0
    until: float = float("inf")
    """In seconds since 1970."""

    @property
    def renew_at(self) -> float:
        """Return from when on another one is available."""
        return self.until - min(EARLY_S, max(0.0, self.until - self.since) / 5)


class _Claims(msgspec.Struct, frozen=True):
    user: str = msgspec.field(default="", name="sun")
    since: float = msgspec.field(default=0.0, name="iat")
    until: float = msgspec.field(default=float("inf"), name="exp")


def token_of(text: str) -> Token:
    """Read a token, bare or as `SLURM_JWT=…`. What it does not say stays open."""
    words = text.strip().removeprefix("SLURM_JWT=")
    middle = words.split(".")[1] if words.count(".") == 2 else ""
    try:
        told = base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4))
        claims = msgspec.json.decode(told, type=_Claims)
    except (NoBase64, msgspec.DecodeError, ValueError):
        return Token(words)
    return Token(words, claims.user, claims.since, claims.until)


class SlurmLogin:
    """As whom slurmrestd is asked."""

    def __init__(self, setup: RestSetup) -> None:
        self._setup = setup
        self._token = Token("")
        self._state: tuple[int, ...] = ()
        """Of the file, when it was read."""
        self._is_stale = True
        self._lock = asyncio.Lock()

    async def headers(self) -> dict[str, str]:
        """Return the headers that say who asks; none without a token. Raises BackendError."""
        token = await self.token()
        return {NAME: self.user, TOKEN: token.text} if token.text else {}

    async def tls(self) -> ssl.SSLContext | None:
        """Return how to connect: with the system's certificates, where the URL says https."""
        is_safe = self._setup.server.startswith("https:")
        return ssl.create_default_context() if is_safe else None

    def forget(self) -> None:
        """Find the token anew: it was not accepted."""
        self._is_stale = True

    @property
    def user(self) -> str:
        """Return whose requests they are."""
        return self._setup.user or self._token.user or name_of(os.geteuid())

    def user_of(self, uid: int) -> str:
        """Return how a user is named who is acted for: the token's own by the name in it.

        By their number otherwise, which is the same on all machines.
        """
        return self.user if self.user == name_of(uid) else str(uid)

    def what(self) -> str:
        """Describe the token, never saying it: whose it is, where from and until when."""
        source = self._setup.token_file or f"`{self._setup.token_command[0]}`"
        end = self._token.until
        if end == float("inf"):
            return f"the token of {self.user} from {source}"
        when = datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        tense = "ended" if end <= time() else "is valid until"
        return f"the token of {self.user} from {source}, which {tense} {when},"

    async def token(self) -> Token:
        """Return the token to show now; an empty one where none is configured."""
        async with self._lock:
            if self._setup.token_file:
                self._read(Path(self._setup.token_file))
            elif self._setup.token_command and (
                self._is_stale or time() >= self._token.renew_at
            ):
                self._token = await self._run()
                self._is_stale = False
        return self._token

    def _read(self, path: Path) -> None:
        try:
            found = path.stat()
            state = (found.st_ino, found.st_mtime_ns, found.st_size)
            if self._is_stale or state != self._state:
                self._token, self._state = token_of(path.read_text()), state
                self._is_stale = False
        except (OSError, UnicodeDecodeError) as error:
            why = (getattr(error, "strerror", "") or "is not text").lower()
            raise EngineAway(f"the token file {path}: {why}") from None
        if not self._token.text:
            raise EngineAway(f"the token file {path} is empty: put a token of Slurm there")

    async def _run(self) -> Token:
        command = self._setup.token_command
        try:
            code, said, wrong = await said_by(*command, patience_s=COMMAND_S)
        except TimeoutError:
            raise EngineAway(f"`{command[0]}` printed no token in {COMMAND_S:.0f} s") from None
        except OSError as error:
            why = (error.strerror or "").lower()
            raise BackendError(f"`{command[0]}`, which is to print a token: {why}") from None
        found = token_of(said.decode(errors="replace"))
        if code or not found.text:
            why = " ".join(wrong.decode(errors="replace").split())[-300:] or "no reason given"
            raise EngineAway(f"`{command[0]}` printed no token: {why}")
        return found


def name_of(uid: int) -> str:
    """Return the name of a user; its number where it has none here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)

"""Asks a user's credential helper for a password: Docker's programs `docker-credential-NAME`.

It is a program of the user's, so it runs as the user (run_helper.py) and gets nothing that a
job of that user lacks. What it says is kept for a minute, in memory.
"""

import errno
import json
import os
import pwd
import re
import subprocess
import time
from base64 import b64encode
from typing import Any, Final, cast

from allotment.backends.local.images.trouble import ImageTrouble, Kind
from allotment.model.image_names import HUB
from allotment.service.isolated import PLAIN, isolated
from allotment.service.ports import ImageWish

HELPER_S: Final = 10
"""How long a helper may take."""
KEPT_S: Final = 60.0
"""How long its word counts: a submission asks a registry two or three times."""
TOKEN: Final = "<token>"  # noqa: S105 - how Docker marks one
"""The user name of what is no password but an identity token."""
_HUB_ADDRESS: Final = "https://index.docker.io/v1/"
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PROGRAM: Final = "allotment.backends.local.images.run_helper"
_CLEAR_UP_S: Final = 10
_NOT_FOUND: Final = "credentials not found"
"""What every helper prints that keeps nothing for a registry."""
_SHOWN: Final = 200


def pair_of(user: str, secret: str) -> str:
    """Return a name and a password as a header has them."""
    return b64encode(f"{user}:{secret}".encode(errors="replace")).decode()


class LoginHelpers:
    """Runs helpers, and keeps what they say for a while. Blocks; for threads."""

    def __init__(self, state: str) -> None:
        self._state = state
        self._known: dict[tuple[str, str, str], tuple[float, str]] = {}

    def forget(self, wish: ImageWish, registry: str) -> None:
        """Forget what was said for a registry, which does not accept it."""
        for key in list(self._known):
            if key[::2] == (wish.user, registry):
                self._known.pop(key, None)

    def basic_of(
        self, name: str, wish: ImageWish, registry: str, *, is_needed: bool = True
    ) -> str:
        """Return what a helper keeps for a registry, as a header has it; '' for nothing.

        Raises ImageTrouble where it is needed; else one that fails keeps nothing.
        """
        key = wish.user, name, registry
        until, said = self._known.get(key, (0.0, ""))
        if time.monotonic() < until:
            return said
        try:
            said = self._ask(name, wish, registry)
        except ImageTrouble:
            if is_needed:
                raise
            said = ""
        now = time.monotonic()
        kept = {each: found for each, found in list(self._known.items()) if found[0] > now}
        self._known = {**kept, key: (now + KEPT_S, said)}
        return said

    def _ask(self, name: str, wish: ImageWish, registry: str) -> str:
        if not _NAME.fullmatch(name):
            what = "has a name that no program may have here: letters, digits, . _ - only"
            raise _trouble(name[:_SHOWN], registry, what)
        if wish.identity is None and not _is_our_own(wish.user):
            what = "is not run: the service is not root's, so it cannot run it as you"
            raise _trouble(name, registry, what)
        told = self._run(name, wish, registry)
        fate = told.get("fate")
        if fate == "exec" and told.get("errno") == errno.ENOENT:
            what = (
                "is not on the service's machine, in /usr/local/bin, /usr/bin, /bin, "
                "~/.local/bin or ~/bin"
            )
            raise _trouble(name, registry, what)
        if fate == "late":
            raise _trouble(name, registry, f"did not end in {HELPER_S} s")
        if fate == "endless":
            raise _trouble(name, registry, "prints without end")
        if fate != "ended":
            why = os.strerror(told.get("errno") or 0).lower()
            raise _trouble(name, registry, f"cannot be started: {why}")
        if told["code"] == 0:
            return _pair_in(told["out"], name, registry)
        if _NOT_FOUND in told["out"] + told["err"]:
            return ""
        raise _trouble(name, registry, _failing(told))

    def _run(self, name: str, wish: ImageWish, registry: str) -> dict[str, Any]:
        home, who = wish.home.rstrip("/"), wish.identity
        env = {
            "HOME": wish.home, "USER": wish.user, "LOGNAME": wish.user, "LANG": PLAIN["LANG"],
            "PATH": f"/usr/local/bin:/usr/bin:/bin:{home}/.local/bin:{home}/bin",
        }  # fmt: skip
        asked = {
            "argv": [f"docker-credential-{name}", "get"],
            "env": env,
            "user": (who.uid, who.gid, who.groups) if who is not None else None,
            "state": self._state,
            "seconds": HELPER_S,
        }
        try:
            done = subprocess.run(
                isolated(_PROGRAM, json.dumps(asked), bare=True),
                input=(_HUB_ADDRESS if registry == HUB else registry).encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=HELPER_S + _CLEAR_UP_S,
                env=PLAIN,
                cwd="/",
                start_new_session=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"fate": "late"}
        except OSError as error:
            return {"fate": "fork", "errno": error.errno}
        # Nothing is printed where the machine ran out of memory or processes.
        return json.loads(done.stdout or b'{"fate": "fork", "errno": 12}')


def _is_our_own(user: str) -> bool:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name == user
    except KeyError:
        return False


def _pair_in(text: str, name: str, registry: str) -> str:
    """Return what a helper says, which may be anything and is shown to nobody."""
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    fields = cast("dict[str, object]", found if isinstance(found, dict) else {})
    user, secret = fields.get("Username"), fields.get("Secret")
    if not isinstance(user, str) or not isinstance(secret, str) or ":" in user:
        raise _trouble(name, registry, "does not print JSON with a Username and a Secret")
    return pair_of(user, secret) if secret else ""


def _failing(told: dict[str, Any]) -> str:
    """Return how a helper failed, in its own words unless they may have a secret in them."""
    code = told["code"]
    how = f"failed with exit code {code}" if code > 0 else f"was killed by signal {-code}"
    lines = (told["err"].strip() or told["out"].strip()).splitlines()
    said = "".join(each for each in (lines or [""])[-1] if each.isprintable())[:_SHOWN]
    return f"{how}: {said}" if said and "{" not in said else how


def _trouble(name: str, registry: str, what: str) -> ImageTrouble:
    return ImageTrouble(
        Kind.DENIED,
        f"docker-credential-{name}, which your Docker configuration names for {registry}, "
        f"{what.removesuffix('.')}.",
        "The service runs it as you, on its own machine, without your session (no key ring, no "
        f"terminal). Without it: `allot image login {registry} --user NAME`. See "
        "docs/guide/images.md, Private registries.",
    )

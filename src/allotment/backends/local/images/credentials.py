"""A user's passwords for registries: Docker's file in the user's home, read with its rights.

They go from there into the header of a request, and nowhere else.
"""

import base64
import json
from typing import Any, Final, cast

from allotment.backends.local.images.trouble import ImageTrouble, Kind
from allotment.model.image_names import HUB
from allotment.rights.reading import read_small
from allotment.service.ports import ImageWish

_FILES: Final = (".docker/config.json", ".config/containers/auth.json")
_HUB_NAMES: Final = ("https://index.docker.io/v1/", "index.docker.io")
_MOST_BYTES: Final = 1 << 20


def basic_of(wish: ImageWish, registry: str) -> str:
    """Return what a user logs in with, as a header has it; '' for nobody. May block.

    Raises ImageTrouble where the file cannot be used.
    """
    if wish.login is not None:
        return wish.login
    helpers = ""
    for name in _FILES:
        path = f"{wish.home.rstrip('/')}/{name}"
        text = read_small(path, wish.identity, _MOST_BYTES)
        try:
            found = json.loads(text or "{}")
        except (ValueError, RecursionError) as error:
            raise ImageTrouble(
                Kind.DENIED, f"~/{name} is not JSON, so no password can be read from it."
            ) from error
        known = cast("dict[str, Any]", found if isinstance(found, dict) else {})
        if basic := _entry(known.get("auths"), registry):
            return basic
        helpers = helpers or _helper(known, registry)
    if helpers:
        raise ImageTrouble(
            Kind.DENIED,
            f"The password for {registry} is kept by the credential helper {helpers}, which "
            "the service does not run.",
            f"Run `allot image login {registry} --user NAME` with the password or token that "
            "this program has: it is kept in a file that the service reads as you.",
        )
    return ""


def _names(registry: str) -> tuple[str, ...]:
    names = (registry, f"https://{registry}", f"http://{registry}", f"https://{registry}/v2/")
    return (*names, *_HUB_NAMES) if registry == HUB else names


def _entry(auths: object, registry: str) -> str:
    if not isinstance(auths, dict):
        return ""
    for name in _names(registry):
        entry = cast("dict[str, Any]", auths).get(name)
        if not isinstance(entry, dict):
            continue
        fields = cast("dict[str, Any]", entry)
        if isinstance(fields.get("auth"), str) and _is_pair(fields["auth"]):
            return fields["auth"]
        if isinstance(fields.get("username"), str) and isinstance(fields.get("password"), str):
            pair = f"{fields['username']}:{fields['password']}"
            return base64.b64encode(pair.encode(errors="replace")).decode()
    return ""


def _is_pair(text: str) -> bool:
    try:
        return b":" in base64.b64decode(text, validate=True)
    except ValueError:  # Also where it is not ASCII.
        return False


def _helper(known: dict[str, Any], registry: str) -> str:
    by_registry = known.get("credHelpers")
    if isinstance(by_registry, dict) and registry in by_registry:
        return str(cast("dict[str, Any]", by_registry)[registry])
    store = known.get("credsStore")
    auths = known.get("auths")
    is_kept = isinstance(auths, dict) and any(name in auths for name in _names(registry))
    return store if isinstance(store, str) and is_kept else ""

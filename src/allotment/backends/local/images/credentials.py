"""A user's passwords for registries: Docker's file in the user's home, read with its rights.

Or a helper that the file names has them. They go from there into the header of a request, and
nowhere else.
"""

import base64
import json
from typing import Any, Final, NamedTuple, cast

from allotment.backends.local.images.helper import TOKEN, LoginHelpers, pair_of
from allotment.backends.local.images.trouble import ImageTrouble, Kind
from allotment.model.image_names import HUB
from allotment.rights.reading import read_small
from allotment.service.ports import ImageWish

_FILES: Final = (".docker/config.json", ".config/containers/auth.json")
_HUB_NAMES: Final = ("https://index.docker.io/v1/", "index.docker.io")
_MOST_BYTES: Final = 1 << 20


class _Helper(NamedTuple):
    """A helper that a file names. `is_sure`: it says that this has the registry's password."""

    name: str
    is_sure: bool


def basic_of(
    wish: ImageWish, registry: str, helpers: LoginHelpers, *, is_needed: bool = False
) -> str:
    """Return what a user logs in with, as a header has it; '' for nobody. May block.

    Raises ImageTrouble where the file or a helper cannot be used. Of a helper that a file
    names for all registries this counts only if a login `is_needed`: many images are for all.
    """
    helper: _Helper | None = None
    for name in _FILES:
        path = f"{wish.home.rstrip('/')}/{name}"
        text = read_small(path, wish.identity, _MOST_BYTES)
        try:
            found = json.loads(text or "{}")
        except (ValueError, RecursionError) as error:
            raise ImageTrouble(
                Kind.DENIED,
                f"~/{name} is not JSON, so no password can be read from it.",
                "Correct it, or move it away.",
            ) from error
        known = cast("dict[str, Any]", found if isinstance(found, dict) else {})
        if basic := _entry(known.get("auths"), registry):
            return basic
        helper = helper or _helper(known, registry)
    if helper is None or not helper.name:
        return ""
    is_needed = is_needed or helper.is_sure
    return helpers.basic_of(helper.name, wish, registry, is_needed=is_needed)


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
        if (token := fields.get("identitytoken")) and isinstance(token, str):
            return pair_of(TOKEN, token)
        if isinstance(fields.get("auth"), str) and _is_pair(fields["auth"]):
            return fields["auth"]
        if isinstance(fields.get("username"), str) and isinstance(fields.get("password"), str):
            return pair_of(fields["username"], fields["password"])
    return ""


def _is_pair(text: str) -> bool:
    try:
        return b":" in base64.b64decode(text, validate=True)
    except ValueError:  # Also where it is not ASCII.
        return False


def _helper(known: dict[str, Any], registry: str) -> _Helper | None:
    """Return the helper for a registry; one without a name stands for none, as in Docker."""
    names = _names(registry)
    by_registry = known.get("credHelpers")
    if isinstance(by_registry, dict):
        found = cast("dict[str, Any]", by_registry)
        for name in names:
            if name in found:
                return _Helper(str(found[name]), is_sure=True)
    store, auths = known.get("credsStore"), known.get("auths")
    if not isinstance(store, str) or not store:
        return None
    return _Helper(store, isinstance(auths, dict) and any(name in auths for name in names))

"""Writes a user's own file of passwords for registries, which Docker and podman read too."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any, cast

from allotment.client.errors import Refused
from allotment.rights.writing import write_whole

FILE = ".docker/config.json"


def registry_of(text: str) -> str:
    """Return a registry as image names begin with it. Raises Refused if it is none."""
    registry = text.removeprefix("https://").removesuffix("/")
    if not registry.isprintable() or len(registry.split()) != 1 or "/" in registry:
        raise Refused(
            "bad_request",
            f"{text!r} is not the name of a registry.",
            "Write it as image names begin: HOST or HOST:PORT, docker.io for Docker Hub.",
        )
    return registry


def keep(home: Path, registry: str, user: str, password: str) -> Path:
    """Add a password; return the file. Raises Refused where that or the file is malformed."""
    registry = registry_of(registry)
    found = _read(home)
    entry = {"auth": b64encode(f"{user}:{password}".encode()).decode()}
    found["auths"] = {**_auths(found), registry: entry}
    return _write(home, found)


def forget(home: Path, registry: str) -> bool:
    """Remove a password; False where there is none. Raises Refused as `keep` does."""
    found = _read(home)
    auths = _auths(found)
    if auths.pop(registry, None) is None:
        return False
    found["auths"] = auths
    _write(home, found)
    return True


def _auths(found: dict[str, Any]) -> dict[str, Any]:
    auths = found.get("auths")
    return dict(cast("dict[str, Any]", auths)) if isinstance(auths, dict) else {}


def _read(home: Path) -> dict[str, Any]:
    try:
        found = json.loads((home / FILE).read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise Refused(
            "bad_request", f"~/{FILE} is not JSON: {error}.", "Correct it, or move it away."
        ) from error
    if not isinstance(found, dict):
        raise Refused("bad_request", f"~/{FILE} is not a map.", "Correct it, or move it away.")
    return cast("dict[str, Any]", found)


def _write(home: Path, found: dict[str, Any]) -> Path:
    """Replace the file as a whole, for its user alone."""
    path = home / FILE
    path.parent.mkdir(mode=0o700, exist_ok=True)
    write_whole(path, json.dumps(found, indent=2).encode())
    return path

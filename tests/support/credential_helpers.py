"""Credential helpers of users of a test, as Docker's file in their homes names them."""

import json
from pathlib import Path
from typing import Any

from tests.support.exchange import owned, written
from tests.support.registry import PASSWORD

SAYS = f"""printf '{{"ServerURL": "x", "Username": "ann", "Secret": "{PASSWORD}"}}'"""
"""What a helper does that has ann's password."""


def configure(home: Path, **config: Any) -> None:
    """Write the file that names helpers."""
    uid = home.stat().st_uid
    folder = home / ".docker"
    if not folder.exists():
        owned(folder, uid, 0o700)
    written(folder / "config.json", json.dumps(config), uid, 0o600)


def install(home: Path, name: str, script: str) -> None:
    """Write a helper of a user's own."""
    uid = home.stat().st_uid
    if not (home / "bin").exists():
        owned(home / "bin", uid)
    written(home / f"bin/docker-credential-{name}", f"#!/bin/sh\n{script}\n", uid, 0o755)

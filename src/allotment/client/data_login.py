"""Writes a user's own file of keys for object stores, which AWS's tools read too."""

import re
from pathlib import Path
from typing import Final

from allotment.client.errors import Refused
from allotment.rights.writing import write_whole

FILE: Final = ".aws/credentials"
_HEAD: Final = re.compile(r"\s*\[(.*)\]\s*")
_WORD: Final = re.compile(r"[\x21-\x7e]{1,1024}")
_PROFILE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@+-]{0,79}")


def keep(home: Path, profile: str, key_id: str, secret: str) -> Path:
    """Put a key in place of the profile's, if it had one; return the file. Raises Refused.

    All else in the file stays as it is, remarks too.
    """
    if not _PROFILE.fullmatch(profile):
        raise Refused(
            "bad_request",
            f"{profile[:80]!r} cannot be the name of a profile.",
            "Write a name such as default or lab.",
        )
    if not (_WORD.fullmatch(key_id) and _WORD.fullmatch(secret)):
        raise Refused(
            "bad_request",
            "A key is empty, or has characters that no key has.",
            "Check both parts.",
        )
    path = home / FILE
    try:
        before = path.read_text()
    except FileNotFoundError:
        before = ""
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(
            "bad_request", f"~/{FILE} cannot be read: {error}.", "Correct it, or move it away."
        ) from error
    kept = _without(before.splitlines(keepends=True), profile)
    if kept and not kept[-1].endswith("\n"):
        kept[-1] += "\n"
    mine = f"[{profile}]\naws_access_key_id = {key_id}\naws_secret_access_key = {secret}\n"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    write_whole(path, ("".join(kept) + mine).encode())
    return path


def _without(lines: list[str], profile: str) -> list[str]:
    """Return the lines that are not of a profile; remarks may be of the next."""
    kept: list[str] = []
    is_other = True
    for line in lines:
        if head := _HEAD.fullmatch(line.rstrip("\r\n")):
            is_other = head[1].strip() != profile
        if is_other or line.lstrip().startswith(("#", ";")):
            kept.append(line)
    return kept

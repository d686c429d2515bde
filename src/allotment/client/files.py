"""Output files onto this machine: complete, or not at all, and only where they belong."""

import contextlib
import os
import tempfile
from pathlib import Path
from typing import BinaryIO

from allotment.client.errors import Unreadable
from allotment.client.transport import Reply
from allotment.service.views import OutputFile

CHUNK = 1 << 20


def save(reply: Reply, file: OutputFile, folder: Path) -> Path:
    """Write an answer's body to the file's place below `folder`; closes the answer."""
    with contextlib.closing(reply):
        target = _below(folder, file.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".fetch-", dir=target.parent)
        partial = Path(name)
        try:
            with os.fdopen(handle, "wb") as out:
                _copy(reply, out, file)
            partial.chmod(0o644)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    return target


def _copy(reply: Reply, out: BinaryIO, file: OutputFile) -> None:
    while chunk := reply.read(CHUNK):
        out.write(chunk)
    if out.tell() < file.size:
        raise Unreadable(
            f"{file.path} came only in part: {out.tell()} of {file.size} bytes.",
            "Fetch it again.",
        )


def _below(folder: Path, path: str) -> Path:
    """Join, refusing what would end elsewhere: the path came over the network."""
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise Unreadable(f"The service named an output file outside its folder: {path!r}.")
    return folder / path

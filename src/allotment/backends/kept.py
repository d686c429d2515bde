"""What backends keep of themselves and of their tasks: in files, written whole.

Each is on disk before what it tells of begins, so that the next service knows it again.
"""

from collections.abc import Callable
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

import msgspec

from allotment.model.errors import BackendError
from allotment.model.ids import TaskKey
from allotment.rights.writing import write_whole

T = TypeVar("T")


def kept_text(path: Path, make: Callable[[], str]) -> str:
    """Return the text of a file, made at the first call. Raises OSError.

    A crash can leave it empty: an empty secret would be everybody's.
    """
    text = path.read_text() if path.exists() else ""
    if not text:
        text = make()
        write_whole(path, text.encode())
    return text


def own_name(root: Path) -> str:
    """Return what the names of a service's own jobs begin with: no other service's do."""
    return kept_text(root / "name", lambda: f"allot-{token_hex(4)}")


def read_record(path: Path, kind: type[T], key: TaskKey) -> T | None:
    """Return what is kept of a task; None for nothing. Raises BackendError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        # That it cannot be read does not say that it never was.
        raise BackendError(f"what is known of task {key}: {path}: {error}") from error

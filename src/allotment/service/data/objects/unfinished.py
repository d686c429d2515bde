"""What was begun in object stores and is to go again, noted on the disk until it is over.

That is an upload in parts, and the object by which it is tried whether a store takes any. A
service that is killed in the middle leaves the note, and the next one has it gone at the store.
There is no key in a note, but whose key is to be used.
"""

import time
from pathlib import Path
from secrets import token_hex
from typing import Final

import msgspec

from allotment.model.datasets import ObjectPlace
from allotment.rights.writing import sync, write_whole

GIVEN_UP_S: Final = 30 * 24 * 3600.0
"""After so long nobody looks any more: the store or its key is gone."""


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something in a store: an upload to a key, or an object of that name by itself."""

    place: ObjectPlace
    user: str
    uid: int | None
    key: str
    is_upload: bool
    upload: str = ""
    """What the store calls it; '' where it did not say yet."""


class Journal:
    """The notes of a service. Calls block, and may come from several threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own: set[Path] = set()
        """Those of what goes on now."""

    def begin(self, note: Note) -> "Unfinished":
        """Note what is about to begin; durable on return. Raises OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / f"{token_hex(8)}.json"
        self._own.add(path)
        made = Unfinished(path, note, self._own)
        made.write()
        return made

    def left(self) -> list["Unfinished"]:
        """Return what nobody works at any more, and which is not over."""
        try:
            names = sorted(self._folder.glob("*.json"))
        except OSError:
            return []
        found: list[Unfinished] = []
        for path in names:
            if path in self._own:
                continue
            try:
                if time.time() - path.stat().st_mtime > GIVEN_UP_S:
                    path.unlink()
                    continue
                note = msgspec.json.decode(path.read_bytes(), type=Note)
            except OSError:
                continue  # It is over just now; or it can be read another time.
            except msgspec.DecodeError:
                path.unlink(missing_ok=True)
                continue
            found.append(Unfinished(path, note, self._own))
        return found


class Unfinished:
    """Something that was begun in a store."""

    def __init__(self, path: Path, note: Note, own: set[Path]) -> None:
        self.note = note
        self._path = path
        self._own = own

    def write(self) -> None:
        """Have the note on the disk. Raises OSError."""
        write_whole(self._path, msgspec.json.encode(self.note))
        sync(self._path.parent)

    def named(self, upload: str) -> None:
        """Note what the store calls it. Raises OSError."""
        self.note = msgspec.structs.replace(self.note, upload=upload)
        self.write()

    def over(self) -> None:
        """Forget it: nothing of it is left."""
        self._path.unlink(missing_ok=True)
        self._own.discard(self._path)

    def later(self) -> None:
        """Leave it to whoever looks next."""
        self._own.discard(self._path)

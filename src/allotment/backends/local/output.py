"""Reads a task's output while it grows, and after: offsets are those of the stream itself.

A stream lies in a head file and, beyond that, in pieces named for the byte they begin with;
bytes between them may be gone. At the end, a line in the head file says how many: it stands
where they stood. A reader who follows sees each byte that was kept once, in order, whichever
way it lay when he looked.
"""

from pathlib import Path

from allotment.service.ports import LogChunk


def read_output(folder: Path, stream: str, offset: int, size: int) -> LogChunk:
    """Read at most `size` bytes from `offset` on, from the end when it is negative."""
    pieces = _pieces(folder, stream)
    end = max((start + length for start, length, _ in pieces), default=0)
    if offset < 0:
        offset = max(0, end + offset)
    for start, length, path in pieces:
        if offset < start + length:
            at = max(offset, start)
            with path.open("rb") as file:
                file.seek(at - start)
                data = file.read(min(size, start + length - at))
            return LogChunk(data, at + len(data))
    return LogChunk(b"", max(offset, 0))


def _pieces(folder: Path, stream: str) -> list[tuple[int, int, Path]]:
    """List (first byte, length, file), in order. Files may vanish while we look."""
    found: list[tuple[int, int, Path]] = []
    for path in [folder / f"{stream}.log", *folder.glob(f"{stream}.tail.*")]:
        start = int(path.suffix[1:]) if path.suffix != ".log" else 0
        try:
            found.append((start, path.stat().st_size, path))
        except FileNotFoundError:
            continue
    return sorted(found)

"""What of a disk stays free for the service's own books, whatever users keep there."""

import os
from pathlib import Path

LEFT_FREE = 20
"""This part stays free: a twentieth …"""
MOST_LEFT_FREE = 20 << 30
"""… and no more than so many bytes."""


def is_too_full(folder: Path | int, size: int, files: int) -> bool:
    """Whether so many bytes and files more would take what the service needs itself.

    Raises OSError.
    """
    disk = os.statvfs(folder)
    least = min(disk.f_blocks * disk.f_frsize // LEFT_FREE, MOST_LEFT_FREE)
    is_crowded = disk.f_files and disk.f_favail - files < disk.f_files // LEFT_FREE
    return bool(is_crowded) or disk.f_bavail * disk.f_frsize - size < least

"""A program that trains with others: each step is a sum over all ranks, through sockets.

    python paused_program.py FOLDER KIND

What it holds of its device is the size of a file, `held-RANK`. What it does is written down:
whether it is inside the sum (`inside-RANK`), and after each step the sum (`sums-RANK`).
"""

import os
import socket
import struct
import sys
import time
from pathlib import Path

import allotment

MIB = 1 << 20
HELD_MIB = 64
FOLDER, KIND = Path(sys.argv[1]), sys.argv[2]
RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
HELD = FOLDER / f"held-{RANK}"


def hold(mib: int) -> None:
    with HELD.open("ab") as file:
        file.truncate(mib * MIB)


def pause() -> None:
    if KIND == "raises":
        raise RuntimeError("no room on the host")
    if KIND == "dies":
        os._exit(9)
    while KIND == "hangs":
        time.sleep(0.05)
    if KIND != "lies":
        hold(1)


def save() -> None:
    (FOLDER / f"saved-{RANK}").write_text(str(HELD.stat().st_size // MIB))


class Others:
    """The other ranks: rank 0 adds up what all send, and sends the sum to all."""

    def __init__(self) -> None:
        path = str(FOLDER / "sum.sock")
        self._links: list[socket.socket] = []
        if WORLD == 1:
            return
        if RANK == 0:
            door = socket.socket(socket.AF_UNIX)
            door.bind(path)
            door.listen(WORLD)
            self._links = [door.accept()[0] for _ in range(WORLD - 1)]
            return
        link = socket.socket(socket.AF_UNIX)
        while True:
            try:
                link.connect(path)
                break
            except OSError:
                time.sleep(0.01)
        self._links = [link]

    def sum(self, value: int) -> int:
        if RANK:
            (link,) = self._links
            link.sendall(struct.pack("q", value))
            return _take(link)
        total = value + sum(_take(link) for link in self._links)
        for link in self._links:
            link.sendall(struct.pack("q", total))
        return total


def _take(link: socket.socket) -> int:
    return struct.unpack("q", link.recv(8, socket.MSG_WAITALL))[0]


def main() -> None:
    hold(HELD_MIB)
    if KIND not in ("plain", "silent"):
        allotment.on_pause(pause)
        allotment.on_resume(lambda: hold(HELD_MIB))
    if KIND == "saves":
        allotment.on_save(save)
    others = Others()
    inside = (FOLDER / f"inside-{RANK}").open("w+b", buffering=0)
    sums = (FOLDER / f"sums-{RANK}").open("w", buffering=1)
    weight = 1
    for step in range(1, 1_000_000):
        os.pwrite(inside.fileno(), b"1", 0)
        total = others.sum(weight + RANK)
        time.sleep(0.001)
        os.pwrite(inside.fileno(), b"0", 0)
        weight = (weight * 31 + total) % 1_000_003
        sums.write(f"{step} {weight} {HELD.stat().st_size // MIB}\n")
        if KIND != "silent":
            allotment.progress(step)
        if KIND == "slow-last" and RANK == WORLD - 1:
            time.sleep(0.02)


main()

"""A node to hold → the Slurm job that holds it. Pure: no clock, no files."""

import shlex
from collections.abc import Sequence

import msgspec

from allotment.backends.pilot.messages import Note
from allotment.model.cluster import Node

END = "END OF NOTE"


def name_of(prefix: str, node: str, epoch: int) -> str:
    """Return the name of a pilot's Slurm job, by which a submission is found again."""
    return f"{prefix}-{node}.{epoch}"


def options_of(
    node: Node, name: str, partition: str, folder: str, lasting: Sequence[str] = ()
) -> list[str]:
    """Return the options of `sbatch`: all of this node, for as long as is allowed.

    `lasting` says where that is less than usual. Without a folder that Slurm sees from the
    start, the pilot writes its log itself.
    """
    options = [
        f"--job-name={name}",
        f"--comment=allotment holds node {node.name}",
        f"--partition={partition}",
        f"--nodelist={node.name}",
        "--nodes=1",
        "--ntasks=1",
        "--exclusive",
        "--mem=0",
        "--no-requeue",
        "--export=ALL",  # as for tasks: no login shell first
        "--chdir=/",
        f"--output={f'{folder}/pilot.log' if folder else '/dev/null'}",
        "--open-mode=append",
        *lasting,
    ]
    counts: dict[str, int] = {}
    for device in node.devices:
        counts[device.type] = counts.get(device.type, 0) + 1
    if counts:
        all_of_it = (
            f"gpu:{count}" if kind == "gpu" else f"gpu:{kind}:{count}"
            for kind, count in counts.items()
        )
        options.append(f"--gres={','.join(all_of_it)}")
    return options


def own_folder(disk: str, prefix: str) -> str:
    """Return a node's folder on a disk of its own: each service has another there."""
    return f"{disk.rstrip('/')}/{prefix}"


def script_of(fence: Sequence[str], note: Note) -> str:
    """Return the batch script. A job that Slurm starts a second time ends without a trace.

    The note goes by standard input: neither arguments nor environment, which others can read.
    """
    words = " ".join(shlex.quote(word) for word in fence)
    return (
        "#!/bin/sh\n"
        '[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || exit 0\n'
        f"exec {words} <<'{END}'\n"
        f"{msgspec.json.encode(note).decode()}\n"
        f"{END}\n"
    )

"""A partition of 4,000 nodes, as a real slurmctld describes it: found, with its switches.

The nodes have no daemons: slurmctld knows them by its configuration.
"""

import asyncio
import os
import re
import subprocess
import time

from bench.cluster import ALLOT, percentile
from bench.figures import Figure
from bench.on_slurm import a_folder, is_possible
from tests.support.slurm import Slurm

NODES, ON_SWITCH = 4000, 16
ROUNDS = 7


def main() -> list[Figure]:
    if not is_possible():
        return []
    with a_folder() as folder:
        slurm = Slurm(folder, 1, 8)
        slurm.write()
        try:
            _describe(slurm)
            slurm.start_munge()
            slurm.start_controller()
            return _figures(slurm)
        finally:
            slurm.stop_all()
            for path in (*slurm.devices.iterdir(), slurm.devices):
                path.rmdir() if path.is_dir() else path.unlink()


def _describe(slurm: Slurm) -> None:
    conf = slurm.conf.read_text()
    conf = re.sub(
        r"(?m)^NodeName=n1 (.*) Port=\d+ ", rf"NodeName=n[1-{NODES}] \1 Port=1 ", conf
    )
    conf = conf.replace("Nodes=n[1-1] ", f"Nodes=n[1-{NODES}] ")
    slurm.conf.write_text(conf.replace("State=UNKNOWN", "State=DOWN"))
    gres = slurm.folder / "gres.conf"
    gres.write_text(gres.read_text().replace("NodeName=n[1-1]", f"NodeName=n[1-{NODES}]"))
    count = NODES // ON_SWITCH
    leaves = (
        f"SwitchName=s{n} Nodes=n[{n * ON_SWITCH + 1}-{(n + 1) * ON_SWITCH}]\n"
        for n in range(count)
    )
    top = f"SwitchName=top Switches=s[0-{count - 1}]\n"
    (slurm.folder / "topology.conf").write_text("".join((*leaves, top)))


def _figures(slurm: Slurm) -> list[Figure]:
    os.environ["SLURM_CONF"] = str(slurm.conf)
    times = sorted(asyncio.run(_look()) for _ in range(ROUNDS))
    command = [*ALLOT, "config", "discover", "--slurm", "main"]
    began = time.perf_counter()
    text = subprocess.run(command, env=slurm.env, check=True, capture_output=True, text=True)
    took = time.perf_counter() - began
    if f"n{NODES}" not in text.stdout:
        raise RuntimeError("not all nodes were found")
    return [
        Figure(
            "4,000 nodes found, with their switches, p50",
            percentile(times, 0.5),
            "s",
            "lower",
            2,
        ),
        Figure("`allot config discover` of them, as a whole process", took, "s", "lower"),
    ]


async def _look() -> float:
    from allotment.backends.slurm import client  # noqa: PLC0415
    from allotment.backends.slurm.finding import Finder  # noqa: PLC0415

    names = {f"n{number}" for number in range(1, NODES + 1)}
    finder = Finder("main")
    began = time.perf_counter()
    await finder.look(await client.nodes(), names)
    took = time.perf_counter() - began
    if len(finder.nodes) != NODES:
        raise RuntimeError(f"{len(finder.nodes)} of {NODES} nodes were found")
    return took

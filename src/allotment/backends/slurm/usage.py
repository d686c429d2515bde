"""What of nodes is allocated in Slurm, and what of that is not ours. Pure.

Nodes and jobs come by two questions, between which jobs start and end. So what is not ours is
known only within bounds: all that is allocated, without what our jobs held for certain, and
without all that they may have held. What was known before stays as far as it lies within them.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from allotment.backends.slurm.discover import GRES, UNTYPED
from allotment.backends.slurm.status import RUNS, WAITS, Rows
from allotment.model.others import NOBODY, Others
from allotment.model.quantity import MIB

WHERE = "Slurm"
CPU, MEMORY = "cpu", "memory"
FIELDS = 8
"""Of a line, as `client.lines` asks for it. The reason may hold anything, and is the last."""
AT_WORK = frozenset({"idle", "mixed", "allocated", "completing", "planned", "reserved"})
"""States of nodes that say nothing but how many jobs they have."""
HELD = RUNS - {"COMPLETING"}
"""States in which a job has for certain what it was given."""
SIZE = re.compile(r"(\d+)(?:\.\d+)?([KMGT]?)")
KIB_OF = {"K": 1, "M": 1 << 10, "": 1 << 10, "G": 1 << 20, "T": 1 << 30}

Amount = Mapping[str, int]
"""CPUs, MiB of memory, and devices by type, UNTYPED where Slurm names none."""
Held = tuple[str, int, str, str]
"""Node, CPUs, memory and GRES of a job, as its row has them."""


class NodeLine(msgspec.Struct, frozen=True):
    """A node as `sinfo` shows it in a line."""

    name: str
    state: str
    cpus: str
    memory: str
    gres: str
    reason: str
    used: Mapping[str, int]

    @property
    def standing(self) -> tuple[str, ...]:
        """Return what calls for a closer look when it changes: not jobs that come and go."""
        state = self.state.rstrip("*~#!%$@^-+")
        how = "" if self.state == state and state in AT_WORK else self.state
        return self.name, how, self.cpus, self.memory, self.gres, self.reason


def lines_of(text: str) -> tuple[NodeLine, ...]:
    """Read what `sinfo` says; what is no line of a node is the rest of a reason."""
    found: list[NodeLine] = []
    for line in text.split("\n"):
        words = line.split("|", FIELDS - 1)
        cpus = words[2].split("/") if len(words) == FIELDS else []
        if len(cpus) != 4 or not (cpus[0].isdecimal() and words[4].isdecimal()):
            continue
        used = Counter({CPU: int(cpus[0]), MEMORY: int(words[4])})
        used.update(devices_of(words[6]))
        found.append(
            NodeLine(
                words[0], words[1].lower(), cpus[3], words[3], words[5],
                words[7].rstrip("|"), dict(+used),
            )
        )  # fmt: skip
    return tuple(found)


def devices_of(gres: str) -> Counter[str]:
    """Count `gpu:a100:2(IDX:0-1),gpu:1`, or `gres:gpu:a100:2`, by type."""
    plain = gres.replace("(null):", "").replace("gres:", "").replace("gres/", "")
    counted: Counter[str] = Counter()
    for each in GRES.finditer(plain):
        counted[each["type"] or UNTYPED] += int(each["count"])
    return counted


def mib_of(size: str) -> int:
    """Read an amount of memory such as `100M` or `2G`, in MiB; 0 where it is none."""
    found = SIZE.match(size)
    return int(found[1]) * KIB_OF[found[2]] // KIB_OF["M"] if found else 0


# ── what is not ours ────────────────────────────────────────────────────────────────────


def others_on(
    lines: Sequence[NodeLine],
    before: Rows,
    after: Rows,
    prefix: str,
    known: Mapping[str, Others],
) -> dict[str, Others]:
    """Return what others use, node by node. `lines` lie between two looks at jobs."""
    surely, maybe = _ours(before, after, prefix)
    nothing: Counter[str] = Counter()
    return {
        line.name: _others(
            _without(line.used, maybe.get(line.name, nothing)),
            _without(line.used, surely.get(line.name, nothing)),
            known.get(line.name, NOBODY),
        )
        for line in lines
    }


def _ours(
    before: Rows, after: Rows, prefix: str
) -> tuple[dict[str, Counter[str]], dict[str, Counter[str]]]:
    """Sum up by node what our jobs held for certain between two looks, and may have held."""
    surely, maybe = Counter[Held](), Counter[Held]()
    was = {row.id: row for row in before.values()}
    jobs = was | {row.id: row for row in after.values()}
    now = {row.id for row in after.values()}
    for id_, row in jobs.items():
        first = was.get(id_, row)
        is_over = id_ in was and first.state not in RUNS | WAITS
        waited = row.state in WAITS - {"CONFIGURING"}
        if not row.name.startswith(f"{prefix}-") or not row.node or waited or is_over:
            continue
        held = row.node, row.cpus, row.memory, row.gres
        maybe[held] += 1
        if id_ in was and id_ in now and first.state in HELD and row.state in HELD:
            surely[held] += 1
    return _by_node(surely), _by_node(maybe)


def _by_node(jobs: Mapping[Held, int]) -> dict[str, Counter[str]]:
    """Sum up by node: jobs are many, and few of them differ in what they hold."""
    found: dict[str, Counter[str]] = {}
    for (node, cpus, memory, gres), count in jobs.items():
        amounts = found.setdefault(node, Counter())
        for part, amount in {**devices_of(gres), CPU: cpus, MEMORY: mib_of(memory)}.items():
            amounts[part] += amount * count
    return found


def _without(used: Amount, ours: Amount) -> dict[str, int]:
    """Subtract; of devices whose type was not asked for, any may have been given."""
    left = {part: max(0, amount - ours.get(part, 0)) for part, amount in used.items()}
    missing = max(0, ours.get(UNTYPED, 0) - used.get(UNTYPED, 0))
    for part in sorted(left.keys() - {CPU, MEMORY}):
        taken = min(missing, left[part])
        left[part] -= taken
        missing -= taken
    return left


def _others(least: Amount, most: Amount, known: Others) -> Others:
    """Return what is known of others, moved into its bounds."""
    old = {CPU: known.cpu_milli // 1000, MEMORY: known.memory // MIB}
    old |= {kind or UNTYPED: count for kind, count in known.devices}
    now = {
        part: min(max(old.get(part, 0), least.get(part, 0)), amount)
        for part, amount in most.items()
    }
    cpus, memory = now.pop(CPU, 0), now.pop(MEMORY, 0)
    devices = tuple(
        ("" if kind == UNTYPED else kind, count) for kind, count in sorted(now.items()) if count
    )
    if not devices and not cpus and not memory:
        return NOBODY
    return Others(devices, cpus * 1000, memory * MIB, WHERE)

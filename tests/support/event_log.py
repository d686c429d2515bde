"""Digests of whole event logs, as the store would write them.

As a program, `python -m tests.support.event_log POLICY …` prints one line for each policy,
so that runs in several processes can be compared.
"""

import hashlib
import sys
from collections.abc import Sequence

import msgspec

from allotment.model import events as e
from allotment.model.quantity import DAY, DEVICE, HOUR, MINUTE, SECOND, Resources
from allotment.sim.cluster import cluster_of
from allotment.sim.run import simulate
from allotment.sim.scenario import Scenario
from allotment.sim.settings import Settings
from allotment.sim.trace import Trace, TraceJob
from allotment.store.codec import rows_of

MODELS = ("resnet", "lstm", "gan")
SIZES = (1, 1, 2, 1, 4, 1, 8)
COSTLY = Settings(
    start_ms=20 * SECOND,
    resume_ms=45 * SECOND,
    stop_ms=10 * SECOND,
    checkpoint_ms=5 * MINUTE,
    mtbf_ms=30 * HOUR,
    mttr_ms=HOUR,
    job_failure=0.1,
    queues=(10 * MINUTE, HOUR),
    lead_ms=10 * MINUTE,
)
"""Starting, stopping and failing, of jobs and of nodes."""


def jobs(count: int = 120) -> tuple[TraceJob, ...]:
    """Make jobs of all sizes, of several users and models; many come at one instant."""
    return tuple(
        TraceJob(
            str(place),
            DAY + place // 3 * 7 * MINUTE,
            (1 + place * 37 % 101) * MINUTE,
            SIZES[place % len(SIZES)],
            Resources(gpu_milli=DEVICE),
            tenant=f"team{place % 4}",
            user=f"user{place % 7}",
            model=MODELS[place % len(MODELS)],
            priority=100 + place % 3,
        )
        for place in range(count)
    )


def scenario(policy: str) -> Scenario:
    """Two types of devices; which of them is the faster depends on the model."""
    keys = [(model, size) for model in MODELS for size in sorted(set(SIZES))]
    rates = {
        "v100": {key: 8.0 * (1 + place % 4) for place, key in enumerate(keys)},
        "p100": {key: 3.0 * (1 + place % 5) for place, key in enumerate(keys)},
    }
    pairs = {
        kind: {(one, other): 0.625 * speeds[one] for one in keys for other in keys}
        for kind, speeds in rates.items()
    }
    trace = Trace("made.csv", "simple", "0" * 16, jobs())
    nodes = cluster_of("3x4xv100+2x4xp100")
    return Scenario(trace, nodes, policy, COSTLY, 7, rates, pairs)


def digest(scenario: Scenario) -> tuple[str, int]:
    """Play a scenario; give the SHA-256 of its log, and how many events it has."""
    whole = hashlib.sha256()
    encode = msgspec.msgpack.Encoder().encode
    count = 0

    def tap(records: Sequence[e.Record]) -> None:
        nonlocal count
        for record in records:
            whole.update(encode(rows_of([record], 0)[0][:9]))
            count += 1

    simulate(scenario, tap=tap)
    return whole.hexdigest(), count


def main() -> None:
    for policy in sys.argv[1:]:
        print(policy, *digest(scenario(policy)))


if __name__ == "__main__":
    main()

"""How long `allot eta` takes: three runs of a copy of the state, in a child process.

Asked is the last job in line, so that all that wait are placed in each run. The service's
own part, which holds up its event loop, is to make an image of the state.
"""

import asyncio
from time import perf_counter

import msgspec

from allotment.engine.records import JobRecord
from allotment.model.forecast import Question
from allotment.model.ids import SYSTEM, JobId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import HOUR, Millis
from allotment.service.estimating import HORIZON_MS
from allotment.wiring.forecast import ChildForecast
from bench.crowd import NOW, Crowd, Scale
from bench.figures import Figure

PAST = 2_000
PATIENCE_MS = Millis(60_000)
ROUNDS = 3


def main() -> list[Figure]:
    small = Line(Scale(waiting=2_000, nodes=64, tenants=4, queues=1))
    large = Line(Scale(waiting=10_000, nodes=1_250, tenants=10, queues=100))
    return [
        *small.figures("2,000 waiting, 64 × 8 GPUs"),
        *large.figures("10,000 waiting in 1,000 queues, 1,250 × 8 GPUs"),
    ]


class Line:
    """A full cluster, and a line before it."""

    def __init__(self, scale: Scale) -> None:
        self._crowd = Crowd(scale)
        self.engine = self._crowd.engine

    def _past(self) -> tuple[bytes, ...]:
        return tuple(
            msgspec.msgpack.encode(
                JobRecord(
                    JobId(10**9 + number),
                    self._crowd.spec(),
                    SYSTEM,
                    NOW,
                    JobState.SUCCEEDED,
                    NOW,
                    served_ms=Millis(round(HOUR * self._crowd.chance.lognormvariate(0, 1))),
                )
            )
            for number in range(PAST)
        )

    def figures(self, what: str) -> list[Figure]:
        """Take an image, ask, and measure both; the best of some rounds."""
        past, last = (
            self._past(),
            max(job.id for job in self.engine.state.cluster.pending.all()),
        )
        images: list[float] = []
        answers: list[float] = []
        for _ in range(ROUNDS):
            began = perf_counter()
            image = msgspec.msgpack.encode(self.engine.state.image())
            images.append((perf_counter() - began) * 1e3)
            question = Question(NOW, image, past, HORIZON_MS, PATIENCE_MS, last)
            began = perf_counter()
            found = asyncio.run(ChildForecast().starts(question))
            answers.append(perf_counter() - began)
            assert found.expected.starts_at is not None
        return [
            Figure(f"eta, {what}", min(answers), "s", "lower", 2.0),
            Figure(f"image for it, {what}", min(images), "ms", "lower", 100.0),
        ]

"""Jobs that use their devices least share them, two by two, as long as they do not all fit.

A job has its devices to itself first. Once it has run, and how much it uses of them is known,
it gets a partner: of those that ask for the same, the one that uses least comes with the next,
if the two do more together than by turns; else with the one after that. A job of unknown use
shares with none.

Source: Xiao et al., Gandiva, OSDI 2018, section 3.3 (packing, under overload alone). There more
than two may share, and what turns out to do badly is taken apart; here that is known before.

Bad at: jobs whose use changes later.
"""

from collections.abc import Callable, Sequence

from allotment.core.gang import Standing
from allotment.model.ids import JobId
from allotment.model.quantity import Instant
from allotment.policies.moving.pairs import RandomPairs


class LeastUsedPairs(RandomPairs):
    """Pairs for `devices` in all, by how much in a hundred each job uses of its own."""

    def __init__(
        self,
        devices: int,
        used: Callable[[JobId], int | None],
        together: Callable[[JobId, JobId], bool],
    ) -> None:
        super().__init__(0, devices, together)
        self._used = used

    def _in_order(self, alone: Sequence[Standing], now: Instant) -> list[Standing]:  # noqa: ARG002
        known = [
            (use, job.id, job)
            for job in alone
            if (job.served_ms or job.runs) and (use := self._used(job.id)) is not None
        ]
        return [job for _, _, job in sorted(known, key=lambda each: each[:2])]

"""Reservations that are made in engines, as these tell: jobs are planned around them."""

from collections.abc import Sequence

from allotment.model.cluster import Node
from allotment.model.commands import FindReservations
from allotment.model.ids import SYSTEM
from allotment.model.reservations import FoundReservation
from allotment.service.pipeline import Pipeline
from allotment.service.ports import Backend, Reserves

LOOK_EVERY_S = 1.0


class FoundReservations:
    """Follows what engines tell. Until one has told anything, what it told last counts."""

    def __init__(self, pipeline: Pipeline, backend: Backend) -> None:
        self._pipeline, self._backend = pipeline, backend
        self._done: dict[str, tuple[Sequence[FoundReservation], Sequence[Node]]] = {}
        """What was told last of each engine, and the nodes for which that was."""

    async def look(self) -> None:
        """Have the reservations that engines tell of now."""
        if self._pipeline.committer.trouble:
            return
        backend = self._backend
        told = dict(backend.found_reservations()) if isinstance(backend, Reserves) else {}
        for name in self._engines() - told.keys():
            told[name] = ()  # There is no such engine any more.
        for name, found in told.items():
            if found is not None:
                await self._follow(name, tuple(found))

    def _engines(self) -> set[str]:
        """Return the engines of which reservations are set."""
        there = self._pipeline.state.reservations.values()
        return {reservation.engine for reservation in there if reservation.engine}

    async def _follow(self, engine: str, found: tuple[FoundReservation, ...]) -> None:
        nodes = self._pipeline.state.config.nodes
        done = self._done.get(engine)
        if done is not None and done[0] == found and done[1] is nodes:
            return
        await self._pipeline.command(FindReservations(engine, found), SYSTEM)
        self._done[engine] = (found, nodes)

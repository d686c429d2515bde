"""Everything a run depends on."""

import msgspec

from allotment.model.cluster import Node
from allotment.sim.settings import Settings
from allotment.sim.speeds import Factors, Rates, Speeds
from allotment.sim.trace import Trace


class Scenario(msgspec.Struct, frozen=True):
    """The same scenario gives the same events, byte for byte, on every machine."""

    trace: Trace
    nodes: tuple[Node, ...]
    policy: str = "fifo"
    settings: Settings = Settings()
    seed: int = 0
    rates: Rates | None = None
    """Steps a second by device type, model and devices; None where speed is the same."""

    def speeds(self) -> Speeds:
        """Say how fast jobs run where."""
        settings = self.settings
        factors = Factors(
            settings.across_nodes,
            settings.across_switches,
            settings.across_racks,
            settings.interference,
        )
        return Speeds(self.nodes, factors, self.rates)
